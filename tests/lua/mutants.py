"""Each promise is kept by some lines of Lua; here each of those is broken once, and the test that must notice is named.

python -m tests.lua.mutants                 all: every named test passes, and fails with its mutant
python -m tests.lua.mutants settle 'p[14]'  those whose file or test matches
HEADGATE_CALLS=scripts python -m tests.lua.mutants    the same, and no script is called as a function
"""

import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lua import mutating
from tests.lua.mutants_of_bands import BANDS
from tests.lua.mutants_of_fair_queues import FAIR_QUEUES
from tests.lua.mutants_of_later import LATER
from tests.lua.mutants_of_limiters import LIMITERS
from tests.lua.mutants_of_links import LINKS
from tests.lua.mutants_of_moves import MOVES
from tests.lua.mutants_of_pools_over_sites import POOLS_OVER_SITES
from tests.lua.mutants_of_rules import RULES
from tests.lua.mutants_of_selectors import SELECTORS
from tests.lua.mutants_of_shadows import SHADOWS
from tests.lua.mutants_of_spool import SPOOL

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("sdk", "lua", "tests", "pyproject.toml")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to ``lua/<file>.lua`` that breaks a promise, and the test, ``<module>::<name>``, that says so."""

    promise: str
    file: str
    old: str
    new: str
    test: str

    def __str__(self) -> str:
        return f"{self.promise} {self.file}: {' '.join(self.old.split())[:60]}"


_P1, _P2, _P4, _P5 = "test_p1_no_overshoot", "test_p2_conservation", "test_p4_reclaim", "test_p5_once"
_P6, _P8, _RECOVERY = "test_p6_hand_over", "test_p8_rates", "test_recovery"
_AT_ONCE = f"{_P2}::test_of_many_that_are_settled_at_once_those_in_hand_are_freed"
_INDEX = "test_index"
_ARGUMENTS = "test_arguments"
_POLICY = "test_policy"
_NODES = "test_nodes"
_USERS = "test_users"
_LINKS, _DELIVERY, _OOM, _CLUSTER, _BOUNDS = "test_links", "test_delivery", "test_oom", "test_cluster", "test_bounds"
_SLICED = "test_sliced_queues::test_a_queue_with_slices_lends_nothing_that_its_pool_did_not"
_IN_IT = "test_sliced_queues::test_nobody_takes_a_slice_out_of_the_pool"
_SHARE = "test_sliced_queues::test_a_session_keeps_no_more_in_hand_than_its_share_of_one_slice"
_PLACED = "test_sliced_queues::test_sessions_are_placed_in_turn"
_POOLS, _SLICES, _FAIR = "test_pools", "test_slices", "test_fair_pools"
_MESSAGES = "test_sliced_messages"
_GIVES_ALL = f"{_MESSAGES}::test_a_slice_that_uses_nothing_gives_all_back_where_its_first_needs_more"
_HEAR_AT_ONCE = f"{_MESSAGES}::test_holders_of_permits_hear_at_once_that_a_slice_owes_more"
_P7 = "test_p7_fairness"
_COMPANION = f"{_P7}::test_who_waits_alone_at_a_gate_with_permits_hears_that_another_came"
_LEAVES_ROOM = f"{_P7}::test_holders_of_permits_leave_room_for_a_waiter_that_needs_more_than_its_share"
_SLICED_MESSAGES: Final = (
    ("P1", "lib/rules", "(read.messages_pool or '')", "''",
     f"{_MESSAGES}::test_nobody_takes_a_slice_out_of_it_who_leaves_the_limit"),
    ("P1", "lib/rules", "{ has[1], has[2] }", "{ has[1] }",
     f"{_MESSAGES}::test_a_queue_with_slices_lends_no_message_that_its_pool_did_not"),
    ("P1", "lib/rules", "if name == read.messages_pool then", "if false then",
     f"{_MESSAGES}::test_a_queue_with_slices_lends_no_message_that_its_pool_did_not"),
    ("P1", "lib/slices", "settings.messages_pool, settings.of_slices = nil, nil, nil, nil",
     "settings.of_slices = nil, nil, nil",
     f"{_MESSAGES}::test_a_queue_with_slices_lends_no_message_that_its_pool_did_not"),
    ("P1", "lib/slices", " and redis.call('HDEL', K_SLICES, pool) == 1 then", " then",
     f"{_MESSAGES}::test_nobody_takes_a_slice_out_of_it_who_leaves_the_limit"),
    ("P1", "slice", "  return { 'UNBOUND' }", "  local _ = { 'UNBOUND' }",
     f"{_MESSAGES}::test_a_slice_that_knows_of_no_such_limit_says_so"),
    ("P12", "slice", "'%%%.m$'", "'%.m$'", f"{_MESSAGES}::test_a_slice_that_knows_of_no_such_limit_says_so"),
    ("P1", "lib/lent", "return d.pending_messages + d.leased_messages", "return 0",
     f"{_MESSAGES}::test_what_is_lacking_is_counted_in_messages"),
    ("P6", "lib/lent", "pool == d.messages_pool and s.need_m - s.granted_m or s.need", "s.need",
     f"{_MESSAGES}::test_what_is_lacking_is_counted_in_messages"),
    ("P6", "lib/lent", ", d.leased_messages\n", "\n",
     f"{_MESSAGES}::test_holders_are_told_how_many_messages_are_owed"),
    ("P6", "lib/recall", "(d.owes or d.kind == 'gate' and", "(d.kind == 'gate' and",
     f"{_MESSAGES}::test_holders_are_told_how_many_messages_are_owed"),
    ("P7", "lib/recall", "(d.owes or d.kind == 'gate' and slice < MOST_COUNTED)", "d.owes",
     f"{_MESSAGES}::test_holders_of_permits_are_told_their_share_of_what_the_slice_has"),
    ("P7", "lib/recall", "d.kind == 'gate' and redis.call('ZRANGE'", "false and redis.call('ZRANGE'", _LEAVES_ROOM),
    ("P7", "lib/recall", "sid == caller and caller_record or ", "", _LEAVES_ROOM),
    ("P7", "lib/recall", "0, MOST_FIRST - 1)", "0, 0)", _LEAVES_ROOM),
    ("P7", "lib/recall", "if s and held(s) == 0 then", "if s then", _LEAVES_ROOM),
    ("P6", "lib/credit", "elseif d.kind == 'gate' and d.recall_due", "elseif false and d.recall_due",
     f"{_P7}::test_waiters_at_a_gate_that_came_after_a_recall_have_another"),
    ("P6", "lib/credit", " and s.since >= d.recall_ms then", " then",
     f"{_P7}::test_waiters_at_a_gate_that_came_after_a_recall_have_another"),
    ("P6", "lib/credit", "elseif d.kind == 'gate' and d.recall_due", "elseif d.recall_due",
     f"{_P7}::test_waiters_at_a_queue_ask_no_sooner_for_that"),
    ("P6", "lib/credit", "if joins and d.kind == 'gate'", "if false and d.kind == 'gate'", _COMPANION),
    ("P6", "lib/credit", "if joins and d.kind == 'gate'", "if d.kind == 'gate'", _COMPANION),
    ("P6", "lib/credit", "and d.blocked == 2 and s.since > 0", "and d.blocked > 1 and s.since > 0", _COMPANION),
    ("P6", "lib/recall", "if s and (held(s) > 0 or", "if s and (true or", _COMPANION),
    ("P6", "lib/recall", "(held(s) > 0 or select(2, held(s)) > 0)", "held(s) > 0",
     f"{_P7}::test_it_hears_so_where_its_permits_have_no_bytes"),
    ("P7", "slice", "member and is_too_little(pool, slice)", "false", _GIVES_ALL),
    ("P7", "lib/lent", "return is_own(pool) and", "return d.kind == 'gate' and is_own(pool) and", _GIVES_ALL),
    ("P1", "lib/lent", " and used_of(pool) == 0 and first_lacks", " and first_lacks", _GIVES_ALL),
    ("P7", "lib/lent", "first_lacks(pool) > slice.granted - slice.returned", "true", _GIVES_ALL),
    ("P6", "slice", "(d.kind == 'gate' and slice.owed > owed)", "false", _HEAR_AT_ONCE),
    ("P6", "slice", "(d.kind == 'gate' and slice.owed > owed)", "slice.owed > owed", _HEAR_AT_ONCE),
    ("P6", "slice", "d.kind == 'gate' and slice.owed > owed", "d.kind == 'gate'", _HEAR_AT_ONCE),
    ("P1", "lib/covered", "math.min(d.limit_messages, d.pool_messages)", "d.limit_messages",
     f"{_MESSAGES}::test_credit_of_before_the_limit_was_lent_is_covered_by_what_was_lent"),
    ("P7", "lib/room", "d.limit_messages) / slices, s.weight)", "d.limit_messages), s.weight)",
     f"{_MESSAGES}::test_a_session_keeps_no_more_messages_in_hand_than_its_share_of_one_slice"),
    ("P1", "lib/held", "math.floor(read.limit_messages * part / (read.of_slices or 1))",
     "math.floor(read.limit_messages * part)",
     f"{_MESSAGES}::test_slices_of_a_gate_admit_again_one_by_one_together"),
)  # fmt: skip
_ACTIVE, _RATES, _EXPIRY, _SLOW = "test_active", "test_delivery_rate", "test_expiry", "test_slow"
_ALLOWED = "redis.call('HDEL', K_DESTINATION, '-') -- allowed under OOM"

MUTANTS: Final = tuple(
    Mutant(*row)
    for row in (
        *RULES,
        *LINKS,
        *LIMITERS,
        *SELECTORS,
        *SHADOWS,
        *BANDS,
        *POOLS_OVER_SITES,
        *SPOOL,
        *FAIR_QUEUES,
        *LATER,
        *MOVES,
        # A wait covers what was written before, in the epoch that is named.
        ("P3", "secure", "redis.call('HSET', K_DESTINATION, 'epoch', int(d.epoch))", "--",
         "test_secure::test_it_writes_something_each_time_and_changes_nothing"),
        ("P3", "secure", "(of == int(d.epoch) and tonumber(lost) or 0)", "0",
         "test_secure::test_in_a_new_epoch_it_says_which_message_of_the_session_was_the_last_that_is_there"),
        ("P3", "secure", "\nsave_destination()\n", "\n",
         "test_secure::test_in_a_new_epoch_it_says_which_message_of_the_session_was_the_last_that_is_there"),
        # Drops are counted once, and a session's count ends with its account.
        ("P5", "drop", "if more <= 0 or more_b < 0 then", "if false then",
         "test_drop::test_totals_of_sessions_add_up_and_count_once"),
        ("P5", "drop", "redis.call('HSET', K_DROPS, sid, int(messages) .. ' ' .. int(bytes))\n", "",
         "test_drop::test_totals_of_sessions_add_up_and_count_once"),
        ("P4", "drop", "elseif redis.call('HEXISTS', K_SESSIONS, sid) == 0 then", "elseif false then",
         "test_drop::test_a_session_without_an_account_is_told_so"),
        ("P4", "lib/reap", "  redis.call('HDEL', K_DROPS, sid)\n", "",
         "test_drop::test_the_count_of_a_session_ends_with_its_account"),
        # P1: no overshoot.
        ("P6", "lib/line", "return too_large(s.need - s.granted, s.need_m - s.granted_m)", "return false",
         f"{_P6}::test_a_waiter_that_can_never_be_served_does_not_hold_up_the_others"),
        ("P2", "remove", "    if c then\n", "    if false then\n",
         f"{_P2}::test_what_is_purged_is_held_by_no_consumer"),
        ("P2", "remove", "  d.largest_bytes = 0\n", "",
         f"{_P2}::test_what_was_largest_is_forgotten_with_the_last_message"),
        ("P1", "apply", "'UNLINK', K_SESSIONS, K_LEASES, K_WAITERS", "'UNLINK', K_LEASES, K_WAITERS",
         f"{_RECOVERY}::test_accounts_that_outlived_their_counters_count_once_and_for_nothing_else"),
        ("P1", "lib/room", "math.min(want - granted, free, math.max(", "math.min(want - granted, math.max(",
         f"{_P1}::test_a_grant_never_exceeds_the_room"),
        ("P1", "lib/room", "(lacks > 0 and lacks > free and not alone) or", "false or",
         f"{_P1}::test_who_needs_more_than_the_room_waits"),
        ("P1", "lib/room", "(lacks_m > 0 and lacks_m > free_m)", "false",
         f"{_P1}::test_messages_are_limited_like_bytes"),
        ("P1", "lib/room", "d.slice_bytes) - d.pending_bytes - d.leased_bytes", "d.slice_bytes) - d.leased_bytes",
         f"{_P1}::test_what_is_pending_is_not_granted_again"),
        ("P1", "acquire", "too_large(math.max(size, need - claim.granted),", "too_large(need - claim.granted,",
         f"{_P1}::test_a_message_above_the_limit_is_refused_and_not_put_in_line"),
        ("P1", "publish", "spools and (lacks > 0 or lacks_m > 0) then", "spools and lacks > 0 then",
         f"{_P1}::test_more_than_the_credit_held_is_not_published"),
        ("P1", "publish", "spools and (lacks > 0 or lacks_m > 0) then", "spools and lacks_m > 0 then",
         f"{_P1}::test_more_than_the_credit_held_is_not_published"),
        ("P1", "lib/room", "(lacks > 0 and lacks > free and not alone) or", "false or",
         f"{_P1}::test_a_lowered_limit_grants_nothing_until_there_is_room_below_it"),
        ("P7", "lib/room", "math.floor(limit * weight / math.max(d.weight, weight, 1))", "limit",
         f"{_P1}::test_nobody_holds_more_than_its_share_unless_its_message_needs_it"),
        # P2: conservation.
        ("P2", "publish", "d.leased_bytes - bytes, d.leased_messages - count", "d.leased_bytes, d.leased_messages",
         f"{_P2}::test_a_published_message_turns_credit_into_pending"),
        ("P2", "lib/settle", "d.pending_bytes - bytes, d.pending_messages - #gone",
         "d.pending_bytes, d.pending_messages",
         f"{_P2}::test_an_accepted_message_is_gone"),
        ("P2", "lib/settle", "if redis.call('XACK', K_MESSAGES, sub, id) == 1 then",
         "if redis.call('XACK', K_MESSAGES, sub, id) then",
         f"{_P2}::test_a_message_settled_twice_frees_once"),
        ("P2", "lib/settle", "settled == #ids and ids or those_in_hand(ids, settled)", "ids", _AT_ONCE),
        ("P2", "lib/settle", "not seen[id] and ", "", _AT_ONCE),
        ("P2", "settle", "all + size", "all", f"{_P2}::test_an_accepted_message_is_gone"),
        ("P2", "lib/settle", " and #redis.call('XRANGE', K_MESSAGES, id, id) == 1 then", " then", _AT_ONCE),
        ("P2", "lib/settle", "unpack(put_in_order(there), 1, count)", "unpack(there, 1, count)", _AT_ONCE),
        ("P2", "lib/settle", "unpack(put_in_order(there), 1, count)", "unpack(put_in_order(there))", _AT_ONCE),
        ("P2", "lib/settle", "#ids > 1 and has_one_reader()", "#ids > 1",
         f"{_P2}::test_a_topics_message_is_pending_until_all_subscriptions_settled_it"),
        ("P2", "lib/append", "expires_ms == 0 and d.subscriptions < 2 and not", "expires_ms == 0 and not",
         f"{_P2}::test_a_topics_message_is_pending_until_all_subscriptions_settled_it"),
        ("P2", "lib/append", "if kept and expires_ms == 0 and", "if expires_ms == 0 and",
         f"{_DELIVERY}::test_a_topic_without_subscriptions_stores_nothing"),
        ("P2", "lib/append", "if kept and expires_ms == 0 and", "if kept and",
         f"{_EXPIRY}::test_the_shorter_of_the_senders_and_the_destinations_time_holds"),
        ("P6", "lib/plain", "if bytes > largest then", "if true then",
         f"{_P2}::test_what_was_largest_is_forgotten_with_the_last_message"),
        ("P11", "lib/attach", "redis.call('HGET', K_DESTINATION, 'max_subscriptions')", "nil",
         "destinations/test_delivery::test_a_topic_says_how_many_subscriptions_it_may_have"),
        ("P11", "lib/attach", "d.subscriptions >= most and most", "false and most",
         "test_delivery::test_a_topic_has_so_many_subscriptions_and_no_more"),
        ("P2", "settle", "c = still_there(reaped, cid, c)\n", "",
         f"{_ACTIVE}::test_a_consumer_that_ends_in_a_call_that_names_it_is_not_counted_again"),
        ("P2", "lib/mine", "d.returned > 0 or d.consumers > 1", "d.returned > 0",
         f"{_P2}::test_what_another_consumer_holds_is_not_settled"),
        ("P2", "lib/mine", "found[id] or #redis.call('XPENDING', K_MESSAGES, sub, id, id, 1, cid) == 1", "found[id]",
         f"{_P2}::test_in_any_order_what_a_consumer_holds_is_settled_beside_others"),
        ("P2", "lib/mine", "d.returned > 0 or d.consumers > 1", "d.consumers > 1",
         f"{_P2}::test_what_was_given_back_cannot_be_accepted_any_more"),
        ("P2", "lib/mine", " and not held_here[id] then", " then",
         f"{_P2}::test_an_id_given_back_twice_in_one_call_counts_once"),
        ("P2", "lib/settling", "return dash and dash < 18 and #text - dash < 17 and", "return true and",
         f"{_P2}::test_what_is_no_id_is_stale_and_spoils_nothing"),
        ("P2", "lib/settling", "return dash and dash < 18 and #text - dash < 17 and", "return dash and",
         f"{_P2}::test_what_is_no_id_is_stale_and_spoils_nothing"),
        ("P2", "lib/append", "if readers > 1 then", "if false then",
         f"{_P2}::test_a_topics_message_is_pending_until_all_subscriptions_settled_it"),
        ("P2", "lib/orphans", "messages, bytes = settle_ids(name, ids, true)", "messages, bytes = 0, 0, 0, 0",
         f"{_P2}::test_a_removed_subscription_is_not_waited_for"),
        ("P2", "lib/orphans", "s.till = d.message_seq + 1", "s.till = d.message_seq",
         f"{_P2}::test_a_subscription_removed_before_any_message_is_removed_once"),
        ("P2", "attach", " or (subscription and subscription.till > 0) then", " then",
         f"{_P2}::test_a_new_consumer_does_not_join_a_subscription_that_has_just_ended"),
        ("P2", "remove", "d.pending_bytes - bytes, d.pending_messages - #ids", "d.pending_bytes, d.pending_messages",
         f"{_P2}::test_purging_frees_everything_but_credit"),
        ("P2", "recount", "= bytes, counted, leased, leased_m\n", "= d.pending_bytes, counted, leased, leased_m\n",
         f"{_P2}::test_a_repair_makes_the_counters_true_again"),
        ("P2", "recount", "if messages > most or sessions > most or redis.call('HLEN', K_CONSUMERS) > most then",
         "if false then",
         f"{_P2}::test_a_recount_of_too_much_is_refused"),
        # P4: reclaim.
        ("P4", "lib/session", "math.floor(ttl_ms * 3 / 10)", "math.floor(ttl_ms * 13 / 10)",
         f"{_P4}::test_a_dead_sessions_credit_is_back_within_its_ttl_and_a_second"),
        ("P4", "lib/session", "math.floor(ttl_ms * 6 / 10)", "6000",
         f"{_P4}::test_each_session_has_the_ttl_that_it_names"),
        ("P4", "lib/session", "s.ttl, s.seen, s.strike = ttl_ms, now_ms, 0",
         "s.ttl, s.seen, s.strike = ttl_ms, now_ms, 1",
         f"{_P4}::test_a_clock_that_jumps_an_hour_ahead_reclaims_the_dead_and_nobody_else"),
        ("P4", "lib/reap", "elseif s.strike > 0 and s.strike <= now_ms and now_ms - s.strike >= grace(s.ttl) then",
         "elseif true then",
         f"{_P4}::test_a_clock_that_jumps_an_hour_ahead_reclaims_the_dead_and_nobody_else"),
        ("P4", "lib/session", "s.ttl, s.seen, s.strike = ttl_ms, now_ms, 0", "s.ttl, s.seen = ttl_ms, now_ms",
         f"{_P4}::test_a_living_session_keeps_everything"),
        ("P4", "reap", "\nclamp_leases()\n", "\n",
         f"{_P4}::test_a_clock_that_jumps_back_does_not_keep_the_dead_for_an_hour"),
        ("P4", "settle", "if s.seen > now_ms then", "if false then",
         f"{_P4}::test_whoever_consumes_on_has_what_the_dead_hold_after_a_clock_that_jumps_back"),
        ("P4", "lib/reap", "(s and s.ttl or 0) * 6 / 10", "d.ttl_ms",
         f"{_P4}::test_a_clock_that_jumps_back_does_not_keep_the_dead_for_an_hour"),
        ("P4", "lib/reap", "local MAX_REAPED = 16", "local MAX_REAPED = 1000",
         f"{_P4}::test_one_call_reclaims_a_bounded_number"),
        ("P8", "take", "local MOST_AHEAD_MS = 60000", "local MOST_AHEAD_MS = 1000000000000",
         f"{_P8}::test_no_slot_is_more_than_a_minute_ahead"),
        ("P8", "lib/rate", "local MOST_OWED_US = 315576000000000", "local MOST_OWED_US = 9e30",
         f"{_P8}::test_a_burst_that_takes_longer_than_ten_years_is_refused_or_kept_to"),
        ("P2", "take", "math.min(tonumber(settings[5] or 0) + taken, MOST)", "(settings[5] or 0) + taken",
         f"{_P8}::test_what_was_taken_in_all_stops_where_numbers_end"),
        ("P2", "lib/number", "local MOST_COUNTED = 4503599627370496", "local MOST_COUNTED = 1e300",
         f"{_ARGUMENTS}::test_what_is_in_use_without_a_limit_stays_exact"),
        ("P2", "lib/session", "return s.granted > MOST_GRANTED or s.granted_m > MOST_GRANTED", "return false",
         f"{_ARGUMENTS}::test_an_account_is_opened_anew_before_its_totals_become_inexact"),
        ("P7", "lib/line", "if d.turns > MOST_TURNS then", "if false then",
         f"{_ARGUMENTS}::test_the_clock_of_turns_goes_back_before_it_becomes_inexact"),
        ("P11", "attach", "number        1 to 64", "number        size",
         f"{_ARGUMENTS}::test_a_consumer_has_a_number_up_to_64"),
        ("P11", "lib/reap", "math.min(s.consumers, MOST_CONSUMERS)", "math.min(s.consumers, 5e7)",
         f"{_ARGUMENTS}::test_a_session_that_has_a_number_beyond_ends_in_a_moment"),
        ("P4", "lib/reap", "elseif sid == d.caller then", "elseif false then",
         f"{_P4}::test_a_session_that_is_late_but_comes_is_not_reclaimed_by_its_own_call"),
        ("P4", "publish", "elseif not s or is_counted_out(s) then\n  return { 'EXPIRED', int(d.epoch) }",
         "elseif not s then\n  s = new_session(inc, ttl_ms)\n  s.granted, s.granted_m = 9999, 9",
         f"{_P4}::test_a_reclaimed_session_cannot_use_what_it_held"),
        ("P7", "lib/account", "and claim.granted_m <= granted_m", "",
         f"{_P4}::test_a_reclaimed_session_that_held_messages_and_no_bytes_begins_anew"),
        ("P4", "lib/orphans", "put_back(c.sub, ids, true)", "put_back(c.sub, ids, false)",
         f"{_P4}::test_deliveries_of_the_dead_go_to_others_as_failed_attempts"),
        ("P4", "lib/expiry", "local MAX_MOVED = 64", "local MAX_MOVED = 1000",
         f"{_P4}::test_a_dead_consumers_many_deliveries_move_in_pieces"),
        # P5: once.
        ("P5", "acquire", "{ 'FENCED', int(d.epoch), int(s.inc) }", "{ 'FENCED', int(d.epoch) }",
         f"{_P5}::test_a_zombie_of_an_older_incarnation_is_fenced_from_credit"),
        ("P5", "publish", "if receipt then", "if false then",
         f"{_P5}::test_a_batch_published_three_times_is_stored_once"),
        ("P5", "publish", "elseif seq <= last then", "elseif false then",
         f"{_P5}::test_a_batch_of_long_ago_is_not_stored_again"),
        ("P5", "publish", "'PX', 3600000", "'PX', 60000",
         f"{_P5}::test_a_batch_whose_answer_was_lost_is_known_after_the_session_died"),
        ("P3", "publish", "if last > 0 and seq > last + 1 and count > 0 then", "if false then",
         f"{_P5}::test_numbers_that_a_failover_lost_are_told_in_the_ledger"),
        ("P5", "lib/account", "math.min(held_b, claim.returned - s.returned)", "math.min(held_b, claim.returned)",
         f"{_P5}::test_credit_given_back_again_frees_nothing_more"),
        ("P5", "lib/account", "math.max(0, math.min(held_b, claim.returned - s.returned))",
         "math.min(held_b, claim.returned - s.returned)",
         f"{_P5}::test_a_call_that_was_overtaken_takes_nothing_back"),
        ("P5", "acquire", "(claim.returned + s.used > s.granted or", "(false or",
         f"{_P5}::test_more_given_back_than_held_is_refused"),
        ("P5", "publish", "elseif s.inc ~= inc then", "elseif false then",
         f"{_P5}::test_a_zombie_of_an_older_incarnation_is_fenced_from_publishing"),
        ("P5", "acquire", "elseif s and s.inc > inc then", "elseif false then",
         f"{_P5}::test_a_zombie_of_an_older_incarnation_is_fenced_from_credit"),
        ("P5", "lib/account", "    local bytes, messages = held(s)\n    add_lease(s, -bytes, -messages)\n    d.weight",
         "    local bytes, messages = held(s)\n    d.weight",
         f"{_P5}::test_a_higher_incarnation_frees_what_the_older_held"),
        ("P5", "acquire", "  if ARGV[18] == 'leave' then\n", "  do\n",
         f"{_P5}::test_a_session_of_the_same_id_is_told_what_was_published_before_it"),
        ("P5", "acquire", "if ARGV[18] == 'resume' or not known then\n  reply", "if not known then\n  reply",
         f"{_P5}::test_a_session_of_the_same_id_is_told_what_was_published_before_it"),
        ("P3", "acquire", "  if sent > last then", "  if false then",
         f"{_P5}::test_what_an_epoch_lost_of_a_session_is_told_once"),
        ("P3", "acquire", "  if sent > last then", "  if last > 0 and sent > last then",
         f"{_P5}::test_a_session_whose_receipt_is_gone_too_lost_all_that_it_has_receipts_for"),
        ("P3", "acquire", "int(sent) .. ' 0 ' .. int(sent - last) .. ' ' .. int(d.epoch)", "'0 0 0 0'",
         f"{_P5}::test_what_an_epoch_lost_of_a_session_is_told_once"),
        ("P3", "acquire", "of == int(d.epoch) and tonumber(lost) or 0", "0",
         f"{_P5}::test_what_an_epoch_lost_of_a_session_is_told_once"),
        ("P3", "lib/ledger", "  d.lost = count\n", "",
         f"{_P5}::test_what_an_epoch_lost_of_a_session_is_told_once"),
        ("P3", "lib/destination", "d.new_epoch and 1 or 0, d.lost", "1, d.lost",
         f"{_P5}::test_numbers_that_a_failover_lost_are_told_in_the_ledger"),
        ("P3", "lib/destination", "(began == 0 and before[3] or 0)", "(before[3] or 0)",
         f"{_P5}::test_what_an_epoch_lost_of_a_session_is_told_once"),
        ("P5", "acquire", "  forget_receipt()\n  return", "  return",
         f"{_P5}::test_a_session_that_left_and_then_ends_is_forgotten"),
        ("P5", "acquire", "if not s and leave then", "if false then",
         f"{_P5}::test_leaving_twice_is_leaving_once"),
        ("P5", "settle", "local again = fetch > 0 and fetch == c.fetches", "local again = false",
         f"{_P5}::test_a_fetch_whose_answer_was_lost_is_answered_again"),
        ("P5", "settle", "elseif fetch > c.fetches then --", "elseif fetch > 0 then --",
         f"{_P5}::test_a_fetch_that_was_overtaken_delivers_to_nobody"),
        ("P5", "settle", "if fetch == 0 or fetch > c.fetches then", "if true then",
         f"{_P5}::test_a_failed_attempt_counts_once"),
        ("P5", "lib/attach", "if not c then", "if true then",
         f"{_P5}::test_attaching_again_changes_nothing"),
        ("P5", "lib/putback", "  if failed then", "  if true then",
         f"{_P5}::test_detaching_again_changes_nothing"),
        ("P5", "settle", " or (d.orphans > 0 and redis.call('ZSCORE', K_ORPHANS, cid)) then", " then",
         f"{_P5}::test_a_late_settlement_of_a_consumer_that_is_gone_is_refused"),
        ("P5", "take", "if stored and string.match", "if false and string.match",
         f"{_P5}::test_slots_of_a_bucket_are_taken_once"),
        ("P5", "apply", "if settings.policy_version and", "if false and",
         f"{_P5}::test_a_setting_of_an_older_policy_does_not_overwrite_a_newer_one"),
        # P6 and P7: hand-over, in order.
        ("P6", "settle", "if freed > 0 or reaped or d.expired then", "if false then",
         f"{_P6}::test_a_settlement_hands_what_it_frees_to_who_waits"),
        ("P6", "lib/credit", "  hand_over(sid, s)\n", "",
         f"{_P6}::test_credit_given_back_goes_to_who_waits"),
        ("P6", "acquire", "  hand_over()\n", "",
         f"{_P6}::test_who_leaves_hands_over"),
        ("P6", "reap", "  hand_over()\n", "",
         f"{_P6}::test_whichever_call_reclaims_hands_over"),
        ("P6", "attach", "  hand_over()\n", "",
         f"{_P6}::test_whichever_call_reclaims_hands_over"),
        ("P12", "apply", "  hand_over()\n", "",
         f"{_P6}::test_a_raised_limit_is_handed_over_at_once"),
        ("P6", "lib/credit", "wake(sid, 'credit',", "wake_all('credit ' ..",
         f"{_P6}::test_freed_room_wakes_only_those_that_it_admits"),
        ("P7", "lib/line", "'NX', int(turn), sid)", "'NX', 1, sid)",
         f"{_P6}::test_waiters_are_served_in_the_order_in_which_they_came"),
        ("P7", "lib/credit", "d.blocked == 0 and grant(sid, s) then", "grant(sid, s) then",
         f"{_P6}::test_nobody_barges_in_before_those_who_wait"),
        ("P7", "lib/room", "(lacks > 0 and lacks > free and not alone) or", "false or",
         f"{_P6}::test_a_large_message_at_the_head_is_not_starved_by_small_ones"),
        ("P7", "lib/credit", "joins = blocked and s.since == 0", "joins = blocked and (leave_line(sid) or true)",
         f"{_P6}::test_a_place_in_line_is_kept_while_asking_again"),
        ("P7", "lib/credit", "if s.since > 0 and not blocked then", "if false then",
         f"{_P6}::test_who_no_longer_needs_credit_leaves_the_line"),
        ("P6", "lib/credit", "(is_silent(s) or never_fits(s))", "never_fits(s)",
         f"{_P6}::test_a_silent_waiter_does_not_hold_up_the_living"),
        ("P6", "lib/credit", "math.max(STALE_WAITER_MS, math.min(MOST_STALE_MS, math.floor(s.ttl * 6 / 10)))",
         "STALE_WAITER_MS", f"{_P6}::test_a_waiter_keeps_its_place_while_it_asks_as_often_as_it_renews_its_lease"),
        ("P6", "lib/credit", "math.min(MOST_STALE_MS, math.floor(s.ttl * 6 / 10))", "math.floor(s.ttl * 6 / 10)",
         f"{_P6}::test_a_silent_waiter_does_not_hold_up_the_living"),
        ("P6", "settle", "local asked = s.since > 0 and s.seen", "local asked = nil",
         f"{_P6}::test_a_waiter_that_settles_and_asks_no_more_loses_its_place"),
        ("P6", "lib/credit", "(is_silent(s) or never_fits(s))", "is_silent(s)",
         f"{_P6}::test_a_waiter_that_can_never_be_served_does_not_hold_up_the_others"),
        ("P5", "lib/credit", "    grant(sid, s) -- all were served", "    -- all were served",
         f"{_P6}::test_what_is_left_when_all_were_served_goes_to_the_caller"),
        ("P6", "lib/room", "math.max(s.want, s.need)", "s.want",
         "test_rules::test_a_message_above_the_limit_that_was_raised_meanwhile_is_served_as_others"),
        ("P6", "lib/credit", "elseif math.abs(now_ms - d.recall_ms) >= 200 then", "else",
         f"{_P6}::test_holders_of_idle_credit_are_asked_for_it_at_most_five_times_a_second"),
        ("P6", "lib/wake", "int(math.min(messages, 16) +", "int(16 +",
         f"{_P6}::test_a_message_wakes_as_many_consumers_as_it_feeds"),
        # Credit that is older than the limit.
        ("P1", "publish", "if not spools and not is_covered(", "if false and not is_covered(",
         f"{_ACTIVE}::test_credit_of_before_pays_for_nothing_above_a_limit_that_begins_to_bind"),
        ("P1", "lib/covered", "if fits and (alone", "if (alone",
         f"{_ACTIVE}::test_credit_of_before_a_lower_limit_pays_for_nothing_above_it"),
        ("P1", "lib/brought", "if not paid or puts.above then", "if not paid then",
         f"{_LINKS}::test_credit_of_before_a_lower_limit_pays_for_nothing_above_it"),
        ("P1", "lib/recall", "  if is_above() then\n    bytes, messages", "  if false then\n    bytes, messages",
         f"{_P6}::test_holders_are_asked_for_what_a_limit_that_begins_to_bind_does_not_cover"),
        ("P1", "attach", "  if is_above() then", "  if false then",
         f"{_P6}::test_holders_are_asked_for_what_a_limit_that_begins_to_bind_does_not_cover"),
        ("P1", "resolve", "redis.call('HSET', K_DESTINATION, 'ticket', sid .. ' ' .. int(s.granted))\n", "",
         "test_resolve::test_a_ticket_is_credit_for_one_message_above_the_limit"),
        # Who waits gets what others hold and have not begun.
        ("P6", "lib/deliver", "  if beside and waits > 0 then", "  if beside then",
         f"{_P6}::test_who_waits_beside_what_others_hold_has_them_asked_for_it"),
        ("P6", "lib/deliver", "    seek(c)\n", "",
         f"{_P6}::test_who_waits_beside_what_others_hold_has_them_asked_for_it"),
        ("P6", "lib/deliver", "math.abs(now_ms - before) < SEEK_MS", "false",
         f"{_P6}::test_who_waits_beside_what_others_hold_has_them_asked_for_it"),
        ("P6", "lib/deliver", "held[1] / read_subscription(c.sub).consumers", "held[1]",
         f"{_P6}::test_who_waits_beside_what_others_hold_has_them_asked_for_it"),
        ("P6", "lib/deliver", "or waits > 0 and AHEAD or 0", "or 0",
         f"{_P6}::test_consumers_at_which_somebody_waits_are_woken_before_those_that_have_room"),
        ("P7", "lib/deliver", "ahead + behind", "ahead",
         f"{_P6}::test_of_a_slice_those_that_hold_least_of_it_are_woken_first"),
        ("P6", "lib/deliver", "K_HUNGRY, 'LT',", "K_HUNGRY,",
         f"{_P6}::test_consumers_at_which_somebody_waits_are_woken_before_those_that_have_room"),
        ("P6", "lib/consumer", "sub == 'queue' and 'sought_ms' or", "true and 'sought_ms' or",
         f"{_P6}::test_each_subscription_of_a_topic_has_its_holders_asked"),
        ("P6", "lib/orphans", "sought_field(name), read_field", "read_field",
         f"{_P6}::test_each_subscription_of_a_topic_has_its_holders_asked"),
        ("P6", "lib/deliver", " and read_subscription(c.sub).consumers > 1", "",
         f"{_P6}::test_each_subscription_of_a_topic_has_its_holders_asked"),
        ("P6", "lib/deliver", "most + 1 + (now_us + i) % (#holders - most)", "i",
         f"{_P6}::test_of_many_who_hold_messages_nobody_is_passed_over_for_ever"),
        ("P6", "settle", "    redis.call('ZREM', K_HUNGRY, cid) -- others are woken for it\n", "",
         f"{_P6}::test_who_gives_back_is_not_woken_for_it"),
        ("P6", "settle", "  wake_hungry(1, c.sub)\n", "",
         f"{_P6}::test_who_has_no_room_for_what_it_was_woken_for_has_another_one_woken"),
        ("P6", "detach", "      wake_hungry(1, c.sub) -- for what", "      -- for what",
         f"{_P6}::test_who_leaves_without_what_it_was_woken_for_has_another_one_woken"),
        ("P6", "detach", "redis.call('ZREM', K_HUNGRY, member) == 0", "redis.call('ZREM', K_HUNGRY, member) >= 0",
         f"{_P6}::test_who_leaves_without_what_it_was_woken_for_has_another_one_woken"),
        ("P6", "detach", "woken = woken and c.window ~= PAUSED", "woken = woken",
         f"{_P6}::test_who_leaves_without_what_it_was_woken_for_has_another_one_woken"),
        ("P6", "lib/deliver", "math.min(waits, room) or room", "room or room",
         f"{_DELIVERY}::test_who_waits_gets_one_of_what_came_back_and_then_the_rest"),
        ("P6", "lib/deliver", "    again_ms = 1 -- the rest", "    again_ms = 0 -- the rest",
         f"{_DELIVERY}::test_who_waits_gets_one_of_what_came_back_and_then_the_rest"),
        ("P6", "lib/deliver", " > c.delivered - c.settled and", " > 0 and",
         f"{_DELIVERY}::test_who_finds_nothing_is_told_whether_others_hold_messages"),
        ("P6", "lib/putback", "  wake_hungry(#ids, sub)\n", "",
         f"{_P6}::test_what_comes_back_wakes_a_hungry_consumer"),
        ("P6", "lib/wake", "before < messages and ", "",
         f"{_P6}::test_a_message_of_a_topic_wakes_one_consumer_of_each_subscription"),
        ("P6", "lib/wake", " and (not sub or of == sub)", "",
         f"{_P6}::test_a_message_of_a_topic_wakes_one_consumer_of_each_subscription"),
        ("P6", "lib/wake", "string.match(record or '', '^sub=(%S+)') or ''", "''",
         f"{_P6}::test_a_message_of_a_topic_wakes_one_consumer_of_each_subscription"),
        ("P6", "lib/deliver", "d.kind == 'queue' and c.sub", "c.sub",
         f"{_P6}::test_a_message_of_a_topic_wakes_one_consumer_of_each_subscription"),
        ("P6", "lib/wake", "not hungry or #hungry > MOST_HUNGRY", "not hungry",
         f"{_P6}::test_where_very_many_of_a_topic_are_hungry_one_word_is_for_all"),
        ("P6", "lib/consumer", "  if window == PAUSED then", "  if false then",
         f"{_P6}::test_who_is_paused_is_not_woken_in_the_place_of_others"),
        ("P6", "lib/reap", "      set_window(cid, c, PAUSED)\n", "",
         f"{_P6}::test_the_dead_are_not_woken"),
        # P8: rates.
        ("P8", "take", "math.ceil(burst * 1000000 / rate)", "math.ceil(2 * burst * 1000000 / rate)",
         f"{_P8}::test_no_window_admits_more_than_its_rate_and_burst"),
        ("P8", "take", "math.ceil(burst * 1000000 / rate)", "math.ceil(2 * burst * 1000000 / rate)",
         f"{_P8}::test_an_idle_bucket_admits_its_burst_at_once_and_no_more"),
        ("P8", "take", "'tat', int(math.max(0, tat))", "'tat', '0'",
         f"{_P8}::test_all_sessions_share_one_rate"),
        ("P8", "take", "    refused = refused + tokens\n", "    refused, tat = refused + tokens, after\n",
         f"{_P8}::test_a_refusal_costs_nothing"),
        ("P8", "take", "tat = tat - set_back", "tat = tat",
         f"{_P8}::test_a_clock_that_was_set_back_leaves_the_bucket_as_it_was"),
        ("P8", "take", "local unlimited = not rate", "local unlimited = false",
         f"{_P8}::test_a_bucket_without_a_rate_admits_everything"),
        ("P12", "lib/carry_over", "not old_rate or not old_burst or not tat or", "true or",
         f"{_P8}::test_tokens_left_or_owed_survive_a_change_of_rate"),
        ("P8", "take", "elseif d.kind ~= 'bucket' then", "elseif false then",
         f"{_P8}::test_only_buckets_are_taken_from"),
        # Active consumers.
        ("P12", "lib/consumer", " - (c.window and c.window ~= PAUSED and 1 or 0)", "",
         f"{_ACTIVE}::test_who_is_attached_counts_once_until_it_goes_and_not_while_paused"),
        ("P1", "lib/consumer", "if d.unbound ~= unbound then", "if false then",
         f"{_ACTIVE}::test_the_ledger_tells_when_limits_bind_and_what_may_go_above_them"),
        ("P1", "apply", "note('binds', d.unbound and 'no' or 'yes')", "note('binds', 'yes')",
         f"{_ACTIVE}::test_the_ledger_tells_when_limits_bind_and_what_may_go_above_them"),
        ("P1", "apply", "d.hard_bytes and int(d.hard_bytes) or '-'", "'-'",
         f"{_ACTIVE}::test_the_ledger_tells_when_limits_bind_and_what_may_go_above_them"),
        ("P1", "recount", "    judge_again(active)\n", "    d.active = active\n    judge_rules(d)\n",
         f"{_ACTIVE}::test_the_ledger_tells_when_limits_bind_and_what_may_go_above_them"),
        ("P12", "lib/consumer", "  judge_rules(d)\n", "",
         f"{_ACTIVE}::test_while_nobody_is_active_a_limit_with_consumers_does_not_bind"),
        ("P12", "lib/rules", "read.active == 0", "false",
         f"{_ACTIVE}::test_while_nobody_is_active_a_limit_with_consumers_does_not_bind"),
        ("P12", "detach", "    set_window(member, c, PAUSED)\n", "",
         f"{_ACTIVE}::test_a_consumer_that_goes_in_several_calls_stops_counting_with_the_first"),
        ("P12", "lib/reap", "      set_window(cid, c, PAUSED)\n", "",
         f"{_ACTIVE}::test_the_dead_do_not_count"),
        ("P12", "attach", "if judged then", "if false then",
         f"{_ACTIVE}::test_while_nobody_is_active_a_limit_with_consumers_does_not_bind"),
        ("P12", "recount", "  redis.call('HSET', K_DESTINATION, 'active', int(active))\n", "",
         f"{_ACTIVE}::test_a_repair_makes_the_number_true_again"),
        # Rates of delivery.
        ("P8", "lib/deliveryrate", "if not d.delivery_rate then", "if true then",
         f"{_RATES}::test_no_window_delivers_more_than_its_rate_and_burst"),
        ("P8", "lib/deliveryrate", "keep_tat(owe(d.delivery_tat, messages,", "keep_tat(owe(0, messages,",
         f"{_RATES}::test_no_window_delivers_more_than_its_rate_and_burst"),
        ("P8", "lib/deliveryrate", "if owed_us() > whole + 1 then", "if false then",
         f"{_RATES}::test_a_clock_that_was_set_back_does_not_stop_delivery"),
        ("P8", "lib/deliver", "again_ms = delivery_due_ms(c.sub, max_messages - most)", "again_ms = 0",
         f"{_RATES}::test_who_is_held_back_is_told_when_to_look_again"),
        # Messages that expire.
        ("P2", "lib/orphans", "  if expire_due() then", "  if false then",
         f"{_EXPIRY}::test_what_expires_frees_its_bytes"),
        ("P2", "lib/expiry", "local MAX_MOVED = 64", "local MAX_MOVED = 1000",
         f"{_EXPIRY}::test_what_expires_is_swept_in_pieces_and_not_delivered_meanwhile"),
        ("P2", "lib/expiry", "    if not gone then\n", "    if true then\n",
         f"{_EXPIRY}::test_what_expires_is_swept_in_pieces_and_not_delivered_meanwhile"),
        ("P2", "lib/expiry", "    elseif seen then\n", "    elseif false then\n",
         f"{_EXPIRY}::test_all_is_freed_once_whatever_happens"),
        ("P2", "lib/expiry", "at == EXPIRED or tonumber(at)", "tonumber(at)",
         f"{_EXPIRY}::test_a_clock_that_was_set_back_revives_nothing"),
        ("P2", "lib/putback", "  ids = unexpired(sub, ids)\n", "",
         f"{_EXPIRY}::test_what_a_consumer_has_in_hand_stays_until_it_lets_go"),
        ("P2", "lib/expiry", "holders = holders + 1", "holders = holders",
         f"{_EXPIRY}::test_what_a_consumer_has_in_hand_stays_until_it_lets_go"),
        ("P2", "lib/expiry", "d.returned = d.returned - redis", "d.returned = d.returned - 0 * redis",
         f"{_EXPIRY}::test_what_awaits_redelivery_expires"),
        ("P2", "lib/settle", "    redis.call('ZREM', K_EXPIRY, unpack(gone))\n", "",
         f"{_EXPIRY}::test_what_is_settled_in_time_leaves_nothing_behind"),
        ("P2", "lib/settle", "redis.call('EXISTS', K_EXPIRY) == 0", "true",
         f"{_EXPIRY}::test_what_is_settled_in_time_leaves_nothing_behind"),
        ("P2", "remove", "  redis.call('ZREM', K_EXPIRY, unpack(ids))\n", "",
         f"{_EXPIRY}::test_what_is_settled_in_time_leaves_nothing_behind"),
        ("P2", "lib/append", "(expires_ms == 0 or d.message_ttl_ms < expires_ms)", "expires_ms == 0",
         f"{_EXPIRY}::test_the_shorter_of_the_senders_and_the_destinations_time_holds"),
        ("P2", "reap", "next_expiry_ms() or 60000", "60000",
         f"{_EXPIRY}::test_a_sweep_says_when_the_next_one_expires"),
        ("P11", "lib/expiry", "  if d.grows then", "  if false then",
         f"{_EXPIRY}::test_in_a_full_redis_attaching_is_refused_whole"),
        # Slow consumers.
        ("F05", "lib/pace", "local few = d.slow_rate and", "local few = false and",
         f"{_SLOW}::test_who_settles_less_than_the_rate_although_it_has_some_is_slow"),
        ("F05", "lib/pace", "  if held == 0 or lasted < 0 then", "  if false then",
         f"{_SLOW}::test_who_has_nothing_to_do_is_never_slow"),
        ("F05", "lib/pace", "window > 1 and", "false and",
         f"{_SLOW}::test_who_has_too_many_waiting_for_it_is_slow"),
        ("F05", "lib/pace", "'NX', 0, cid)", "'XX', 0, cid)",
         f"{_SLOW}::test_who_is_detached_loses_what_it_holds_and_is_told"),
        ("F05", "settle", "was_detached(cid) and 'SLOW' or 'EXPIRED'", "'EXPIRED'",
         f"{_SLOW}::test_who_is_detached_loses_what_it_holds_and_is_told"),
        ("F05", "detach", "failed = failed or redis.call('ZSCORE', K_ORPHANS, member)", "failed = failed",
         f"{_SLOW}::test_what_it_held_was_tried_also_when_it_closes_before_anybody_sweeps"),
        ("F05", "reap", "judge_others()\n", "",
         f"{_SLOW}::test_one_that_is_silent_is_noticed_by_a_sweep"),
        ("F05", "lib/reap", "    redis.call('HDEL', K_PACE, cid)\n", "",
         f"{_SLOW}::test_no_record_outlives_its_consumer"),
        # After a failover, a restart, a loss of everything.
        ("P3", "lib/destination", "d.epoch = math.max(d.epoch + 1, now_ms)", "d.epoch = d.epoch + 0",
         f"{_RECOVERY}::test_another_run_of_the_server_begins_an_epoch"),
        ("P3", "lib/destination", "if d and run_id ~= d.run_id then",
         "if d and run_id ~= d.run_id and now_ms - d.epoch_ms < 30000 then",
         f"{_RECOVERY}::test_a_failover_back_to_the_server_before_begins_an_epoch"),
        ("P6", "lib/destination", "if d and d.learning_until > now_ms then", "if false then",
         f"{_RECOVERY}::test_a_clock_that_was_set_back_has_nobody_wait_for_more_than_a_lease"),
        ("P12", "lib/destination", "    if may_be_lost then\n", "    if true then\n",
         f"{_RECOVERY}::test_a_run_that_has_all_of_the_one_before_goes_on_where_it_ended"),
        ("P3", "lib/run", "(sign == '<' and before ~= whole)", "false",
         f"{_RECOVERY}::test_who_does_not_know_what_became_of_the_run_before_is_told_its_name"),
        ("P3", "lib/run", "if sign == '' or", "if",
         f"{_RECOVERY}::test_who_does_not_know_what_became_of_the_run_before_is_told_its_name"),
        ("P3", "lib/run", "(promotion == '' or promotion == last or not last)", "true",
         f"{_RECOVERY}::test_the_same_run_after_another_promotion_may_have_lost_state"),
        ("P3", "lib/run", "(promotion == '' or promotion == last or not last)", "promotion == last",
         f"{_RECOVERY}::test_the_same_run_after_another_promotion_may_have_lost_state"),
        ("P1", "lib/destination", "longest > 0 and longest or d.ttl_ms", "longest",
         f"{_RECOVERY}::test_learning_without_a_session_left_lasts_as_long_as_any_lease_did"),
        ("P1", "lib/destination", "longest > 0 and longest or d", "d",
         f"{_RECOVERY}::test_learning_lasts_as_long_as_the_longest_lease_there_is"),
        ("P1", "lib/room", "  if now_ms < d.learning_until then\n    local back", "  if false then\n    local back",
         f"{_RECOVERY}::test_nothing_new_is_granted_while_the_destination_learns"),
        ("P1", "lib/room", "  if now_ms < d.learning_until then\n    local back", "  if false then\n    local back",
         f"{_RECOVERY}::test_the_line_is_not_served_while_the_destination_learns"),
        ("P4", "lib/account", "local free, free_m = whole_room()", "local free, free_m = room()",
         f"{_RECOVERY}::test_grants_that_a_failover_lost_are_given_back_to_who_claims_them"),
        *(
            (promise, file, old, new,
             f"{_RECOVERY}::test_what_was_claimed_and_given_back_is_passed_on_while_the_destination_learns")
            for promise, file, old, new in (
                ("P7", "lib/account", "    add_given_back(bytes, messages)\n", ""),
                ("P7", "acquire", "    add_given_back(bytes, messages)\n", ""),
                ("P1", "lib/room", "      add_given_back(-more, -more_m)\n", ""),
                ("P1", "lib/room", "if epoch ~= int(d.epoch) then", "if not epoch then"),
            )
        ),
        ("P1", "acquire", "now_ms < d.learning_until and claim.epoch == d.epoch", "now_ms < d.learning_until",
         f"{_RECOVERY}::test_what_is_given_back_at_a_former_server_is_not_passed_on_here"),
        ("P1", "lib/oversize", "(s) and now_ms >= d.learning_until and", "(s) and",
         f"{_RECOVERY}::test_no_message_goes_alone_while_the_destination_learns"),
        ("P12", "lib/credit", "d.rules ~= '' and now_ms >= d.learning_until then", "d.rules ~= '' then",
         f"{_RECOVERY}::test_what_may_not_yet_be_granted_shuts_no_destination"),
        ("P4", "lib/account", "and now_ms < d.learning_until", "and false",
         f"{_RECOVERY}::test_grants_that_a_failover_lost_are_given_back_to_who_claims_them"),
        ("P3", "apply", "  if mode == 'recover' then redis.call", "  if false then redis.call",
         f"{_RECOVERY}::test_after_a_loss_of_everything_sessions_get_what_they_claim"),
        ("P1", "apply", "mode == 'recover' and now_ms + learn_for(settings.kind, ttl_ms) or 0", "0",
         f"{_RECOVERY}::test_after_a_loss_of_everything_sessions_get_what_they_claim"),
        ("P1", "lib/account", " and now_ms < d.learning_until", "",
         f"{_RECOVERY}::test_a_claim_that_comes_too_late_is_refused"),
        ("P1", "lib/account", " and now_ms < d.learning_until", "",
         f"{_RECOVERY}::test_a_claim_to_a_destination_that_did_not_learn_is_refused"),
        ("P1", "acquire", "elseif not leave and claims_open(claim.epoch) and not claim_fits(s, inc, claim) then",
         "elseif false then",
         f"{_RECOVERY}::test_claims_never_add_up_to_more_than_the_limit"),
        ("P2", "lib/account", "math.min(totals.used, totals.granted),", "totals.used,",
         f"{_RECOVERY}::test_a_claim_that_contradicts_itself_holds_nothing_negative"),
        ("P2", "lib/account", "math.min(totals.returned, totals.granted - totals.used)", "totals.returned",
         f"{_RECOVERY}::test_a_claim_that_contradicts_itself_holds_nothing_negative"),
        ("P1", "publish", "elseif epoch ~= d.epoch then", "elseif false then",
         f"{_RECOVERY}::test_a_batch_of_an_older_epoch_is_not_stored_before_its_credit_is_claimed"),
        # What a fetch delivers, how consumers go, and the ledger.
        ("P2", "lib/deliver", "math.max(1, math.min(left, fits))", "MAX_DELIVERED",
         f"{_DELIVERY}::test_a_window_of_messages_is_never_exceeded"),
        ("P2", "lib/deliver", "math.max(d.largest_bytes, 1)", "1",
         f"{_DELIVERY}::test_a_window_of_bytes_is_not_exceeded_by_what_fits_beside_others"),
        ("P6", "lib/deliver", "again_ms = 1 -- the bytes", "again_ms = 0 -- the bytes",
         f"{_DELIVERY}::test_a_fetch_that_its_bytes_cut_short_says_that_there_is_more"),
        ("P6", "lib/deliver", "if left < 1 or (fits < 1 and payload > 0) then", "if left < 1 or fits < 1 then",
         f"{_DELIVERY}::test_a_message_larger_than_the_window_comes_alone"),
        ("P7", "lib/deliver", "if (d.promoted or d.returned > 0 and not c.after) and most > 0 then", "if false then",
         f"{_DELIVERY}::test_what_came_back_is_delivered_before_what_is_new"),
        ("P2", "lib/redeliver", "if i > 1 and all > max_bytes then", "if false then",
         f"{_DELIVERY}::test_what_came_back_respects_the_window_of_bytes"),
        ("P2", "lib/append", "d.kind ~= 'topic' or d.subscriptions > 0", "true",
         f"{_DELIVERY}::test_a_topic_without_subscriptions_stores_nothing"),
        ("P3", "lib/orphans", "s.consumers == 0 and s.durable == 0 and", "s.consumers == 0 and",
         f"{_DELIVERY}::test_a_durable_subscription_outlives_its_consumers"),
        ("P3", "detach", "subscription.consumers > 0 or", "false or",
         f"{_DELIVERY}::test_a_subscription_with_consumers_is_not_removed"),
        ("P5", "detach", "put_back(c.sub, ids, false)", "put_back(c.sub, ids, true)",
         f"{_DELIVERY}::test_closing_a_consumer_gives_back_what_it_holds_without_blame"),
        ("P5", "detach", "#ids == MAX_MOVED and 'MORE' or 'OK'", "'OK'",
         f"{_DELIVERY}::test_closing_a_consumer_that_holds_much_takes_several_calls"),
        ("P2", "lib/ledger", "d.ledger_seq = d.ledger_seq + 1", "d.ledger_seq = d.ledger_seq + 2",
         f"{_DELIVERY}::test_the_ledger_misses_no_number_and_tells_the_counters"),
        ("P2", "lib/ledger", "if d.ledger == 'off' then", "if false then",
         f"{_DELIVERY}::test_a_ledger_that_is_off_is_not_written"),
        # A full Redis.
        ("P11", "lib/reap", "if not changed and d.grows then", "if false then",
         f"{_OOM}::test_what_takes_room_is_refused_whole_even_when_there_is_something_to_reap"),
        ("P11", "settle", _ALLOWED, "--", f"{_OOM}::test_what_frees_room_works_in_a_full_redis"),
        ("P11", "settle", _ALLOWED, "--", f"{_OOM}::test_settling_reclaims_in_a_full_redis"),
        ("P11", "reap", _ALLOWED, "--", f"{_OOM}::test_leases_are_reclaimed_in_a_full_redis"),
        ("P11", "acquire", _ALLOWED, "--", f"{_OOM}::test_what_frees_room_works_in_a_full_redis"),
        ("P11", "apply", _ALLOWED,
         "--",
         f"{_OOM}::test_an_operator_can_purge_change_repair_and_delete_in_a_full_redis"),
        ("P11", "recount", _ALLOWED,
         "--",
         f"{_OOM}::test_an_operator_can_purge_change_repair_and_delete_in_a_full_redis"),
        ("P11", "detach", _ALLOWED, "--", f"{_OOM}::test_a_subscription_can_be_removed_from_a_full_redis"),
        # Pools.
        ("P1", "pool", "if p.learning == 0 and granted > m.granted then", "if false then",
         f"{_POOLS}::test_a_pool_answers_as_the_model_does"),
        ("P1", "pool", "if epoch < m.epoch then", "if false then",
         f"{_POOLS}::test_a_late_report_of_a_destination_that_was_lost_is_refused"),
        ("P1", "lib/serve", "elseif may_be_served(m) then", "elseif true then",
         f"{_POOLS}::test_first_come_first_served"),
        ("P1", "lib/slices", "settings.slices_pool = whole .. '%.0'", "settings.slices_pool = nil", _SLICED),
        ("P1", "lib/rules", "(read.slices_pool or '')", "''", _IN_IT),
        ("P1", "lib/rules", "read.shut = { pool },", "read.shut = {},", _SLICED),
        ("P1", "lib/slices", "math.max(before, ", "math.max(1, ", _IN_IT),
        ("P1", "lib/serve", "math.min(pool_room(m), p.limit / 8,", "math.min(p.limit * 8,",
         f"{_POOLS}::test_nor_of_the_slices_of_one_queue"),
        ("P7", "slice", "math.min(d.weight, MOST_WEIGHT)", "1",
         f"{_FAIR}::test_a_slice_has_a_part_for_each_session_that_sends_there"),
        ("P7", "lib/serve", "is_of_slices() and m.need - m.returned > most_of(m)",
         "is_of_slices() and m.need - m.returned >= most_of(m)",
         f"{_FAIR}::test_a_slice_goes_before_all_others_for_a_message_above_the_limit_alone"),
        ("P7", "lib/room", "d.limit_bytes) / slices, s.weight)", "d.limit_bytes), s.weight)", _SHARE),
        *_SLICED_MESSAGES,
        ("P7", "place", "(placed + 1) % slices", "placed % slices", _PLACED),
        ("P1", "lib/pool_room", "p.limit - (m.reserved == 1 and 0 or p.reserve)", "p.limit",
         f"{_POOLS}::test_the_reserve_is_for_the_reserved_who_go_first"),
        ("P6", "lib/serve", "(member ~= caller and is_stale(m))", "false",
         f"{_POOLS}::test_a_member_that_nobody_asks_for_any_more_does_not_hold_up_the_line"),
        ("P6", "lib/serve", "math.abs(now_ms - m.seen)", "now_ms - m.seen",
         f"{_POOLS}::test_a_member_that_nobody_asks_for_any_more_does_not_hold_up_the_line"),
        ("P12", "lib/pool", "    if may_be_lost then\n", "    if true then\n",
         f"{_POOLS}::test_a_pool_whose_server_handed_it_over_whole_goes_on"),
        ("P1", "lib/pool", "      begin_learning(0)\n", "",
         f"{_POOLS}::test_a_restart_makes_a_pool_ask_all_again"),
        ("P7", "lib/fair", "  if only and m.need <= m.granted then", "  if m.need <= m.granted or draw(m, 1) then",
         f"{_POOLS}::test_a_pool_answers_as_the_model_does"),
        ("P7", "lib/fair", "step * TICKETS + ticket % TICKETS", "ticket % TICKETS",
         f"{_FAIR}::test_the_one_that_holds_least_is_first_whoever_came_before"),
        ("P7", "lib/fair", "held * LEVELS / (m.weight * most_of(m))", "held * LEVELS / most_of(m)",
         f"{_FAIR}::test_shares_follow_weights_and_demands_as_these_change"),
        ("P7", "lib/fair", "  return left >= 0", "  return true",
         f"{_FAIR}::test_a_large_message_beyond_its_share_keeps_nobody_waiting_that_has_a_claim"),
        ("P7", "lib/fair", "math.min(o.granted - o.returned, math.floor(own * o.weight / m.weight))",
         "o.granted - o.returned",
         f"{_POOLS}::test_a_pool_answers_as_the_model_does"),
        ("P7", "lib/fair", " or m.reserved * AHEAD", " or 0",
         f"{_FAIR}::test_reserved_destinations_are_first_whatever_they_hold"),
        ("P1", "pool", "p.granted = p.granted + m.granted - m.returned - before", "",
         f"{_POOLS}::test_no_order_of_steps_makes_the_slices_exceed_the_limit"),
        ("P6", "pool_set", "p.learning > p.epoch and ", "",
         f"{_POOLS}::test_a_pool_serves_again_a_lease_after_the_clock_was_set_back"),
        ("P1", "pool_set", "p.learning > p.epoch and now_ms < p.learning", "false",
         f"{_POOLS}::test_a_pool_that_was_lost_grants_nothing_before_all_have_been_asked"),
        ("P12", "pool_set", "serve_line()\n", "",
         f"{_POOLS}::test_a_raised_limit_serves_those_who_wait"),
        ("P12", "pool_set", "if tonumber(settings.policy_version or version) < version then", "if false then",
         f"{_POOLS}::test_an_older_policy_is_refused"),
        ("P1", "pool_forget", "elseif m.epoch > epoch then", "elseif false then",
         f"{_POOLS}::test_forgetting_frees_what_a_removed_destination_held_unless_it_is_back"),
        ("P11", "slice", _ALLOWED, "--", f"{_OOM}::test_a_slice_goes_back_to_its_pool_in_a_full_redis"),
        ("P11", "pool", "redis.call('HDEL', K_POOL, '-') -- allowed under OOM", "--",
         f"{_OOM}::test_a_slice_goes_back_to_its_pool_in_a_full_redis"),
        ("P11", "pool_set", "redis.call('HDEL', K_POOL, '-') -- allowed under OOM", "--",
         f"{_OOM}::test_a_slice_goes_back_to_its_pool_in_a_full_redis"),
        ("P1", "slice", "(epoch > 0 and epoch ~= d.epoch) or", "false or",
         f"{_POOLS}::test_a_late_answer_from_before_a_loss_is_refused"),
        ("P1", "slice", "(pool_epoch > 0 and pool_epoch < slice.pool)", "false",
         f"{_POOLS}::test_a_grant_of_before_the_pool_was_lost_comes_too_late"),
        ("P1", "slice", "math.min(math.max(most, slice.owed), free)", "math.max(most, slice.owed)",
         f"{_POOLS}::test_no_order_of_steps_makes_the_slices_exceed_the_limit"),
        ("P6", "lib/recall", "d.owes and ' owed' or ''", "''",
         f"{_SLICES}::test_holders_learn_whether_others_wait_elsewhere"),
        ("P6", "lib/rules", "slice.owed > slice.returned\n", "false\n",
         f"{_SLICES}::test_holders_learn_whether_others_wait_elsewhere"),
        ("P6", "slice", "(idle or (d.kind == 'gate'", "((d.kind == 'gate'",
         f"{_SLICES}::test_sessions_give_back_what_is_idle_also_where_nothing_is_owed"),
        ("P4", "slice", "if target > 0 then\n  reap", "if false then\n  reap",
         f"{_SLICES}::test_what_the_dead_hold_goes_back_where_nobody_calls_any_more"),
        ("P6", "slice", "hand_over()\n", "",
         f"{_POOLS}::test_first_come_first_served_and_at_once"),
        ("P7", "lib/lent",
         "is_drawn_before(name, pool) and slice_left(d, read_slice(name, d)) < used_of(name) + first_lacks(name)",
         "false", f"{_SLICES}::test_a_pool_drawn_out_of_order_is_not_kept"),
        ("P7", "slice", "slice.granted - used() - held", "slice.granted - used()",
         f"{_SLICES}::test_what_was_drawn_for_the_first_in_line_stays_for_a_second"),
        ("P7", "slice", "if granted > slice.granted or debt == 'void' then", "if granted > slice.granted then",
         f"{_SLICES}::test_who_is_first_owes_nothing"),
        ("P7", "slice", "if granted > slice.granted or debt == 'void' then", "if debt == 'void' then",
         f"{_SLICES}::test_who_was_granted_something_owes_nothing"),
        ("P7", "slice", "if slice.epoch == d.epoch then", "if epoch > 0 then",
         f"{_SLICES}::test_a_debt_is_paid_by_whoever_looks"),
        ("P6", "lib/lent", "math.abs(now_ms - slice.drawn)", "now_ms - slice.drawn",
         f"{_SLICES}::test_what_was_drawn_for_the_first_in_line_stays_for_a_second"),
        ("P7", "lib/lent", " or slice_left(d, slice) < used_of(pool) + size then", " then",
         f"{_SLICES}::test_what_was_drawn_and_is_too_little_by_now_does_not_stay"),
        ("P7", "lib/slice", "if math.abs(now_ms - asked) >= OWED_MS then", "if false then",
         f"{_SLICES}::test_a_debt_that_nobody_asks_for_any_more_is_none"),
        ("P7", "lib/slice", "math.max(s.returned, s.owed)", "s.returned",
         f"{_SLICES}::test_who_owes_serves_nobody_until_it_has_paid"),
        ("P1", "lib/slice", "  if s.epoch ~= read.epoch then", "  if false then",
         f"{_POOLS}::test_after_a_restart_nothing_is_taken_of_a_slice_before_the_pool_confirms_it"),
        ("P1", "slice", "known > 0 and known < slice.epoch", "false",
         f"{_POOLS}::test_what_was_given_back_before_a_loss_and_is_lent_to_another_is_not_used_again"),
        ("P1", "slice", "(slice.epoch == 0 or now_ms >= d.learning_until) and epoch or slice.epoch", "epoch",
         f"{_POOLS}::test_who_had_bytes_of_a_lost_destination_gets_them_back_though_its_pool_lost_nothing"),
        ("P1", "lib/rules", "math.min(read.slice_bytes, left)", "math.huge",
         f"{_POOLS}::test_what_is_drawn_serves_who_waits"),
        ("P1", "lib/room", "math.min(whole_bytes(), d.slice_bytes)", "whole_bytes()",
         f"{_POOLS}::test_what_is_drawn_serves_who_waits"),
        # Nodes: there while they beat.
        ("P4", "node", "'(' .. int(now_ms - stale_ms)", "'-inf'",
         f"{_NODES}::test_who_fell_silent_is_listed_no_more"),
        ("P4", "node", "K_BEATS, '-inf', int(now_ms - stale_ms)", "K_BEATS, '-inf', '-1'",
         f"{_NODES}::test_who_fell_silent_is_forgotten_when_another_beats"),
        ("P4", "node", "'LIMIT', 0, MAX_FORGOTTEN)", "'LIMIT', 0, 10000)",
         f"{_NODES}::test_one_beat_forgets_a_bounded_number"),
        ("P4", "node", "  redis.call('HDEL', K_NODES, gone[i])\n", "",
         f"{_NODES}::test_who_leaves_is_gone_at_once"),
        ("P4", "node", "ZADD', K_BEATS, int(now_ms), node)", "ZADD', K_BEATS, 1, node)",
         f"{_NODES}::test_a_beat_ends_the_silence_before_it"),
        # Policies: switched over what was seen, once, and told.
        ("P12", "policy", "local may_be = current == tonumber(expected)", "local may_be = true",
         f"{_POLICY}::test_only_over_the_version_that_was_seen"),
        ("P12", "policy", "current >= version or ", "",
         f"{_POLICY}::test_a_version_never_goes_down"),
        ("P12", "policy", "<= came_ms", "<= now_ms",
         f"{_POLICY}::test_what_was_lost_is_put_back_and_never_over_what_is_newer"),
        ("P12", "policy", "int(lost and came_ms or now_ms)", "int(now_ms)",
         f"{_POLICY}::test_what_was_lost_is_put_back_and_never_over_what_is_newer"),
        ("P5", "policy", "if stored[2] == document then", "if false then",
         f"{_POLICY}::test_repeated_it_is_in_force_once"),
        ("P12", "policy", "string.gsub(K_POLICY, ':policy$', ':wake')", "K_POLICY",
         f"{_POLICY}::test_everybody_of_the_namespace_is_told"),
        # Users: changed over what was seen, once, and told; put back only where they were lost.
        ("P12", "users", "if current ~= expected or (", "if (",
         f"{_USERS}::test_only_over_the_version_that_was_seen"),
        ("P12", "users", " or (lost and lost <= current) then", " then",
         f"{_USERS}::test_what_was_lost_is_put_back_and_never_over_what_is_newer"),
        ("P12", "users", "math.max(current + 1, now_ms)", "current + 1",
         f"{_USERS}::test_versions_are_of_the_clock_and_grow_where_it_was_set_back"),
        ("P12", "users", "math.max(current + 1, now_ms)", "now_ms",
         f"{_USERS}::test_versions_are_of_the_clock_and_grow_where_it_was_set_back"),
        ("P12", "users", "local same = current > expected", "local same = true",
         f"{_USERS}::test_only_over_the_version_that_was_seen"),
        ("P12", "users", "  redis.call('DEL', K_USERS)", "  --",
         f"{_USERS}::test_what_was_lost_is_put_back_and_never_over_what_is_newer"),
        ("P5", "users", "return { same and 'OK' or 'CONFLICT',", "return { 'CONFLICT',",
         f"{_USERS}::test_repeated_it_is_in_force_once"),
        ("P5", "users", "return { same and 'OK' or 'CONFLICT',", "return { 'OK',",
         f"{_USERS}::test_only_over_the_version_that_was_seen"),
        ("P12", "users", "string.gsub(K_USERS, ':users$', ':wake')", "K_USERS",
         f"{_USERS}::test_everybody_of_the_namespace_is_told"),
        ("P12", "apply", "if not changes then", "if false then",
         f"{_POLICY}::test_settings_that_stay_as_they_are_leave_no_trace"),
        # One slot, and bounds.
        ("P9", "publish", "redis.call('SET', K_RECEIPT,", "redis.call('SET', K_RECEIPT .. ':last',",
         f"{_CLUSTER}::test_every_script_keeps_to_its_declared_keys_in_one_slot"),
        ("P11", "reap", "redis.call('ZRANGE', K_LEASES, 0, 0, 'WITHSCORES')",
         "redis.call('ZRANGE', K_LEASES, 0, -1, 'WITHSCORES')",
         f"{_BOUNDS}::test_a_hundred_thousand_sessions_cost_a_call_no_more_than_ten"),
        ("P11", "lib/credit", "K_WAITERS, 0, 0, 'WITHSCORES')", "K_WAITERS, 0, -1, 'WITHSCORES')",
         f"{_BOUNDS}::test_ten_thousand_waiters_cost_a_call_no_more_than_a_hundred"),
        ("P11", "lib/credit", "local MAX_HAND_OVERS = 64", "local MAX_HAND_OVERS = 10000",
         f"{_BOUNDS}::test_room_for_ten_thousand_waiters_is_handed_over_in_pieces"),
        ("P11", "snapshot", "ARGV[1] == '0' and {} or ", "",
         f"{_BOUNDS}::test_ten_thousand_waiters_cost_a_call_no_more_than_a_hundred"),
        # The namespace's index.
        ("P4", "lib/index", "if e.holders == 0 and e.durable == 0 then", "if e.holders == 0 then",
         f"{_INDEX}::test_a_durable_entry_stays_until_it_is_ended_which_waits_for_its_holders"),
        ("P4", "lib/index", "if e.holders == 0 and e.durable == 0 then", "if e.durable == 0 then",
         f"{_INDEX}::test_an_entry_goes_with_the_last_who_leaves_it"),
        ("P5", "lib/index", "name .. ' ' .. holder) == 0 then", "name .. ' ' .. holder) == 2 then",
         f"{_INDEX}::test_a_call_that_is_repeated_counts_once"),
        ("P10", "lib/index", "local MAX_LAPSED = 16", "local MAX_LAPSED = 1000",
         f"{_INDEX}::test_one_call_ends_a_bounded_number_of_leases"),
        ("P4", "topic", "not is_name(name)", "name == ''",
         f"{_INDEX}::test_names_that_no_client_spells_so_are_refused"),
        ("P4", "wildcard", "mode == 'keep' and not valid", "mode == 'keep' and name == ''",
         f"{_INDEX}::test_entries_that_no_client_spells_so_are_refused"),
        ("P4", "wildcard", "e.holders > 0 and valid then", "e.holders > 0 then",
         f"{_INDEX}::test_what_nobody_can_read_is_passed_over_and_can_be_taken_out"),
        ("P4", "topic", "end_lapsed()\nreturn", "return",
         f"{_INDEX}::test_what_the_dead_held_ends_with_their_lease_and_the_living_keep_theirs"),
        ("P6", "topic", "redis.call('SADD', K_TOPICS, name) == 1", "redis.call('SADD', K_TOPICS, name) < 2",
         f"{_INDEX}::test_a_topic_is_told_of_once_and_found_by_its_pattern"),
        ("P6", "topic", "':wake'), 'created ' .. name)", "':woke'), 'created ' .. name)",
         f"{_INDEX}::test_a_topic_is_told_of_once_and_found_by_its_pattern"),
        ("P5", "wildcard", "e = e or { durable = tonumber(ARGV[4]), holders = 0 }",
         "e = { durable = tonumber(ARGV[4]), holders = e and e.holders or 0 }",
         f"{_INDEX}::test_the_first_says_whether_an_entry_is_durable"),
        ("P4", "wildcard", "if e and e.holders > 0 and valid then", "if false then",
         f"{_INDEX}::test_a_durable_entry_stays_until_it_is_ended_which_waits_for_its_holders"),
        ("P4", "wildcard", "int(now_ms + ttl_ms)", "int(now_ms)",
         f"{_INDEX}::test_what_the_dead_held_ends_with_their_lease_and_the_living_keep_theirs"),
        ("P4", "wildcard", "  save_entry(name, e)\n  end_lapsed()\n", "  save_entry(name, e)\n",
         f"{_INDEX}::test_the_living_clean_up_after_the_dead_too"),
    )
)  # fmt: skip


def matching(words: list[str]) -> list[Mutant]:
    return [m for m in MUTANTS if not words or any(re.search(word, f"{m.file} {m.test}") for word in words)]


def copy(target: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target / name)


@functools.cache
def file_of(test: str) -> Path:
    """Return the one file below tests/lua that has a mutant's test (``test_file::test_name``)."""
    (file,) = (ROOT / "tests" / "lua").rglob(f"{test.partition('::')[0]}.py")
    return file


