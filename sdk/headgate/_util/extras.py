"""An extra is made of modules for somebody else's library, which has to be there."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def extra(name: str, module: str = "") -> Iterator[None]:
    """Have an import that fails because an extra is not installed say how to get it.

    Args:
        name: of the extra.
        module: that it brings; of the same name when empty.
    """
    wanted = module or name
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != wanted:  # it is there, and lacks something itself
            raise
        text = f"{error.name} is not installed, and this module of Headgate needs it: pip install 'headgate[{name}]'"
        raise ModuleNotFoundError(text, name=error.name, path=error.path) from None
