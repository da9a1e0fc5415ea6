"""An error of a certificate names its file, and the option that says so."""

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def named(**files: str | Path | None) -> Iterator[None]:
    """Name the files, by their options, in an error of what reads them.

    Raises:
        OSError: one cannot be read, or has no certificate or key that is of use.
    """
    given = {option: str(path) for option, path in files.items() if path}
    for option, path in given.items():
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise OSError(error.errno, f"{option} {path!r}: {error.strerror}") from error
    try:
        yield
    except ssl.SSLError as error:
        form = "" if error.reason == "KEY_VALUES_MISMATCH" else "; files are in PEM"
        which = " with ".join(f"{option} {path!r}" for option, path in given.items())
        raise OSError(error.errno, f"{which}: {error.strerror or error}{form}") from error
