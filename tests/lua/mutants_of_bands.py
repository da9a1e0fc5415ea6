"""Mutants of bands of a limiter's lines; see :mod:`tests.lua.mutants`."""

from typing import Final

_BANDS = "test_bands"

BANDS: Final = (
    ("P7", "lib/aging", "  return found or bands[1], found ~= nil", "  return bands[1], false",
     f"{_BANDS}::test_a_band_is_passed_as_far_as_may_be_and_then_has_its_turn"),
    ("P7", "lib/aging", "clock.work + DEARER * band * steps", "clock.work",
     f"{_BANDS}::test_a_band_is_passed_as_far_as_may_be_and_then_has_its_turn"),
    ("P7", "lib/aging", "math.min(clock.places[band] or math.huge, clock.work + ahead_of(band))",
     "clock.places[band] or clock.work + ahead_of(band)",
     f"{_BANDS}::test_who_waits_alone_in_its_band_is_served_at_once_and_owes_nothing_for_it"),
    ("P7", "lib/bands", "if not band and d.bands then", "if false then",
     f"{_BANDS}::test_a_key_has_the_band_that_the_policy_says_and_a_caller_may_name_another"),
    ("P7", "lib/bands", "h.since + ahead_of(own) * 1000 < mine.since + ahead_of(band) * 1000", "own < band",
     f"{_BANDS}::test_of_a_limit_of_one_key_a_band_is_passed_for_its_seconds"),
    ("P7", "lib/passing", "  return band < its and not first.is_aged", "  return band < its",
     f"{_BANDS}::test_a_better_band_that_comes_passes_one_that_needs_more_but_not_for_ever"),
    ("P7", "lib/passing", "  return band < its and not first.is_aged", "  return false",
     f"{_BANDS}::test_a_better_band_that_comes_passes_one_that_needs_more_but_not_for_ever"),
    ("P7", "lib/admitting", "      limiter.banded, looked_at = '-', -1", "",
     f"{_BANDS}::test_what_passes_whoever_waits_in_no_band_is_counted_from_the_first_on"),
    ("P7", "lib/turns", "(line + LINES * part_of_line(unit)) * SHARES + share_of", "line * SHARES + share_of",
     f"{_BANDS}::test_the_better_band_goes_first_and_within_a_band_in_turn"),
    ("P7", "lib/turns", "part_of_line(unit) * BETWEEN", "0",
     f"{_BANDS}::test_bands_of_a_rate_go_in_order"),
    ("P7", "lib/firsts", "      unit = earliest_of(unit)\n", "",
     f"{_BANDS}::test_of_a_limit_of_one_key_a_band_is_passed_for_its_seconds"),
    ("P7", "lib/by_key", "d.bands, d.aging = rules[1], rules[2]", "",
     "test_by_key::test_keys_of_a_gate_wait_in_the_bands_that_it_says"),
    ("P12", "lib/aging", "  if d.blocked == 0 then", "  if false then",
     f"{_BANDS}::test_nothing_of_bands_is_kept_once_nobody_waits"),
)  # fmt: skip
