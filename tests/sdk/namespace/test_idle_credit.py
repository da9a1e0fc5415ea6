"""What sessions have in hand at one slice and do not use goes to those that wait at another."""

from dataclasses import replace

import pytest

import headgate
from headgate.credit import account
from headgate.credit.account import CreditAccount
from headgate.options import SessionOptions
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server


@pytest.fixture(autouse=True)
def never_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have credit that nobody uses stay for longer than anybody waits here."""
    of = SessionOptions.of
    monkeypatch.setattr(SessionOptions, "of", lambda *options: replace(of(*options), idle=2 * GUARD))


async def test_a_session_that_waits_at_one_slice_gives_back_at_once_what_it_has_at_others(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has credit at the slices of other values, and nobody asks it for that."""
    monkeypatch.setattr(account, "HINTS", account.HINTS - {"recall"})
    await client.apply("orders", kind="queue", limit=100_000, slices=3, order_by="header:customer")
    async with client.session("a") as a:
        producer = await a.producer("orders")
        for number in range(9):  # the last one needs what is in hand at other slices
            await producer.send(b"x" * 10_000, headers={"customer": number}, timeout=GUARD)


async def test_what_was_used_as_it_was_asked_for_goes_back_soon_when_it_is_not_used_any_more(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session is asked once: it used what it has since it came, and keeps that for a moment."""
    hear, asked = CreditAccount._hear, set[CreditAccount]()

    def hear_once(self: CreditAccount, words: list[str]) -> None:
        if words[0] != "recall" or words[-1] != "owed" or self not in asked:
            hear(self, words)
        if words[0] == "recall" and self.credit.in_hand > 0:
            asked.add(self)

    monkeypatch.setattr(CreditAccount, "_hear", hear_once)
    await client.apply("orders", kind="queue", limit=100_000, slices=2)
    async with client.session("a") as a, other.session("b") as b:
        producers = [await session.producer("orders") for session in (a, b)]
        for number in range(9):  # the last one needs what the other has in hand
            await producers[number % 2].send(b"x" * 10_000, timeout=GUARD)
