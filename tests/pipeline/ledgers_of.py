"""Ledgers that a test writes, removes and breaks as it likes, entry by entry as the scripts write them."""

from typing import Any

from headgate.redis.bulk import BulkConnections
from headgate.redis.keys import Address


class Writer:
    """Writes ledgers of a namespace; `clear` deletes them."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self.direct = BulkConnections(url)
        self._names: set[str] = set()

    def add(
        self, name: str, count: int, *, first: int = 1, epoch: int = 7, ms: int = 1_763_600_000_000, apart: int = 1
    ) -> None:
        """Add entries with numbers from `first` on, a ms apart or so many; `bytes` is the number."""

        def work(client: Any) -> None:
            pipeline = client.pipeline(transaction=False)
            for seq in range(first, first + count):
                text = f"1,{ms + seq * apart},publish,s~1,{seq},1,{seq},,{seq},1,0,0,{epoch}"
                pipeline.execute_command("XADD", self.key(name), f"{seq}-0", "e", text)
            pipeline.execute()

        self._names.add(name)
        self.direct.at(self.key(name), work)

    def key(self, name: str) -> bytes:
        return Address.of(self.namespace, name).shared[-1]

    def do(self, name: str, command: str, *args: object) -> Any:
        """Send a command with the ledger's key as its first argument."""
        self._names.add(name)
        return self.direct.at(self.key(name), lambda client: client.execute_command(command, self.key(name), *args))  # type: ignore[no-untyped-call]

    def remove(self, name: str) -> None:
        self.do(name, "UNLINK")

    def lose(self, name: str, after: int) -> None:
        """Be a replica that had heard up to that number only."""
        kept = self.do(name, "XRANGE", "-", str(after))
        self.remove(name)
        for entry_id, fields in kept:
            self.do(name, "XADD", entry_id, *fields)

    def clear(self) -> None:
        for name in self._names:
            self.remove(name)
        self.direct.close()
