"""Mutants of messages that wait for their time; see :mod:`tests.lua.mutants`."""

from typing import Final

_T: Final = "destinations/test_later"
_WAITS = f"{_T}::test_a_message_for_later_waits_and_others_go_on"
_FAILED = f"{_T}::test_a_failed_message_waits_longer_each_time"
_SAID = f"{_T}::test_a_consumer_says_how_long_a_message_waits"
_TOPIC = f"{_T}::test_each_subscription_of_a_topic_gets_it_at_its_time"
_TURNS = f"{_T}::test_where_keys_take_turns_it_is_in_turn_when_it_is_due"
_PASSES = f"{_T}::test_a_fetch_passes_over_what_is_not_due_and_over_no_more"
_HEAR = f"{_T}::test_consumers_hear_when_the_next_is_due"
_EXPIRES = f"{_T}::test_what_waits_expires_all_the_same"
_PURGE = f"{_T}::test_a_purge_takes_what_waits"
_BACK = f"{_T}::test_a_clock_that_is_set_back_lets_nothing_go_before_its_time"
_NOBODYS = f"{_T}::test_what_waits_is_nobodys_to_accept"
_FIRST = f"{_T}::test_who_gets_it_first_hears_that_nobody_had_it_and_later_ones_that_somebody_did"
_FITS = f"{_T}::test_of_what_is_due_only_what_fits_is_taken_and_the_rest_comes_to_others"
_BESIDE = f"{_T}::test_what_comes_back_in_the_call_that_fetches_is_in_order_with_what_is_due"
_ORDER = f"{_T}::test_what_is_due_at_once_comes_in_order_and_straight_to_whoever_fetches"
_OTHERS = f"{_T}::test_others_are_woken_for_what_is_due_and_not_taken"
_LINK = f"{_T}::test_a_link_takes_along_what_is_left"

