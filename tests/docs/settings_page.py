"""Writes `docs/settings.md` from what `headgate.Settings` says of itself.

python -m tests.docs.settings_page         writes it
"""

import re
from pathlib import Path
from typing import Final

from headgate.settings import FIELD_OF, Settings

PAGE: Final = Path(__file__).parents[2] / "docs" / "settings.md"
INTRODUCTION: Final = """# Settings of a destination

By these names `client.apply(name, **settings)` sets them, and `headgate.Settings` takes them; [policies](policy.md) set
them for many destinations at once. A value of `"default"` sets one back. The state keeps them as plain text in the
destination's own hash, in the fields named here ([data dictionary](../lua/README.md#fields)).

| setting | field | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    described = re.search(r"    Attributes:\n(.*)", Settings.__doc__ or "", re.DOTALL)
    if described is None:
        raise AssertionError("Settings does not describe its attributes")
    rows = re.findall(r"^        (\w+): (.*(?:\n            .*)*)", described[1], re.MULTILINE)
    return INTRODUCTION + "".join(
        f"| `{name}` | `{FIELD_OF[name]}` | {' '.join(text.split()).replace('``', '`')} |\n" for name, text in rows
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
