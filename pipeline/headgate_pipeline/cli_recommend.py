"""`headgate pipeline recommend`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

import headgate
from headgate.units import parse_duration, parse_size
from headgate_pipeline.cli_source import Input, Namespace, Redis


def recommend(
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", show_default=False, help="Else it is printed.")
    ] = None,
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="FILE", show_default=False, help="The policy, in TOML, to add proposals to."),
    ] = None,
    max_delay: Annotated[
        str | None,
        typer.Option("--max-delay", metavar="TIME", show_default=False, help="That messages may wait for consumers."),
    ] = None,
    max_step: Annotated[float, typer.Option("--max-step", min=1.01, max=10, help="Times what is in force.")] = 2.0,
    min_limit: Annotated[str, typer.Option("--min-limit", metavar="SIZE", help="No limit below.")] = "16KiB",
    max_limit: Annotated[str, typer.Option("--max-limit", metavar="SIZE", help="No limit above.")] = "1GiB",
    round_trip: Annotated[
        str, typer.Option("--round-trip", metavar="TIME", help="To Redis and back, where none was seen.")
    ] = "5ms",
) -> None:
    """Propose limits, windows and rates: a policy document with the reason of each value. Nothing is put in force."""
    from headgate_pipeline.entries import entries
    from headgate_pipeline.needs import needs
    from headgate_pipeline.recommend import Bounds, document
    from headgate_pipeline.session import session

    bounds = Bounds(
        step=max_step,
        limit=(parse_size(min_limit, "--min-limit"), parse_size(max_limit, "--max-limit")),
        max_delay=parse_duration(max_delay, "--max-delay") if max_delay else None,
        round_trip=parse_duration(round_trip, "--round-trip") * 1000,
    )
    found = needs(entries(session("headgate recommend"), folder, redis, namespace))
    settings = asyncio.run(in_force(redis, namespace, [need.name for need in found])) if redis else {}
    text = document(found, bounds, settings, base.read_text(encoding="utf-8") if base else None)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        typer.echo(f"{output}: check it with `headgate policy apply {output} --dry-run`")


async def in_force(url: str, namespace: str, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings of those destinations that there are, as the state spells them."""
    async with headgate.connect(url, namespace=namespace) as client:
        here = set(await client.destinations())
        return {name: dict((await client.effective(name)).fields) for name in names if name in here}
