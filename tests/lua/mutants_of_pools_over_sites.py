"""Mutants of the scripts by which a pool is one over several sites; see :mod:`tests.lua.mutants`."""

from typing import Final

_M = "test_pools_over_sites"
_LOSS = f"{_M}::test_after_a_loss_all_is_kept_that_a_site_may_have_until_it_was_heard_of"
_LATE = f"{_M}::test_what_was_granted_before_a_loss_comes_too_late_once_the_loss_was_heard_of"
_KEPT = f"{_M}::test_what_was_granted_before_a_loss_and_comes_late_is_within_what_is_kept"
_HOSTILE = f"{_M}::test_a_hostile_site_has_no_more_than_its_part_and_costs_others_nothing"
_OWES = f"{_M}::test_a_site_owes_what_it_has_above_the_level_of_who_waits_here"
_GONE = f"{_M}::test_a_pool_that_is_no_part_any_more_gives_all_back"
_NAMED = f"{_M}::test_a_site_that_is_named_no_more_keeps_what_it_uses_and_nothing_else"
_DRAWS = f"{_M}::test_a_site_draws_what_it_lacks_and_gives_back_what_nobody_has_there"
_NEW = f"{_M}::test_a_site_that_is_new_to_a_pool_that_lost_nothing_takes_no_room"
_FILLS = f"{_M}::test_what_a_hostile_site_leaves_beside_its_report_is_deleted"
_SET_BACK = f"{_M}::test_a_site_that_lost_all_while_its_clock_was_set_back_is_heard_again_once_it_is_forgotten"
_WHY = f"{_M}::test_why_no_more_is_to_be_had_is_kept_until_that_is_over"
_ASKS = f"{_M}::test_one_of_those_who_work_on_a_pool_that_learns_asks_its_members"
_FAIR = "test_fair_sites::test_sites_share_by"
_FORGOTTEN = f"{_M}::test_what_is_forgotten_of_a_site_is_free_and_the_site_hears_of_it"
_REFUSED = f"{_M}::test_that_a_report_was_refused_is_seen_for_some_seconds"
_L = "test_least_of_sites"
_IS_KEPT = f"{_L}::test_a_site_that_is_forgotten_finds_it_again"
_COMES = f"{_L}::test_what_others_have_of_it_comes_as_they_give_it_back"
_ALONE = f"{_L}::test_nobody_at_home_gets_it"
_FITS = f"{_L}::test_a_need_that_only_it_could_cover_never_fits"
_RAISED = "test_fair_sites::test_a_least_that_is_raised_comes_back_from_all_who_want_more"
_OWED = f"{_L}::test_another_site_owes_it_and_keeps_its_own"

