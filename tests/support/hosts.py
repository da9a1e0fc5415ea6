"""Hosts of the test's own: network namespaces with an address each, on one bridge."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Host:
    """One of them. A command that begins with `within` runs there."""

    address: str
    within: tuple[str, ...]


@contextmanager
def hosts(count: int) -> Iterator[tuple[str, list[Host]]]:
    """Yield the address at which all of them find this machine, and so many hosts; skips where that cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need `ip`, of iproute2")
    mark = secrets.token_hex(2)
    net = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
    bridge = f"hg{mark}"
    with ExitStack() as undo:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            undo.callback(_ip, "link", "del", bridge)
            _ip("addr", "add", f"{net}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            found = []
            for number in range(count):
                name, cable, address = f"hg-{mark}-{number}", f"hg{mark}v{number}", f"{net}.{number + 2}"
                _ip("netns", "add", name)
                undo.callback(_ip, "netns", "del", name)
                _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("link", "set", cable, "master", bridge, "up")
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
                found.append(Host(address, ("ip", "netns", "exec", name)))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this system makes no network namespaces: {error.stderr.strip()}")
        yield f"{net}.1", found


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
