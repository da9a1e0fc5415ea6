"""Mutants of subscriptions that select; see :mod:`tests.lua.mutants`."""

from typing import Final

_T: Final = "destinations/test_selecting"
_OWN = f"{_T}::test_what_is_not_for_a_subscription_waits_for_the_others_alone"
_NOBODY = f"{_T}::test_what_is_for_nobody_is_not_kept_and_has_its_number"
_STALE = f"{_T}::test_what_does_not_fit_what_is_selected_now_is_not_heeded"
_ANEW = f"{_T}::test_another_selector_makes_a_subscription_anew_once_nobody_consumes"
_REMOVED = f"{_T}::test_one_that_is_removed_settles_only_what_was_for_it"
_FEW = f"{_T}::test_a_few_are_listed_and_a_long_one_is_not"

SELECTORS: Final = (
    ("P5", "lib/next_in_turn", "wanted(c.sub, entries) or entries", "entries", _OWN),
    ("P5", "lib/append", " or unwanted) then", ") then", _NOBODY),
    ("P2", "lib/append", "    readers = readers - #without\n", "", _OWN),
    ("P5", "lib/append", "'s', table.concat(without, ' ')", "'s', ''", _OWN),
    ("P5", "lib/selecting", "math.floor(mask / 2 ^ (i - 1)) % 2 == 1", "mask + 0 > 0", _OWN),
    ("P2", "lib/append", "if without and #without == d.subscriptions then", "if false then", _NOBODY),
    ("P2", "publish", "d.pending_bytes + bytes - idle_b", "d.pending_bytes + bytes", _NOBODY),
    ("P2", "lib/append", "    note('purge', '-', int(idle_b), int(idle))\n", "", _NOBODY),
    ("P5", "lib/later", "if dues[i] and ids[i] then", "if dues[i] then", _NOBODY),
    ("P5", "lib/selecting", "string.match(known, '^%d+') == id and sub", "sub", _STALE),
    ("P2", "lib/selecting", "local known = not seen[sub] and redis", "local known = redis", _STALE),
    ("P5", "attach", "otherwise and subscription.consumers > 0", "false", _ANEW),
    ("P5", "attach", "if otherwise and not shared then", "if false then", _ANEW),
    ("P5", "lib/selecting", "word ~= '=' and redis.call('HGET'", "redis.call('HGET'", _ANEW),
    (
        "P2",
        "lib/orphans",
        "wanted(name, counting)",
        "counting",
        _REMOVED,
    ),
    ("P5", "lib/orphans", "  forget_selector(name)\n", "", _REMOVED),
    ("P10", "lib/selecting", "#listed < MOST_SELECTING and string", "string", _FEW),
    ("P10", "lib/selecting", " and string.sub(word, 1, 1) ~= '#' then", " then", _FEW),
)
