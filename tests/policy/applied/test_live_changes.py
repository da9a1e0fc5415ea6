"""P12: every change of a policy reaches who is open, blocked or free, within a poll; everything settles."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

import headgate
from headgate import CreditTimeout
from headgate.core.policy import Policy
from tests.policy.live import deaf, policy, settles
from tests.sdk.observing import GUARD, counts, drain, waiting
from tests.support.waiting import wait_until

NAME: Final = "orders.eu"
LIMIT: Final = {"limit": 1000}
BEFORE: Final = policy(("orders.*", LIMIT))
CHANGES: Final[dict[str, tuple[Policy, str]]] = {
    "raise": (policy(("orders.*", {"limit": 4000})), "4000"),
    "lower": (policy(("orders.*", {"limit": 950})), "950"),
    "delete": (policy(("else", LIMIT)), "unlimited"),
    "wildcard": (policy(("orders.*", {"limit": 900}), (NAME, {"limit": 4000})), "4000"),
    "switch off": (policy(("orders.*", LIMIT), (NAME, {"enforce": "off"})), "1000"),
}
"""The policy after the change, and the limit then."""
ADMITS: Final = {"raise", "delete", "wildcard", "switch off"}


@pytest.fixture
async def producer(client: headgate.Client) -> AsyncIterator[headgate.Producer]:
    await client.apply_policy(BEFORE)
    async with client.session("s") as session:
        yield await session.producer(NAME, window=1000)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_sender_that_is_blocked(
    change: str, producer: headgate.Producer, client: headgate.Client, other: headgate.Client
) -> None:
    """RabbitMQ 05f0e03: a rule that is deleted must unblock."""
    await producer.send(b"x" * 900)
    blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=60))
    await wait_until(lambda: waiting(client, NAME))
    after, limit = CHANGES[change]
    await other.apply_policy(after)
    await settles(client, NAME, limit_bytes=limit, policy_version="2")
    async with other.session("in") as session:
        if change in ADMITS:
            async with asyncio.timeout(GUARD):
                await blocked
            await drain(await session.consumer(NAME), 2)
        else:
            assert not blocked.done()
            consumer = await session.consumer(NAME)
            await drain(consumer, 1)
            async with asyncio.timeout(GUARD):
                await blocked
            await drain(consumer, 1)
    assert (await counts(client, NAME))[0] == 0


@pytest.mark.parametrize("change", CHANGES)
async def test_a_sender_that_is_free(
    change: str, producer: headgate.Producer, client: headgate.Client, other: headgate.Client
) -> None:
    await producer.send(b"x" * 500)
    after, limit = CHANGES[change]
    await other.apply_policy(after)
    await settles(client, NAME, limit_bytes=limit, policy_version="2")
    async with other.session("in") as session:
        if change in ADMITS:
            async with asyncio.timeout(GUARD):
                await asyncio.gather(*(producer.send(b"y" * 900, timeout=60) for _ in range(3)))
            await drain(await session.consumer(NAME), 4)
        else:
            async with asyncio.timeout(GUARD):
                await producer.send(b"y" * 400, timeout=60)
            with pytest.raises(CreditTimeout):
                await producer.send(b"z" * 400, timeout=0.2)
            consumer = await session.consumer(NAME)
            await drain(consumer, 2)
            async with asyncio.timeout(GUARD):
                await producer.send(b"z" * 400, timeout=60)
            await drain(consumer, 1)
    assert (await counts(client, NAME))[0] == 0


async def test_a_gate_that_is_blocked(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply_policy(policy(("ports", {"kind": "gate", "limit": 100})))
    async with client.session("s") as session:
        gate = await session.gate("ports", window=100)
        async with gate.admit(80):
            waits = asyncio.ensure_future(gate.wait(80, 60))
            await wait_until(lambda: waiting(client, "ports"))
            await other.apply_policy(policy(("ports", {"kind": "gate", "limit": 200})))
            async with asyncio.timeout(GUARD):
                (await waits).release()


async def test_a_bucket_that_makes_wait(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply_policy(policy(("mails", {"kind": "bucket", "rate": "1/h", "burst": 1})))
    async with client.session("s") as session:
        bucket = await session.bucket("mails")
        await bucket.take()
        with pytest.raises(CreditTimeout):
            await bucket.take(timeout=0.1)
        await other.apply_policy(policy(("mails", {"kind": "bucket", "rate": 10000, "burst": 1})))

        async def quick() -> bool:
            try:
                await bucket.take(timeout=0.5)
            except CreditTimeout:
                return False
            return True

        await wait_until(quick)
        await other.apply_policy(policy())
        await settles(client, "mails", rate=None, burst=None)
        async with asyncio.timeout(GUARD):
            for _ in range(50):
                await bucket.take()


async def test_a_percentage_follows_a_limit_that_is_changed_by_hand(client: headgate.Client) -> None:
    await client.apply_policy(policy(("orders.*", LIMIT | {"resume_at": "80%"})))
    async with client.session("s") as session, client.session("in") as taker:
        producer = await session.producer(NAME, window=1)
        await client.apply(NAME, limit=500)
        for _ in range(9):
            await producer.send(b"x" * 50)  # 53 bytes as stored
        blocked = asyncio.ensure_future(producer.send(b"y" * 50, timeout=60))
        await wait_until(lambda: waiting(client, NAME))
        consumer = await taker.consumer(NAME)
        await drain(consumer, 1)
        assert (await waiting(client, NAME), (await counts(client, NAME))[0]) == (True, 424), "above 80% of 500"
        await drain(consumer, 1)
        async with asyncio.timeout(GUARD):
            await blocked
        await drain(consumer, 8)


async def test_a_lost_notification_costs_one_poll(
    producer: headgate.Producer, client: headgate.Client, other: headgate.Client
) -> None:
    """The applier dies after it switched, and nobody hears of it."""
    await producer.send(b"x" * 900)
    blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=60))
    await wait_until(lambda: waiting(client, NAME))
    deaf(client)
    await other._registry.policies.switch(CHANGES["raise"][0], 1)
    async with asyncio.timeout(GUARD):
        await blocked
    await settles(client, NAME, limit_bytes="4000", policy_version="2")


async def test_a_switch_reaches_every_destination_that_a_client_uses_though_nobody_walks(
    client: headgate.Client, other: headgate.Client
) -> None:
    names = [f"orders.{number}" for number in range(20)]
    async with client.session("s") as session:
        for name in names:
            await session.producer(name)
        await other._registry.policies.switch(BEFORE, 0)
        for name in names:
            await settles(other, name, limit_bytes="1000", policy_version="1")


class TestFollowing:
    @pytest.fixture
    async def pair(self, one_url: str, namespace: str) -> AsyncIterator[tuple[headgate.Client, headgate.Client]]:
        async with (
            headgate.connect(one_url, namespace=namespace) as client,
            headgate.connect(one_url, namespace=namespace) as other,
        ):
            yield client, other

    SENDING: Final[dict[str, Any]] = {
        "producer_window": "1000B", "producer_weight": 5, "producer_timeout": "250ms", "producer_rate": "100/s",
        "producer_byte_rate": "1MB/s",
    }  # fmt: skip

    async def test_a_producer_that_does_not_say_goes_by_the_policy(
        self, pair: tuple[headgate.Client, headgate.Client]
    ) -> None:
        client, other = pair
        async with client.session("s") as session, client.session("t") as second:
            quiet = await session.producer(NAME)
            frank = await second.producer(NAME, window=77, weight=3, timeout=9, rate=50)
            assert (quiet._account.state.window, quiet._account.state.weight, quiet._timeout) == (512 << 10, 1, 30)
            await other.apply_policy(policy(("orders.*", self.SENDING)))

            def follows() -> bool:
                account = quiet._account
                return (account.state.window, account.state.weight, quiet._timeout) == (1000, 5, 0.25)

            await wait_until(follows)
            assert (quiet._pacing.rate, quiet._byte_pacing.rate) == (100, 1e6)
            assert (frank._account.state.window, frank._account.state.weight, frank._timeout) == (77, 3, 9)
            assert frank._pacing.rate == 50
            await wait_until(lambda: quiet.in_hand <= 1000, description="what exceeds the window has gone back")
            fresh = await second.producer("orders.us")
            assert (fresh._account.state.window, fresh._timeout) == (1000, 0.25)
            await other.apply_policy(policy())
            await wait_until(lambda: quiet._account.state.window == 512 << 10)
            assert (quiet._pacing.rate, quiet._timeout, quiet._account.state.weight) == (None, 30, 1)

    async def test_a_gate_too(self, pair: tuple[headgate.Client, headgate.Client]) -> None:
        client, other = pair
        await other.apply_policy(policy(("ports", {"kind": "gate", "producer_window": 10, "producer_timeout": 1})))
        async with client.session("s") as session:
            gate = await session.gate("ports")
            assert (gate._account.state.window, gate._timeout) == (10, 1)
            await other.apply("ports", producer_timeout=2)
            await wait_until(lambda: gate._timeout == 2, description="set by hand, and heard of")

    async def test_a_send_that_waits_for_its_own_rate_hears_of_a_higher_one(
        self, pair: tuple[headgate.Client, headgate.Client]
    ) -> None:
        client, other = pair
        await other.apply_policy(policy(("orders.*", {"producer_rate": "1/h", "producer_timeout": "9h"})))
        async with client.session("s") as session:
            producer = await session.producer(NAME)
            await producer.send(b"x")
            slow = [asyncio.ensure_future(producer.send(f"{number}")) for number in range(3)]
            await asyncio.sleep(0)
            await other.apply_policy(policy(("orders.*", {"producer_rate": "1000/s"})))
            async with asyncio.timeout(GUARD):
                receipts = await asyncio.gather(*slow)
            assert [receipt.seq for receipt in receipts] == [2, 3, 4], "in their order"

    async def test_a_consumer_that_does_not_say_goes_by_the_policy(
        self, pair: tuple[headgate.Client, headgate.Client]
    ) -> None:
        client, other = pair
        await other.apply_policy(
            policy(("orders.*", {"consumer_window": 7, "consumer_rate": "10/s"}),
                   ("news", {"kind": "topic", "consumer_window": 7, "durable_window": 20,
                             "subscription_windows": {"audit": "3/1000"}}))
        )  # fmt: skip
        async with client.session("s") as session:
            quiet = await session.consumer(NAME)
            frank = await session.consumer(NAME, window=4, rate=5)
            moved = await session.consumer(NAME)
            assert (quiet.window.text, quiet.pacing.rate) == ("7/unlimited", 10)
            assert (frank.window.text, frank.pacing.rate) == ("4/unlimited", 5)
            windows = [
                (await session.consumer("news", subscription=name, durable=durable)).window.text
                for name, durable in (("any", False), ("kept", True), ("audit", True))
            ]
            assert windows == ["7/unlimited", "20/unlimited", "3/1000"]
            await moved.configure(window=2)
            await other.apply_policy(policy(("orders.*", {"consumer_window": "pull"})))
            await wait_until(lambda: quiet.window.text == "pull")
            assert quiet.pacing.rate is None
            assert (frank.window.text, moved.window.text) == ("4/unlimited", "2/unlimited")
            await other.apply_policy(policy())
            await wait_until(lambda: quiet.window.text == "1000/unlimited")

    async def test_a_consumer_that_is_paused_is_let_go(self, pair: tuple[headgate.Client, headgate.Client]) -> None:
        client, other = pair
        await other.apply_policy(policy(("orders.*", {"consumer_window": "paused"})))
        async with client.session("s") as session:
            producer, consumer = await session.producer(NAME), await session.consumer(NAME)
            await producer.send(b"x")
            assert await consumer.receive(timeout=0.2) is None
            await other.apply_policy(policy())
            assert len(await drain(consumer, 1)) == 1

    async def test_the_registry_shows_the_settings_in_force(
        self, pair: tuple[headgate.Client, headgate.Client]
    ) -> None:
        client, other = pair
        async with client.session("s") as session:
            producer = await session.producer(NAME)
            address = producer._account.address
            await other.apply_policy(policy(("orders.*", {"when_full": "fail", "limit": 500})))

            def shown() -> bool:
                fields = client._registry.fields(address)
                return (fields.get("when_full"), fields.get("limit_bytes")) == ("fail", "500")

            await wait_until(shown)
