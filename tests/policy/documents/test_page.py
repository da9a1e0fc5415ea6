"""docs/policy.md: its examples are read, checked and linted; what it shows as refused is refused with these words."""

import pytest

from headgate.policy import BadDocument, loads
from headgate.policy.presets import PRESETS
from headgate_coordinator.policy.lint import lint
from tests.docs.test_readme import blocks, read

PAGE = "docs/policy.md"
FOUND = blocks(PAGE)
EXAMPLES = [
    pytest.param(text, follower[1] if follower[0] == "text" else "", id=f"line{line}")
    for (language, text, line), follower in zip(FOUND, [*FOUND[1:], ("", "", 0)], strict=True)
    if language == "toml"
]


@pytest.mark.parametrize(("text", "refused"), EXAMPLES)
def test_examples_do_what_the_page_says(text: str, refused: str) -> None:
    if not refused:
        assert lint(loads(text)) == []
        return
    with pytest.raises(BadDocument) as caught:
        loads(text)
    assert str(caught.value) == refused.strip()


def test_there_are_examples_of_both() -> None:
    shown = [param.values[1] for param in EXAMPLES]
    assert shown.count("") >= 3
    assert len(shown) - shown.count("") >= 2


def test_the_page_names_every_preset() -> None:
    assert [name for name in PRESETS if f"| `{name}` |" not in read(PAGE)] == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"{page}:{line}")
        for page in ("README.md", "docs/links.md")
        for language, text, line in blocks(page)
        if language == "toml"
    ],
)
def test_policies_on_other_pages_can_be_applied(text: str) -> None:
    """They show links alone, without the limits of both sides that the linter asks for."""
    assert {finding.code for finding in lint(loads(text))} <= {"HG115"}
