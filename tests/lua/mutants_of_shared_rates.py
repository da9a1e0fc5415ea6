"""Mutants of rates that all slices of a destination share; see :mod:`tests.lua.mutants`."""

from typing import Final

_P8: Final = "test_p8_shared_rates"
_TOLD: Final = f"{_P8}::test_nothing_is_lent_before_each_slice_has_told_what_it_has"
_IN_HAND: Final = f"{_P8}::test_what_one_slice_has_in_hand_is_not_to_be_had_by_another"
_IDLE: Final = f"{_P8}::test_what_is_idle_in_hand_comes_back_and_what_was_just_lent_stays"
_ASKED: Final = f"{_P8}::test_slices_are_asked_for_what_is_in_hand_only_now_and_then"
_ABOVE: Final = f"{_P8}::test_a_message_above_the_burst_goes_alone_and_is_owed_by_all"
_LOST: Final = f"{_P8}::test_what_a_slice_had_before_it_lost_state_counts_as_spent"
_FIRST: Final = f"{_P8}::test_a_first_slice_that_lost_state_owes_the_burst_and_what_it_lent_is_void"
_TURNS: Final = f"{_P8}::test_slices_that_wait_take_turns_by_what_they_were_served"
_ANEW: Final = f"{_P8}::test_a_rate_that_comes_again_asks_all_slices_anew"
_MORE: Final = f"{_P8}::test_a_report_of_more_than_was_lent_begins_anew"
SHARED_RATES: Final = (
    ("P8", "rate_lend", "if #unknown > 0 then", "if false then", _TOLD),
    ("P8", "rate_lend", "if #unknown > 0 then", "if #unknown > 1 then", _TOLD),
    ("P8", "rate_lend", "left = left - has - ", "left = left - ", _IN_HAND),
    ("P8", "lib/lender", "  spend(kind, math.min(spent, m.granted - m.back) - m.spent)\n", "", _IN_HAND),
    ("P8", "lib/sendrate", "    h.spent = h.spent + amount\n", "", _IN_HAND),
    ("P7", "rate_take", "h.back, changed = h.granted - h.spent, true", "", _IDLE),
    ("P7", "rate_take", " and math.abs(now_ms - h.at) >= KEPT_MS", "", _IDLE),
    ("P8", "lib/sendrate", "h.granted - h.spent - h.back", "h.granted - h.spent", _IDLE),
    ("P8", "lib/lender", "math.min(back, m.granted - m.spent)", "m.granted - m.spent", _IDLE),
    ("P12", "rate_lend", "and math.abs(now_ms - lender.asked) >= COLLECT_MS", "", _ASKED),
    ("P8", "rate_lend", "math.min(need, burst)\nif need", "need\nif need", _ABOVE),
    ("P8", "rate_lend", "need > burst and need or", "need > burst and burst or", _ABOVE),
    ("P8", "lib/lender", "    spend(kind, m.granted - m.spent - m.back)\n", "", _LOST),
    ("P8", "lib/lent_rate", " or epoch + 0 ~= d.epoch then", " then", _LOST),
    ("P8", "rate_take", "epoch == h.epoch and granted", "granted", _LOST),
    ("P8", "lib/lender", "    tat = owes and ", "    tat = false and ", _FIRST),
    ("P8", "lib/lender", "if not home or epoch + 0 ~= d.epoch then", "if not home then", _FIRST),
    ("P8", "lib/lender", "home or d.new_epoch or redis", "home or redis",
     f"{_P8}::test_one_that_lost_all_it_knew_of_its_slices_owes_the_burst_too"),
    ("P8", "rate_take", "if home == h.home and", "if", _FIRST),
    ("P8", "rate_take", "h, changed = empty_hand(home), true", "h.home, changed = home, true", _FIRST),
    ("P7", "rate_lend", "one.served < m.served and", "false and", _TURNS),
    ("P7", "rate_lend", "waits(one, WAITS_MS) and", "one.need > 0 and", _TURNS),
    ("P8", "lib/slices", "redis.call('HDEL', K_DESTINATION, 'send_lent')", "local _", _ANEW),
    ("P8", "rate_take", "elseif not d[kind .. '_rate'] or not d.of_slices then", "elseif not d.of_slices then", _ANEW),
    ("P8", "rate_lend", "home > lender.home or ", "", _MORE),
    ("P8", "rate_lend", "granted > (m and", "false and (m and", _MORE),
    ("P8", "lib/lender", "math.max(0, us - now_us)", "0", f"{_P8}::test_a_clock_that_is_set_back_does_not_lock_it"),
)  # fmt: skip
