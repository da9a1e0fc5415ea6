"""The command `headgate deadlocks` shows the deadlocks that nodes saw in the last minute."""

from collections.abc import Iterator, Sequence

import typer

import headgate
from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run_with


def deadlocks(redis: Redis = None, namespace: Namespace = "default", as_json: Json = False) -> None:
    """Show the deadlocks that nodes saw in the last minute: who waits for whom, and what was done about it."""
    found = run_with(redis, namespace, headgate.Client.deadlocks)
    if as_json:
        print_json([one.as_dict() for one in found])
    else:
        typer.echo("\n".join(render(found, namespace)))


def render(found: Sequence[headgate.FoundDeadlock], namespace: str) -> Iterator[str]:
    """Yield lines for people."""
    if not found:
        yield f"No node saw a deadlock in namespace {namespace!r} in the last minute."
    for one in found:
        when = f"lasts {one.lasted:.1f} s" if one.is_current else f"ended {one.unseen:.0f} s ago"
        yield f"deadlock {one.id} {when} ({one.action}){f': {one.done}' if one.done else ''}"
        for number, step in enumerate(one.deadlock.steps, 1):
            yield f"  {number}. {step}"
