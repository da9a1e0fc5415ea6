"""A node whose settings cannot be used ends as wrong usage, and says which, with workers and without."""

import socket
from pathlib import Path

from tests.support.extent import each
from tests.workers.conftest import run_node


@each("workers", [(), ("--workers", "2")])
def test_a_certificate_that_cannot_be_used_is_wrong_usage(
    redis_url: str, tmp_path: Path, workers: tuple[str, ...]
) -> None:
    junk = tmp_path / "junk"
    junk.write_text("junk")
    done = run_node(*workers, "--port", "0", "--no-admin", "--tls-cert", str(junk), "--redis", redis_url)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("headgate: ") == 1
    assert f"headgate: --tls-cert '{junk}': " in done.stderr


def test_a_port_that_somebody_has_is_wrong_usage(redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_node("--port", str(port), "--no-admin", "--redis", redis_url)
    assert done.returncode == 2
    assert done.stderr == f"headgate: AMQP cannot listen on 127.0.0.1:{port}: Address already in use; choose another\n"
