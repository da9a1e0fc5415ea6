"""Options of ``.option(...)``, checked where a job begins and not where its tasks fail."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate import InvalidValue, Window
from headgate.core.addresses.pattern import WILDCARDS
from headgate.redis.keys import check_namespace
from headgate.units import parse_duration, parse_rate, parse_size

CONSUMER_WINDOW: Final = "1000"


@dataclass(frozen=True, slots=True)
class Options:
    """`Options` holds the options of a read or a write.

    Attributes:
        destination: a queue or a topic.
        url: of Redis or a node. It is shown in Spark's plans, so one with a password belongs elsewhere:
        url_env: name of an environment variable that has it, on driver and executors.
        url_file: path of a file that has it, there too.
        namespace: the tenant.
        ttl: seconds after which a task or query that died has lost what it held.
        window: writing, bytes of credit that a task keeps in hand; reading, what a query holds unsettled.
        timeout: seconds that a row waits for credit before its task fails.
        rate: messages a second of each task.
        weight: share of each task among the destination's producers.
        bucket: name of a bucket, of which each row takes a token: a rate for all tasks together.
        body: column that is sent.
        headers: column of names and values that are sent with it; when None ``headers``, if there is one.
        job: names the work of a batch write: the same job does not send again what it sent within the hour.
        subscription: of a topic, to read; it is durable.
        limit: messages that a batch reads at the most.
        idle: seconds without a message after which a read that ends has had enough.
        parts: tasks that share what was read.
    """

    destination: str
    url: str = ""
    url_env: str = ""
    url_file: str = ""
    namespace: str = "default"
    ttl: float = 10.0
    window: str | None = None
    timeout: float = 300.0
    rate: float | None = None
    weight: int | None = None
    bucket: str = ""
    body: str = "body"
    headers: str | None = None
    job: str = ""
    subscription: str = ""
    limit: int | None = None
    idle: float = 1.0
    parts: int = 1

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """Return checked options; names may be written in any case, as everywhere in Spark.

        Raises:
            InvalidValue: one is unknown, missing or cannot be read.
            InvalidName: the namespace.
        """
        values = {name.lower(): value for name, value in given.items() if name.lower() not in _OF_SPARK}
        unknown = sorted(values.keys() - cls.__slots__)
        if unknown:
            raise InvalidValue(f"option {unknown[0]!r} is unknown; there are {', '.join(sorted(cls.__slots__))}")
        if not values.get("destination"):
            raise InvalidValue('no destination; say .option("destination", "orders")')
        if sum(bool(values.get(name)) for name in ("url", "url_env", "url_file")) != 1:
            raise InvalidValue("say where Headgate is with one of the options url, url_env and url_file")
        read: dict[str, Any] = {name: _READERS.get(name, _text)(name, value) for name, value in values.items()}
        return cls(**read)

    def where(self) -> str:
        """Return the URL; called where it is used, so that it is in no plan and no task.

        Raises:
            InvalidValue: the variable or the file is not there.
        """
        if self.url:
            return self.url
        if self.url_env:
            if url := os.environ.get(self.url_env, "").strip():
                return url
            raise InvalidValue(f"the environment variable {self.url_env!r} is not set here; executors need it too")
        try:
            return Path(self.url_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidValue(f"{self.url_file!r} cannot be read here ({error}); executors need it too") from None

    def check_sending(self) -> None:
        """Check the window of a write.

        Raises:
            InvalidValue: it is not a size.
        """
        if self.window is not None:
            parse_size(self.window, "window")

    def consumer_window(self) -> Window:
        """Return what a read holds at the most.

        Raises:
            InvalidValue: it is not a window of a bounded number of messages; or the destination is a pattern.
        """
        window = Window.parse(self.window or CONSUMER_WINDOW)
        if window.mode != "push" or not isinstance(window.messages, int):
            raise InvalidValue(f"window: {self.window!r}; use a number of messages, or '<messages>/<bytes>'")
        if any(character in self.destination for character in WILDCARDS):
            raise InvalidValue(f"destination: {self.destination!r}; read one queue or topic, not a pattern")
        return window


_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname"})


def _text(_: str, value: str) -> str:
    return value


def _whole(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise InvalidValue(f"{name}: {value!r}; use a whole number from 1")
    return int(value)


def _duration(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return parse_duration(value, name)


def _rate(name: str, value: str) -> float | None:
    return parse_rate(value, name)


_READERS: Final = {
    "namespace": lambda _, value: check_namespace(value),
    "ttl": _duration,
    "timeout": _duration,
    "idle": _duration,
    "rate": _rate,
    "weight": _whole,
    "limit": _whole,
    "parts": _whole,
}
