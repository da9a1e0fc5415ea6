"""Ports that stay those of one process."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.support.ports import BUS, own_port

_ASK = """
import os
from tests.support.ports import own_port
print(*(own_port() for _ in range(20)), flush=True)
if os.fork() == 0:
    print(*(own_port() for _ in range(20)), flush=True)
else:
    os.wait()
"""


def test_processes_get_ports_of_their_own_and_none_at_which_somebody_listens() -> None:
    mine = {own_port() for _ in range(20)}
    told = subprocess.check_output([sys.executable, "-c", _ASK], cwd=Path(__file__).parents[3], text=True)
    theirs = set(map(int, told.split()))
    assert len(mine) == 20
    assert len(theirs) == 40, "what was forked has its own"
    assert not mine & theirs
    taken, bus = own_port(), own_port()
    with socket.create_server(("127.0.0.1", taken)), socket.create_server(("127.0.0.1", bus + BUS)):
        assert not {taken, bus} & {own_port() for _ in range(200)}, "not even when all have been given away"
    system = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if system.exists():
        assert max(mine) + BUS < int(system.read_text().split()[0]), "the system gives away what is above"
