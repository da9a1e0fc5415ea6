"""Forty causes of a wait, each injected on a real Redis; explain names the right one first.

What belongs to rules of the scripts (pools, rates, hysteresis) is put into the fields directly: explain reads them.
"""

from collections.abc import Awaitable, Callable

import pytest

from headgate.explain.model import Cause
from headgate.redis.stores.limiters import LimiterStore
from tests.sdk.scene import TTL_MS, Scene

pytestmark = pytest.mark.one_server

Play = Callable[[Scene], Awaitable[object]]
CASES: list[tuple[str, Cause, str, Play]] = []


def case(cause: Cause, words: str) -> Callable[[Play], Play]:
    """Register a scene: the cause that explain must name, and words of its reason."""

    def register(play: Play) -> Play:
        CASES.append((play.__name__, cause, words, play))
        return play

    return register


async def full(s: Scene, *, waiter: int = 50, **fields: str) -> None:
    """A queue of 1000 bytes with ten messages of 100, and one who waits."""
    await s.make(**({"limit_bytes": "1000"} | fields))
    await s.send("filler", *[100] * 10)
    if waiter:
        await s.wait("waiter", waiter)


@case("no-consumer", "the limit of 1000 bytes is reached: no consumer is attached")
async def nobody_consumes(s: Scene) -> None:
    await full(s)


@case("no-consumer", "the limit of 10 messages is reached: no consumer is attached")
async def nobody_consumes_and_messages_are_limited(s: Scene) -> None:
    await full(s, limit_bytes="unlimited", limit_messages="10")


@case("no-consumer", "no consumer is attached")
async def a_topic_whose_subscriptions_have_no_consumer(s: Scene) -> None:
    await s.make("topic", limit_bytes="1000")
    await s.consume("in", "10/unlimited", subscription="audit", durable=True)
    await s.send("filler", *[100] * 10)
    await s.store.detach(s.address, "in", "in.1", failed=False)
    await s.wait("waiter", 50)


