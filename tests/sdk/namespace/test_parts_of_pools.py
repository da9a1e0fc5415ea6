"""What a pool's state says of the part that it has of one at another site: how much, since when, and why no more."""

import pytest

from headgate.namespace.pool_sites import REACH, TROUBLES, part_now
from headgate.redis.stores.pool_sites import SILENT

NOW = 1_000_000
SHARE = "granted=900 returned=300 epoch=7 there=4 owed=300 asked=0 heard=999000 most=800 of="


def fields(of: str = "paris/orders", **more: str) -> dict[str, str]:
    return {"part_of": "paris/orders", "epoch": "7", "share": f"{SHARE}{of}", **more}


def test_what_it_holds_is_of_the_site_that_is_named() -> None:
    part = part_now(fields(), NOW)
    assert (part.site, part.pool, part.held, part.most, part.heard) == ("paris", "orders", 600, 800, 1.0)
    assert (part.confirmed, part.stranded, part.trouble, part.remedy) == (True, False, "", "")


@pytest.mark.parametrize("of", ["rome/orders", "paris/letters"])
def test_what_is_of_another_site_and_its_trouble_count_for_nothing(of: str) -> None:
    """Breaks where what rome lent is taken for paris', or why rome lends no more for why paris does not."""
    part = part_now(fields(of, trouble=f"code=refused of={of}"), NOW)
    assert (part.site, part.pool, part.held, part.most, part.heard) == ("paris", "orders", 0, None, None)
    assert (part.confirmed, part.stranded, part.trouble, part.remedy) == (False, True, "", REACH)


def test_why_nothing_was_ever_had_is_told_with_what_to_do() -> None:
    without = fields(trouble="code=refused of=paris/orders")
    del without["share"]
    part = part_now(without, NOW)
    assert (part.held, part.heard, part.stranded) == (0, None, True)
    assert (part.trouble, part.remedy) == TROUBLES["refused"]
    assert "never heard of, for it refuses nodes here, so no more can be had" in str(part)


def test_why_no_more_is_had_is_told_before_the_site_counts_as_cut_off() -> None:
    part = part_now(fields(trouble="code=twin of=paris/orders"), NOW)
    assert not part.stranded
    assert (part.trouble, part.remedy) == TROUBLES["twin"]
    assert "600 bytes of at most 800; stuck, for another deployment has this site's name, so no more" in str(part)


def test_a_reason_that_is_not_known_here_is_not_shown_as_it_stands() -> None:
    """Breaks where whatever stands in Redis goes to a terminal."""
    hostile = "\x1b[31mhostile" * 100
    part = part_now(fields(trouble=f"code={hostile} of=paris/orders"), NOW)
    assert part.trouble == "a reason that newer clients know"
    assert part.remedy == ""


def test_a_site_that_is_not_heard_of_is_to_be_reached() -> None:
    part = part_now(fields(), NOW + round(1000 * SILENT))
    assert part.stranded
    assert (part.trouble, part.remedy) == ("", REACH)
    assert "cut off for 6 s, so no more can be had" in str(part)


def test_a_clock_that_was_set_back_hides_nobody_who_is_cut_off() -> None:
    """Mutant: it was heard of just now, for as long as the clock takes to catch up."""
    part = part_now(fields(), NOW - 600_000)
    assert (part.stranded, part.heard) == (True, 599.0)


def test_no_loss_of_state_is_forgotten_in_words() -> None:
    part = part_now(fields() | {"epoch": "8"}, NOW)
    assert not part.confirmed
    assert "has to confirm it first" in str(part)
