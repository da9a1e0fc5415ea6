"""The words of importers say what there is: commands and options that they name exist."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from headgate.brokers import words
from headgate.core.foreign_words import foreign, hint, products
from headgate_coordinator.cli.commands import command_line
from tests.docs.imports_page import PRODUCTS

PRODUCTS_OF_ALL = list(products())
OF_DOCUMENTS = {
    "artemis": "consumerWindowSize setConsumerWindowSize consumerMaxRate setConsumerMaxRate producerWindowSize "
    "setProducerWindowSize producerMaxRate setProducerMaxRate address-settings AddressSettings address-setting match "
    "max-size-bytes address-full-policy max-size-bytes-reject-threshold amqpCredits amqpLowCredits",
    "activemq": "prefetchPolicy ActiveMQPrefetchPolicy PrefetchPolicy queuePrefetch prefetchSize consumer.prefetchSize "
    "prefetchPolicy.all jms.prefetchPolicy.all jms.prefetchPolicy.queuePrefetch queue topic StoreUsage TempUsage "
    "usePrefetchExtension ProducerWindowSize useAsyncSend alwaysSyncSend policyEntry producerFlowControl memoryLimit "
    "vmQueueCursor fileCursor systemUsage sendFailIfNoSpace sendFailIfNoSpaceAfterTimeout memoryUsage storeUsage "
    "tempUsage percentLimit",
    "ems": "flow_control flowControl prefetch maxrate",
    "blazingmq": "QueueOptions maxUnconfirmedMessages maxUnconfirmedBytes consumerPriority suspendsOnBadHostHealth "
    "openQueue configureQueue",
}
"""Settings that the documents on flow control of these products name."""


def commands(of: Any) -> Iterator[Any]:
    yield of
    for command in getattr(of, "commands", {}).values():
        yield from commands(command)


@pytest.mark.parametrize("product", PRODUCTS)
def test_commands_and_options_that_are_named_exist(product: str) -> None:
    every = list(commands(typer.main.get_command(command_line())))
    options = {option for command in every for parameter in command.params for option in parameter.opts}
    names = {command.name for command in every}
    for group in words(product).values():
        for word in group.values():
            text = f"{word.ours} {word.differs}"
            assert set(re.findall(r"--[a-z][-a-z]*", text)) <= options, word
            assert set(re.findall(r"\bheadgate ([a-z]+)", text)) <= names, word


@pytest.mark.parametrize("title", PRODUCTS_OF_ALL)
def test_each_setting_of_a_product_is_named_by_an_unknown_key_of_a_policy(title: str) -> None:
    its = products()[title]
    assert len(its) > 2
    for word in its:
        text = hint(word, "policy", ["limit"])
        assert foreign(word), word
        assert text.startswith("did you mean") or any(other in text for other in PRODUCTS_OF_ALL), (word, text)
        assert "none needed" not in text


def test_an_argument_of_a_queue_is_the_setting_of_a_policy() -> None:
    assert hint("x-max-priority", "policy") == hint("max-priority", "policy") != ""


@pytest.mark.parametrize(
    ("word", "title", "part"),
    [
        ("x-message-ttl", "RabbitMQ", "in ms there"),
        ("messageTtl", "BlazingMQ", "in seconds there"),
        ("maxDeliveryAttempts", "BlazingMQ", "leave it out for 0"),
        ("max-delivery-attempts", "Apache Artemis", "max_attempts"),
        ("page-limit-bytes", "Apache Artemis", "'limit' of a [[store]] of a policy"),
        ("storeUsage", "ActiveMQ Classic", "'limit' of a [[store]] of a policy"),
        ("memoryUsage", "ActiveMQ Classic", "'limit' of a [[pool]] of a policy"),
    ],
)
def test_a_word_is_its_product_s_by_how_it_is_spelled(word: str, title: str, part: str) -> None:
    """Mutants: spelling does not count; what a table holds is part of the setting of its name."""
    for door in ("policy", "settings", "url"):
        text = hint(word, door)
        assert title in text
        assert part in text


def test_words_that_may_be_anybody_s_are_not_taken_for_those_of_others() -> None:
    for word in ("users", "server", "durable", "", "secure"):
        assert foreign(word) is None, word
    assert foreign("journal-type") == foreign("journal-")
    assert foreign("x" * 1_000_000) is None


@pytest.mark.parametrize("product", OF_DOCUMENTS)
def test_each_setting_that_documents_on_flow_control_name_is_known(product: str) -> None:
    known = {name for group in words(product).values() for name in group}
    missing = [
        name for name in OF_DOCUMENTS[product].split() if name not in known and not foreign(name.removeprefix("set"))
    ]
    assert missing == []
