"""Proton is the C library that speaks AMQP 1.0. It is called directly: its Python classes take ten times as long.

Nothing else in Headgate imports it. The names are those of Proton's C API, ``pn_...``, which documents what they do.
"""

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate.core.printable import printable
from headgate.errors import HeadgateError

SCRATCH: Final = 65_536
MOST_DESCRIBED: Final = 2000
"""Characters of the description of an error, of theirs and of ours: it may repeat a peer's words."""


DELETE_ON_CLOSE: Final = 0x2B
"""Describes a destination that is deleted when the link is closed that it was made for."""
SELECTOR: Final = b"apache.org:selector-filter:string"
_SELECTOR_CODE: Final = 0x0000468C00000004
_LIFETIME: Final = b"lifetime-policy"


class EngineMissing(HeadgateError):
    """The extra ``amqp`` is not installed, or was compiled for another Python."""


try:
    import cproton_ffi as _module  # the module inside python-qpid-proton, which has no types
    from cproton_ffi import ffi as _ffi
    from cproton_ffi import lib as _lib
except ImportError as _error:
    raise EngineMissing(
        "AMQP needs the package python-qpid-proton: install headgate[amqp]. pip compiles it, which takes a C compiler "
        f"and Python's headers (on Debian: apt-get install gcc python3-dev). Import says: {_error}"
    ) from _error

ffi: Any = _ffi
lib: Any = _lib
_NUMBERS: Final = {
    getattr(lib, f"PN_{kind.upper()}"): getattr(lib, f"pn_data_get_{kind}")
    for kind in ("ubyte", "byte", "ushort", "short", "uint", "int", "ulong", "long")
}
_whole: Final = ctypes.CDLL(_module.__file__)  # with the functions that the module leaves out


def _left_out(name: str, form: str) -> Any:
    return ffi.cast(form, ctypes.cast(_whole[name], ctypes.c_void_p).value)


remote_window: Final = _left_out("pn_session_remote_incoming_window", "int32_t(*)(pn_session_t *)")
"""Return how many frames the peer's session still takes; at most 0 for none."""
tail: Final = _left_out("pn_transport_tail", "char *(*)(pn_transport_t *)")
"""Return where a transport takes what comes in."""
head: Final = _left_out("pn_transport_head", "char *(*)(pn_transport_t *)")
"""Return where a transport has what goes out; NULL where nothing does."""
ASSERTS: Final = b"pn_link_is_receiver(receiver)" in Path(_module.__file__ or "").read_bytes()
"""Whether the library was compiled to abort the process on any use that it does not expect."""


class DeliveryTag:
    """A delivery's tag is written into the same memory each time, for the library keeps a copy of it.

    Attributes:
        number: an array of one, to put the tag into.
        raw: the tag as the library takes it.
    """

    __slots__ = ("_owner", "number", "raw")

    def __init__(self) -> None:
        self._owner = ffi.new("pn_bytes_t *")
        memory = ffi.new("uint64_t[1]")
        self.number = memoryview(ffi.buffer(memory)).cast("B").cast("Q")  # keeps the memory, and is faster than cffi's
        self._owner.size, self._owner.start = 8, ffi.cast("char *", memory)
        self.raw: Any = self._owner[0]


class Scratch(threading.local):
    """A scratch is memory that bytes pass through on their way in and out of the library; each thread has one."""

    def __init__(self) -> None:
        self.buffer: Any = ffi.new("char[]", SCRATCH)
        self.tag = DeliveryTag()


_scratch: Final = Scratch()


def scratch() -> Any:
    """Return this thread's memory, of :data:`SCRATCH` bytes."""
    return _scratch.buffer


def delivery_tag() -> DeliveryTag:
    """Return this thread's memory for a tag."""
    return _scratch.tag


def text(pointer: Any) -> str | None:
    """Return a C string as text; None for NULL.

    Raises:
        UnicodeDecodeError: it is not UTF-8; it came from a peer.
    """
    return ffi.string(pointer).decode() if pointer else None


def set_condition(condition: Any, name: str, description: str) -> None:
    """Fill in the error that a close, a detach or a rejection carries; its text is cut."""
    if name:
        lib.pn_condition_set_name(condition, name.encode())
        lib.pn_condition_set_description(condition, printable(description, MOST_DESCRIBED).encode())


def read_condition(condition: Any) -> tuple[str, str]:
    """Return name and description of an error, as they may be printed, both empty where there is none."""
    if not lib.pn_condition_is_set(condition):
        return "", ""
    name, description = lib.pn_condition_get_name(condition), lib.pn_condition_get_description(condition)
    return tuple(
        printable(ffi.string(p).decode(errors="replace"), MOST_DESCRIBED) if p else "" for p in (name, description)
    )  # type: ignore[return-value]


def put_symbols(data: Any, symbols: tuple[str, ...]) -> None:
    """Write an array of symbols."""
    if not symbols:
        return
    lib.pn_data_put_array(data, False, lib.PN_SYMBOL)
    lib.pn_data_enter(data)
    for symbol in symbols:
        raw = symbol.encode()
        lib.pn_data_put_symbol(data, (len(raw), ffi.from_buffer(raw)))
    lib.pn_data_exit(data)


