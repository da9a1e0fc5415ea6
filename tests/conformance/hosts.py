"""Hosts of the test's own: network namespaces with an address each, on one bridge.

The bridge is in a namespace too, so that no firewall of this machine has a say in what goes over it, and nothing
that the tests make is seen outside.
"""

import os
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import redis

from tests.support.servers import RedisServer, newest_server


@dataclass(frozen=True)
class Host:
    """One of them. A command that begins with `within` runs there."""

    address: str
    within: tuple[str, ...]


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Yield so many hosts that reach one another, and nothing else; skips where that cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need `ip`, of iproute2")
    switch = f"hg-{secrets.token_hex(2)}"
    with ExitStack() as undo:

        def make(name: str) -> None:
            _ip("netns", "add", name)
            undo.callback(_ip, "netns", "del", name)

        try:
            make(switch)
            _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", switch, "link", "set", "bridge", "up")
            found = []
            for number in range(count):
                name, address = f"{switch}-{number}", f"10.11.12.{number + 1}"
                make(name)
                _ip("-n", switch, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("-n", switch, "link", "set", f"v{number}", "master", "bridge", "up")
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
                found.append(Host(address, ("ip", "netns", "exec", name)))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this system makes no network namespaces: {error.stderr.strip()}")
        yield found


@contextmanager
def redis_on(host: Host, folder: Path) -> Iterator[tuple[str, str]]:
    """Run a Redis there. Yield its URL for the other hosts, and that of its socket for this machine."""
    newest = newest_server()
    program = folder / newest.path.name
    program.write_text(f'#!/bin/sh\nexec {shlex.join(host.within)} {shlex.quote(str(newest.path))} "$@"\n')
    program.chmod(0o700)
    with RedisServer.start(replace(newest, path=program), port=0, persist=False, config={"protected-mode": "no"}) as it:
        local = f"unix://{it.directory}/redis.sock?db=0"
        with redis.Redis.from_url(local) as direct:
            direct.config_set("bind", f"127.0.0.1 {host.address}")
        yield it.url.replace("127.0.0.1", host.address), local


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
