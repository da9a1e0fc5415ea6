"""A server answers INFO with how it is: these functions read it."""

from collections.abc import Mapping
from typing import Any


def run_of(run_id: str, replication: Mapping[str, str]) -> bytes:
    """Return what calls name a run by: with the history that its promotion began, for it may have been a replica."""
    promoted = int(replication.get("second_repl_offset", -1)) >= 0
    return f"{run_id}.{replication['master_replid']}".encode() if promoted else run_id.encode()


def facts_in(reply: Any) -> dict[str, str]:
    """Return what an answer to INFO says, by name."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else ""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
