"""Parts that URLs of Redis and of nodes have in common."""

from pathlib import Path

from headgate.errors import InvalidValue


def host_and_port(text: str, default: int) -> tuple[str, int]:
    """Return the host and the port of ``host``, ``host:port`` or ``[address]:port``.

    Raises:
        InvalidValue: it is none of these.
    """
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = (port or host), str(default)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidValue(f"URL host {text!r}: expected host or host:port with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def read_secret(file: str) -> str:
    """Return what a ``password_file`` holds.

    Raises:
        InvalidValue: it cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidValue(f"password_file {file!r} cannot be read: {error.strerror}") from None
