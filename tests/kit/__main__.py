"""Tries the rows of the kit on one AMQP 1.0 endpoint, a line each, and says how many hold."""

import argparse
import asyncio
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from headgate.amqp.peer import Disconnected
from headgate.core.printable import printable
from headgate.errors import HeadgateError
from tests.kit.endpoint import FORM, Endpoint, Unusable
from tests.kit.report import HOLDS, KEPT, Result, Tried
from tests.kit.rows import LIMIT, ROWS, TWO, WINDOW, Row
from tests.kit.starting import STARTED, running

NEEDS = f"""each row has a queue of its own, kit.<id>, which the endpoint has, or makes when it is used.
Some kinds are special:
  kit.limited.*   holds {LIMIT:,} bytes, at which senders wait
  kit.bands.*     is delivered by priority
  kit.window.*    has receivers that hold {WINDOW} messages unsettled at the most
  kit.topic.*     is a topic
  kit.two.*       is for user {TWO}, password {TWO}, who may have two connections
it ends with 0 when every row holds, 1 when some do not, 2 when there is nothing to try."""


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit", description="Tries what docs/conformance.md states on any AMQP 1.0 endpoint.",
        epilog=NEEDS, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("url", nargs="?", help=f"{FORM}; or --start")
    parser.add_argument("--start", choices=tuple(STARTED), help="start this broker, try it, and stop it")
    parser.add_argument("--home", metavar="DIR", type=Path, help="of its distribution; else from Maven Central")
    parser.add_argument("--keep", action="store_true", help="keep the results of the broker that was started")
    parser.add_argument("--only", metavar="ID,...", help="only these rows")
    parser.add_argument("--queue", metavar="TEMPLATE", help="address of a queue; {} is its name")
    parser.add_argument("--topic", metavar="TEMPLATE", help="address of a topic; empty: try none")
    parser.add_argument("--patience", metavar="SECONDS", type=float, default=10.0, help="that an answer may take (10)")
    parser.add_argument("--json", action="store_true", help="print results as JSON; progress goes to stderr")
    return parser


def _chosen(only: str | None, topic: str) -> list[Row]:
    known = [row.id for row in ROWS]
    chosen = known if only is None else [name.strip().upper() for name in only.split(",")]
    if unknown := [name for name in chosen if name not in known]:
        raise Unusable(f"no row is called {printable(unknown[0], 80)}; there are {', '.join(known)}")
    return [row for row in ROWS if row.id in chosen and (topic or row.needs != "topic")]


async def _reached(endpoint: Endpoint) -> str:
    """Return what an endpoint says it is, once a client is in."""
    try:
        client = await endpoint.connect("headgate-kit")
    except (Disconnected, OSError, HeadgateError) as error:
        raise Unusable(f"{endpoint} is not reached: {printable(str(error), 300)}") from None
    product = client.product
    await client.close()
    return product


async def _try(row: Row, endpoint: Endpoint) -> Result:
    began = time.monotonic()
    try:
        async with asyncio.timeout(12 * endpoint.patience):
            seen = await row.tried(endpoint)
    except TimeoutError:
        return Result("no answer", f"within {12 * endpoint.patience:g} s", time.monotonic() - began)
    except (Disconnected, OSError, HeadgateError, AssertionError) as error:
        return Result("refused", printable(str(error), 200), time.monotonic() - began)
    return Result("holds" if seen.holds else "differs", seen.what, time.monotonic() - began)


async def run(endpoint: Endpoint, rows: list[Row], out: IO[str]) -> Tried:
    """Try rows in turn, a line each.

    Raises:
        Unusable: the endpoint is not reached.
    """
    product = await _reached(endpoint)
    results = {}
    for row in rows:
        results[row.id] = result = await _try(row, endpoint)
        print(
            f"{row.id}  {result.verdict:<9}  {row.promise}: {result.seen} ({result.seconds:.1f} s)",
            file=out,
            flush=True,
        )
    return Tried(product or "it does not say", results)


def _tried(said: argparse.Namespace) -> tuple[Tried, list[Row]]:
    """Return what became of the rows that were chosen, at the endpoint that was named, or of the broker to start.

    Raises:
        Unusable: there is none, or more than one is named.
    """
    if (said.url is None) == (said.start is None) or (said.start is None and (said.home or said.keep)):
        raise Unusable("name an endpoint, or a broker with --start; --home and --keep are for a broker")
    if said.keep and said.only:
        raise Unusable("results are kept of all rows; leave out --only")
    broker = STARTED.get(said.start)
    queue, topic = (broker.queue, broker.topic) if broker else ("{}", "{}")
    queue, topic = queue if said.queue is None else said.queue, topic if said.topic is None else said.topic
    rows = _chosen(said.only, topic)
    with running(said.start, said.home) if broker else nullcontext(said.url) as url:
        endpoint = Endpoint.parse(url, queue=queue, topic=topic, patience=said.patience)
        tried = asyncio.run(run(endpoint, rows, sys.stderr if said.json else sys.stdout))
    if said.keep:
        (KEPT / f"{said.start}.json").write_text(f"{json.dumps(tried.as_dict(), indent=1)}\n")
    return tried, rows


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    said = _arguments().parse_args(arguments)
    try:
        tried, rows = _tried(said)
    except Unusable as error:
        print(f"kit: {error}", file=sys.stderr)
        return 2
    if said.json:
        print(json.dumps(tried.as_dict(), indent=1))
    hold = sum(result.verdict == HOLDS for result in tried.results.values())
    print(f"{tried.product}: {hold} of {len(rows)} rows hold", file=sys.stderr if said.json else sys.stdout)
    return 0 if hold == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
