"""A connection, or an address, has options for producers and consumers, in our words or other brokers'.

    redis://host:6379?consumer_window=pull&producer_window=64KiB          ours
    redis://host:6379?consumerWindowSize=0&producerMaxRate=10             Apache Artemis: bytes, -1 unlimited, 0 pull
    redis://host:6379?jms.prefetchPolicy.all=50                           ActiveMQ Classic: messages, 0 pull
    TEST.QUEUE?consumer.prefetchSize=10                                   the same, for one destination

An option of an address wins over one of the connection, and code over both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import parse_qsl

from headgate.core.foreign_words import hint
from headgate.core.window import Window
from headgate.errors import InvalidValue
from headgate.units import parse_rate, parse_size


@dataclass(frozen=True, slots=True)
class UrlOptions:
    """A URL or an address has these options; None where unset.

    Attributes:
        consumer_window: of consumers of any kind.
        queue_window: of consumers of queues.
        topic_window: of consumers of topics, but for durable subscriptions.
        durable_window: of consumers of durable subscriptions.
        browser_window: messages that a browser reads at a time.
        producer_window: bytes of credit that a producer keeps in hand.
        consumer_rate: messages a second of each consumer.
        producer_rate: messages a second of each producer.
    """

    consumer_window: Window | None = None
    queue_window: Window | None = None
    topic_window: Window | None = None
    durable_window: Window | None = None
    browser_window: int | None = None
    producer_window: int | None = None
    consumer_rate: float | None = None
    producer_rate: float | None = None

    def window(self, kind: str, *, durable: bool) -> Window | None:
        """Return the window for a consumer of a ``queue`` or ``topic``."""
        own = self.queue_window if kind == "queue" else self.durable_window if durable else self.topic_window
        return own or self.consumer_window

    def over(self, other: "UrlOptions") -> "UrlOptions":
        """Return these, and the other's where these say nothing."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if given["consumer_window"]:  # one option for all windows sets them all
            other = replace(other, queue_window=None, topic_window=None, durable_window=None)
        return replace(other, **{name: value for name, value in given.items() if value is not None})


_NOTHING: Final = UrlOptions()


def _window(text: str, what: str) -> Window:
    if text.lstrip("-").isdecimal():
        if int(text) < 1:
            raise InvalidValue(
                f"{text!r}; say 'pull', 'paused', 'unlimited' or a number of messages from 1", setting=what
            )
        return Window(messages=int(text))
    return Window.parse(text)


def _number(text: str, what: str, *, words: Mapping[int, str]) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < 1 and number not in words:
        meanings = "".join(f", {value} for {meaning}" for value, meaning in words.items())
        raise InvalidValue(f"{text!r}; use a whole number from 1{meanings}", setting=what)
    return number


def _artemis_window(text: str, what: str) -> Window:
    number = _number(text, what, words={-1: "unlimited", 0: "no buffer"})
    if number < 1:
        return Window.unlimited if number else Window.pull
    return Window(messages="unlimited", bytes=number)


def _prefetch(text: str, what: str) -> Window:
    number = _number(text, what, words={0: "polling"})
    return Window(messages=number) if number else Window.pull


def _rate(text: str, what: str) -> float:
    return parse_rate(float(text) if text.isdecimal() else text, what)


def _foreign_rate(text: str, what: str) -> float | None:
    number = _number(text, what, words={-1: "no limit"})
    return float(number) if number > 0 else None


def _credit(text: str, what: str) -> int:
    if text.strip() in ("0", "-1"):
        raise InvalidValue(
            f"{text!r} would send without credit, which is not possible here; use bytes from 1", setting=what
        )
    return parse_size(int(text) if text.isdecimal() else text, what)


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "consumer_window": ("consumer_window", _window),
    "queue_window": ("queue_window", _window),
    "topic_window": ("topic_window", _window),
    "durable_window": ("durable_window", _window),
    "browser_window": ("browser_window", lambda text, what: _number(text, what, words={})),
    "producer_window": ("producer_window", _credit),
    "consumer_rate": ("consumer_rate", _rate),
    "producer_rate": ("producer_rate", _rate),
    "consumerWindowSize": ("consumer_window", _artemis_window),
    "producerWindowSize": ("producer_window", _credit),
    "consumerMaxRate": ("consumer_rate", _foreign_rate),
    "producerMaxRate": ("producer_rate", _foreign_rate),
    "jms.producerWindowSize": ("producer_window", _credit),
    "jms.prefetchPolicy.all": ("consumer_window", _prefetch),
    "jms.prefetchPolicy.queuePrefetch": ("queue_window", _prefetch),
    "jms.prefetchPolicy.topicPrefetch": ("topic_window", _prefetch),
    "jms.prefetchPolicy.durableTopicPrefetch": ("durable_window", _prefetch),
    "jms.prefetchPolicy.queueBrowserPrefetch": (
        "browser_window", lambda text, what: _number(text, what, words={})
    ),
    "consumer.prefetchSize": ("consumer_window", _prefetch),
}  # fmt: skip
OPTIONS: Final = frozenset(_OPTIONS)
"""Names that a connection or an address may use."""


def read_options(options: Mapping[str, str]) -> UrlOptions:
    """Return what options say.

    Raises:
        InvalidValue: one is unknown, or its value cannot be read.
    """
    given: dict[str, Any] = {}
    for name, text in options.items():
        if name not in _OPTIONS:
            raise unknown_option(name)
        field, read = _OPTIONS[name]
        try:
            given[field] = read(text, name)
        except InvalidValue as error:
            raise error if error.setting == name else InvalidValue(str(error), setting=name) from None
    return UrlOptions(**given)


def unknown_option(name: str, *others: str) -> InvalidValue:
    """Return the error about an unknown option: what is meant by it, and all that there are."""
    ours = sorted(option for option, (field, _) in _OPTIONS.items() if option == field)
    theirs = sorted(OPTIONS.difference(ours))
    near = [option for option in ours if option.endswith(f"_{name}")] or [
        option for option in OPTIONS if option.lower() == name.lower()
    ]
    near = near or get_close_matches(name[:64], (*OPTIONS, *others), n=1, cutoff=0.8)
    given = f"did you mean {' or '.join(map(repr, near))}?" if near else hint(name, "url")
    listed = f"there are {', '.join(ours)}; as other brokers have them {', '.join(theirs)}"
    more = f"; of the connection {', '.join(sorted(others))}" if others else ""
    mark = " " if given.endswith("?") else "; " if given else ""
    return InvalidValue(f"option {name[:64]!r} is unknown; {given}{mark}{listed}{more}")


def take_options(query: str) -> tuple[UrlOptions, dict[str, str]]:
    """Return what the query (without ``?``) of a connection's URL says here, and the rest, for the URL parser.

    Raises:
        InvalidValue: the value of an option cannot be read.
    """
    rest = dict(parse_qsl(query, keep_blank_values=True))
    given = {name: rest.pop(name) for name in OPTIONS & set(rest)}
    return read_options(given), rest


def split_address(text: str, connection: UrlOptions = _NOTHING) -> tuple[str, UrlOptions]:
    """Return the name in an address such as ``TEST.QUEUE?consumer.prefetchSize=10``, and what holds for it.

    Args:
        text: the address.
        connection: what its connection says where its own options say nothing.

    Raises:
        InvalidValue: an option is unknown, or its value cannot be read.
    """
    name, _, query = text.partition("?") if isinstance(text, str) else (text, "", "")
    if not query:
        return text, connection
    return name, read_options(dict(parse_qsl(query, keep_blank_values=True))).over(connection)
