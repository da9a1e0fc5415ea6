"""Mutants of shadow limits; see :mod:`tests.lua.mutants`."""

from typing import Final

_S = "test_shadow"
_FORMS = f"{_S}::test_each_form_counts_what_it_would_have_kept_waiting_and_keeps_nobody"
_BESIDE = f"{_S}::test_a_shadow_beside_the_real_limit_judges_what_that_admits_alone"
_KEYS = f"{_S}::test_each_key_has_shadow_limits_of_its_own"
_SIDES = f"{_S}::test_a_shadow_that_binds_from_now_on_counts_what_is_held_and_owed"
_KNOWN = f"{_S}::test_keys_that_only_a_shadow_limit_counts_keep_nobody_out"
_OFF = f"{_S}::test_a_hold_off_and_a_loss_are_as_real_limits_have_them"

_T = "test_shadows"
_QUEUE = f"{_T}::test_messages_above_what_may_be_pending_are_counted_and_stored"
_RATES = f"{_T}::test_rates_of_senders_are_judged_with_a_burst"
_GATE = f"{_T}::test_a_gate_counts_the_credit_that_its_first_in_line_needs"
_COMES = f"{_T}::test_what_is_in_hand_at_a_gate_is_asked_for_when_a_shadow_comes"
_ANEW = f"{_T}::test_other_shadow_limits_are_counted_anew_and_none_costs_nothing"

SHADOWS: Final = (
    ("P10", "apply", " or (d.kind == 'gate' and d.shadow) then recall()", " then recall()", _COMES),
    ("P10", "lib/recall", "most_kept(shadow_most('bytes', bytes)", "most_kept(bytes", _COMES),
    ("P8", "lib/shadow", "        charge(limit, levels, amount[3])", "", _FORMS),
    ("P10", "lib/shadow", "if wait ~= 0 then", "if true then", _FORMS),
    ("P10", "lib/shadow", "    would_wait[1] = would_wait[1] + 1", "", _FORMS),
    ("P10", "lib/would_wait", "math.max(count[2], over)", "over", _FORMS),
    ("P10", "lib/shadow", "math.ceil(wait * limit.rate / 1000000)", "amount", _FORMS),
    ("P10", "lib/shadow", "(limit.form == 'quota' and used_of(limit, levels) or levels.held[limit.name] or 0)", "0",
     _FORMS),
    ("P8", "lib/shadow", "      settle_at(", "      local _ = (", _BESIDE),
    ("P8", "lib/shadow", "for i = 1, (key == NO_KEY or pinned.is_part(key)) and 1 or 2 do", "for i = 1, 2 do", _KEYS),
    ("P8", "lib/shadow", "i == 1 and limiter.levels or k.levels\n      local wait", "limiter.levels\n      local wait",
     _KEYS),
    ("P10", "lib/shadow_limits", "(real.form == 'at_once') == (limit.form == 'at_once')", "true",
     f"{_S}::test_of_a_limit_that_is_none_and_of_another_sort_nothing_is_counted"),
    ("P2", "lib/shadow_limits", "limit.form == 'at_once' and name or SHADOW .. name", "SHADOW .. name", _FORMS),
    ("P8", "lib/sides", "(goes_over(name, plain, before, after) and plain) or nil", "nil", _SIDES),
    ("P8", "lib/sides", "(after[to] == before[from] or is_free(before[to]))", "true",
     f"{_S}::test_a_shadow_beside_another_limit_ends_and_leaves_that_as_it_is"),
    ("P8", "lib/sides", "is_tried and not is_free(before[name]) and shadow or name", "name", _SIDES),
    ("P8", "lib/carry_over", "side ~= name or old_rate ~= rate", "old_rate ~= rate", _SIDES),
    ("P8", "lib/keyed", "not before[name] and name or side_of(name, before, after)\n    local old_rate",
     "name\n    local old_rate", _SIDES),
    ("P8", "hold_off", "limiter.shadows and limiter.shadows[key == NO_KEY and 1 or 2] or {}", "{}", _OFF),
    ("P3", "lib/taking", "now_ms < d.learning_until and limit.most < MOST_COUNTED", "now_ms < d.learning_until", _OFF),
    ("P10", "lib/carry_over", "redis.call('HDEL', K_DESTINATION, 'would_wait', 'shadowed')", "", _SIDES),
    ("P8", "lib/known", " - limiter.shadow_keys)", ")", _KNOWN),
    ("P12", "lib/keyed", "not known.is(key, k.text) then", "k.text == '' then", _KNOWN),
    ("P12", "lib/keyed", "if is and not was and limiter.shadow_keys >= limiter.max_keys then", "if false then", _KNOWN),
    ("P8", "lib/keyed", "(is and 1 or -1)", "1", _KNOWN),
    ("P8", "lib/limits", "and not (limiter.shadows and string.find(name, '^S_'))", "", _KNOWN),
    # Of queues, topics, gates and buckets.
    ("P10", "lib/tried", "amount > left - sum", "sum > left", _QUEUE),
    ("P10", "lib/tried", "rate - before[name]", "rate", _QUEUE),
    ("P10", "lib/tried", "math.max(most_times, times)", "most_times + 1", _QUEUE),
    ("P10", "publish", "if d.shadow and count > 0 then", "if false then", _QUEUE),
    ("P8", "lib/tried", "tokens_left(rate, burst + 0, levels[name] or 0)", "burst + 0", _RATES),
    ("P8", "lib/tried", "levels[name] = us - set_back", "levels[name] = us", _RATES),
    ("P10", "lib/tried", "    stored and { bytes", "    true and { bytes",
     f"{_T}::test_a_topic_that_nobody_subscribes_is_judged_by_rates_alone"),
    ("P8", "take", "each[#each + 1] = after, taken + tokens, tokens", "each[#each + 1] = after, taken + tokens, 1",
     f"{_T}::test_a_bucket_counts_each_who_would_have_come_too_early"),
    ("P10", "acquire", "  charge_shadow_grant(lacks, lacks_m, leased, leased_m)", "", _GATE),
    ("P10", "acquire", "d.kind == 'gate' and s.since == 0", "d.kind == 'gate'",
     f"{_T}::test_a_gate_counts_nobody_who_waited_for_its_real_limit"),
    ("P1", "lib/room", "share(shadow_most('bytes', d.limit_bytes) /", "share(d.limit_bytes /", _GATE),
    ("P10", "lib/carry_over", "'would_wait', 'shadowed', 'levels')", "'levels')", _ANEW),
    ("P12", "lib/rules", "'next_due', 'shadow' }", "'next_due' }", _QUEUE),
    ("P12", "lib/limiter_settings", "are_alike(settings.shadow)", "true",
     f"{_T}::test_what_is_no_shadow_limit_is_refused"),
    ("P12", "levels", "tell(limiter.shadows[1], limiter.levels)", "''", _FORMS),
)  # fmt: skip
