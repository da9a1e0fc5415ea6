"""An S3 of the test's own, in a process of its own, that all of its libraries find through the environment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield its URL; it and what it holds end with the block."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        found = {
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": url, "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        with patch.dict(os.environ, found):
            yield url
        process.stdin.close()
