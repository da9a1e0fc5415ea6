"""Mutants of queues whose keys take turns; see :mod:`tests.lua.mutants`."""

from typing import Final

_Q, _STATE = "test_fair_queues", "test_stateful"
_ROUND = f"{_Q}::test_one_with_many_messages_delays_another_by_one_round"
_SAME = f"{_Q}::test_turns_are_the_same_message_by_message_and_all_at_once"
_BEFORE = f"{_Q}::test_what_was_there_before_is_one_key_and_sorted_a_piece_a_call"
_OFF = f"{_Q}::test_switched_off_what_is_in_turn_goes_first_and_nothing_twice"
_BACK = f"{_Q}::test_what_comes_back_goes_before_the_rest_of_its_key_and_in_its_turn"
_EXPIRED = f"{_Q}::test_what_expires_is_in_no_ones_turn"
_LINK = f"{_Q}::test_a_link_takes_them_in_order_and_misses_none"

_PAST = f"{_Q}::test_a_link_takes_what_came_back_before_the_rule_and_looks_on_past_what_others_hold"

_P = "test_priorities"
_MODEL = f"{_P}::test_it_is_the_order_of_the_plain_model"
_AGES = f"{_P}::test_one_that_was_overtaken_often_enough_goes_before"
_TOLD = f"{_P}::test_the_ledger_has_what_came_what_went_and_what_waited"
_OTHERS = f"{_P}::test_from_keys_to_priorities_and_back_nothing_is_left_behind"

_PART = f"{_Q}::test_a_slice_without_keys_says_which_part_of_what_nobody_had_it_gave"
_ANEW = f"{_Q}::test_a_repair_puts_in_turn_anew_what_nobody_has"

