"""The report as one HTML file that needs nothing else: no network, no other file."""

import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import Any, Final

from plotly.offline import get_plotlyjs

_DRAW: Final = """
for (const card of document.querySelectorAll("[data-figure]")) {
  const {data, layout} = JSON.parse(document.getElementById(card.dataset.figure).textContent);
  Plotly.newPlot(card, data, layout, {displayModeBar: false, responsive: true});
}
"""
"""Pictures are drawn when the page is whole, so that each knows how wide it is to be."""

STYLE: Final = """
:root { color-scheme: light; --ink: #17212b; --quiet: #566472; --line: #dbe2e8; --good: #22754a; --bad: #b3261e; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1280px; padding: 0 16px 32px; background: #f5f7f9; color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 20px; margin: 20px 0 2px; } h2 { font-size: 15px; margin: 28px 0 8px; }
p { margin: 0; } .quiet { color: var(--quiet); }
.good { color: var(--good); } .bad { color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr));
  gap: 1px; margin: 16px 0; padding: 0;
  background: var(--line); border: 1px solid var(--line); border-radius: 8px; overflow: hidden; }
.tiles div { background: #fff; padding: 10px 14px; } .tiles dt { color: var(--quiet); font-size: 12px; }
.tiles dd { margin: 0; font-size: 19px; font-weight: 600; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 12px; min-width: 0; overflow: hidden; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 12px; }
.grid + .grid { margin-top: 12px; }
ol, ul { margin: 0; padding-left: 22px; } li { margin: 6px 0; overflow-wrap: anywhere; }
.scroll { overflow: auto; max-height: 520px; padding: 0; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { position: sticky; top: 0; background: #eef2f5; font-weight: 600; }
th:first-child, td:first-child { text-align: left; max-width: 340px; overflow: hidden; text-overflow: ellipsis; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 8px; font-size: 12px; color: var(--quiet); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
code { white-space: nowrap; font-size: 12px; background: #eef2f5; padding: 1px 4px; border-radius: 4px; }
@media print { .scroll { max-height: none; overflow: visible; } .card { break-inside: avoid; } }
"""

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>$title</title>
<style>$style</style>
<script>$plotly</script>
</head>
<body>
$body
<script>$draw</script>
</body>
</html>
""")


def document(title: str, parts: Iterable[str], *, pictures: bool) -> str:
    """Return the page.

    Args:
        title: text.
        parts: HTML.
        pictures: it has some, so what draws them has to be in it.
    """
    drawing = get_plotlyjs() if pictures else ""
    return _PAGE.substitute(
        title=escape(title), style=STYLE, plotly=drawing, draw=_DRAW if pictures else "", body="\n".join(parts)
    )


def picture(figure: Any) -> str:
    """Return a figure as a card."""
    data = figure.to_json()  # plotly writes < as \u003c, so nothing in a name ends the script
    name = f"figure-{hashlib.sha256(data.encode()).hexdigest()[:12]}"
    drawn = f'<div data-figure="{name}" style="height: {figure.layout.height}px"></div>'
    return f'<div class="card">{drawn}<script type="application/json" id="{name}">{data}</script></div>'


def grid(cards: Iterable[str]) -> str:
    """Return cards beside each other, as many as fit."""
    return f'<div class="grid">{"".join(cards)}</div>'


def section(title: str, content: str, note: str = "") -> str:
    """Return a part of the page; ``title`` and ``note`` are text, ``content`` is HTML."""
    quiet = f'<p class="quiet">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{quiet}{content}</section>"


def tiles(facts: Iterable[tuple[str, str]]) -> str:
    """Return facts side by side: what, and how much."""
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="tiles">{tiles}</dl>'


def legend(names: Iterable[tuple[str, str]]) -> str:
    """Return what the colours of pictures mean: name and colour."""
    entries = (f'<span><i style="background: {colour}"></i>{escape(name)}</span>' for name, colour in names)
    return f'<p class="legend">{"".join(entries)}</p>'


def listing(lines: Sequence[str], *, ordered: bool = True) -> str:
    """Return lines of text as a list; what is between backquotes is shown as code."""
    tag = "ol" if ordered else "ul"
    return f'<div class="card"><{tag}>{"".join(f"<li>{_coded(line)}</li>" for line in lines)}</{tag}></div>'


def _coded(line: str) -> str:
    pieces = escape(line).split("`")
    if len(pieces) % 2 == 0:
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if n % 2 else piece for n, piece in enumerate(pieces))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of text."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
