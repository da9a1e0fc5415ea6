"""The audit without Spark: real ledgers are proven, and every single fault in them is found."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from headgate.core.ledger import EVENTS
from headgate_pipeline.audit import columns
from headgate_pipeline.audit.findings import Finding, Settings
from headgate_pipeline.audit.replay import OPS, Replay
from tests.pipeline.faults import faults
from tests.pipeline.story import Row, of_bucket, of_queue
from tests.support.extent import share_of
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[RewritingServer]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    yield server
    await server.close()


def replay(ledger: Iterable[Row], settings: Settings | None = None) -> list[Finding]:
    one = Replay(settings)
    for row in sorted(ledger, key=lambda row: (row[12] or 0, row[0])):
        one.step(row)
    return one.finish()


def missed(ledger: list[Row]) -> list[str]:
    """Return the faults that leave the replay without a finding, from its first entry on."""
    return [
        name
        for name, faulty in share_of(faults(ledger), 3)
        if [(found.finding, found.first_seq) for found in replay(faulty)] == [("audited", 1)]
    ]


async def test_a_ledger_of_every_operation_is_proven_and_every_single_fault_in_it_found(
    server: RewritingServer, namespace: str
) -> None:
    """Mutants: `_balance` leaves out messages; `Accounts.totals` compares nothing; `_published` asks for no number."""
    ledger = await of_queue(server, namespace)
    assert {row[2] for row in ledger} == OPS - {"take", "slice", "admit", "hold_off", "turn"}
    (done,) = replay(ledger)
    assert done == Finding("audited", seq=len(ledger), entries=len(ledger), first_seq=1, excused=1, taken_over=0)
    assert missed(ledger) == []


async def test_so_is_the_ledger_of_a_bucket(server: RewritingServer, namespace: str) -> None:
    ledger = await of_bucket(server, namespace)
    assert [found.finding for found in replay(ledger, Settings(rate=50))] == ["audited"]
    assert missed(ledger) == []
    (found, _) = replay(ledger, Settings(rate=49))
    assert (found.promise, found.what) == ("P8", "tokens were taken faster than the rate")


BEGIN = 1_800_000_000_000


def made(*entries: tuple[str, str, int, int, int, str, int, int, int, int], first: int = 1) -> list[Row]:
    """Return a ledger: op, session, bytes, messages, first, detail and counters of each entry, 100 ms apart."""
    return [(first + at, BEGIN + 100 * at, *entry, BEGIN, 1, None) for at, entry in enumerate(entries)]


APPLY = ("apply", "-", 0, 0, 0, "limits:100:inf", 0, 0, 0, 0)


def said(ledger: list[Row], settings: Settings | None = None) -> list[tuple[str, str | None, int | None]]:
    return [(found.finding, found.promise, found.seq) for found in replay(ledger, settings)[:-1]]


def test_a_grant_above_the_limit_is_a_violation_unless_a_setting_allows_it() -> None:
    """Mutant: `_within_limits` looks at leased alone."""
    grant = ("acquire", "a", 60, 1, 0, "open:a;grant:a:60:1", 0, 0, 60, 1)
    sent = ("publish", "a", 60, 1, 1, "", 60, 1, 0, 0)
    above = ("acquire", "b", 41, 1, 0, "open:b;grant:b:41:1", 60, 1, 41, 1)
    ledger = made(APPLY, grant, sent, above)
    assert said(ledger) == said(ledger, Settings()) == [("violated", "P1", 4)]
    found = replay(ledger)[0]
    assert (found.expected, found.found) == ("100 B inf m", "101 B 2 m")
    assert (found.before or "").startswith("3 publish a 60 B"), "with its neighbours"
    assert said(ledger, Settings(enforce="off")) == []
    lowered = ("apply", "-", 0, 0, 0, "limits:50:inf", 60, 1, 0, 0)
    assert said(made(APPLY, grant, sent, lowered)) == [], "a limit below what is held overshoots nothing"


def test_one_message_above_the_limit_goes_alone_where_that_is_allowed() -> None:
    ledger = made(APPLY, ("acquire", "a", 160, 1, 0, "open:a;grant:a:160:1", 0, 0, 160, 1))
    assert said(ledger) == [("unproven", "P1", 2)]
    assert said(ledger, Settings()) == [("violated", "P1", 2)]
    assert said(ledger, Settings(oversize="allow-one")) == []


def test_references_need_no_credit_and_count_as_messages() -> None:
    """Mutants: their messages need credit; or are not among what was granted; or so is what is stored in memory."""
    opened = ("acquire", "a", 0, 0, 0, "open:a", 0, 0, 0, 0)

    def sent(detail: str, size: int = 0) -> tuple[str, str, int, int, int, str, int, int, int, int]:
        return ("publish", "a", size, 2, 1, f"{detail}grant:a:50:5", size, 2, 50 - size, 3)

    more = ("publish", "a", 50, 3, 3, "", 50, 5, 0, 0)
    assert said(made(APPLY, opened, sent("spooled:disk/x-1-1:80;"), more)) == []
    assert said(made(APPLY, opened, sent(""))) == [("violated", "P2", 3)]
    few = (*APPLY[:5], "limits:100:4", *APPLY[6:])
    assert said(made(few, opened, sent("spooled:disk/x-1-1:80;"))) == [("violated", "P1", 3)]


def apply(binds: str, above: str = "refuse:-") -> tuple[str, str, int, int, int, str, int, int, int, int]:
    return (*APPLY[:5], f"limits:100:inf;binds:{binds};above:{above}", *APPLY[6:])


def test_a_ledger_tells_itself_what_may_go_above_its_limits() -> None:
    """Mutants: `unbound` asks the settings first; `_limits` forgets nothing; `_loose` is not looked at."""
    over = ("acquire", "a", 160, 1, 0, "open:a;grant:a:160:1", 0, 0, 160, 1)
    assert said(made(apply("no"), over)) == []
    assert said(made(apply("no"), over), Settings()) == [], "what holds now does not matter"
    assert said(made(apply("yes"), over)) == [("violated", "P1", 2)]
    assert said(made(apply("yes"), over), Settings(enforce="off", oversize="allow-one")) == [("violated", "P1", 2)]
    assert said(made(apply("yes", "allow-one:-"), over)) == []
    assert said(made(apply("no"), APPLY, over)) == [("unproven", "P1", 3)], "an older script applied settings again"

    opened = ("acquire", "a", 100, 2, 0, "open:a;grant:a:100:2", 0, 0, 100, 2)
    beyond = ("publish", "a", 130, 1, 1, "", 130, 1, 0, 1)
    assert said(made(apply("yes", "refuse:130"), opened, beyond)) == []
    assert said(made(apply("yes", "refuse:129"), opened, beyond)) == [("violated", "P1", 3)]


def test_limits_that_bind_with_consumers_bind_from_the_entry_that_says_so() -> None:
    """Mutant: `_bind` does nothing."""
    gone = ("detach", "c.1", 0, 0, 0, "binds:no;grant:a:160:1;detach:c.1", 0, 0, 160, 1)
    opened = ("acquire", "a", 0, 0, 0, "open:a", 0, 0, 0, 0)
    here = ("attach", "d.1", 0, 0, 0, "grant:a:170:1;attach:d.1:queue;binds:yes", 0, 0, 170, 1)
    more = ("acquire", "a", 171, 1, 0, "grant:a:171:1", 0, 0, 171, 1)
    assert said(made(apply("yes"), opened, gone, here, more)) == [("violated", "P1", 5)], "not the grant before it"
    assert said(made(apply("yes"), opened, (*gone[:5], gone[5][9:], *gone[6:]))) == [("violated", "P1", 3)]


def test_an_event_that_cannot_be_read_proves_nothing() -> None:
    broken = ("acquire", "a", 50, 1, 0, "open:a;grant:a:fifty:1", 0, 0, 50, 1)
    assert said(made(APPLY, broken)) == [("unproven", "P2", 2)]


def test_credit_beyond_what_is_held_is_seen_and_judged_by_the_hard_limit() -> None:
    opened = ("acquire", "a", 100, 2, 0, "open:a;grant:a:100:2", 0, 0, 100, 2)
    beyond = ("publish", "a", 130, 1, 1, "", 130, 1, 0, 1)
    assert said(made(APPLY, opened, beyond)) == [("violated", "P1", 3)]
    assert said(made(APPLY, opened, beyond), Settings(hard_bytes=130)) == []


def test_nothing_is_granted_to_a_session_whose_credit_was_reclaimed() -> None:
    """Mutant: `reclaim` keeps the account."""
    opened = ("acquire", "a", 50, 1, 0, "open:a;grant:a:50:1", 0, 0, 50, 1)
    reclaimed = ("reap", "-", 0, 0, 0, "reclaim:a:50:1", 0, 0, 0, 0)
    again = ("acquire", "b", 10, 1, 0, "open:b;grant:a:60:2;grant:b:10:1", 0, 0, 20, 2)
    assert said(made(APPLY, opened, reclaimed, again))[0] == ("violated", "P4", 4)
    assert "which was reclaimed" in replay(made(APPLY, opened, reclaimed, again))[0].what
    less = ("reap", "-", 0, 0, 0, "reclaim:a:40:1", 0, 0, 10, 0)
    assert said(made(APPLY, opened, less)) == [("violated", "P2", 3)]


def test_a_claim_of_the_call_that_ends_an_account_shows_in_what_is_freed() -> None:
    """A session gave all back, the write was lost, and it leaves. Mutant: what it held before is what must be freed."""
    opened = ("acquire", "a", 50, 2, 0, "open:a;grant:a:50:2", 0, 0, 50, 2)
    other = ("acquire", "b", 10, 1, 0, "open:b;grant:b:10:1", 0, 0, 60, 3)
    left = ("leave", "a", 0, 0, 0, "late:a;claim:a:50:2", 0, 0, 10, 1)
    assert said(made(APPLY, opened, other, left)) == []
    assert said(made(APPLY, opened, other, (*left[:5], "", *left[6:])))[0] == ("violated", "P2", 4)
    part = ("leave", "a", 20, 1, 0, "claim:a:50:2", 0, 0, 10, 1)
    assert said(made(APPLY, opened, other, part)) == []
    assert said(made(APPLY, opened, other, (*part[:8], 30, 1)))[0] == ("violated", "P2", 4)


def test_what_is_missing_or_malformed_proves_nothing_and_accuses_nobody() -> None:
    opened = ("acquire", "a", 50, 1, 0, "open:a;grant:a:50:1", 0, 0, 50, 1)
    sent = ("publish", "a", 50, 1, 1, "", 50, 1, 0, 0)
    more = ("acquire", "a", 80, 2, 0, "grant:a:80:2", 50, 1, 30, 1)
    ledger = made(APPLY, opened, sent, more, ("publish", "a", 30, 1, 2, "grant:a:90:3", 80, 2, 10, 1))
    assert said(ledger) == []
    assert said([ledger[0], *ledger[2:]]) == [("unproven", "P2", 3), ("unproven", "P1", 4)]
    assert said(ledger[2:]) == [("unproven", "P1", 4)], "a period may begin anywhere"
    assert replay(ledger[2:])[-1][9:] == (3, 3, 0, 1), "one account was taken over"
    malformed = (2, *[None] * 13, "malformed: 4 columns")
    assert {finding for finding, _, _ in said([*ledger[:1], malformed, *ledger[2:]])} == {"unproven"}
    newer = (*ledger[1][:13], 2, None)
    assert said([ledger[0], newer])[0] == ("unproven", "P2", 2)


def test_a_destination_made_again_begins_anew() -> None:
    opened = ("acquire", "a", 50, 1, 0, "open:a;grant:a:50:1", 0, 0, 50, 1)
    later = [(row[0], row[1] + 5000, *row[2:12], row[12] + 5000, *row[13:]) for row in made(APPLY, opened)]
    assert said([*made(APPLY, opened), *later]) == []
    lost = [(row[0] + 1, *row[1:12], row[12] + 5000, *row[13:]) for row in later]
    assert said([*made(APPLY, opened, opened), *lost])[-1] == ("lost", "P3", 2)


def test_what_a_failover_lost_is_lost_and_not_unproven() -> None:
    """Mutants: the limits are forgotten with the entries that were lost; those of a lost `apply` are kept."""
    opened = ("acquire", "a", 50, 4, 0, "open:a;grant:a:50:4", 0, 0, 50, 4)
    sends = [("publish", "a", 10, 1, n + 1, "", 10 * n + 10, n + 1, 40 - 10 * n, 3 - n) for n in range(4)]
    before = made(APPLY, opened, *sends)
    claimed = ("acquire", "a", 50, 4, 0, "lost:2", 20, 2, 30, 2)
    more = ("acquire", "a", 60, 5, 0, "grant:a:60:5", 20, 2, 40, 3)

    def then(first: int, *entries: Any) -> list[Row]:
        rows = made(*entries)
        return [(row[0] + first - 1, row[1] + 5000, *row[2:12], row[12] + 5000, *row[13:]) for row in rows]

    whole = ("acquire", "a", 50, 4, 0, "lost:2", 40, 4, 10, 0)
    assert said([*before, *then(7, whole)]) == [("lost", "P3", 7)], "the ledger was not behind"
    behind = [*before, *then(5, claimed, more)]
    assert said(behind) == [("lost", "P3", 5), ("lost", "P3", 5)]
    assert [found.found for found in replay(behind)[:-1]] == ["0", "2"]
    too_much = ("acquire", "a", 5000, 5, 0, "grant:a:5000:5", 20, 2, 4980, 3)
    assert said([*before, *then(5, claimed, too_much)])[-1][:2] == ("violated", "P1"), "the limit is known"
    again = made(APPLY, opened, *sends[:2], APPLY, *sends[2:])
    assert said([*again, *then(5, claimed, more)])[-1][:2] == ("unproven", "P1"), "a lost `apply` may have changed it"


def test_senders_that_send_more_than_the_rate_are_found() -> None:
    """Mutant: `Sends` never takes tokens away."""
    opened = ("acquire", "a", 100, 90, 0, "open:a;grant:a:100:90", 0, 0, 100, 90)
    sends = [("publish", "a", 1, 1, n + 1, "", n + 1, n + 1, 99 - n, 89 - n) for n in range(20)]
    ledger = made(APPLY, opened, *sends)
    assert said(ledger, Settings(send_rate=10, send_burst=2)) == [], "one every 100 ms"
    assert {found[:2] for found in said(ledger, Settings(send_rate=8, send_burst=2))} == {("violated", "P8")}
    assert said(made(APPLY, opened, *sends, (*APPLY[:6], 20, 20, 80, 70)), Settings(send_rate=8, send_burst=2)) == []
    assert said(ledger, Settings(send_byte_rate=8, send_byte_burst=2))[0][:2] == ("violated", "P8")


def test_a_message_number_is_given_once() -> None:
    opened = ("acquire", "a", 50, 4, 0, "open:a;grant:a:50:4", 0, 0, 50, 4)
    sends = [("publish", "a", 10, 2, 1, "", 10, 2, 40, 2), ("publish", "a", 10, 1, 2, "", 20, 3, 30, 1)]
    assert said(made(APPLY, opened, *sends)) == [("violated", "P5", 4)]


def test_no_more_is_settled_than_was_delivered() -> None:
    """Mutant: `_delivered` compares nothing."""
    opened = ("acquire", "a", 50, 4, 0, "open:a;grant:a:50:4", 0, 0, 50, 4)
    attached = ("attach", "c.1", 0, 0, 0, "attach:c.1:queue", 0, 0, 50, 4)
    sent = ("publish", "a", 20, 2, 1, "", 20, 2, 30, 2)
    fetched = ("settle", "c.1", 0, 0, 0, "settled:0:0;fetched:10:1", 20, 2, 30, 2)
    settled = ("settle", "c.1", 10, 1, 0, "settled:10:1;fetched:0:0", 10, 1, 30, 2)
    again = ("settle", "c.1", 10, 1, 0, "settled:10:1;fetched:0:0", 0, 0, 30, 2)
    assert said(made(APPLY, opened, attached, sent, fetched, settled)) == []
    assert said(made(APPLY, opened, attached, sent, fetched, settled, again)) == [("violated", "P5", 7)]


def test_nothing_goes_before_its_time_and_no_more_than_waited() -> None:
    """Mutants: `Later.step` compares no moments; it counts nothing."""

    def told(*details: str) -> list[tuple[str, str | None, int | None]]:
        return said(made(APPLY, *[("settle", "c.1", 0, 0, 0, detail, 0, 0, 0, 0) for detail in details]))

    soon, late = BEGIN + 200, BEGIN + 900
    assert told(f"later:waits:2:{soon};later:waits:1:{late}", f"later:due:2:{soon}", f"later:gone:1:{late}") == []
    assert told(f"later:waits:2:{late}", f"later:due:1:{late}") == [("violated", "P8", 3)]
    assert told(f"later:waits:1:{soon}", f"later:due:2:{soon}") == [("violated", "P2", 3)]
    assert told(f"later:waits:1:{soon}", f"later:gone:1:{late}") == [("violated", "P2", 3)]
    assert told("later:goes:1:5") == [("unproven", "P2", 2)]


def test_every_event_of_the_data_dictionary_is_known() -> None:
    """Mutant: an event that scripts write, and no audit follows or passes over."""
    replay = Replay()
    followed = {"grant", "settled", "fetched", "return", *replay._of_account, *replay._others}
    assert followed | columns._WITHOUT - {""} == set(EVENTS)
    assert set(columns._EVENTS) <= followed
