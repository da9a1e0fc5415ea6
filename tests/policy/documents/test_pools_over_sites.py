"""Pools over sites in a document: what each end says, and what is refused in one sentence."""

import pytest

from headgate.policy import BadDocument, loads

SITE = "site_name = 'berlin'\n[[site]]\nname = 'paris'\nurl = 'redis://paris'\n"


def test_the_home_names_sites_and_a_part_names_the_home() -> None:
    (home,) = loads("[[pool]]\nname = 'all'\nlimit = '1KiB'\nsites = { berlin = 10 }").pools
    assert home.fields == {"limit_bytes": "1024", "sites": "berlin=10"}
    (home,) = loads("[[pool]]\nname = 'x'\nlimit = 9\nsites = { b = { most = 5, weight = 3 }, c = { most = 4 } }").pools
    assert home.fields == {"limit_bytes": "9", "sites": "b=5*3 c=4"}
    (part,) = loads(f"{SITE}[[pool]]\nname = 'mine'\nsite = 'paris'\npool = 'all'\nlimit = '1KiB'").pools
    assert part.fields == {"limit_bytes": "1024", "part_of": "paris/all"}
    (part,) = loads(f"{SITE}[[pool]]\nname = 'all'\nsite = 'paris'").pools
    assert part.fields == {"limit_bytes": "unlimited", "part_of": "paris/all"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (f"{SITE}[[pool]]\nname = 'x'\nsite = 'paris'\nsites = {{ rome = 9 }}", "name site or sites"),
        (f"{SITE}[[pool]]\nname = 'x'\nsite = 'rome'", "there is no site 'rome'"),
        ("[[pool]]\nname = 'x'\nsite = 'paris'", "site_name = 'paris'"),
        (f"{SITE}[[pool]]\nname = 'x'\nlimit = 9\nsites = {{ berlin = 9 }}", "the name of this site itself"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = 'unlimited' }", "sites"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = 'default' }", "give it a size"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = { most = 'default' } }", "give it a size"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = { weight = 2 } }", "most"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = { most = 5, weight = 0 } }", "weight"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = { most = 5, weight = 1001 } }", "use 1 to 1000"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { rome = { most = 5, wieght = 3 } }", "wieght"),
        ("[[pool]]\nname = 'x'\nlimit = 9\nsites = { 'Rome!' = 9 }", "is not a site"),
        ("[[pool]]\nname = 'x'\nlimit = 9\npool = 'y'", "write site = 'paris' too"),
        (f"{SITE}[[pool]]\nname = 'x'\nsite = 'paris'\npercent = 9", "a percent of what"),
    ],
)
def test_contradictions_are_refused(document: str, why: str) -> None:
    with pytest.raises(BadDocument) as caught:
        loads(document)
    assert why in str(caught.value), str(caught.value)
