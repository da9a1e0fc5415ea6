"""Words of other brokers, and of our own two vocabularies, with the word that is meant where one of them is unknown.

A setting has one name by hand (``limit_messages``) and a place in a policy (``limit.messages``). Settings of Apache
Artemis, ActiveMQ Classic, TIBCO EMS and BlazingMQ are in one table. Code that meets an unknown word asks :func:`hint`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from headgate.core.settings_table import PATHS

Door = Literal["policy", "settings", "url", "producer", "consumer", "gate", "session", "pool", "command"]
"""Where a word was met: in a policy, `apply`, a URL, a call that opens something or sets a pool, the command line."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The meaning of another broker's word here.

    Attributes:
        setting: its name by hand; empty where it is none, and ``note`` says what there is instead.
        note: what else is to know: how values are written.
        part: of the value, where it is a part.
    """

    setting: str
    note: str = ""
    part: str = ""


_RULES: Final = Foreign("", "rules are [[destination]] tables of a policy, with match = 'orders.#'")
_POOLS: Final = Foreign("", "limits of the whole broker are [[pool]] tables of a policy; preset = 'activemq' has them")
_PREFETCH: Final = Foreign("consumer_window", "in messages, 'pull' for 0")
_ONE_NUMBER: Final = "leave it out for -1"
PRODUCTS: Final[dict[str, dict[str, Foreign]]] = {
    "Apache Artemis": {
        "consumerWindowSize": Foreign("consumer_window", "'unlimited' for -1, 'pull' for 0", "bytes"),
        "consumerMaxRate": Foreign("consumer_rate", _ONE_NUMBER),
        "producerWindowSize": Foreign("producer_window", "in bytes"),
        "producerMaxRate": Foreign("producer_rate", _ONE_NUMBER),
        "max-size-bytes": Foreign("limit", "'unlimited' for -1"),
        "max-size-messages": Foreign("limit_messages", "'unlimited' for -1"),
        "max-size-bytes-reject-threshold": Foreign("hard_limit", _ONE_NUMBER),
        "address-full-policy": Foreign("when_full", "block, fail and drop as there, spool for PAGE"),
        "address-setting": _RULES,
        "address-settings": _RULES,
        "global-max-size": _POOLS,
        "global-max-messages": _POOLS,
        "page-size-bytes": Foreign("", "it is segment of the [[store]] 'paging'; see preset = 'artemis'"),
        "page-limit-bytes": Foreign("", "it is limit of the [[store]] 'paging'; see preset = 'artemis'"),
        "page-limit-messages": Foreign("limit_references", "in bytes of memory, some 50 a message"),
        "page-full-policy": Foreign("", "it is when_full of the [[store]] 'paging'; see preset = 'artemis'"),
        "slow-consumer-threshold": Foreign("slow_rate", "in messages a second"),
        "slow-consumer-check-period": Foreign("slow_period", "with its unit: '5s'"),
        "slow-consumer-policy": Foreign("slow_action", "notify for NOTIFY, detach for KILL"),
        "max-delivery-attempts": Foreign("max_attempts"),
        "redelivery-delay": Foreign("retry_delay", "with its unit: '5s'"),
        "redelivery-delay-multiplier": Foreign("retry_factor"),
        "max-redelivery-delay": Foreign("retry_max", "with its unit: '5s'"),
        "setDeliveryDelay": Foreign("", "session.producer(...).send(..., delay=5) delivers later"),
        "dead-letter-address": Foreign("dead_letter"),
        "expiry-delay": Foreign("message_ttl", "in ms there; write its unit"),
    },
    "ActiveMQ Classic": {
        "memoryLimit": Foreign("limit", "1mb is 1048576 bytes there: write '1MiB'"),
        "producerFlowControl": Foreign("enforce", "'off' for false, 'always' for true"),
        "sendFailIfNoSpace": Foreign("when_full", "'fail' for true"),
        "prioritizedMessages": Foreign("fair_by", "'priority' for true"),
        "maximumRedeliveries": Foreign("max_attempts", "one more, for the first attempt counts here"),
        "initialRedeliveryDelay": Foreign("retry_delay", "with its unit: '1s'"),
        "backOffMultiplier": Foreign("retry_factor"),
        "maximumRedeliveryDelay": Foreign("retry_max", "with its unit: '5s'"),
        "nonBlockingRedelivery": Foreign("", "session.consumer(...) gets others while one waits, always"),
        "sendFailIfNoSpaceAfterTimeout": Foreign("when_full", "'fail-after 3s' for 3000, which is in ms there"),
        "ProducerWindowSize": Foreign("producer_window", "in bytes"),
        "vmQueueCursor": Foreign("when_full", "'block': all stays in memory"),
        "fileQueueCursor": Foreign("when_full", "'spool', with a store"),
        "pendingQueuePolicy": Foreign("when_full", "'block' for vmQueueCursor, 'spool' for fileQueueCursor"),
        "systemUsage": _POOLS,
        "memoryUsage": _POOLS,
        "storeUsage": _POOLS,
        "tempUsage": _POOLS,
        "percentLimit": Foreign("", "it is percent of a [[pool]] or a [[store]] of a policy"),
        "policyEntry": _RULES,
        "policyEntries": _RULES,
        "alwaysSyncSend": Foreign("", "each send() waits for its receipt, and with when_full = 'fail' not for room"),
        "useAsyncSend": Foreign("", "producer.post() does not wait for the receipt; send() does"),
        "prefetchPolicy": _PREFETCH,
        "ActiveMQPrefetchPolicy": _PREFETCH,
        "prefetchSize": _PREFETCH,
        "prefetchLimit": _PREFETCH,
        "consumer.prefetchSize": _PREFETCH,
        "prefetchPolicy.all": _PREFETCH,
        "queuePrefetch": _PREFETCH,
        "topicPrefetch": _PREFETCH,
        "durableTopicPrefetch": Foreign("durable_window", "in messages"),
        "queueBrowserPrefetch": Foreign("browser_window", "in messages"),
        "abortSlowConsumerStrategy": Foreign("slow_action", "'detach', with slow_rate or slow_multiple"),
        "slowConsumerStrategy": Foreign("slow_action", "'detach' for abortSlowConsumerStrategy"),
        "sendTimeout": Foreign("producer_timeout", "in ms there; write its unit"),
    },
    "TIBCO EMS": {
        "redeliveryDelay": Foreign("retry_delay", "with its unit: '15s'"),
        "flowControl": Foreign("limit", "with enforce = 'with-consumers'; 256KB where it has no value there"),
        "flow_control_only_with_active_consumer": Foreign(
            "enforce", "'with-consumers' for enable, 'always' for disable"
        ),
        "maxrate": Foreign("send_byte_rate", "of a destination; a [[channel]] of a policy has its own maxrate"),
        "maxbytes": Foreign("limit"),
        "maxmsgs": Foreign("limit_messages"),
        "overflowPolicy": Foreign("when_full", "'fail' for rejectIncoming"),
        "prefetch": _PREFETCH,
        "maxRedelivery": Foreign("max_attempts"),
        "expiration": Foreign("message_ttl", "with its unit: '5s'"),
    },
    "NATS": {
        "MaxDeliver": Foreign("max_attempts"),
        "NakWithDelay": Foreign("", "session.consumer(...): modify(after=...) gives a message back for later"),
        "AckWait": Foreign("", "session.consumer(...) holds messages while its session lives, which its ttl says"),
    },
    "BlazingMQ": {
        "maxUnconfirmedMessages": Foreign("consumer_window", "'paused' for 0", "messages"),
        "maxUnconfirmedBytes": Foreign("consumer_window", "'paused' for 0", "bytes"),
        "QueueOptions": Foreign("consumer_window"),
        "configureQueue": Foreign("", "consumer.configure(window=...) changes it while the consumer is open"),
        "openQueue": Foreign("", "session.producer(...) and session.consumer(..., window=...) open a queue"),
    },
}
"""Settings of other brokers, as their documents spell them."""
_ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "producer": {"producer_window": "window", "producer_rate": "rate", "producer_weight": "weight",
                 "producer_timeout": "timeout", "when_full": "when_full", "durability": "durability"},
    "consumer": {"consumer_window": "window", "durable_window": "window", "consumer_rate": "rate",
                 "durability": "durability"},
    "gate": {"producer_window": "window", "producer_weight": "weight", "producer_timeout": "timeout",
             "when_full": "when_full", "durability": "durability"},
    "url": {name: name for name in ("consumer_window", "durable_window", "browser_window", "producer_window",
                                    "consumer_rate", "producer_rate")},
    "settings": {name: name for name in PATHS},
    "policy": {name: ".".join(map(str, path)) for name, path in PATHS.items()},
}  # fmt: skip
"""By door, what a setting is called there; where it is not, a policy and `apply` have it."""
_PREFIXES: Final = ("set", "jms", "connection")


def _plain(word: str) -> str:
    return re.sub(r"[^a-z]", "", word.lower())


_KNOWN: Final = {
    _plain(word): (product, meant) for product, words in reversed(PRODUCTS.items()) for word, meant in words.items()
}


def foreign(word: str) -> tuple[str, Foreign] | None:
    """Return the product that has a word, and what is meant; None for no product that is known.

    >>> foreign("setConsumerWindowSize")[1].setting
    'consumer_window'
    """
    plain = _plain(word[:64])
    tries = (plain, *(plain.removeprefix(prefix) for prefix in _PREFIXES), plain.removeprefix("jmsprefetchpolicy"))
    return next((_KNOWN[one] for one in tries if one in _KNOWN), None)


def hint(word: str, door: Door, known: Iterable[str] = ()) -> str:
    """Return what to say of an unknown word: what is meant by it, else the nearest of those that are known there.

    >>> hint("max-size-bytes", "policy")
    "in Apache Artemis it is what limit.bytes is here: 'unlimited' for -1"
    >>> hint("limit_messages", "policy"), hint("limit.messages", "settings")
    ("did you mean 'limit.messages'?", "did you mean 'limit_messages'?")

    Args:
        word: as it was written.
        door: where.
        known: the words there; they are listed where none is near.
    """
    if found := _ours(word, door):
        return f"did you mean {' or '.join(map(repr, found))}?"
    if found_there := foreign(word):
        return _translated(*found_there, door)
    if word in PATHS and door in _ARGUMENTS and word not in _ARGUMENTS[door]:
        return _elsewhere(word)
    names = list(known)
    close = get_close_matches(word[:64].lower().replace("-", "_"), names, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}" if names else ""


def _ours(word: str, door: Door) -> list[str]:
    """Return what a setting is called at a door that was called as it is elsewhere."""
    here = _ARGUMENTS.get(door, {})
    if word in PATHS:
        return [here[word]] if here.get(word, word) != word else []
    spelled = re.sub(r"[^a-z]+", "_", word.lower())
    settings = [name for name, path in PATHS.items() if spelled == "_".join(map(str, path))]
    if not settings and door == "settings":
        settings = [name for name, path in PATHS.items() if len(path) > 1 and word in (path[0], path[-1])]
    return [here[name] for name in settings if name in here and here[name] != word]


def _translated(product: str, meant: Foreign, door: Door) -> str:
    if not meant.setting:
        return f"{product} has it: here {meant.note}"
    part = f".{meant.part}" if meant.part else ""
    here = _ARGUMENTS.get(door, {}).get(meant.setting)
    note = f": {meant.note}" if meant.note else ""
    if here:
        return f"in {product} it is what {here}{part if door == 'policy' else ''} is here{note}"
    return f"in {product} it is a setting of destinations: {_elsewhere(meant.setting, part)}{note}"


def _elsewhere(setting: str, part: str = "") -> str:
    return f"a policy says it as {_ARGUMENTS['policy'][setting]}{part}, client.apply as {setting}"
