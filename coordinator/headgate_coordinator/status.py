"""`headgate status`: all destinations of a namespace at a glance."""

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client, Explanation, PolicyError
from headgate_coordinator.terminal import size

STYLES: Final = {
    "open": "green",
    "full": "yellow",
    "blocked": "bold red",
    "learning": "magenta",
    "stopped": "bold red",
    "unknown": "red",
}


async def collect(client: Client) -> list[Explanation]:
    """Return the state of every destination, by name.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    found = []
    for name in sorted(await client.destinations()):
        try:
            found.append(await client.explain(name))
        except PolicyError:
            continue  # removed since it was listed
    return found


def render(found: Sequence[Explanation], namespace: str) -> RenderableType:
    """Return them as a table."""
    if not found:
        return Text(f"There are no destinations in namespace {namespace!r}.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("destination", overflow="fold", min_width=12)
    for header in ("kind", "state"):
        table.add_column(header, no_wrap=True)
    for header in ("limit", "pending", "messages", "leased", "peak", "blocked", "consumers"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", min_width=16)
    for explanation in found:
        table.add_row(*_row(explanation))
    return table


def _row(explanation: Explanation) -> list[RenderableType]:
    fields = explanation.fields
    name, state = Text(explanation.destination), Text(explanation.state, style=STYLES[explanation.state])
    if explanation.kind == "bucket":
        rate = f"{float(fields['rate']):g}/s" if "rate" in fields else "unlimited"
        return [name, "bucket", state, rate, "", "", "", "", "", "", Text(f"burst {fields.get('burst', '-')}")]
    in_bytes, in_messages = explanation.limits
    limits = [size(in_bytes.limit)] if in_bytes.limit is not None else []
    limits += [f"{in_messages.limit} msgs"] if in_messages.limit is not None else []
    return [
        name,
        explanation.kind,
        state,
        " / ".join(limits) or "unlimited",
        size(in_bytes.pending),
        str(in_messages.pending),
        size(in_bytes.leased),
        size(int(fields["peak_bytes"])),
        str(explanation.blocked),
        fields["consumers"],
        Text(explanation.reason),
    ]
