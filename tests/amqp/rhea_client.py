"""rhea, an AMQP client of Node.js, in a process of its own: told what to do by the test, and asked what it has seen."""

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.waiting import wait_until

SCRIPT = Path(__file__).parent / "rhea" / "client.js"
CACHE = Path(__file__).parents[2] / ".venv" / "rhea" / "node_modules"

Event = dict[str, Any]


def rhea_modules() -> Path:
    """Where npm has put rhea; skips the test where there is none."""
    modules = Path(os.environ.get("HEADGATE_RHEA", CACHE))
    if shutil.which("node") is None:
        pytest.skip("rhea needs Node.js: there is no `node` on PATH")
    if not (modules / "rhea").is_dir():
        pytest.skip("rhea is not installed: run `.ci/ensure-rhea`, which needs npm and its registry")
    return modules


class Rhea:
    """One process. `events` are all that it told, oldest first."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.events: list[Event] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, within: Sequence[str] = ()) -> Self:
        pipe = asyncio.subprocess.PIPE
        environment = os.environ | {"RHEA_MODULES": str(rhea_modules())}
        return cls(
            await asyncio.create_subprocess_exec(
                *within, "node", str(SCRIPT), stdin=pipe, stdout=pipe, stderr=pipe, env=environment, limit=1 << 24
            )
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 5)
        except TimeoutError:
            self._process.kill()
        trouble = (await self._process.stderr.read()).decode()
        await self._reading
        await self._process.wait()
        if trouble and kind is None:
            pytest.fail(f"rhea wrote:\n{trouble}")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.events.append(json.loads(line))

    def do(self, what: str, **how: Any) -> None:
        """Tell it to do something; what comes of it is told by events."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **how}).encode() + b"\n")

    def told(self, event: str, **of: Any) -> list[Event]:
        """What it told of that, so far."""
        return [
            each
            for each in self.events
            if each["event"] == event and all(each.get(name) == value for name, value in of.items())
        ]

    async def sees(self, event: str, count: int = 1, **of: Any) -> list[Event]:
        """Wait until it told so many of that, and return them."""
        try:
            await wait_until(lambda: len(self.told(event, **of)) >= count)
        except AssertionError:
            last = "\n".join(map(str, self.events[-20:]))
            raise AssertionError(f"{len(self.told(event, **of))} of {count} {event} {of}; it saw\n{last}") from None
        return self.told(event, **of)

    async def connect(self, name: str, *ports: int, **how: Any) -> None:
        """Connect to the first of those ports, and wait until that is done."""
        self.do("connect", name=name, ports=ports, **how)
        await self.sees("connection_open", connection=name)

    async def sender(self, name: str, target: Any, *, on: str = "c", **how: Any) -> Event:
        """Open a sending link, and return the answer."""
        self.do("sender", connection=on, name=name, target=target, **how)
        return (await self.sees("sender_open", link=name))[-1]

    async def receiver(self, name: str, source: Any, *, on: str = "c", **how: Any) -> Event:
        """Open a receiving link that settles nothing by itself, and return the answer."""
        how = {"credit_window": 0, "autoaccept": False, "autosettle": False} | how
        opened = len(self.told("receiver_open", link=how.get("called", name)))
        self.do("receiver", connection=on, name=name, source=source, **how)
        return (await self.sees("receiver_open", opened + 1, link=how.get("called", name)))[-1]

    async def look(self, link: str) -> Event:
        """Return the credit of a link, and what it has left to do."""
        seen = len(self.told("looked", link=link))
        self.do("look", link=link)
        return (await self.sees("looked", seen + 1, link=link))[-1]

    def messages(self, link: str) -> list[Event]:
        """What came over a link, oldest first."""
        return [event["message"] for event in self.told("message", link=link)]

    def bodies(self, link: str) -> list[Any]:
        """The bodies of what came over a link."""
        return [message.get("body") for message in self.messages(link)]