POOLS_OVER_SITES: Final = (
    # That two report by one name is seen at the home.
    ("P10", "lib/pool", "      m.refused = string.match(record or '', REFUSED_PATTERN)\n", "", _REFUSED),
    # Nobody else has the least of a site.
    ("P6", "lib/pool_room", "and (site == m and 0 or site.least) or", "and 0 or", _IS_KEPT),
    ("P6", "lib/pool_room", "(site == m and 0 or site.least)", "site.least", _COMES),
    ("P6", "lib/pool_room", "p.least - (m.least or 0)", "0", _FITS),
    ("P6", "lib/fair", "level - (site and site.least or 0)", "level", f"{_L}::test_a_site_owes_what_it_has_beyond_it"),
    (
        "P6",
        "lib/sites",
        "math.min(named.most, least + 0, MOST_COUNTED)",
        "least + 0",
        f"{_L}::test_more_than_its_most_is_never_its_least",
    ),
    (
        "P6",
        "pool_site",
        "    draw(m, math.max(0, math.min(m.least",
        "    math.max(0, math.min(0, m.least",
        f"{_L}::test_it_does_not_wait_behind_the_reserved",
    ),
    ("P6", "pool_site", "lacks = math.min(lacks, math.max(0, m.granted - m.returned - m.least))", "", _ALONE),
    ("P7", "pool_site", "if lacks_least(m) then", "if false then", _RAISED),
    (
        "P7",
        "lib/fair",
        "lacks_least(m) and AHEAD / 2 or m.reserved",
        "m.reserved",
        f"{_L}::test_who_lacks_it_is_first_in_line_but_for_the_reserved",
    ),
    ("P7", "lib/member", "(m.least or 0) > 0 and", "false and", f"{_L}::test_what_it_is_stands_in_records_at_once"),
    ("P7", "lib/fair", "own <= 0 or lacks_least(m) or", "own <= 0 or", _OWED),
    ("P7", "pool_site", "(f.reserved == 1 or lacks_least(f)) and 0", "f.reserved == 1 and 0", _OWED),
    (
        "P6",
        "pool_set",
        "settings.sites or settings.leasts\n",
        "settings.sites\n",
        f"{_L}::test_what_it_is_stands_in_records_at_once",
    ),
    (
        "P2",
        "lib/pool",
        "math.min(more, MOST - m.granted)",
        "more",
        f"{_L}::test_a_hostile_site_has_its_least_and_no_more_of_others",
    ),
    (
        "P11",
        "lib/sites",
        "least + 0, MOST_COUNTED)",
        "least + 0)",
        f"{_L}::test_a_least_without_bounds_is_no_number_that_ends_scripts",
    ),
    # What a site may hold is kept for it while the pool does not know.
    ("P1", "lib/pool_room", "site.least) or site.most", "site.least) or site.least", _LOSS),
    ("P6", "lib/member", "m.heard and string.format(HEARD, m.heard) or ''", "''", _NEW),
    ("P1", "pool_site", "if there == p.epoch then", "if true then", _KEPT),
    ("P1", "pool_share", "or there < s.there) then", "or false) then", _LATE),
    ("P1", "pool_site", "local most = m.heard == p.epoch and held or m.most", "local most = 0", _LOSS),
    (
        "P1",
        "lib/share",
        "s.of == of and s.epoch == epoch and",
        "s.of == of and",
        f"{_M}::test_a_part_that_came_back_with_a_failover_lends_nothing_before_the_other_side_confirms_it",
    ),
    (
        "P1",
        "pool_share",
        "or epoch ~= p.epoch or",
        "or false or",
        f"{_M}::test_a_late_answer_to_a_part_that_was_lost_since_is_refused",
    ),
    (
        "P1",
        "pool_site",
        "elseif epoch < m.epoch then",
        "elseif false then",
        f"{_M}::test_a_late_report_of_a_part_that_was_lost_is_refused",
    ),
    ("P12", "pool_set", "    m.heard = p.epoch --", "    --", _NEW),
    # Bounds, whatever a site says.
    (
        "P1",
        "lib/pool_room",
        "math.min(room, (m.most or math.huge) - (m.granted - m.returned))",
        "room",
        f"{_M}::test_a_site_has_no_more_than_the_pool_names_for_it",
    ),
    (
        "P1",
        "lib/pool_room",
        "p.reserve) - others, m.most or math.huge)",
        "p.reserve) - others)",
        f"{_M}::test_a_site_that_asks_for_more_than_its_part_is_not_in_line",
    ),
    ("P1", "pool_site", "granted - most)", "0)", _HOSTILE),
    (
        "P11",
        "pool_site",
        "elseif there > p.epoch then",
        "elseif there > p.epoch then begin_learning(there) save()",
        _HOSTILE,
    ),
    (
        "P11",
        "lib/letters",
        "if redis.call('HSTRLEN', K_SITE, field) > most then",
        "if false then",
        f"{_M}::test_what_a_hostile_site_leaves_in_place_of_an_answer_is_not_read",
    ),
    ("P1", "lib/letters", "#word <= 16 and numbers[i] <= MOST and 1 or 0", "1", _HOSTILE),
    ("P11", "lib/letters", "if redis.call('HLEN', K_SITE) > LETTERS then", "if false then", _FILLS),
    ("P6", "pool_site", "m.granted, p.epoch, 0 --", "m.granted, p.epoch, m.epoch --", _SET_BACK),
    # What goes back is not in use, and is counted.
    ("P1", "pool_share", "math.min(free, math.max(0, wanted))", "math.max(0, wanted)", _DRAWS),
    ("P2", "pool_site", "p.granted = p.granted + m.granted - m.returned - held", "", _DRAWS),
    ("P2", "pool_site", "  p.granted = p.granted - held\n", "", _FORGOTTEN),
    ("P6", "pool_share", "serve_line() --", "--", f"{_M}::test_the_line_here_hears_at_once_of_what_came"),
    (
        "P6",
        "pool_site",
        "if report == letter('read', MOST_REPORT) then",
        "if false then",
        f"{_M}::test_a_site_that_fell_silent_does_not_hold_up_the_line",
    ),
    (
        "P7",
        "pool_site",
        "  return lacks, math.max",
        "  return 0, math.max",
        f"{_M}::test_what_a_site_does_not_use_is_for_those_who_wait_here",
    ),
    ("P7", "pool_site", "math.max(0, math.min(lacks, above))", "0", _OWES),
    (
        "P7",
        "lib/pool",
        "m.weight, m.least = named.most, named.weight,",
        "m.weight, m.least = named.most, 1,",
        f"{_FAIR}_weight_beside_destinations_at_home",
    ),
    ("P7", "lib/share", "math.max(s.returned, s.owed) or 0", "s.returned or 0", _OWES),
    # Parts that are none any more.
    ("P2", "pool_share", "  s.returned = s.granted\n", "", _GONE),
    ("P4", "pool_site", "and is_to_ask() then", "and false then", _ASKS),
    ("P4", "pool_site", "if mode == 'account' and", "if", _ASKS),
    ("P4", "pool_share", "is_to_ask() and 'LEARNING' or 'OK'", "'OK'", _ASKS),
    ("P6", "pool_share", "K_POOL, whose == p.part_of and", "K_POOL, trouble == '' and", _WHY),
    ("P6", "pool_share", "and whose == p.part_of and trouble ~= ''", "and trouble ~= ''", _WHY),
    ("P4", "lib/rebuild", "  p.rebuild_ms = now_ms + REBUILD_MS\n", "", _ASKS),
    ("P2", "pool_set", "  if p.share and p.share.granted > p.share.returned then", "  if false then", _GONE),
    ("P1", "lib/sites", "return string.sub(member, 1, 1) == SITE", "return false", _NAMED),
    ("P2", "pool_site", "    redis.call('HDEL', K_MEMBERS, member)\n", "", _NAMED),
)
