"""Mutants of the rules beyond a plain limit; see :mod:`tests.lua.mutants`."""

from typing import Final

_RULES, _P7, _P8, _LIMITER = "test_rules", "test_p7_fairness", "test_p8_send_rates", "test_limiter_settings"

_SEVERAL: Final = f"{_RULES}::test_several_messages_of_one_session_are_not_above_the_limit_together"
_OVERSIZE: Final = "test_oversize"
_ONCE: Final = f"{_OVERSIZE}::test_it_goes_once_no_slice_has_anything"
_HEARS: Final = f"{_OVERSIZE}::test_once_nothing_is_left_here_its_session_hears_that_the_others_are_to_be_asked"
_FREE: Final = "test_announcements::test_a_slice_that_was_asked_announces_what_comes_free"
_HEAD: Final = "test_announcements::test_whoever_is_first_hears_it_from_the_pool"
_FIRST_NOW: Final = "test_announcements::test_a_session_that_is_first_now_hears_it"
_NO_POOLS: Final = "test_announcements::test_where_there_are_no_pools_it_hears_it_if_others_hold_credit"
_TWO_AT_ONCE: Final = f"{_RULES}::test_credit_of_before_the_limit_was_lowered_is_not_for_one_batch"
_SPREAD: Final = "test_spread"
_LEFT: Final = f"{_SPREAD}::test_it_changes_when_nothing_is_left_that_was_sent_before"
_LATE_STEP: Final = f"{_SPREAD}::test_a_late_step_of_an_earlier_change_does_nothing"
_SEGMENT: Final = f"{_SPREAD}::test_a_segment_that_was_written_for_an_earlier_spread_is_refused"
_HELD_SLICE: Final = f"{_SPREAD}::test_nobody_sends_to_a_slice_that_is_held"
_NUMBERS: Final = f"{_SPREAD}::test_each_change_of_slices_or_values_has_a_number_of_its_own"
_SHARED: Final = "test_p8_shared_rates"
_TOLD: Final = f"{_SHARED}::test_nothing_is_lent_before_each_slice_has_told_what_it_has"
_IN_HAND: Final = f"{_SHARED}::test_what_one_slice_has_in_hand_is_not_to_be_had_by_another"
_OVER: Final = "test_p7_shared_rates"
_ONE_LINE: Final = f"{_OVER}::test_shares_follow_weights_at_whichever_slices"
_BY_NUMBER: Final = f"{_OVER}::test_consumers_share_a_rate_of_deliveries_by_how_many_wait"
_BEFORE: Final = f"{_OVER}::test_who_waits_goes_before_who_comes_later_to_another_slice"
_ITS_OWN: Final = f"{_OVER}::test_what_was_lent_for_one_is_not_sent_by_another_for_a_while"
_IDLE: Final = f"{_SHARED}::test_what_is_idle_in_hand_comes_back_and_what_was_just_lent_stays"
_ASKED: Final = f"{_SHARED}::test_slices_are_asked_for_what_is_in_hand_only_now_and_then"
_ABOVE: Final = f"{_SHARED}::test_a_message_above_the_burst_goes_alone_and_is_owed_by_all"
_LOST: Final = f"{_SHARED}::test_what_a_slice_had_before_it_lost_state_counts_as_spent"
_FIRST: Final = f"{_SHARED}::test_a_first_slice_that_lost_state_owes_the_burst_and_what_it_lent_is_void"
_UNNAMED: Final = f"{_SHARED}::test_slices_for_which_nobody_is_named_stand_in_line_themselves"
_ANEW: Final = f"{_SHARED}::test_a_rate_that_comes_again_asks_all_slices_anew"
_MORE: Final = f"{_SHARED}::test_a_report_of_more_than_was_lent_begins_anew"
_GIVEN: Final = "test_p8_shared_deliveries"
_LACKS: Final = f"{_GIVEN}::test_a_slice_delivers_what_it_has_in_hand_and_tells_what_it_lacks"
_BACK: Final = f"{_GIVEN}::test_what_came_back_is_there_too"
_TOPIC: Final = f"{_GIVEN}::test_each_subscription_of_a_topic_lacks_what_is_there_for_it"
_PACED: Final = "test_slow_over_slices"
_ALONE: Final = f"{_PACED}::test_no_slice_judges_alone_who_is_served_by_others_too"
_SETTLED: Final = f"{_PACED}::test_what_it_settles_at_all_slices_counts"
_PACE: Final = "test_p7_send_rates"
_BY_WEIGHT: Final = f"{_PACE}::test_shares_of_a_rate_follow_weights"
_IN_TURN: Final = f"{_PACE}::test_who_waits_for_the_rate_goes_before_who_comes_later"
_ENDED: Final = f"{_PACE}::test_whoever_leaves_or_is_reclaimed_is_out_of_the_line"
_WAITING: Final = f"{_PACED}::test_what_waits_at_all_slices_counts"
_EMPTY: Final = f"{_PACED}::test_a_period_begins_anew_after_a_time_without_messages"
_PARTS: Final = f"{_PACED}::test_a_period_begins_anew_where_totals_are_of_other_parts"
_READING: Final = f"{_PACED}::test_nobody_is_slow_for_how_long_the_reading_takes"
_LEAVES: Final = f"{_PACED}::test_who_is_detached_hears_of_it_and_others_get_what_it_held"
_TICKETS: Final = "test_tickets"
_TICKET: Final = f"{_TICKETS}::test_of_all_slices_one_message_goes_above_the_limit"
_PAID: Final = f"{_TICKETS}::test_what_it_took_is_paid_back_before_anybody_goes_on"
_COUNTED: Final = f"{_TICKETS}::test_messages_are_limited_like_bytes"
_OTHER_WAY: Final = f"{_TICKETS}::test_what_was_lent_for_a_message_that_went_another_way_goes_back"
_FULL: Final = "test_full"
_RESUMES: Final = f"{_FULL}::test_as_it_resumes_all_that_wait_have_their_parts_at_once"
_ALL_DOWN: Final = f"{_FULL}::test_once_full_nobody_is_served_at_any_slice_until_pending_of_all_is_down"
_ONE_SLICE: Final = f"{_FULL}::test_one_slice_that_has_the_whole_limit_is_full_too"
_IN_HANDS: Final = f"{_FULL}::test_it_is_not_full_while_what_others_have_in_hand_is_all_that_is_short"
_CREDIT: Final = f"{_FULL}::test_credit_in_hand_keeps_nobody_waiting"
_UNHEARD: Final = f"{_FULL}::test_a_slice_that_has_not_heard_of_it_counts_with_all_that_it_has"
_LATE: Final = f"{_FULL}::test_late_answers_open_no_slice_and_shut_none"
_OPENED: Final = f"{_FULL}::test_settings_open_it_and_a_level_in_percent_is_of_the_limit_in_force"
RULES: Final = (
    ("P12", "lib/serve", "return not is_full() and (", "return (", _ALL_DOWN),
    ("P12", "lib/rules", "math.max(read.bytes_full % 2, read.messages_full % 2)", "0", _ALL_DOWN),
    ("P12", "slice", " or is_shut_by(pool)", "", _ALL_DOWN),
    ("P12", "pool", "  resume_when_drained(member, m)\n", "", _ALL_DOWN),
    ("P12", "lib/full", "if is_full() and not is_above_resume(caller, own) then", "if is_full() then", _ALL_DOWN),
    ("P12", "lib/full", "    if members[i] ~= caller then", "    if false then", _ALL_DOWN),
    ("P7", "lib/full", "draw(m, math.min(part, pool_room(m)))", "draw(m, lacks)", _RESUMES),
    ("P7", "lib/full", "bytes * m.weight / weights", "bytes / #waiting", _RESUMES),
    ("P6", "lib/full", "math.max(lacks, math.floor(", "math.max(0, math.floor(", _RESUMES),
    ("P12", "lib/heard", "pool == d.messages_pool and d.resume_messages and 'messages_full'", "false", _ALL_DOWN),
    ("P12", "lib/heard", "and 'here' or 'yes'", "and 'yes' or 'yes'", _ONE_SLICE),
    ("P6", "lib/full", "and is_above_resume(caller, own) then", "then", _IN_HANDS),
    ("P6", "lib/full", "tonumber(known and pending or held)", "held", _CREDIT),
    ("P6", "lib/heard", "int(all - leased)", "int(all)", _CREDIT),
    ("P12", "lib/full", " and (not is_full() or tonumber(full) == p.full)", "", _UNHEARD),
    ("P12", "lib/heard", "math.max(full, d[field])", "full", _LATE),
    ("P6", "lib/heard", "anew and full or ", "", _LATE),
    ("P12", "pool_set", "  turn() -- whoever", "  -- whoever", _OPENED),
    ("P12", "lib/full", "level(tonumber(p.resume) or p.resume, p.own)", "level(p.resume, 100)",
     _OPENED),
    ("P6", "pool", "and not (lacked and need <= m.granted) then", "then",
     f"{_FULL}::test_whoever_is_served_after_all_leaves_it_open"),
    ("P1", "lib/rules", "read.enforce == 'off' or", "false or",
     f"{_RULES}::test_without_enforcement_the_limit_does_not_bind"),
    ("P1", "lib/rules", " and read.active == 0)", " and read.active == 1)",
     f"{_RULES}::test_a_limit_that_only_consumers_enforce"),
    ("P12", "lib/rules", "value and value ~= 'always' and value ~= 'refuse'", "value",
     f"{_RULES}::test_rules_that_go_back_to_their_defaults_cost_nothing_any_more"),
    ("P12", "lib/room", "if d.stopped or (d.shut == 1 and not d.unbound) then", "if d.stopped then",
     f"{_RULES}::test_once_full_nobody_is_served_until_pending_is_down_to_where_it_resumes"),
    ("P12", "apply", "redis.call('HDEL', K_DESTINATION, 'shut')", "",
     f"{_RULES}::test_a_change_of_settings_opens_what_was_shut"),
    ("P12", "publish", "d.stopped or spools", "spools",
     f"{_RULES}::test_stopped_by_hand_nobody_sends_and_credit_in_hand_is_of_no_use"),
    ("P12", "lib/room", "if d.stopped or (d.shut == 1 and not d.unbound) then", "if d.shut == 1 then",
     f"{_RULES}::test_stopped_by_hand_nothing_is_granted"),
    ("P1", "lib/oversize", " and d.pending_bytes == 0 and", " and",
     f"{_RULES}::test_a_message_above_the_limit_goes_alone"),
    ("P1", "lib/oversize", "(need - s.used - s.returned == size or held(s) == 0)", "true", _SEVERAL),
    ("P6", "lib/oversize", " or held(s) == 0)", ")", _SEVERAL),
    ("P1", "lib/oversize", "needs_more_than_all(s) and s.want < s.need", "needs_more_than_all(s)", _SEVERAL),
    ("P1", "lib/oversize", "need, need_m, math.max(want, need),", "need, need_m, want,", _SEVERAL),
    ("P1", "lib/covered", " and count == 1", "", _TWO_AT_ONCE),
    ("P1", "lib/serve", "(lacks_all(m) and p.granted == m.granted - m.returned)", "lacks_all(m)",
     f"{_OVERSIZE}::test_two_at_two_slices_take_turns_also_with_a_small_one_at_a_third"),
    ("P6", "lib/serve", " and not is_of_slices()", "", _ONCE),
    ("P6", "slice", "anew or (pool == d.slices_pool and has_gone_alone(slice.granted))", "anew", _ONCE),
    ("P7", "lib/oversize", "has_gone_alone(read_slice(d.slices_pool).granted)", "false",
     f"{_OVERSIZE}::test_what_was_lent_for_one_is_for_no_other"),
    ("P6", "lib/oversize", "wake(sid, 'again')", "", _HEARS),
    ("P6", "lib/rules", "math.abs(now_ms - slice.asked) < OWED_MS and", "", _FREE),
    ("P6", "lib/rules", "table.insert(read.wanted, name)", "", _FREE),
    ("P6", "lib/slice", "< before[12] + before[14]", "< before[12] + before[14] + 99", _FREE),
    ("P6", "lib/slice", "now.pending_bytes + now.leased_bytes <", "now.leased_bytes <", _FREE),
    ("P6", "slice", " or marks then", " then", _FREE),
    ("P6", "slice", "and math.abs(now_ms - slice.asked) >= 1000", "and slice.asked == 0", _FREE),
    ("P6", "pool", "tell_first(first, member)", "", _HEAD),
    ("P6", "lib/serve", "first ~= before and", "", _HEAD),
    ("P6", "lib/serve", " and first ~= caller then", " then", _HEAD),
    ("P6", "lib/oversize", "wake(sid, 'first')", "", _FIRST_NOW),
    ("P6", "lib/oversize", "d.moved and sid", "sid", _FIRST_NOW),
    ("P6", "lib/oversize", "d.leased_bytes > held(s) and", "", _NO_POOLS),
    ("P6", "lib/oversize", " and math.abs(now_ms - d.recall_ms) >= 200", "", _NO_POOLS),
    ("P6", "lib/oversize", "(d.leased_bytes > held(s) and math.abs(now_ms - d.recall_ms) >= 200)", "false", _NO_POOLS),
    ("P6", "lib/credit", "        tell_first(sid, s, caller)", "if sid ~= caller then tell_first(sid, s, caller) end",
     f"{_OVERSIZE}::test_a_session_that_settles_the_last_itself_hears_it_too"),
    ("P6", "lib/oversize", "d.pools and has_freed and", "d.pools and", _HEARS),
    ("P6", "lib/oversize", "d.pools and has_freed and", "d.of_slices and has_freed and",
     f"{_OVERSIZE}::test_there_its_session_hears_that_the_pool_is_to_be_asked"),
    ("P6", "lib/oversize", "< raw[12] + raw[14]", "< raw[12]", _HEARS),
    ("P6", "lib/room", "if alone and d.of_slices then", "if false then", _ONCE),
    ("P7", "lib/fair", "if not lacks_all(m) then", "if true then",
     f"{_OVERSIZE}::test_whoever_needs_all_has_its_turn_although_it_has_something"),
    ("P1", "lib/covered", "(count == 1 and d.pending_bytes == 0)", "d.pending_bytes == 0",
     f"{_OVERSIZE}::test_what_was_lent_for_one_that_gave_up_is_not_for_several"),
    ("P1", "lib/covered", "(count == 1 and d.pending_bytes == 0)", "count == 1",
     f"{_OVERSIZE}::test_what_was_lent_for_one_that_gave_up_is_not_for_several"),
    ("P1", "lib/covered", " and not d.of_slices", "",
     f"{_OVERSIZE}::test_what_was_in_hand_when_the_limit_was_lowered_is_not_alone"),
    ("P6", "lib/lent", "return is_all_there_is(s) and lacks or 0", "return lacks",
     f"{_OVERSIZE}::test_others_go_on_until_nothing_is_left_where_it_waits"),
    ("P1", "lib/room", "bytes > whole_bytes() and d.oversize ~= 'allow-one'", "false",
     f"{_RULES}::test_a_message_above_the_limit_is_refused_unless_the_rule_lets_it"),
    ("P1", "publish", "math.max(d.limit_bytes, d.hard_bytes or 0)", "d.limit_bytes",
     f"{_RULES}::test_whose_clients_count_messages_goes_up_to_the_hard_limit"),
    ("P1", "publish", "max(d.limit_bytes, d.hard_bytes or 0)", "max(d.limit_bytes, d.hard_bytes or math.huge)",
     f"{_RULES}::test_without_a_hard_limit_the_limit_itself_is_hard"),
    ("P12", "lib/level", "math.floor(limit * share / 100)", "math.huge",
     f"{_RULES}::test_a_share_to_resume_at_follows_the_limit"),
    ("P7", "lib/line", "s.turn = turn + math.floor(steps / math.max(s.weight, 1))", "s.turn = turn",
     f"{_P7}::test_shares_are_those_of_the_oracle"),
    ("P7", "lib/room", "math.max(0, math.min(more, usable))", "more",
     f"{_P7}::test_equals_get_equal_shares_of_a_limit_in_messages"),
    ("P7", "lib/line", "'NX', int(turn), sid)", "'NX', 1, sid)",
     f"{_P7}::test_equals_get_equal_shares"),
    ("P7", "lib/line", "steps / math.max(s.weight, 1))", "steps)",
     f"{_P7}::test_weights_are_kept_within_three_percent"),
    ("P7", "lib/line", "  d.turns = math.max(turn, d.turns + math.floor(steps / math.max(d.weight, 1)))\n", "",
     f"{_P7}::test_newcomers_do_not_starve_who_was_served_before"),
    ("P7", "lib/line", "math.max(turn, d.turns + math.floor(steps / math.max(d.weight, 1)))",
     "d.turns + math.floor(steps / math.max(d.weight, 1))",
     f"{_P7}::test_a_newcomer_is_not_made_up_for_what_others_got_before"),
    ("P7", "lib/sendline", "redis.call('HGET', K_DESTINATION, field) or ''", "''", _BY_WEIGHT),
    ("P7", "lib/sendline", "us * STEPS_OF_US / math.max(weight, 1)", "us * STEPS_OF_US", _BY_WEIGHT),
    ("P7", "lib/sendrate", "bytes * 1000000 / (d.send_byte_rate or math.huge))\nend",
     "messages * 1000000 / (d.send_byte_rate or math.huge))\nend",
     f"{_PACE}::test_shares_of_a_rate_in_bytes_are_shares_of_bytes"),
    ("P7", "lib/sendrate", "bytes * 1000000 / (d.send_byte_rate or math.huge))\nend",
     "d.send_rate and 0 or bytes * 1000000 / (d.send_byte_rate or math.huge))\nend",
     f"{_PACE}::test_of_two_rates_the_one_that_takes_longer_counts"),
    ("P7", "lib/sendline", "send_line.turn + send_steps(us, weight)", "send_line.turn", _BY_WEIGHT),
    ("P7", "lib/sendline", "      kept = kept + one.need\n", "", _IN_TURN),
    ("P7", "lib/sendrate", " - kept_us * d[kind .. '_rate'] / 1000000", "", _IN_TURN),
    ("P7", "lib/sendline", "now_ms <= due + PATIENT_MS", "now_ms <= due + REMEMBERED_MS",
     f"{_PACE}::test_one_that_does_not_come_holds_nobody_up"),
    ("P7", "lib/sendline", "not (is_whole and math.abs(now_ms - one.due) > PROMPT_MS)", "true",
     f"{_PACE}::test_none_of_the_rate_is_lost_for_one_that_does_not_come"),
    ("P7", "lib/reap", "  leave_send_line(sid)\n", "", _ENDED),
    ("P7", "lib/send_left", "  d.left_send_line[sid] = true -- it may be read already\n", "", _ENDED),
    ("P7", "lib/sendline", "(need > 0 or rest ~= '')", "true",
     f"{_PACE}::test_the_line_ends_with_the_last_who_waits"),
    ("P7", "lib/sendline", "math.abs(now_ms - waited) <= PATIENT_MS", "true",
     f"{_PACE}::test_the_line_ends_where_nobody_has_waited_for_a_while"),
    ("P7", "apply", " and 'send_line' or field)", " and field)", f"{_PACE}::test_the_line_goes_with_the_rate"),
    ("P7", "lib/sendline", "now_ms < due - MOST_TOLD_MS or ", "",
     f"{_PACE}::test_after_a_clock_was_set_back_nobody_waits_longer_than_a_refill"),
    ("P7", "lib/sendline", "send_line.clock + send_steps(us, weights)", "send_line.clock",
     f"{_PACE}::test_newcomers_do_not_starve_whoever_was_served"),
    ("P7", "lib/sendline", "send_line.count >= MOST_IN_SEND_LINE", "false",
     f"{_PACE}::test_of_many_that_wait_as_many_are_in_line_as_a_call_may_look_at"),
    ("P8", "publish", "  charge_send_rate(sid, s.weight, count, payload_bytes(at, count))\n", "",
     f"{_P8}::test_no_window_stores_more_messages_than_rate_and_burst"),
    ("P8", "lib/sendrate", "    count, bytes = i, bytes + sizes[i]\n", "    count = i\n",
     f"{_P8}::test_bytes_have_a_rate_of_their_own"),
    ("P8", "lib/sendrate", "local least = math.min(sizes[i], whole)", "local least = sizes[i]",
     f"{_P8}::test_a_message_above_the_burst_goes_when_the_burst_is_whole_and_is_owed"),
    ("P8", "lib/rate", "math.max(tat, now_us) + math.min(math.ceil", "now_us + math.min(math.ceil",
     f"{_P8}::test_no_window_stores_more_messages_than_rate_and_burst"),
    ("P8", "publish", "rate_again or reply[7]", "reply[7]",
     f"{_P8}::test_the_right_time_to_come_again_is_told"),
    ("P5", "publish", "int(last - batch + 1)", "int(count)",
     f"{_P8}::test_a_batch_cut_short_and_repeated_is_stored_once"),
    ("P8", "lib/sendrate", "d.send_tat - set_back,", "d.send_tat,",
     f"{_P8}::test_a_clock_that_is_set_back_does_not_lock_the_rate"),
    ("P12", "lib/carry_over", "math.min(tokens_left(old_rate, old_burst, tat), burst)", "burst",
     f"{_P8}::test_a_changed_rate_keeps_what_is_left_and_the_same_rate_changes_nothing"),
    ("P8", "apply", "if is_limited and not are_limiter_settings(settings) then", "if false then",
     f"{_LIMITER}::test_limits_that_mean_nothing_or_would_not_stay_exact_are_refused"),
    ("P8", "lib/limiter_settings", " and burst * 1000000 <= rate * MOST_OWED_US", "",
     f"{_LIMITER}::test_limits_that_mean_nothing_or_would_not_stay_exact_are_refused"),
    ("P8", "lib/limiter_settings", "whole(third, 0, WINDOWS[second] - 1)", "whole(third, 0, WINDOWS[second])",
     f"{_LIMITER}::test_limits_that_mean_nothing_or_would_not_stay_exact_are_refused"),
    ("P8", "lib/limiter_settings", "limits[name].form ~= limit.form", "false",
     f"{_LIMITER}::test_other_settings_that_mean_nothing_are_refused"),
    ("P8", "lib/limiter_settings", "and are_weights(settings.key_weights or '')", "",
     f"{_LIMITER}::test_other_settings_that_mean_nothing_are_refused"),
    ("P12", "lib/owed", "math.max(0, tat - moment) * old_rate / 1000000", "0",
     f"{_LIMITER}::test_what_a_rate_is_owed_stays_owed_and_is_paid_at_the_new_rate"),
    ("P12", "lib/owed", "math.ceil(owed * 1000000 / rate)", "math.floor(owed * 1000000 / rate)",
     f"{_LIMITER}::test_carried_over_is_never_less_than_what_is_owed_and_at_most_a_microsecond_more"),
    ("P12", "lib/carry_over", "int((old[6] or 0) + 1)", "'1'",
     f"{_LIMITER}::test_limits_of_keys_that_change_are_noted_for_the_records_of_keys"),
    ("P12", "lib/carry_over", "math.max(now_us + tonumber(old[5] or 0), tonumber(old[4] or 0))", "now_us",
     f"{_LIMITER}::test_limits_of_keys_that_change_are_noted_for_the_records_of_keys"),
    ("P4", "apply", "if d.kind ~= 'limiter' then", "if true then",
     f"{_LIMITER}::test_leases_and_waiters_of_a_limiter_are_left_alone"),
    # Values over slices.
    ("P12", "spread", "d.pending_messages - tonumber(has[5] or 0) + ", "", _LEFT),
    ("P12", "spread", " - tonumber(has[5] or 0)", "", _LEFT),
    ("P12", "spread", " + d.leased_messages", "", _LEFT),
    ("P12", "spread", " and learning_ms == 0", "", f"{_SPREAD}::test_it_waits_for_claims_of_what_may_be_lost"),
    ("P12", "spread", "held > number or ", "", _LATE_STEP),
    ("P12", "spread", "(mode == 'go' and held ~= number) or ", "", _LATE_STEP),
    ("P12", "spread", " or (is_first and has[3] ~= to)", "", _LATE_STEP),
    ("P12", "lib/rules", "read.stopped or read.spreading", "read.stopped", _HELD_SLICE),
    ("P12", "spread", "int(number))\n  redis.call('HINCRBY', K_DESTINATION, 'spreads', 1)", "int(number))", _SEGMENT),
    ("P12", "spread", "'spread', to)\n    redis.call('HINCRBY', K_DESTINATION, 'spreads', 1)", "'spread', to)",
     _SEGMENT),
    ("P12", "publish", " or spools and is_of_earlier_spread(seen)", "", _SEGMENT),
    ("P12", "lib/spooled", "seen ~= '' and seen", "seen", _SEGMENT),
    ("P12", "lib/spooled", "seen ~= int(d.epoch) .. '-' .. (redis.call('HGET', K_DESTINATION, 'spreads') or '0')",
     "string.match(seen, '%d+$') ~= (redis.call('HGET', K_DESTINATION, 'spreads') or '0')", _SEGMENT),
    ("P12", "lib/slices", ", tonumber(next_number) or 0)", ")", _NUMBERS),
    ("P12", "lib/slices", "is_new and given or has[3]", "given ~= '' and given or has[3]", _NUMBERS),
    ("P12", "lib/slices", "(is_new and not in_force)", "not in_force",
     f"{_SPREAD}::test_one_without_values_is_spread_by_nothing"),
    # Rates over slices.
    ("P8", "rate_lend", "if #unknown > 0 then", "if false then", _TOLD),
    ("P8", "rate_lend", "if #unknown > 0 then", "if #unknown > 1 then", _TOLD),
    ("P8", "rate_lend", "left = left - has\n", "", _IN_HAND),
    ("P8", "lib/lender", "  spend(kind, math.min(spent, m.granted - m.back) - m.spent)\n", "", _IN_HAND),
    ("P8", "lib/lent_rate", "  h.spent = h.spent + amount\n", "", _IN_HAND),
    ("P7", "rate_take", "h.back, changed = h.granted - h.spent, true", "", _IDLE),
    ("P7", "rate_take", " and math.abs(now_ms - h.at) >= KEPT_MS", "", _IDLE),
    ("P8", "lib/lent_rate", "local has = h.granted - h.spent - h.back", "local has = h.granted - h.spent", _IDLE),
    ("P8", "lib/lender", "math.min(back, m.granted - m.spent)", "m.granted - m.spent", _IDLE),
    ("P12", "rate_lend", "and math.abs(now_ms - lender.asked) >= COLLECT_MS", "", _ASKED),
    ("P8", "lib/lent_line", "math.min(need, burst), 1000000", "need, 1000000", _ABOVE),
    ("P8", "lib/lent_line", "need > burst and need or", "need > burst and burst or", _ABOVE),
    ("P8", "lib/lender", "    spend(kind, m.granted - m.spent - m.back)\n", "", _LOST),
    ("P8", "lib/lent_rate", " or epoch + 0 ~= d.epoch then", " then", _LOST),
    ("P8", "rate_take", "epoch == h.epoch and granted", "granted", _LOST),
    ("P8", "lib/lender", "    tat = owes and ", "    tat = false and ", _FIRST),
    ("P8", "lib/lender", "if not home or epoch + 0 ~= d.epoch then", "if not home then", _FIRST),
    ("P8", "lib/lender", "home or d.new_epoch or redis", "home or redis",
     f"{_SHARED}::test_one_that_lost_all_it_knew_of_its_slices_owes_the_burst_too"),
    ("P8", "rate_take", "if home == h.home and", "if", _FIRST),
    ("P8", "rate_take", "h, changed = empty_hand(home), true", "h.home, changed = home, true", _FIRST),
    ("P7", "rate_lend", "or name == '' then", "then", _UNNAMED),
    ("P7", "rate_lend", "(ARGV[at + 2] or 1) + 0", "1", _ONE_LINE),
    ("P7", "rate_lend", "kind == 'delivery' or name", "name", _BY_NUMBER),
    ("P7", "lib/sendline", "d.of_slices and send_line.count + 1 or d.weight", "d.weight",
     f"{_OVER}::test_newcomers_at_other_slices_do_not_starve_whoever_was_served"),
    ("P7", "lib/sendline", "math.min(send_line.clock + send_steps(us, weights), turn)",
     "send_line.clock + send_steps(us, weights)", f"{_OVER}::test_a_newcomer_has_its_share_at_once"),
    ("P7", "lib/lent_line", "left - kept_before(send_line.turn, lender.tat <= now_us) / us", "left", _BEFORE),
    ("P7", "lib/lent_line", "math.min(again, MOST_DUE_MS))", "again)",
     f"{_OVER}::test_one_that_does_not_ask_again_is_waited_for_no_longer_than_a_second"),
    ("P7", "rate_lend", "(k ~= slice or granted < m.granted)", "k ~= slice",
     f"{_OVER}::test_what_was_lent_and_did_not_come_is_fetched_by_the_next"),
    ("P7", "lib/lent_rate", "math.max(0, has - (read_kept(kind, sid)))", "has", _ITS_OWN),
    ("P7", "rate_take", "save_kept(kind, rest, sid, own + amount)", "local _", _ITS_OWN),
    ("P7", "lib/lent_rate", "elseif math.abs(now_ms - at) < KEPT_MS then", "else", _ITS_OWN),
    ("P7", "lib/lent_rate", "save_kept(kind, rest, sid, own - amount)", "local _",
     f"{_OVER}::test_what_was_sent_is_kept_no_longer"),
    ("P7", "lib/lent_rate", "math.max(1, #rest - MOST_KEPT + 1)", "1",
     f"{_OVER}::test_it_is_kept_for_so_many_senders_at_the_most"),
    ("P8", "lib/slices", "redis.call('HDEL', K_DESTINATION, rate .. '_lent', rate .. '_line', rate .. '_kept')",
     "local _", _ANEW),
    ("P8", "rate_take", "elseif not d[kind .. '_rate'] or not d.of_slices then", "elseif not d.of_slices then", _ANEW),
    ("P8", "rate_lend", "home > lender.home or ", "", _MORE),
    ("P8", "rate_lend", "granted > (m and", "false and (m and", _MORE),
    ("P8", "lib/lender", "math.max(0, us - now_us)", "0", f"{_SHARED}::test_a_clock_that_is_set_back_does_not_lock_it"),
    ("P8", "lib/deliveryrate", "  elseif d.of_slices then\n    local h", "  elseif false then\n    local h", _LACKS),
    ("P8", "lib/deliveryrate", "h.granted - h.spent - h.back", "h.granted - h.back", _LACKS),
    ("P8", "lib/deliveryrate", "    h.spent = h.spent + messages\n", "", _LACKS),
    ("P7", "lib/deliveryrate", "d.of_slices and there_are(sub, wanted) or wanted", "wanted", _LACKS),
    ("P7", "lib/next_in_turn", "  note_read(c.sub, entries, most)\n", "", _LACKS),
    ("P7", "lib/deliveryrate", "d.returned > 0 and #pending_ids(sub, RETURNED, most)", "false", _BACK),
    ("P7", "lib/deliveryrate", "d.promoted and #d.promoted or", "false or",
     f"{_GIVEN}::test_what_becomes_due_is_there_too"),
    ("P7", "lib/deliveryrate", "{ int(some), int(wanted) }", "{ '1', int(wanted) }",
     f"{_GIVEN}::test_at_a_high_rate_it_asks_for_more_than_one"),
    ("P7", "lib/orphans", "sought_field(name), read_field(name)", "sought_field(name)", _TOPIC),
    ("P7", "lib/deliveryrate", "sub ~= 'queue' and read_subscription(sub).from or 0", "0", _TOPIC),
    ("P7", "lib/consumer", "sub == 'queue' and 'read_to' or", "true and 'read_to' or", _TOPIC),
    ("P7", "link_read", "out, unpack(d.lacks or {})", "out",
     f"{_GIVEN}::test_a_link_is_told_what_its_slice_lacks"),
    # Slow consumers over slices.
    ("F05", "lib/pace", " and not d.of_slices", "", _ALONE),
    ("F05", "judge", "local few = d.slow_rate and", "local few = false and", _SETTLED),
    ("F05", "judge", "settled < p.settled or idle then", "settled < p.settled or idle or true then", _SETTLED),
    ("F05", "judge", "held + waiting\n", "held\n", _WAITING),
    ("F05", "pace", "d.slow_multiple and waiting_for(c.sub) or 0", "0", _WAITING),
    ("F05", "pace", "int(c.delivered - c.settled)", "'0'", _EMPTY),
    ("F05", "lib/backlog", "d.pending_messages - delivered + returned\n", "d.pending_messages\n", _WAITING),
    ("F05", "judge", " or busy_ms < now_ms - (p and p.since or now_ms)", "", _EMPTY),
    ("F05", "judge", "local idle = held == 0 or", "local idle = ", _EMPTY),
    ("F05", "judge", "p.of ~= parts or ", "", _PARTS),
    ("F05", "judge", "slow = idle and 0 or before", "slow = 0", _PARTS),
    ("F05", "judge", "settled < p.settled or idle then", "idle then", _PARTS),
    ("F05", "judge", "math.min(began, now_ms) - p.since", "now_ms - p.since", _READING),
    ("F05", "judge", " and began < p.since then", " and false then", _READING),
    ("F05", "judge", "  detach_slow(cid, c)\n", "", _LEAVES),
    ("F05", "judge", "was_detached(cid) and 'SLOW' or 'EXPIRED'", "'EXPIRED'", _LEAVES),
    ("F05", "judge", "  detach = save_verdict(cid, p, before)\nelseif", "  save_verdict(cid, p, before)\nelseif",
     f"{_PACED}::test_a_rule_to_detach_that_comes_later_is_for_who_is_slow_by_then"),
    ("P1", "pool", "and p.granted <= p.limit and is_of_slices()", "and is_of_slices()", _TICKET),
    ("P1", "pool", " and is_of_slices() then\n", " then\n",
     f"{_TICKETS}::test_no_pool_that_destinations_share_lends_above_its_limit"),
    ("P6", "pool", "if p.learning == 0 and has_ticket then", "if false then", _TICKET),
    ("P1", "pool", "if p.learning == 0 and has_ticket then", "if has_ticket then",
     f"{_TICKETS}::test_a_pool_that_forgot_it_gives_no_other"),
    ("P1", "pool", "    m.overdrawn = m.returned + p.granted - p.limit\n", "", _OTHER_WAY),
    ("P6", "pool", "is_within and '0' or", "", f"{_TICKETS}::test_another_slice_may_pay_it_back"),
    ("P1", "pool", "int(m.overdrawn) or '-'", "int(m.overdrawn) or '0'",
     f"{_TICKETS}::test_a_pool_that_forgot_it_gives_no_other"),
    ("P1", "lib/member", "(m.overdrawn or 0) > 0 and", "false and", _OTHER_WAY),
    ("P1", "slice", "granted >= slice.granted and is_own(pool)", "is_own(pool)",
     f"{_TICKETS}::test_a_late_answer_does_not_say_that_nothing_is_above"),
    ("P6", "slice", "if debt ~= 'ticket' then", "if true then", _TICKET),
    ("P12", "slice", "if slice.above <= slice.returned then", "if false then", _PAID),
    ("P1", "lib/slice", "math.max(owed + 0, above)", "owed + 0", _PAID),
    ("P1", "lib/slice", "pool == read.messages_pool and read.overdrawn_messages or ", "", _COUNTED),
    ("P1", "lib/lent", "  redis.call('HSET', K_DESTINATION, 'rules', name_rules())\n", "", _PAID),
    ("P6", "lib/covered", "beside or (", "(", f"{_TICKETS}::test_it_is_credit_and_the_message_goes"),
    ("P6", "resolve", "is_own(name) and slice.granted - slice.returned or slice_left(d, slice)", "slice_left(d, slice)",
     _TICKET),
    ("P1", "resolve", "if is_short and (slice.epoch ~= d.epoch or not is_own(name)) then", "if false then",
     "test_resolve::test_what_else_holds_it_up_does_so_still"),
)  # fmt: skip
