"""A page is made of the templates beside this file, and needs nothing else, no network and no other file."""

import hashlib
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from headgate_pipeline.formatting import moment, span


def picture(figure: Any) -> Markup:
    """Return a figure as a card."""
    data = Markup(figure.to_json())  # noqa: S704 - plotly writes < as \u003c, so nothing in a name ends the script
    name = f"figure-{hashlib.sha256(data.encode()).hexdigest()[:12]}"
    return Markup(
        '<div class="card"><div data-figure="{name}" style="height: {height}px"></div>'
        '<script type="application/json" id="{name}">{data}</script></div>'
    ).format(name=name, height=figure.layout.height, data=data)


def _coded(line: str) -> Markup:
    """Return a line of text, with what is between backquotes as code."""
    pieces = line.split("`")
    if len(pieces) % 2 == 0:
        return escape(line)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if n % 2 else piece for n, piece in enumerate(pieces)
    )


_TEMPLATES: Final = Environment(
    loader=PackageLoader("headgate_pipeline", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_TEMPLATES.filters |= {"moment": moment, "span": span, "coded": _coded}
_TEMPLATES.globals["picture"] = picture


def document(template: str, title: str, *, pictures: bool = True, **values: Any) -> str:
    """Return a page.

    Args:
        template: its file.
        title: of the page.
        pictures: it has some, so what draws them has to be in it.
        values: that the template names; whatever is no :class:`~markupsafe.Markup` is escaped.
    """
    plotly = Markup(get_plotlyjs() if pictures else "")  # noqa: S704 - a library's own text
    return _TEMPLATES.get_template(template).render(title=title, plotly=plotly, **values)
