"""Prose is plain English: the worst habits stay out of docstrings, comments, messages, scripts and pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.trees import trees

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("sdk", "coordinator", "pipeline")
PARTS = (*PRODUCT, "bench", "examples")
PROSE = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Expr, ast.Constant)
PAGES = ("README.md", "CONTRIBUTING.md", "lua/README.md", "docs/*.md")
RELATIVE = re.compile(r"(?:^|(?<=[.!?] ))(?:Who|What|Whoever|Whatever|Whom|Whose)\b[^.?!]*(?:[.!]|$)")
"""A sentence that begins with a free relative: it has no subject that names the thing."""
WORST = re.compile(r"\b(?:told|said|of before|so much (?:of|more|later)|everybody may everything)\b", re.IGNORECASE)
OBTAINED = frozenset({"told", "said"})
"""Parts of names that say how a value was come by, and not what it is."""
LONGEST = 20
"""Words of a docstring's first sentence."""
DOES = frozenset(
    re.findall(
        r"\w+",
        """
accept act add admit allow answer append apply ask assign attach await be begin believe bind block bound break bring
build call cancel carry change check choose claim clear close collect come compare compile complete compute confirm
connect convert copy correct count create cut deal decide declare decode delay delete deliver derive describe detach
discard divide do draw drop empty encode end enter estimate evaluate examine exchange execute expect explain extend
fail fetch fill find finish flow follow forbid forget forward free freeze gather get give go grant group hand hang have
hear heed hide hold ignore import insert install iterate join judge keep kill know lead learn leave let limit list
listen load lock log look lower make map mark match measure meet mend merge move name note notify number observe offer
open order pass pause pay permit pick place poll prepare print process propose prove publish purge put queue raise
reach read receive reclaim record recount reduce refill refuse register reject release remember remove rename renew
repair repeat replace replay report request reserve reset resolve restart restore resume retry return route run save
say scan schedule search see select send serve set settle shed shift show sign skip sort speak spell spend split spool
spread stand start stop store strip subscribe sum suspend sweep switch take tell test tie time touch translate trim try
turn undo unsubscribe update use validate verify visit wait wake walk warn watch weigh widen withdraw work wrap write
yield
""",
    )
)
"""Verbs with which functions say what they do; a new one is added here."""
IS = frozenset(
    re.findall(r"\w+", "is are was were has have had does do did can cannot may must might should would will")
)
FRAGMENT = re.compile(r"(?:Of|As|Those|How|Which|Where|Whether|Why|For|On which|The same)\b(?!:)")
"""Begins of docstrings of classes and modules that name nothing."""

Text = tuple[str, str]
"""A place, and the prose that stands there, in one line."""


