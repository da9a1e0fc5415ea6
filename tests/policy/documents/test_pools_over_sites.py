"""Pools over sites in a document: what each end says, and what is refused in one sentence."""

import pytest

from headgate.policy import BadDocument, loads

SITE = "site_name = 'berlin'\n[[site]]\nname = 'paris'\nurl = 'redis://paris'\n"


def leasts(sites: str, more: str = "limit = 10") -> str:
    """Return a pool with these sites."""
    return f"[[pool]]\nname = 'x'\n{more}\nsites = {{ {sites} }}"


def test_the_home_names_sites_and_a_part_names_the_home() -> None:
    (home,) = loads("[[pool]]\nname = 'all'\nlimit = '1KiB'\nsites = { berlin = 10 }").pools
    assert home.fields == {"limit_bytes": "1024", "sites": "berlin=10"}
    (home,) = loads("[[pool]]\nname = 'x'\nlimit = 9\nsites = { b = { most = 5, weight = 3 }, c = { most = 4 } }").pools
    assert home.fields == {"limit_bytes": "9", "sites": "b=5*3 c=4"}
    (home,) = loads(
        leasts("b = { most = 9, least = 5 }, c = { most = 9 }, d = { most = 5, least = 5 }", "limit = 11")
    ).pools
    assert home.fields == {"limit_bytes": "11", "sites": "b=9 c=9 d=5", "leasts": "b=5 d=5"}
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
        (leasts("rome = { most = 5, least = 6 }"), "6 is above its most of 5"),
        (leasts("rome = { most = 5, least = -1 }"), "least"),
        (leasts("rome = { most = 5, least = 0 }"), "use at least 1"),
        (leasts("rome = { most = 5, least = 'unlimited' }"), "least"),
        (leasts("rome = { least = 3 }"), "most"),
        (
            leasts("a = { most = 9, least = 5 }, b = { most = 9, least = 6 }"),
            "11 bytes together, are above its limit of 10",
        ),
        (
            leasts("a = { most = 9, least = 8 }", "limit = 10\nreserve = 3"),
            "and its reserve of 3 are above its limit of 10",
        ),
        (leasts("a = { most = 9, least = 6 }", "percent = 50\ntotal = 10"), "are above its limit of 5 bytes"),
        (leasts("a = { most = 10, least = 10 }, b = 5"), "leave nothing of its limit of 10 bytes to site b"),
        ("[[pool]]\nname = 'x'\nlimit = 9\npool = 'y'", "write site = 'paris' too"),
        (f"{SITE}[[pool]]\nname = 'x'\nsite = 'paris'\npercent = 9", "a percent of what"),
    ],
)
def test_contradictions_are_refused(document: str, why: str) -> None:
    with pytest.raises(BadDocument) as caught:
        loads(document)
    assert why in str(caught.value), str(caught.value)