FAIR_QUEUES: Final = (
    ("P7", "lib/given", ", d.message_seq - tonumber(string.match(out[#out - 1], '^(%d+)'))", "", _PART),
    ("P7", "lib/given", "return left > 0 and beside", "return beside", _PART),
    ("P7", "lib/given", "count == 0 or again or beside", "count == 0 or beside", _PART),
    ("P7", "lib/next_in_turn", "redis.call('ZADD', K_ROTA, int(at + #its * step), key)", "", _ROUND),
    ("P7", "lib/next_in_turn", "math.max(1, math.ceil((following - at) / step))", "most", _SAME),
    ("P7", "lib/next_in_turn", "math.ceil(TURN / weight_among(d.fair_weights or '', key))", "TURN",
     f"{_Q}::test_shares_follow_weights"),
    ("P2", "lib/next_in_turn", "redis.call('ZREM', K_FAIR, unpack(its))", "redis.call('ZCARD', K_FAIR)", _ROUND),
    ("P8", "lib/next_in_turn", "if at + #its * step > MOST_TURN then", "if false then",
     f"{_Q}::test_turns_are_counted_anew_before_they_are_inexact"),
    ("P6", "lib/next_in_turn", "  d.more = d.more or more\n", "",
     f"{_Q}::test_more_keys_than_are_kept_go_as_those_without_one"),
    ("P2", "lib/next_in_turn", "  in_turn().sort()\n", "", _BEFORE),
    ("P2", "lib/next_in_turn", "redis.call('HDEL', K_DESTINATION, 'fair_left', 'sorted')", "", _OFF),
    ("P7", "lib/weights", "if pattern == key or (prefix and string.sub(key, 1, #prefix) == prefix) then",
     "if pattern == key then", f"{_Q}::test_shares_follow_weights"),
    ("P7", "lib/filing", "redis.call('ZRANGE', K_ROTA, 0, 0, 'WITHSCORES')[2] or 0", "0",
     f"{_Q}::test_a_key_that_comes_late_has_nothing_to_catch_up_with"),
    ("P1", "lib/filing", "redis.call('ZCARD', K_ROTA) >= MOST_KEYS", "false",
     f"{_Q}::test_more_keys_than_are_kept_go_as_those_without_one"),
    ("P7", "lib/filing", "'%s %016d-%s'", "'%s %d-%s'", _ROUND),
    ("P2", "lib/in_turn", "redis.call('XGROUP', 'SETID', K_MESSAGES, 'queue', ids[#ids])", "", _OFF),
    ("P2", "lib/in_turn", "'NOACK', 'STREAMS'", "'STREAMS'", _BEFORE),
    ("P2", "lib/in_turn", "    if d.sorted ~= before or", "    if", _BEFORE),
    ("P7", "lib/append", "(keys or", "(", f"{_Q}::test_messages_without_a_key_are_one_key"),
    ("P2", "lib/append", "  for i = #keys + 1, count do\n", "  for i = #keys + 1, 0 do\n",
     f"{_Q}::test_messages_without_a_key_are_one_key"),
    ("P2", "recount", "  put_in_turn_anew()\n", "", _ANEW),
    ("P2", "lib/turns_anew", "delivery[2] ~= IN_TURN", "true", _ANEW),
    ("P2", "lib/turns_anew", "(not had and tonumber", "(true and tonumber", _ANEW),
    ("P3", "lib/turns_anew", "had == false or ", "", f"{_Q}::test_what_comes_back_before_all_is_sorted_stays_in_turn"),
    ("P2", "lib/turns_anew", "  redis.call('DEL', K_FAIR)\n", "", _ANEW),
    ("P2", "lib/turns_anew", "(in_turn().has(entry) or in_turn().has(entry, NO_KEY)) and 1 or 0", "1", _ANEW),
    ("P7", "lib/append", "d.fair_by == 'producer' and producer or NO_KEY", "NO_KEY",
     f"{_Q}::test_by_producer_each_session_has_its_turn"),
    ("P1", "lib/append", "#key <= MOST_KEY and key or NO_KEY", "key",
     f"{_Q}::test_messages_without_a_key_are_one_key"),
    ("P12", "lib/rules", "read.fair = read.kind == 'queue' and", "read.fair =",
     f"{_Q}::test_a_topic_has_no_turns"),
    ("P2", "lib/changed", "redis.call('HSET', K_DESTINATION, 'fair_left', 'yes')", "", _OFF),
    ("P7", "lib/putback", "takes_turn and IN_TURN or RETURNED", "RETURNED", _BACK),
    ("P5", "lib/mine", "d.consumers > 1 or d.fair", "d.consumers > 1", _BACK),
    ("P5", "lib/redeliver", "if not d.fair or #entries == 0 or", "if true or", _BACK),
    ("P2", "lib/expiry", "d.fair and in_turn().forget(due[i]) or due[i]", "due[i]", _EXPIRED),
    ("P2", "lib/expiry", "who == LATER or who == IN_TURN then", "who == LATER then", _EXPIRED),
    ("P2", "lib/expiry", "* (who == RETURNED and 1 or 0)", "", _EXPIRED),
    ("P2", "remove", "  if d.fair then\n", "  if false then\n", f"{_Q}::test_a_purge_leaves_nothing_in_turn"),
    ("P3", "detach", "(d.fair and ending == 'queue')", "false",
     f"{_Q}::test_its_own_subscription_stays_while_keys_take_turns"),
    ("P3", "lib/renumber", "ipairs(d.fair and", "ipairs(false and", _LINK),
    ("P3", "lib/next_in_order", "holder == IN_TURN or", "", _LINK),
    ("P2", "lib/next_in_order", "    in_turn().unfile(taken)\n", "", _LINK),
    ("P3", "link_read", "c.after = d.fair and c.sub == 'queue' and", "c.after = false and", _LINK),
    ("P3", "lib/next_in_order", "holder == IN_TURN or holder == RETURNED then", "holder == IN_TURN then", _PAST),
    ("P2", "lib/next_in_order", "(holder == RETURNED and 1 or 0)", "0", _PAST),
    ("P6", "lib/next_in_order", "  d.more = true\n", "", _PAST),
    # By priority.
    ("P7", "lib/band_plan", "first = first or band", "first = band",
     f"{_P}::test_the_highest_goes_first_and_within_a_band_the_first"),
    ("P7", "lib/band_plan", "band.overtaken >= enough and", "false and", _AGES),
    ("P7", "lib/band_plan", " - #bands() + 1", "", _AGES),
    ("P7", "lib/band_plan", "(not due or band.overtaken > due.overtaken)", "not due", _MODEL),
    ("P7", "lib/band_plan", "math.min(most, enough - band.overtaken)", "most", _AGES),
    ("P7", "lib/band_plan", "due and 1 or most", "most", _MODEL),
    ("P7", "lib/band_plan", "other.waiting > 0 and other.overtaken + some", "other.overtaken", _AGES),
    ("P7", "lib/band_plan", "d.max_overtaken or MOST_OVERTAKEN) -", "MOST_OVERTAKEN) -", _AGES),
    ("P7", "lib/band_plan", "  in_turn().leave(gone)\n", "",
     f"{_P}::test_a_band_that_was_empty_begins_anew"),
    ("P2", "lib/next_by_band", "      redis.call('ZREM', K_FAIR, unpack(band.its))\n", "", _MODEL),
    ("P2", "lib/next_by_band", "    move_others()\n", "", _OTHERS),
    ("P2", "lib/next_by_band", "      if left > 0 then\n", "      if true then\n", _OTHERS),
    ("P9", "lib/next_by_band", "counts_text(counts), runs)", "'-', runs)", _TOLD),
    ("P2", "lib/filing", "    joined = {}\n    if", "    if",
     f"{_P}::test_a_band_that_one_call_empties_and_fills_again_is_not_forgotten"),
    ("P7", "lib/filing", "by_priority and not bands().places[key] or", "",
     f"{_P}::test_other_keys_go_to_the_usual_band"),
    ("P7", "lib/filing", "not by_priority and redis.call('ZRANGE'", "redis.call('ZRANGE'", _MODEL),
    ("P9", "lib/queue_bands", "    note('filed', counts_text(counts))\n", "", _TOLD),
    ("P9", "lib/queue_bands", "    note('unfiled', int(count))\n", "", _TOLD),
    ("P9", "lib/queue_bands", "d.fair_by == BY_PRIORITY and count > 0", "count > 0",
     f"{_P}::test_without_the_rule_the_ledger_has_nothing_of_it"),
)  # fmt: skip
