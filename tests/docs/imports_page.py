"""Writes the tables of `docs/from-*.md` from the settings that `headgate import` knows.

python -m tests.docs.imports_page         writes them
"""

from pathlib import Path
from typing import Final

from headgate.brokers import words

DOCS: Final = Path(__file__).parents[2] / "docs"
PRODUCTS: Final = ("activemq", "artemis", "blazingmq", "ems", "rabbitmq")
"""Those that have a page."""
HEAD: Final = "| setting | its default | ours | difference, or what to do instead |\n|---|---|---|---|\n"
BEGIN: Final = "<!-- settings, as `python -m tests.docs.imports_page` writes them -->\n"


def tables(product: str) -> str:
    """Return a table of each group of settings of a product."""
    lines = [BEGIN]
    for group, members in words(product).items():
        lines.append(f"\n### {group}\n\n{HEAD}")
        for word in members.values():
            ours = f"`{word.ours}`" if word.ours else "-"
            ours += f"; {word.hint}" if word.hint else ""
            lines.append(f"| `{word.name}` | {word.default or '-'} | {ours} | {word.differs or 'none'} |\n")
    return "".join(lines)


def page(product: str) -> str:
    """Return the whole page, with what is written by hand before the tables."""
    text = (DOCS / f"from-{product}.md").read_text(encoding="utf-8")
    return text[: text.index(BEGIN)] + tables(product)


if __name__ == "__main__":
    for name in PRODUCTS:
        (DOCS / f"from-{name}.md").write_text(page(name), encoding="utf-8")