LATER: Final = (
    ("P8", "lib/aside", "if due and due > now_ms then", "if due and false then", _WAITS),
    ("P8", "lib/later", "    redis.call('HSET', K_DESTINATION, 'rules', name_rules())\n", "", _WAITS),
    ("P8", "lib/later", "(at == '' and now_ms or 0)", "now_ms", _WAITS),
    ("P8", "lib/later", "dues[#dues + 1] = due > now_ms and due", "dues[#dues + 1] = due", _WAITS),
    ("P8", "lib/later", "    note_dues('waits', dues)\n", "", _WAITS),
    (
        "P8",
        "lib/later",
        ", now_ms + MOST_LATER_MS)",
        ", now_ms + 2 * MOST_LATER_MS)",
        f"{_T}::test_no_message_waits_for_more_than_a_year",
    ),
    (
        "P8",
        "lib/aside",
        "    redis.call('ZREM', K_LATER, unpack(there))\n",
        "",
        f"{_T}::test_what_is_read_as_new_waits_no_more",
    ),
    ("P8", "lib/aside", "before + #early >= MAX_PASSED_OVER", "false", _PASSES),
    ("P8", "lib/aside", "  return now, #early\n", "  return now, 0\n", _PASSES),
    ("P8", "lib/later", "rank < MAX_TIMED", "true", _HEAR),
    ("P8", "lib/later", "d.next_due - now_ms > DUE_SOON_MS", "false", _HEAR),
    ("P8", "lib/later", "d.next_due and redis.call('ZCARD', K_LATER) or 0", "0", _HEAR),
    ("P8", "lib/aside", "due and math.floor(due) > now_ms and early or now", "now", _LINK),
    (
        "P8",
        "lib/later",
        "ids[#ids + 1], members[i] = id, sub .. '|' .. id",
        "ids[#ids + 1] = id",
        f"{_T}::test_a_subscription_that_is_removed_lets_go_of_what_waits",
    ),
    (
        "P2",
        "lib/later_anew",
        "  end\n  wait_until(found, dues)\n",
        "  end\n",
        f"{_T}::test_a_repair_puts_right_what_waits",
    ),
    ("P2", "lib/later_anew", "  forget_later(lost)\n", "", f"{_T}::test_a_repair_puts_right_what_waits"),
    ("P8", "lib/retry", "math.max(1, tonumber(retry[2] or 1)) ^ (attempts - 1)", "1", _FAILED),
    ("P8", "lib/retry", "tonumber(retry[3] or MOST_LATER_MS)", "MOST_LATER_MS", _FAILED),
    ("P8", "lib/retry", "math.min(ms, MOST_LATER_MS)", "ms", f"{_T}::test_no_message_waits_for_more_than_a_year"),
    ("P8", "lib/promote", "'LIMIT', 0, most)", "'LIMIT', 0, MAX_PROMOTED)", _ORDER),
    (
        "P5",
        "lib/promote",
        "redis.call('EXISTS', K_LINKS) == 0",
        "true",
        f"{_T}::test_what_a_link_has_in_hand_does_not_come_back_as_it_is_due",
    ),
    ("P5", "lib/promote", "(not own or own == sub) and", "", _TOPIC),
    (
        "P8",
        "lib/aside",
        "redis.call('ZADD', K_LATER, 'NX', in_line(due, id), id) == 1",
        "false",
        f"{_T}::test_what_was_due_and_not_read_waits_again_where_the_clock_is_set_back",
    ),
    (
        "P8",
        "lib/aside",
        "(d.passed_b or 0) >= MOST_PASSED_OVER",
        "false",
        f"{_T}::test_a_fetch_passes_over_no_more_bytes_than_it_may",
    ),
    ("P8", "lib/retry", "after[id] or (", "false or (", _SAID),
    (
        "P8",
        "lib/retry",
        "    wake_hungry(1, sub)",
        "    wake_hungry(0)",
        f"{_T}::test_who_waits_is_woken_when_the_next_is_due_sooner",
    ),
    ("P8", "lib/promote", "d.next_due > now_ms then", "false then", _BACK),
    ("P8", "lib/promote", "'-inf', '(' .. int(now_ms + 1), 'WITHSCORES'", "'-inf', '+inf', 'WITHSCORES'", _WAITS),
    (
        "P8",
        "lib/promote",
        "and waits_so(sub, id, own, sure) then",
        "then",
        f"{_T}::test_a_delivery_that_failed_does_not_come_with_the_message_it_belongs_to",
    ),
    (
        "P8",
        "lib/promote",
        "aside and not redis.call('ZSCORE', K_LATER, sub .. '|' .. id)",
        "aside",
        f"{_T}::test_a_delivery_that_failed_does_not_come_with_the_message_it_belongs_to",
    ),
    ("P8", "lib/promote", "  note_dues('due', dues)\n", "", _WAITS),
    ("P8", "lib/settle", "      forget_later(gone)\n", "", _EXPIRES),
    ("P8", "lib/expiry", "who == RETURNED or who == LATER or", "who == RETURNED or", _EXPIRES),
    ("P8", "remove", "    elseif entry[2] == LATER then", "    elseif false then", _PURGE),
    ("P8", "remove", "  forget_later(ids)\n", "", _PURGE),
    ("P8", "lib/aside", "  set_aside('queue', early)\n", "", _TURNS),
    ("P8", "lib/mine", "not d.next_due and not d.promoted then", "not d.promoted then", f"{_NOBODYS}"),
    (
        "P8",
        "lib/mine",
        "not d.next_due and not d.promoted then",
        "not d.next_due then",
        f"{_NOBODYS}_whatever_stands_beside_it",
    ),
    ("P8", "lib/mine", "  put_in_order(ids)\n", "", f"{_NOBODYS}_whatever_stands_beside_it"),
    ("P8", "settle", "give_promoted_back(c.sub)\n", "", _FITS),
    ("P8", "lib/redeliver", "  if d.returned > 0 then\n    give_promoted_back(c.sub)\n  end\n", "", _BESIDE),
    ("P8", "lib/redeliver", "not due or d.promoted_again or", "not due or", _FIRST),
    ("P8", "lib/promote", "direct and d.fetches - d.returned or", "", _ORDER),
    ("P8", "lib/promote", "    wake_hungry(MAX_PROMOTED) -- there", "    wake_hungry(0) -- there", _OTHERS),
    ("P8", "lib/later", "math.floor(number / 16) % 4096 / 4096", "0", _ORDER),
    ("P8", "lib/consumer", "n < digits or n == digits and", "n == digits and", _ORDER),
    ("P8", "reap", "(d.next_due or math.huge) - now_ms", "math.huge", f"{_T}::test_a_sweep_comes_when_the_next_is_due"),
    ("P8", "lib/deliver", "d.pending_messages - count_later() >", "d.pending_messages >", _HEAR),
    ("P8", "lib/link", "return life .. wait, path", "return life, path", _LINK),
    ("P8", "lib/append", "or dues or unwanted)", "or unwanted)", _WAITS),
    ("P8", "lib/append", "wait ~= '' and dues_of(wait, 1)[1]", "false", _LINK),
    ("P8", "lib/deliver", "d.next_due and not whole then", "d.next_due then", _LINK),
)
"""Rows of :class:`tests.lua.mutants.Mutant`."""
