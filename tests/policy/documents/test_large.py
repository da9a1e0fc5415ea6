"""Documents that are as large, as deep and as odd as they may come: each is read, or refused, in bounded time."""

import contextlib
import itertools
import time
from pathlib import Path

import pytest

from headgate.core.addresses.index import PatternIndex
from headgate.core.addresses.pattern import Pattern
from headgate.core.policy import Policy, Rule
from headgate.policy import BadDocument, load, loads
from headgate.policy.check import examples
from tests.support.extent import share_of

WORDS = ("a", "b", "*")
DEEP = {
    "toml lists": ("a=" + "[" * 200_000, "toml"),
    "toml tables": ("a=" + "{b=" * 100_000, "toml"),
    "toml lists that end": ("a=" + "[" * 900 + "]" * 900, "toml"),
    "toml keys": ("a." * 400_000 + "a=1", "toml"),
    "toml quoted keys": ('"a".' * 200_000 + "a=1", "toml"),
    "toml headers": ("[" + "a." * 400_000 + "a]", "toml"),
    "json tables": ('{"a":' * 100_000, "json"),
    "json lists": ('{"a":' + "[" * 100_000, "json"),
    "json that ends": ('{"a":' * 900 + "1" + "}" * 900, "json"),
}
ODD = {
    "a number of 5,000 digits": ("[[destination]]\nmatch='a'\nlimit=" + "9" * 5000, "toml"),
    "one that is not decimal": ("[[destination]]\nmatch='a'\nlimit=0x" + "f" * 500_000, "toml"),
    "one in JSON": ('{"destination":[{"match":"a","limit":' + "9" * 5000 + "}]}", "json"),
    "a date that is none": ("a=2000-13-45", "toml"),
}


@pytest.mark.parametrize(("text", "form"), [*DEEP.values(), *ODD.values()], ids=[*DEEP, *ODD])
def test_what_is_too_deep_or_no_figure_is_a_bad_document(text: str, form: str, tmp_path: Path) -> None:
    """It was a traceback, or took minutes."""
    with pytest.raises(BadDocument) as refused:
        loads(text, f"x.{form}", form)  # type: ignore[arg-type]
    assert len(str(refused.value)) < 2000
    file = tmp_path / f"x.{form}"
    file.write_text(text)
    with pytest.raises(BadDocument):
        load(file)


def seconds(text: str) -> float:
    began = time.process_time()
    with contextlib.suppress(BadDocument):
        loads(text)
    return time.process_time() - began


def rules(count: int, match: str) -> str:
    return "".join(f'[[destination]]\nmatch = "{match.format(i)}"\nlimit = "1MB"\n' for i in range(count))


GROWING = {
    "wildcards": lambda n: rules(n, "a{0}.*.b.#"),
    "wildcards first": lambda n: rules(n, "*.a{0}.#"),
    "names": lambda n: rules(n, "a{0}"),
    "unknown keys": lambda n: "".join(f"k{i} = 1\n" for i in range(4 * n)),
    "unknown keys of tables": lambda n: "".join(f"[[destination]]\nk{i} = 1\n" for i in range(2 * n)),
    "dead letters": lambda n: "".join(f'[[destination]]\nmatch="a{i}"\ndead_letter="a{i + 1}"\n' for i in range(n)),
    "bridges": lambda n: "".join(f'[[bridge]]\nname="b{i}"\nfrom="a{i}"\nto="a{i + 1}"\n' for i in range(n)),
    "shared limits": lambda n: "".join(
        f'[[destination]]\nmatch="a{i}.#"\nlimit={{bytes=1,scope="shared"}}\n' for i in range(n)
    ),
}


@pytest.mark.parametrize("made", share_of(GROWING.values(), 2), ids=share_of(GROWING, 2))
def test_four_times_as_much_takes_some_four_times_as_long(made: object) -> None:
    """It took sixteen times; the best of three, for the machine may be busy."""
    small, large = (min(seconds(made(n)) for _ in range(3)) for n in (250, 1000))  # type: ignore[operator]
    assert large < 9 * small + 0.05


def test_patterns_that_overlap_in_very_many_ways_are_refused_in_time() -> None:
    text = rules(1500, "*.a{0}") + rules(1500, "b{0}.*")
    with pytest.raises(BadDocument, match="too many ways"):
        loads(text)


def test_names_that_very_many_patterns_match_are_refused_before_all_of_them_are_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Breaks when only looks at patterns are bounded: 1,000 rules of 53 kB took 7 s, and 4,000 some minutes."""
    words = itertools.product("a*", repeat=10)
    merged, matching = 0, Policy.matching

    def counted(policy: Policy, name: str) -> list[Rule]:
        nonlocal merged
        found = matching(policy, name)
        merged += len(found)
        return found

    monkeypatch.setattr(Policy, "matching", counted)
    bridges = "".join(f'[[bridge]]\nname = "b{i}"\nfrom = "s{i}"\nto = "t{i}"\n' for i in range(1000))
    for text in (
        "".join(f'[[destination]]\nmatch = "{".".join(one)}"\nlimit = 1\n' for one in words),
        "".join(f'[[destination]]\nmatch = "#"\ndead_letter = "d{i}"\n' for i in range(1000)),  # 4,000 took 17 s
        "".join('[[destination]]\nmatch = "#"\nlimit = 1\n' for _ in range(1000)) + bridges,
    ):
        merged = 0
        with pytest.raises(BadDocument, match="too many ways"):
            loads(text)
        assert merged < 400_000


def test_the_index_finds_what_a_look_at_all_finds() -> None:
    """Mutants: the index goes down by literal words only, or forgets what ends on the way."""
    texts = [".".join(words) for n in (1, 2, 3) for words in _all(n)]
    texts += [f"{text}.{tail}" for text in texts for tail in "#>"] + ["#", ">"]
    patterns = [Pattern.parse(text) for text in texts]
    index = PatternIndex()
    for pattern in patterns:
        index.add(pattern)
    for pattern in patterns:
        near = [one for one in index.near(pattern) if one]
        assert len(near) == len(set(near))
        assert set(near) == {other for other in patterns if other.overlaps(pattern)}
    for name in ("a", "b.a", "a.b.b", "a.a.a.a", "c"):
        assert set(index.fitting(name.split("."))) == {one for one in patterns if one.matches(name)}


def _all(count: int) -> list[tuple[str, ...]]:
    return [()] if count == 0 else [(word, *rest) for word in WORDS for rest in _all(count - 1)]


def test_there_is_an_example_for_each_two_that_overlap() -> None:
    policy = loads(rules(1, "a.#") + rules(1, "*.b") + rules(1, "c"))
    assert {"any.b", "a.b", "c"} < {example.name for example in examples(policy)}
