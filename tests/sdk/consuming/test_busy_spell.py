"""For how long a consumer has had something in hand, at one slice or another."""

from headgate.consuming.busy_spell import BLINK, BusySpell


def test_it_lasts_while_something_is_held() -> None:
    spell = BusySpell()
    assert spell.lasted(5.0) == 0.0
    spell.saw(10.0, 3, more=False)
    spell.saw(11.0, 1, more=False)
    assert spell.lasted(12.0) == 2.0


def test_who_had_nothing_to_do_begins_anew() -> None:
    """Mutant: a moment without work is none, although nothing more was to be had."""
    spell = BusySpell()
    spell.saw(10.0, 1, more=False)
    spell.saw(11.0, 0, more=False)
    assert spell.lasted(11.0) == 0.0
    spell.saw(11.0 + BLINK / 4, 1, more=False)
    assert spell.lasted(12.0) < 1.0


def test_the_way_from_one_slice_to_the_next_is_no_time_without_work() -> None:
    """Mutants: each moment with empty hands counts; none does, however long it takes."""
    spell = BusySpell()
    spell.saw(10.0, 1, more=True)
    spell.saw(11.0, 0, more=True)
    spell.saw(11.0 + BLINK / 4, 0, more=True)
    spell.saw(11.0 + BLINK / 2, 1, more=True)
    assert spell.lasted(12.0) == 2.0
    spell.saw(12.0, 0, more=True)
    spell.saw(12.0 + 2 * BLINK, 1, more=True)
    assert spell.lasted(12.0 + 3 * BLINK) < 2 * BLINK


def test_a_look_that_finds_nothing_ends_it_at_once() -> None:
    spell = BusySpell()
    spell.saw(10.0, 1, more=True)
    spell.saw(11.0, 0, more=True)
    spell.saw(11.0 + BLINK / 4, 0, more=False)
    assert spell.lasted(11.0 + BLINK / 4) == 0.0