@case("no-consumer", "no consumer is attached")
async def nobody_consumes_and_the_message_is_larger_than_what_is_free(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", 700)
    await s.wait("waiter", 400)


@case("no-consumer", "reached")
async def the_limit_was_lowered_below_what_is_held(s: Scene) -> None:
    await full(s, limit_bytes="2000", waiter=0)
    await s.store.apply(s.address, {"limit_bytes": "500"}, mode="change", ttl_ms=TTL_MS)
    await s.wait("waiter", 50)


@case("all-paused", "all consumers are paused")
async def its_only_consumer_is_paused(s: Scene) -> None:
    await full(s)
    await s.consume("in", "paused")


@case("all-paused", "all consumers are paused")
async def all_of_several_are_paused(s: Scene) -> None:
    await full(s)
    for session in ("in-a", "in-b", "in-c"):
        await s.consume(session, "paused")


@case("at-capacity", "in.1 4 of 4/unlimited")
async def a_window_of_messages_is_full(s: Scene) -> None:
    await full(s)
    await s.consume("in", "4/unlimited", 4)


@case("at-capacity", "in.1 3 of unlimited/250")
async def a_window_of_bytes_is_full(s: Scene) -> None:
    await full(s)
    await s.consume("in", "unlimited/250", 3)


@case("at-capacity", "in.1 1 of pull")
async def a_pulling_consumer_works_on_its_message(s: Scene) -> None:
    await full(s)
    await s.consume("in", "pull", 1)


@case("at-capacity", "in-b.1 3 of 3/unlimited, in-a.1 2 of 2/unlimited")
async def all_of_several_are_at_capacity_and_one_is_paused(s: Scene) -> None:
    await full(s)
    await s.consume("in-a", "2/unlimited", 2)
    await s.consume("in-b", "3/unlimited", 3)
    await s.consume("in-c", "paused")


@case("pull-idle", "take one message when asked, and none is asked")
async def nobody_asks_its_pulling_consumer(s: Scene) -> None:
    await full(s)
    await s.consume("in", "pull")


@case("unsettled", "consumers hold all messages unsettled: in.1 10")
async def one_consumer_holds_everything(s: Scene) -> None:
    await full(s)
    await s.consume("in", "100/unlimited", 10)


@case("unsettled", "in-b.1 7, in-a.1 3")
async def two_consumers_hold_everything(s: Scene) -> None:
    await full(s)
    await s.consume("in-a", "100/unlimited", 3)
    await s.consume("in-b", "100/unlimited", 7)


@case("unsettled", "in-a.1 10")
async def one_holds_everything_and_another_is_idle(s: Scene) -> None:
    await full(s)
    await s.consume("in-a", "100/unlimited", 10)
    await s.consume("in-b", "100/unlimited")


@case("unsettled", "in.1 10")
async def the_only_subscription_of_a_topic_settles_nothing(s: Scene) -> None:
    await s.make("topic", limit_bytes="1000")
    await s.consume("in", "100/unlimited", subscription="audit")
    await s.send("filler", *[100] * 10)
    await s.consume("in", "100/unlimited", 10, subscription="audit")
    await s.wait("waiter", 50)


async def topic_with_a_fast_subscription(s: Scene) -> None:
    await s.make("topic", limit_bytes="1000")
    await s.consume("fast", "100/unlimited", subscription="mail")
    await s.consume("slow", "2/unlimited", subscription="audit", durable=True)
    await s.send("filler", *[100] * 10)
    await s.settle("fast", 10)
    await s.wait("waiter", 50)


@case("slow-subscription", "subscription audit has 10 messages to settle, others at most 0; no consumer of it")
async def a_durable_subscription_without_consumer_holds_the_topic(s: Scene) -> None:
    await topic_with_a_fast_subscription(s)
    await s.store.detach(s.address, "slow", "slow.1", failed=False)


@case("slow-subscription", "subscription audit has 10 messages to settle, others at most 0; its consumers hold 2")
async def a_slow_subscription_holds_the_topic(s: Scene) -> None:
    await topic_with_a_fast_subscription(s)
    await s.consume("slow", "2/unlimited", 2, subscription="audit", durable=True)


@case("slow-consumers", "consumers are slower than producers")
async def consumers_with_room_in_their_windows_do_not_keep_up(s: Scene) -> None:
    await full(s)
    await s.consume("in", "100/unlimited", 3)


@case("not-due", "all messages wait for their time, the first for 10 min")
async def all_that_is_stored_is_for_later(s: Scene) -> None:
    await full(s)
    await s.consume("in", "100/unlimited", 3)
    await s.fields(later=7, next_due=await s.us() // 1000 + 600_000)


@case("slow-consumer", "a consumer is slow: in.1 ")
async def a_consumer_settles_less_than_the_rule_says(s: Scene) -> None:
    await full(s, slow_rate="50.0")
    await s.consume("in", "100/unlimited", 3)


@case("delivery-rate", "delivery is limited to 2 messages/s")
async def delivery_is_limited(s: Scene) -> None:
    await full(s)
    await s.consume("in", "100/unlimited", 3)
    await s.fields(delivery_rate=2, delivery_burst=1, delivery_tat=await s.us() + 60_000_000)


@case("leased", "is leased to other sessions and not used yet: holder 1000 bytes")
async def one_session_holds_all_the_credit(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.lease("holder", 1000)
    await s.wait("waiter", 50)


@case("leased", "holder-b 500 bytes, holder-a 400 bytes")
async def two_sessions_hold_the_credit(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.lease("holder-a", 400)
    await s.lease("holder-b", 500)
    await s.wait("waiter", 150)


@case("leased", "the limit of 5 messages is reached: what is missing is leased")
async def credit_for_messages_is_held(s: Scene) -> None:
    await s.make(limit_messages="5")
    await s.lease("holder", 5, 5)
    await s.wait("waiter", 50)


@case("leased", "the limit of 100 is reached: what is missing is admitted or kept ready: holder 100")
async def a_gate_is_in_use(s: Scene) -> None:
    await s.make("gate", limit_bytes="100")
    await s.lease("holder", 100)
    await s.wait("waiter", 50)


@case("holder-lost", "holder holds credit for 1000 bytes and was not heard of for")
async def who_holds_the_credit_is_dead(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.lease("holder", 1000)
    await s.wait("waiter", 50)
    await s.rewrite("holder", "seen", (await s.us()) // 1000 - 7000)


@case("head-needs", "the message needs 400 bytes and 300 are free")
async def the_message_is_larger_than_what_is_free(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", *[100] * 7)
    await s.consume("in", "100/unlimited", 3)
    await s.wait("waiter", 400)


@case("oversize", "a message of 5000 bytes is larger than that, and goes alone")
async def a_message_above_the_limit_waits_to_go_alone(s: Scene) -> None:
    await full(s, waiter=0)
    await s.wait("waiter", 900)
    await s.fields(oversize="allow-one")
    await s.rewrite("waiter", "need", 5000)


@case("same-session", "only the session that waits to send consumes it")
async def who_waits_is_the_only_one_who_consumes(s: Scene) -> None:
    await full(s, waiter=0)
    await s.consume("worker", "100/unlimited", 10)
    await s.wait("worker", 50)


@case("hysteresis", "it was full and serves again at 500 bytes pending; 800 are")
async def it_is_shut_until_enough_was_settled(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", *[100] * 8)
    await s.fields(shut=1, resume_bytes=500, blocked=1)


@case("hysteresis", "it was full and serves again at 3 messages pending; 8 are")
async def it_is_shut_until_enough_messages_were_settled(s: Scene) -> None:
    await s.make(limit_messages="10")
    await s.send("filler", *[100] * 8)
    await s.fields(shut=1, resume_messages=3, blocked=1)


@case("pool", "pool memory is exhausted: 800 of the 800 bytes that it lends here are taken")
async def a_pool_lends_no_more(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", *[100] * 8)
    await s.part("slices", memory="granted=900 returned=100")
    await s.fields(pools="memory", blocked=1)


@case("pool", "pool store is exhausted: 800 of the 800 bytes")
async def the_smaller_of_two_pools_binds(s: Scene) -> None:
    await s.make()
    await s.send("filler", *[100] * 8)
    await s.part("slices", memory="granted=9000 returned=0", store="granted=850 returned=50")
    await s.fields(pools="memory store", blocked=1)


@case("pool", "pool memory does not exist: there is no such pool in the namespace")
async def a_pool_that_nobody_made(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", *[100] * 8)
    await s.fields(pools="memory", blocked=1)


@case("open", "all 800 bytes that pool memory lends here are taken; who sends next asks it for more")
async def a_slice_is_used_up_and_nobody_waits(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", *[100] * 8)
    await s.part("slices", memory="granted=800 returned=0")
    await s.fields(pools="memory")


@case("no-consumer", "the limit of 800 bytes is reached: no consumer is attached")
async def the_limit_leaves_less_than_the_pool(s: Scene) -> None:
    await s.make(limit_bytes="800")
    await s.send("filler", *[100] * 8)
    await s.part("slices", memory="granted=810 returned=0")
    await s.fields(pools="memory")
    await s.wait("waiter", 50)


@case("send-rate", "its rate of 2 messages/s is used up")
async def the_shared_rate_is_used_up(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.fields(send_rate=2, send_burst=1, send_tat=await s.us() + 60_000_000)


@case("send-rate", "its rate of 1000 bytes/s is used up")
async def the_shared_rate_in_bytes_is_used_up(s: Scene) -> None:
    await s.make()
    await s.fields(send_byte_rate=1000, send_byte_burst=1000, send_byte_tat=await s.us() + 60_000_000)


@case("stopped", "it was stopped by hand: disk is being replaced")
async def it_was_stopped_by_hand(s: Scene) -> None:
    await full(s)
    await s.fields(stopped="disk is being replaced")


@case("stopped", "it was stopped by hand: audit")
async def a_gate_was_stopped_by_hand(s: Scene) -> None:
    await s.make("gate", limit_bytes="100")
    await s.fields(stopped="audit")


@case("held-off", "it is held off for ")
async def a_gate_is_held_off(s: Scene) -> None:
    await s.make("gate", limit_bytes="100")
    await LimiterStore(s.store.server).pause(s.address, "ann", ms=60_000, reason="429")


@case("held-off", "it is held off for ")
async def a_bucket_is_held_off(s: Scene) -> None:
    await s.make("bucket")
    await LimiterStore(s.store.server).pause(s.address, "ann", ms=60_000, reason="429")


@case("learning", "Redis may have lost state; for ")
async def it_learns_after_a_loss_of_state(s: Scene) -> None:
    await s.store.apply(s.address, {"kind": "queue", "limit_bytes": "1000"}, mode="recover", ttl_ms=TTL_MS)
    await s.wait("waiter", 50)


@case("enforcement-off", "enforcement is off")
async def it_is_not_enforced(s: Scene) -> None:
    await full(s, waiter=0)
    await s.fields(enforce="off")


@case("enforcement-off", "no consumer is active, so limits are not enforced")
async def it_is_not_enforced_while_nobody_consumes(s: Scene) -> None:
    await full(s, waiter=0)
    await s.fields(enforce="with-consumers", active=0)


@case("at-capacity", "all consumers are at capacity")
async def it_is_enforced_since_somebody_consumes(s: Scene) -> None:
    await full(s)
    await s.consume("in", "4/unlimited", 4)
    await s.fields(enforce="with-consumers", active=1)


@case("bucket-rate", "2/s with bursts of 2: the next slot is in ")
async def a_bucket_is_used_up(s: Scene) -> None:
    await s.make("bucket", rate="2.0", burst="2")
    await s.store.take(s.address, "s", seq=1, line=[(2, 60_000), (2, 60_000), (2, 60_000)])


@case("open", "there is room")
async def nothing_is_wrong(s: Scene) -> None:
    await s.make(limit_bytes="1000")
    await s.send("filler", 100)


@pytest.mark.parametrize(("name", "cause", "words", "play"), CASES, ids=[name for name, *_ in CASES])
async def test_explain_names_the_cause_first(scene: Scene, name: str, cause: Cause, words: str, play: Play) -> None:
    del name  # it names the case
    await play(scene)
    told = await scene.client.explain("orders")
    assert told.cause == cause, told
    assert words in told.reason
    assert told.causes[0].cause == cause
    assert told.reason in str(told)
    assert told.reason in told.line
    assert len(told.line.splitlines()) == 1
