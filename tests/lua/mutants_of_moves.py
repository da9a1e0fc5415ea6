"""Mutants of the scripts by which single messages are deleted and moved; see :mod:`tests.lua.mutants`."""

from typing import Final

_M = "test_moves"
_STEPS = f"{_M}::test_a_message_goes_through_all_steps"
_BACK = f"{_M}::test_what_the_target_does_not_have_is_the_last_of_its_queue_again"
_FENCED = f"{_M}::test_a_later_call_fences_an_earlier_one_off_at_both_ends"
_ON_ITS_WAY = f"{_M}::test_while_it_is_on_its_way_nobody_gets_it_and_it_counts"
_NOTHING_LEFT = f"{_M}::test_what_came_back_or_failed_or_waits_its_time_leaves_nothing_behind"

MOVES: Final = (
    ("P3", "lib/alone", "    return nil\n", "    return { id, { 'm', '' } }\n",
     f"{_M}::test_one_message_is_deleted_and_its_bytes_are_free"),
    ("P3", "lib/alone", "      return nil, who\n", "      local _ = who\n",
     f"{_M}::test_what_somebody_has_in_hand_is_neither_deleted_nor_moved"),
    ("P2", "lib/alone", "  count_holders(id, redis.call('HKEYS', K_SUBSCRIPTIONS))\n", "", _NOTHING_LEFT),
    ("P2", "lib/alone", "    in_turn().forget(id)", "    local _ = nil", _NOTHING_LEFT),
    ("P2", "lib/alone", "free_messages({ id }, size_of(id), true)", "free_messages({ id }, size_of(id))",
     _NOTHING_LEFT),
    ("P10", "discard", "write_ledger('remove', '-', bytes, 1, 0)\n", "",
     f"{_M}::test_each_change_is_in_the_ledger_and_balances"),
    ("P6", "discard", "hand_over()\n", "", f"{_M}::test_who_waits_for_room_gets_that_of_a_deleted_message"),
    ("P2", "discard", "d.kind ~= 'queue' and d.kind ~= 'topic'", "d.kind ~= 'queue'",
     f"{_M}::test_a_topics_message_is_deleted_for_all_subscriptions_once"),
    # Taken out, it is nobody's, and counts.
    ("P1", "lib/moved", "  d.pending_bytes, d.pending_messages = d.pending_bytes + size, d.pending_messages + 1\n", "",
     _ON_ITS_WAY),
    ("P3", "lib/moved", "  free_alone(id)\n", "", _STEPS),
    ("P2", "lib/moved", "bytes + (moved and moved.size or 0)", "bytes", _ON_ITS_WAY),
    ("P2", "recount", "local counted, bytes = count_moved()", "local counted, bytes = 0, 0", _ON_ITS_WAY),
    ("P3", "move", "elseif d.subscriptions > 1 then", "elseif false then",
     f"{_M}::test_a_message_that_links_copy_is_not_moved"),
    # Each step once, by the latest call alone.
    ("P5", "move", "elseif fence ~= l.fence then", "elseif false then", _FENCED),
    ("P5", "move", "math.max(l.fence + 1, fence + 1, now_ms)", "math.max(l.fence, fence + 1, now_ms)", _FENCED),
    ("P5", "move", "moved.fence == fence and moved.was == id and reply_moved(link, moved) or", "",
     f"{_M}::test_each_step_may_be_repeated"),
    ("P5", "move", "moved.fence == fence and moved.was == id and", "moved.fence == fence and",
     f"{_M}::test_one_is_moved_after_the_other"),
    ("P3", "move", "d.message_seq = math.max(d.message_seq, mark) + 1", "d.message_seq = d.message_seq + 1",
     f"{_M}::test_its_number_is_above_what_the_target_skips"),
    ("P3", "move", "local gone = mark >= moved.seq", "local gone = true", _BACK),
    ("P5", "move", "local gone = mark >= moved.seq", "local gone = false",
     f"{_M}::test_who_takes_it_up_frees_what_the_target_has"),
    ("P2", "move", "  d.pending_bytes, d.pending_messages = d.pending_bytes - moved.size, d.pending_messages - 1\n", "",
     _STEPS),
    ("P2", "move", "forget_moved(link)\n", "", f"{_M}::test_each_step_may_be_repeated"),
    ("P10", "move", "  note('purge', int(moved.size), 1)\n", "",
     f"{_M}::test_each_change_is_in_the_ledger_and_balances"),
    ("P10", "move", "  note('released', link, int(mark))\n", "",
     f"{_M}::test_each_change_is_in_the_ledger_and_balances"),
    # Put back, it is as it was.
    ("P2", "lib/moved", "tonumber(m.d) > now_ms and tonumber(m.d)", "false", _BACK),
    ("P2", "lib/moved", "m.x ~= '0' and math.max(1, tonumber(m.x) - now_ms) or 0", "0", _BACK),
    ("P6", "lib/moved", "  wake_hungry(1)\n", "", f"{_M}::test_a_consumer_that_waits_is_woken_as_it_comes_back"),
    ("P7", "lib/moved", "m.k ~= '-' and m.k or nil", "nil", f"{_M}::test_keys_that_take_turns_have_it_back_too"),
)  # fmt: skip
"""Rows of :class:`tests.lua.mutants.Mutant`."""
