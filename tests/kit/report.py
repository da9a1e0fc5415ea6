"""Results of the kit: as JSON, kept for each product that it ran on, and side by side in `docs/conformance.md`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

KEPT: Final = Path(__file__).parent / "results"
"""A file for each product, as `python -m tests.kit --json` printed it."""
HOLDS: Final = "holds"
Verdict = Literal["holds", "differs", "refused", "no answer"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one row: the verdict, what was seen, and how long it took."""

    verdict: Verdict
    seen: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Tried:
    """One run: what the endpoint says it is, and a result for each row."""

    product: str
    results: dict[str, Result]

    def as_dict(self) -> dict[str, Any]:
        rows = {row: asdict(result) | {"seconds": round(result.seconds, 1)} for row, result in self.results.items()}
        return {"product": self.product, "rows": rows}

    @classmethod
    def load(cls, path: Path) -> "Tried":
        said = json.loads(path.read_text(encoding="utf-8"))
        return cls(said["product"], {row: Result(**result) for row, result in said["rows"].items()})


PRODUCTS: Final = {
    "headgate": "Headgate",
    "artemis": "Apache Artemis",
    "activemq": "ActiveMQ Classic",
    "rabbitmq": "RabbitMQ",
}
"""Those that results are kept of, by the name of their file."""
_BEGIN: Final = """## Side by side, over AMQP 1.0

This table is what the conformance kit saw: `python -m tests.kit amqp://localhost:5672` tries these rows on any AMQP 1.0
endpoint. Limited destinations hold 100,000 bytes, and messages have 1,000. Results are kept in `tests/kit/results`,
configurations in `tests/kit/brokers`. Headgate is tried by `make test`; the others are started and tried by
`python -m tests.kit --start artemis`, `activemq` or `rabbitmq`, the first two from Maven Central, and `--keep` keeps
what they did. Artemis and Classic are as they come but for what these files say; RabbitMQ's queues are classic.
"""


def side_by_side(promises: dict[str, str]) -> str:
    """Return the table of what each product did, for these promises."""
    tried = {name: Tried.load(KEPT / f"{name}.json") for name in PRODUCTS}
    titles = [
        f"{title} {one.product.rpartition(' ')[2]}"
        for title, one in zip(PRODUCTS.values(), tried.values(), strict=True)
    ]
    lines = [_BEGIN, f"| id | over AMQP 1.0 | {' | '.join(titles)} |", "|---" * (2 + len(titles)) + "|"]
    for row, promise in promises.items():
        cells = [_cell(one.results.get(row)) for one in tried.values()]
        lines.append(f"| {row} | {promise} | {' | '.join(cells)} |")
    hold = [sum(one.results[row].verdict == HOLDS for row in promises if row in one.results) for one in tried.values()]
    lines.append(f"| | rows that hold | {' | '.join(f'{count} of {len(promises)}' for count in hold)} |")
    return "\n".join(lines) + "\n"


def _cell(result: Result | None) -> str:
    if result is None:
        return "not tried"
    return ("" if result.verdict == HOLDS else f"**{result.verdict}**: ") + result.seen.replace("|", "\\|")
