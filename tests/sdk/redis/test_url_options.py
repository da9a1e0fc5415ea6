"""Connection and address options, in our words and as the documents of other brokers spell them."""

import pytest

from headgate import InvalidValue, Window
from headgate.core.addresses.url_options import UrlOptions, read_options, split_address


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("consumer_window", "pull", UrlOptions(consumer_window=Window.pull)),
        ("consumer_window", "20", UrlOptions(consumer_window=Window(messages=20))),
        ("consumer_window", "1000/1MiB", UrlOptions(consumer_window=Window(messages=1000, bytes="1MiB"))),
        ("producer_window", "64KiB", UrlOptions(producer_window=65536)),
        ("producer_rate", "10", UrlOptions(producer_rate=10.0)),
        ("consumer_rate", "90/min", UrlOptions(consumer_rate=1.5)),
        ("consumerWindowSize", "0", UrlOptions(consumer_window=Window.pull)),
        ("consumerWindowSize", "-1", UrlOptions(consumer_window=Window.unlimited)),
        ("consumerWindowSize", "1048576", UrlOptions(consumer_window=Window(messages="unlimited", bytes="1MiB"))),
        ("producerWindowSize", "10", UrlOptions(producer_window=10)),
        ("producerMaxRate", "10", UrlOptions(producer_rate=10.0)),
        ("consumerMaxRate", "-1", UrlOptions()),
        ("jms.prefetchPolicy.all", "50", UrlOptions(consumer_window=Window(messages=50))),
        ("jms.prefetchPolicy.queuePrefetch", "1", UrlOptions(queue_window=Window(messages=1))),
        ("jms.prefetchPolicy.queuePrefetch", "0", UrlOptions(queue_window=Window.pull)),
        ("jms.prefetchPolicy.durableTopicPrefetch", "100", UrlOptions(durable_window=Window(messages=100))),
        ("jms.prefetchPolicy.queueBrowserPrefetch", "500", UrlOptions(browser_window=500)),
    ],
)
def test_each_option_means_what_its_document_says(option: str, value: str, expected: UrlOptions) -> None:
    assert read_options({option: value}) == expected


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("consumer_window", "0", "say 'pull', 'paused', 'unlimited'"),
        ("consumer_window", "-1", "say 'pull', 'paused', 'unlimited'"),
        ("consumer_window", "many", "window"),
        ("consumerWindowSize", "-2", "-1 for unlimited, 0 for no buffer"),
        ("producerWindowSize", "-1", "without credit"),
        ("producer_window", "0", "without credit"),
        ("producerMaxRate", "fast", "a whole number from 1, -1 for no limit"),
        ("jms.prefetchPolicy.all", "-1", "0 for polling"),
        ("prefetch", "1", "option 'prefetch' is unknown"),
    ],
)
def test_what_an_option_does_not_mean_is_said(option: str, value: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says) as caught:
        read_options({option: value})
    assert option in str(caught.value)


def test_an_address_may_carry_options() -> None:
    assert split_address("TEST.QUEUE?consumer.prefetchSize=10") == (
        "TEST.QUEUE",
        UrlOptions(consumer_window=Window(messages=10)),
    )
    assert split_address("TEST.QUEUE") == ("TEST.QUEUE", UrlOptions())
    with pytest.raises(InvalidValue, match="option 'size' is unknown"):
        split_address("TEST.QUEUE?size=10")


def test_the_more_specific_wins() -> None:
    connection = read_options({"jms.prefetchPolicy.all": "50", "jms.prefetchPolicy.queuePrefetch": "1"})
    assert connection.window("queue", durable=False) == Window(messages=1)
    assert connection.window("topic", durable=True) == Window(messages=50)
    address = read_options({"consumer.prefetchSize": "10"})
    assert address.over(connection).window("queue", durable=False) == Window(messages=10)
    assert UrlOptions().over(connection) == connection
