"""A report's pictures are saved as PNG: those of the page, drawn by a Chromium of this machine, and no library more."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from headgate import HeadgateError
from headgate_pipeline.report import charts, page
from headgate_pipeline.report.report import labels_of
from headgate_pipeline.report.report_data import ReportData

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS: Final = (
    "--headless=new", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-background-networking",
    "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-sandbox",
)  # fmt: skip
SIZE: Final = (900, 420)
_PATIENCE: Final = 60


class NoChromium(HeadgateError):
    """Pictures need a Chromium, and there is none, or it failed."""


def save(figures: ReportData, folder: Path) -> list[Path]:
    """Write ``blocked.png``, ``links.png`` and ``destination-<n>.png`` to a folder; those that there is something for.

    Returns:
        The files.

    Raises:
        NoChromium: there is none on PATH, or it drew nothing.
    """
    labels, drawn = labels_of(figures), {}
    if figures.blocked:
        drawn["blocked"] = charts.blocked(figures)
    if figures.links:
        drawn["links"] = charts.lags(figures)
    for n, (place, rows) in enumerate(figures.levels.items(), start=1):
        drawn[f"destination-{n}"] = charts.levels(labels[place], rows, figures)
    folder.mkdir(parents=True, exist_ok=True)
    width, height = SIZE
    files = []
    with tempfile.TemporaryDirectory(prefix="headgate-pictures-") as scratch:
        for name, figure in drawn.items():
            figure.update_layout(height=height - 40, showlegend=True)
            html = Path(scratch, f"{name}.html")
            html.write_text(page.document("page.html", name, figure=figure), encoding="utf-8")
            files.append(shoot(html, folder / f"{name}.png", width, height))
    return files


def shoot(html: Path, png: Path, width: int, height: int) -> Path:
    """Write what a page looks like, and return the file.

    Raises:
        NoChromium: there is none on PATH, or it drew nothing.
    """
    chromium = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if chromium is None:
        raise NoChromium(
            f"pictures as PNG are drawn by Chromium, and none of {', '.join(_NAMES)} is on PATH; the page has them too"
        )
    with tempfile.TemporaryDirectory(prefix="headgate-chromium-", ignore_cleanup_errors=True) as profile:
        run = subprocess.run(  # noqa: S603 (a program of PATH, with our own arguments)
            [
                chromium, *_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}",
                "--virtual-time-budget=5000", f"--screenshot={png.absolute()}", html.absolute().as_uri(),
            ],
            capture_output=True, text=True, timeout=_PATIENCE, check=False,
        )  # fmt: skip
    if not png.exists():
        raise NoChromium(f"{chromium} drew no picture: {run.stderr.strip()[-300:]}")
    return png
