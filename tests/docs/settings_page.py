"""Writes `docs/settings.md` from the table of settings.

python -m tests.docs.settings_page         writes it
"""

from pathlib import Path
from typing import Final

from headgate.core.settings_table import ROWS

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
    return INTRODUCTION + "".join(
        f"| `{name}` | `{row.field}` | {row.doc.replace('``', '`')} |\n" for name, row in ROWS.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
