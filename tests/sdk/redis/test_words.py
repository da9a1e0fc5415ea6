"""Words of other brokers, and of our two vocabularies: wherever one is said that is unknown there, ours is named."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate
import headgate.amqp.url
import headgate.redis.url
import headgate.sync
from headgate import InvalidValue, PolicyError, Settings
from headgate.core.addresses.url_options import OPTIONS, UrlOptions, read_options
from headgate.core.foreign_words import foreign, hint, products
from headgate.core.settings_table import PATHS
from headgate.core.when_full import WhenFull
from headgate.settings import settings_of
from tests.support.extent import each, share_of

SAID = {
    "Apache Artemis": """
        consumerWindowSize setConsumerWindowSize consumerMaxRate setConsumerMaxRate producerWindowSize
        setProducerWindowSize producerMaxRate setProducerMaxRate max-size-bytes address-full-policy address-setting
        address-settings max-size-bytes-reject-threshold
    """,
    "ActiveMQ Classic": """
        prefetch prefetchPolicy ActiveMQPrefetchPolicy jms.prefetchPolicy.all jms.prefetchPolicy.queuePrefetch
        consumer.prefetchSize systemUsage memoryLimit useAsyncSend ProducerWindowSize alwaysSyncSend producerFlowControl
        policyEntry vmQueueCursor sendFailIfNoSpace sendFailIfNoSpaceAfterTimeout memoryUsage storeUsage tempUsage
        percentLimit
    """,
    "TIBCO EMS": "flow_control flowControl maxrate",
    "BlazingMQ": "maxUnconfirmedMessages maxUnconfirmedBytes configureQueue openQueue QueueOptions",
}
"""Every setting that the documents about flow control of these products name. `total` of Classic is ours too."""
EVERY = [word for words in SAID.values() for word in words.split()]
HOW = ("policy", "client.apply", "[[", "producer.post", "send()", "consumer.configure", "session.")


def names_ours(text: str, setting: str) -> bool:
    """Whether an error names our word for it: the setting, its place in a policy, or what there is instead."""
    ours = (setting, ".".join(map(str, PATHS[setting]))) if setting else HOW
    return any(word in text for word in ours)


def test_every_setting_that_the_documents_name_is_in_the_table() -> None:
    missing = [word for word in EVERY if foreign(word) is None]
    assert not missing
    for words in products().values():
        for meant in words.values():
            assert (meant.setting in PATHS) if meant.setting else meant.note


def test_every_foreign_word_of_the_conformance_page_is_in_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "conformance.md").read_text(encoding="utf-8")
    says = [row.split("|")[2] for row in page.splitlines() if re.match(r"\| [A-Z]\d\d ", row)]
    code = " ".join(text for said in says for text in re.findall(r"`([^`]+)`", said))
    words = re.findall(r"\w+[-\w]*", code)
    camel = {word for word in words if re.search(r"[a-z][A-Z]", word) and word != "exampleQueue"}
    assert len(camel) > 8
    assert not [word for word in camel if foreign(word) is None]


@each("word", EVERY)
def test_a_foreign_word_in_a_url_is_told_unless_it_is_taken(word: str) -> None:
    if word in OPTIONS:
        assert isinstance(read_options({word: "5"}), UrlOptions)
        return
    found = foreign(word)
    assert found
    for parse in (headgate.redis.url.parse_url, headgate.amqp.url.parse_url):
        scheme = "redis" if parse is headgate.redis.url.parse_url else "amqp"
        with pytest.raises(InvalidValue, match="is unknown") as caught:
            parse(f"{scheme}://host?{word}=5")
        assert names_ours(str(caught.value), found[1].setting)


@each("word", EVERY)
def test_a_foreign_word_by_hand_is_told(word: str) -> None:
    found = foreign(word)
    assert found
    said: dict[str, Any] = {word: 5}
    with pytest.raises(PolicyError, match="is unknown") as caught:
        settings_of(said)
    assert names_ours(str(caught.value), found[1].setting)
    with pytest.raises(TypeError, match="has no argument") as wrong:
        Settings(**said)
    assert names_ours(str(wrong.value), found[1].setting)


@pytest.mark.one_server
async def test_a_foreign_word_in_a_call_is_told(client: headgate.Client) -> None:
    async with client.session("s") as session:
        calls: list[tuple[Callable[..., Any], str, str]] = [
            (session.producer, "producerWindowSize", "window is here"),
            (session.producer, "producerMaxRate", "rate is here"),
            (session.producer, "limit_messages", "a policy says it as limit.messages, client.apply as limit_messages"),
            (session.producer, "producer_window", "did you mean 'window'?"),
            (session.consumer, "maxUnconfirmedMessages", "window is here"),
            (session.consumer, "prefetchSize", "window is here"),
            (session.gate, "sendFailIfNoSpace", "when_full is here"),
            (client.session, "consumerWindowSize", "client.apply as consumer_window"),
            (client.set_pool, "memoryUsage", "[[pool]]"),
            (headgate.connect, "consumerWindowSize", "consumer_window is here"),
            (headgate.sync.connect, "jms.prefetchPolicy.all", "consumer_window is here"),
        ]
        for call, word, told in calls:
            with pytest.raises(TypeError, match="has no argument") as caught:
                call("orders", **{word: 5})
            assert told in str(caught.value)
    assert await client.destinations() == []


@each("setting", share_of([name for name, path in PATHS.items() if ".".join(map(str, path)) != name], 3))
def test_each_of_our_two_vocabularies_hints_at_the_other(setting: str) -> None:
    place = ".".join(map(str, PATHS[setting]))
    assert hint(setting, "policy") == f"did you mean {place!r}?" or PATHS[setting][-1] == "bytes"
    if place not in PATHS and place != "limit.bytes":
        assert repr(setting) in hint(place, "settings")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"limit": {"messages": 5}}, "limit: a table is how a policy says it; by hand there are limit, limit_messages"),
        ({"rate": {"messages": 5}}, "by hand there are send_rate, send_burst"),
        ({"consumer": {"window": 5}}, "consumer_window"),
        ({"shared_rate": 5}, "did you mean 'delivery_rate'?"),
        ({"limt": 5}, "did you mean 'limit'?"),
        ({"zzzzz": 5}, "there are kind, limit, limit_messages"),
    ],
)
def test_what_a_policy_says_is_told_by_hand(values: dict[str, Any], told: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(told)):
        settings_of(values)


@each(
    ("option", "told"),
    [
        ("consumer_windw", "did you mean 'consumer_window'?"),
        ("consumerwindowsize", "did you mean 'consumerWindowSize'?"),
        ("jms.prefetchPolicy.al", "did you mean 'jms.prefetchPolicy.all'?"),
        ("ca_fil", "did you mean 'ca_file'?"),
        ("window", "'consumer_window'"),
        ("limit", "a policy says it as limit.bytes, client.apply as limit"),
        ("zzzzz", "is unknown; there are browser_window"),
    ],
)
@each("scheme", ["redis", "rediss", "amqps"])
def test_an_unknown_option_of_a_url_names_the_nearest_and_lists_all(scheme: str, option: str, told: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        headgate.connect(f"{scheme}://host?{option}=5")
    text = str(caught.value)
    assert told in text
    assert all(name in text for name in (*OPTIONS, "ca_file", "password_file"))


def test_an_unknown_option_of_an_address_is_told_likewise() -> None:
    with pytest.raises(InvalidValue, match=r"'prefetch' is unknown; .* consumer_window is here.*producer_rate"):
        read_options({"prefetch": "1"})
    with pytest.raises(InvalidValue) as caught:
        read_options({"x" * 100_000: "1"})
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("word", "ours"), [("PAGE", "spool"), ("BLOCK", "block"), ("DROP", "drop"), ("FAIL", "fail")])
def test_policies_of_artemis_are_told(word: str, ours: str) -> None:
    with pytest.raises(PolicyError, match=f"{word} of other brokers is {ours} here"):
        WhenFull.parse(word)