def put_text_map(data: Any, entries: Mapping[str, str | int]) -> None:
    """Write a map of symbols to text, or to numbers up to 65,535."""
    if not entries:
        return
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    for name, value in entries.items():
        raw = name.encode()
        lib.pn_data_put_symbol(data, (len(raw), ffi.from_buffer(raw)))
        if isinstance(value, int):
            lib.pn_data_put_ushort(data, value)
        else:
            encoded = value.encode()
            lib.pn_data_put_string(data, (len(encoded), ffi.from_buffer(encoded)))
    lib.pn_data_exit(data)


def put_lifetime(data: Any) -> None:
    """Write the properties of a destination that is deleted when its link is closed."""
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    lib.pn_data_put_symbol(data, (len(_LIFETIME), ffi.from_buffer(_LIFETIME)))
    lib.pn_data_put_described(data)
    lib.pn_data_enter(data)
    lib.pn_data_put_ulong(data, DELETE_ON_CLOSE)
    lib.pn_data_put_list(data)
    lib.pn_data_exit(data)
    lib.pn_data_exit(data)


def _bytes(value: Any) -> str:
    return bytes(ffi.buffer(value.start, value.size)).decode() if value.size else ""


def symbols(data: Any) -> tuple[str, ...]:
    """Return the symbols of an array or of a single one; empty where there are none."""
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data):
        return ()
    if lib.pn_data_type(data) == lib.PN_SYMBOL:
        return (_bytes(lib.pn_data_get_symbol(data)),)
    found = []
    if lib.pn_data_type(data) == lib.PN_ARRAY:
        lib.pn_data_enter(data)
        while lib.pn_data_next(data):
            if lib.pn_data_type(data) == lib.PN_SYMBOL:
                found.append(_bytes(lib.pn_data_get_symbol(data)))
        lib.pn_data_exit(data)
    return tuple(found)


def read_text_map(data: Any) -> dict[str, str]:
    """Return what :func:`put_text_map` wrote; entries of other types are left out."""
    if not data:
        return {}
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data) or lib.pn_data_type(data) != lib.PN_MAP:
        return {}
    entries = {}
    lib.pn_data_enter(data)
    while lib.pn_data_next(data):
        name = _bytes(lib.pn_data_get_symbol(data)) if lib.pn_data_type(data) == lib.PN_SYMBOL else ""
        if lib.pn_data_next(data) and name and lib.pn_data_type(data) == lib.PN_STRING:
            entries[name] = _bytes(lib.pn_data_get_string(data))
    lib.pn_data_exit(data)
    return entries


def read_number(data: Any, wanted: str) -> int | None:
    """Return the whole number of that name in a map of symbols; None where there is none."""
    if not data:
        return None
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data) or lib.pn_data_type(data) != lib.PN_MAP:
        return None
    found = None
    lib.pn_data_enter(data)
    while lib.pn_data_next(data):
        name = _bytes(lib.pn_data_get_symbol(data)) if lib.pn_data_type(data) == lib.PN_SYMBOL else ""
        if lib.pn_data_next(data) and name == wanted and (read := _NUMBERS.get(lib.pn_data_type(data))):
            found = int(read(data))
    lib.pn_data_exit(data)
    return found


def read_filters(data: Any) -> tuple[tuple[str, str] | None, tuple[str, ...]]:
    """Return the first selector among the filters of a source, by its name, and the names of all other filters."""
    lib.pn_data_rewind(data)
    if not lib.pn_data_next(data) or lib.pn_data_type(data) != lib.PN_MAP:
        return None, ()
    selector, others = None, []
    lib.pn_data_enter(data)
    while lib.pn_data_next(data):
        name = _bytes(lib.pn_data_get_symbol(data)) if lib.pn_data_type(data) == lib.PN_SYMBOL else "?"
        read = _selector(data) if lib.pn_data_next(data) else None
        if read is None or selector is not None:
            others.append(name)
        else:
            selector = name, read
    lib.pn_data_exit(data)
    return selector, tuple(others)


def _selector(data: Any) -> str | None:
    """Return the text of the described value that is next, if it is a selector."""
    if not lib.pn_data_is_described(data):
        return None
    lib.pn_data_enter(data)
    text = None
    if lib.pn_data_next(data) and _is_selector(data) and lib.pn_data_next(data):
        text = _bytes(lib.pn_data_get_string(data)) if lib.pn_data_type(data) == lib.PN_STRING else None
    lib.pn_data_exit(data)
    return text


def _is_selector(data: Any) -> bool:
    if lib.pn_data_type(data) == lib.PN_ULONG:
        return bool(lib.pn_data_get_ulong(data) == _SELECTOR_CODE)
    return lib.pn_data_type(data) == lib.PN_SYMBOL and _bytes(lib.pn_data_get_symbol(data)) == SELECTOR.decode()


def put_selector(data: Any, name: str, text: str) -> None:
    """Write filters that are one selector."""
    lib.pn_data_put_map(data)
    lib.pn_data_enter(data)
    raw, encoded = name.encode(), text.encode()
    lib.pn_data_put_symbol(data, (len(raw), ffi.from_buffer(raw)))
    lib.pn_data_put_described(data)
    lib.pn_data_enter(data)
    lib.pn_data_put_symbol(data, (len(SELECTOR), ffi.from_buffer(SELECTOR)))
    lib.pn_data_put_string(data, (len(encoded), ffi.from_buffer(encoded)))
    lib.pn_data_exit(data)
    lib.pn_data_exit(data)