def run(folder: Path, tests: list[str], *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    module = [str(file_of(name).relative_to(ROOT)) + f"::{name.partition('::')[2]}" for name in tests]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *more, *module],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "HEADGATE_TEST_WHOLE": "1"} | environment,
    )


def survives(mutant: Mutant) -> str:
    """Return '' when the mutant's test fails as it should, in a process that begins with it, else what happened."""
    with tempfile.TemporaryDirectory(prefix="hg-mutant-") as folder:
        copy(Path(folder))
        file = Path(folder, "lua", f"{mutant.file}.lua")
        text = file.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            return f"its text occurs {text.count(mutant.old)} times"
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        done = run(Path(folder), [mutant.test])
        if done.returncode == 1:
            return ""
        return "SURVIVED" if done.returncode == 0 else f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}"


def judge(mutants: list[Mutant]) -> list[str]:
    """Return what :func:`survives` does of each, all of whose tests are in one file, which is imported once.

    The tests run first without any mutant, in the same way. A mutant that is not caught has a process of its own.

    Raises:
        RuntimeError: a test fails without any mutant.
    """
    with tempfile.TemporaryDirectory(prefix="hg-mutants-") as folder:
        copy(Path(folder))
        rows = Path(folder, "mutants.json")
        each = [(m.file, m.old, m.new, m.test.partition("::")[2]) for m in mutants]
        rows.write_text(json.dumps([(None, None, None, None), *each]), encoding="utf-8")
        tests = sorted({mutant.test for mutant in mutants})
        codes = [-1]
        for last in (False, True):  # some compare times, which others may lengthen
            done = run(Path(folder), tests, "-p", mutating.__name__, HEADGATE_MUTANTS=str(rows))
            if not done.returncode:
                codes = json.loads(rows.with_suffix(".codes").read_text(encoding="utf-8"))
            if codes[0] == 0:
                break
            if last:
                said = f"{done.stdout[-4000:]}{done.stderr[-2000:]}"
                raise RuntimeError(f"without any mutant, not all of {tests} pass:\n{said}")
    return ["" if code == 1 else survives(mutant) for mutant, code in zip(mutants, codes[1:], strict=True)]


def main(words: list[str], *, most: int | None = None) -> int:
    mutants = matching(words)
    if most is not None:
        mutants = random.sample(mutants, min(most, len(mutants)))
    if not mutants:  # pytest without any test's name would run all there are
        print(f"no mutant's file or test matches {' or '.join(map(repr, words))}")
        return 2
    by_file: dict[Path, list[Mutant]] = {}
    for mutant in mutants:
        by_file.setdefault(file_of(mutant.test), []).append(mutant)
    batches = sorted(by_file.values(), key=len, reverse=True)
    failures = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for batch, judged in zip(batches, [pool.submit(judge, batch) for batch in batches], strict=True):
            try:
                troubles = judged.result()
            except RuntimeError as error:
                print(error, flush=True)
                troubles = ["not tried"] * len(batch)
            for mutant, trouble in zip(batch, troubles, strict=True):
                failures += bool(trouble)
                said = f"{'FAILED' if trouble else 'caught'}  {mutant}  {trouble and mutant.test + ' ' + trouble}"
                print(said, flush=True)
    print(f"{len(mutants) - failures} of {len(mutants)} mutants caught")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
