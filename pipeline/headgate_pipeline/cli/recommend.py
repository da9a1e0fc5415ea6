"""`headgate pipeline recommend` proposes limits, windows and rates."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headgate import InvalidValue
from headgate.units import parse_duration, parse_size
from headgate_pipeline.cli.options import Input, Namespace, Redis


def recommend(
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default it is printed.")
    ] = None,
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    base: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML policy to add proposals to.")] = None,
    max_delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest time that messages may wait for consumers.")
    ] = None,
    max_step: Annotated[
        float, typer.Option(min=1.01, max=10, help="Largest change, as a factor of what is in force.")
    ] = 2.0,
    min_limit: Annotated[str, typer.Option(metavar="SIZE", help="Smallest limit to propose.")] = "16KiB",
    max_limit: Annotated[str, typer.Option(metavar="SIZE", help="Largest limit to propose.")] = "1GiB",
    rates: Annotated[bool, typer.Option("--rates", help="Propose rates of queues and topics too.")] = False,  # noqa: FBT002
    round_trip: Annotated[str, typer.Option(metavar="TIME", help="Round trip to Redis, where none was seen.")] = "5ms",
) -> None:
    """Propose limits, windows and rates: a policy document with the reason of each value. Nothing is put in force."""
    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.live_settings import in_force
    from headgate_pipeline.recommend.demand import needs
    from headgate_pipeline.recommend.policy_document import document
    from headgate_pipeline.recommend.proposals import Bounds
    from headgate_pipeline.recommend.sliced_demand import together
    from headgate_pipeline.spark_session import session

    bounds = Bounds(
        step=max_step,
        limit=(parse_size(min_limit, "--min-limit"), parse_size(max_limit, "--max-limit")),
        max_delay=parse_duration(max_delay, "--max-delay") if max_delay else None,
        rates=rates,
        round_trip=parse_duration(round_trip, "--round-trip") * 1000,
    )
    if output is not None and not output.parent.is_dir():
        raise InvalidValue(f"--output {output}: there is no folder {output.parent}")
    before = _read(base) if base else None
    found = together(needs(entries(session("headgate recommend"), folder, redis, namespace)))
    settings = asyncio.run(in_force(redis, namespace, [need.name for need in found])).fields if redis else {}
    text = document(found, bounds, settings, before)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        typer.echo(f"{output}: check it with `headgate policy apply {output} --dry-run`")


def _read(base: Path) -> str:
    """Return the text of a policy that `headgate policy apply` takes.

    Raises:
        InvalidValue: it is no TOML.
        BadDocument: it does not take it.
    """
    if base.suffix == ".json":
        raise InvalidValue(f"--base {base}: proposals are added to a policy in TOML, and this is JSON")
    from headgate import policy

    policy.load(base)
    return base.read_text(encoding="utf-8")