def sources(parts: tuple[str, ...], ending: str) -> Iterator[tuple[str, str]]:
    for part in parts:
        for path in sorted((ROOT / part).rglob(f"*.{ending}")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return what may have prose, each with its file."""
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for part in PARTS
        for path, tree in trees(ROOT / part).items()
        for node in ast.walk(tree)
        if isinstance(node, PROSE)
    ]


@cache
def docstrings() -> list[Text]:
    """Return each docstring, also of attributes."""
    return [
        (f"{name}:{node.value.lineno}", " ".join(node.value.value.split()))
        for name, node in nodes()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


@cache
def messages() -> list[Text]:
    """Return each text with a space in it: errors, help, lines of output."""
    return [
        (f"{name}:{node.lineno}", " ".join(node.value.split()))
        for name, node in nodes()
        if name.startswith(PRODUCT)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
    ]


@cache
def tokens() -> list[tuple[str, int, str]]:
    """Return comments and names of all files that have what neither may have: place, kind of token, and text."""
    return [
        (f"{name}:{token.start[0]}", token.type, token.string)
        for name, source in sources(PRODUCT, "py")
        if WORST.search(source) or any(part in source.lower() for part in OBTAINED)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type in (tokenize.COMMENT, tokenize.NAME)
    ]


@cache
def scripts() -> list[Text]:
    """Return the lines of Lua, and of the live page."""
    page = "coordinator/headgate_coordinator/admin/page"
    listed = [*sources(("lua",), "lua"), *(one for ending in ("js", "html", "css") for one in sources((page,), ending))]
    return [(f"{name}:{number}", line) for name, text in listed for number, line in enumerate(text.splitlines(), 1)]


@cache
def pages() -> list[Text]:
    """Return the paragraphs, items and cells of pages, without what stands in code."""
    found = []
    for path in sorted(path for pattern in PAGES for path in ROOT.glob(pattern)):
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"\]\([^)\s]*\)", "]", re.sub(r"`[^`\n]*`", "`x`", text))
        parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-|#]|\d+\.) ?)|(?<=\S) \| ", text)
        found += [(path.relative_to(ROOT).as_posix(), " ".join(part.strip("-|#* \n").split())) for part in parts]
    return found


def documented(*kinds: type[Any]) -> list[tuple[str, Any, str]]:
    """Return what is defined in the product and has a docstring: the place, the node and the text in one line."""
    return [
        (f"{name}:{getattr(node, 'lineno', 1)}", node, " ".join(text.split()))
        for name, node in nodes()
        if name.startswith(PRODUCT) and isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


def is_property(node: Any) -> bool:
    """Return whether a function is read as a value, whose docstring names that value."""
    return any("property" in ast.unparse(one) or "setter" in ast.unparse(one) for one in node.decorator_list)


def says_what_is_done(text: str) -> bool:
    """Return whether a sentence begins with a verb, or has a finite one before any clause that hangs on another."""
    words = re.findall(
        r"[A-Za-z']+", re.split(r"\b(?:[Tt]hat|[Ww]hich|[Ww]hose?|[Ww]hether)\b", first_sentence(text), maxsplit=1)[0]
    )
    verbs = IS | {f"{verb}s" for verb in DOES} | {f"{verb}es" for verb in DOES}
    return bool(words) and (words[0].lower() in DOES or any(word in verbs for word in words[1:]))


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?:;])\s", text, maxsplit=1)[0]


def worst(texts: list[Text]) -> list[Text]:
    return [(place, found[0]) for place, text in texts if (found := WORST.findall(re.sub(r"``.*?``", "", text)))]


def relative(texts: list[Text], *, whole: bool = False) -> list[Text]:
    """Return the first such sentence of each; with ``whole`` only those with a full stop: a heading may ask."""
    each = [(place, [one for one in RELATIVE.findall(text) if one.endswith(".") or not whole]) for place, text in texts]
    return [(place, found[0]) for place, found in each if found]


def test_no_sentence_begins_with_a_free_relative() -> None:
    assert relative(docstrings()) == []
    assert relative([*messages(), *pages()], whole=True) == []


def test_the_worst_turns_of_phrase_stay_out() -> None:
    comments = [(place, text) for place, kind, text in tokens() if kind == tokenize.COMMENT]
    assert worst([*docstrings(), *messages(), *comments, *scripts(), *pages()]) == []


def test_names_say_what_a_value_is_and_not_how_it_was_obtained() -> None:
    names = [(place, text) for place, kind, text in tokens() if kind == tokenize.NAME]
    assert [(place, name) for place, name in names if OBTAINED & set(name.lower().split("_"))] == []


def test_first_sentences_of_docstrings_are_short() -> None:
    long = [(place, text) for place, text in docstrings() if len(first_sentence(text).split()) > LONGEST]
    assert [(place, text) for place, text in long if place.startswith(PRODUCT)] == []


def test_docstrings_of_functions_say_what_is_done() -> None:
    functions = documented(ast.FunctionDef, ast.AsyncFunctionDef)
    assert [(at, text) for at, node, text in functions if not (says_what_is_done(text) or is_property(node))] == []


def test_docstrings_of_classes_and_modules_say_what_the_thing_does() -> None:
    kinds = documented(ast.ClassDef, ast.Module)
    assert [(at, text) for at, _, text in kinds if FRAGMENT.match(text) or not says_what_is_done(text)] == []


@pytest.mark.parametrize(
    "text", ["The rows of a page.", "Rows that are read, in order.", "Whether it ends.", "Reading."]
)
def test_docstrings_that_only_name_something_are_found(text: str) -> None:
    assert not says_what_is_done(text)


@pytest.mark.parametrize(
    "text", ["Who waits is served.", "What is there of it.", "A line. Whoever comes is paid.", "What it holds"]
)
def test_the_pattern_finds_what_it_is_for(text: str) -> None:
    assert RELATIVE.findall(text)


@pytest.mark.parametrize("text", ["Those who wait are served.", "A sender. Who are they? Nobody knows.", "The whole."])
def test_the_pattern_leaves_the_rest_alone(text: str) -> None:
    assert not RELATIVE.findall(text)


@pytest.mark.parametrize("text", ["It outlives an answer of before.", "He is told so.", "Has so much more to send"])
def test_the_worst_are_found(text: str) -> None:
    assert WORST.findall(text)
