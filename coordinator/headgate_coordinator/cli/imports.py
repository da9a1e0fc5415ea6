"""Each command `headgate import ...` turns configurations of another broker into a policy."""

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from headgate import policy as documents
from headgate.core.policy import Policy
from headgate.errors import InvalidValue
from headgate_coordinator.cli.exits import FAILED
from headgate_coordinator.cli.options import Json, Namespace, Redis, connect, print_json, run
from headgate_coordinator.imports.activemq import broker as of_activemq
from headgate_coordinator.imports.artemis import broker as of_artemis
from headgate_coordinator.imports.blazingmq import files as of_blazingmq
from headgate_coordinator.imports.ems import files as of_ems
from headgate_coordinator.imports.rabbitmq import definitions as of_rabbitmq
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.policy.lint import Setup
from headgate_coordinator.policy.lint import lint as find_traps
from headgate_coordinator.policy.plan import Plan, plan

app = typer.Typer(no_args_is_help=True, help="Turn configurations of other brokers into policies, setting by setting.")

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="Configuration files of one broker, in the order in which it reads them; - is stdin."
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="POLICY", help="Write the policy to this new file.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Compare with the policy in force; exits with 1 where they differ.")
]


_STDIN: Final = Path("/dev/stdin")
_COMES_FROM: Final = re.compile(" # ([^#]+:[0-9]+)$")
_REPORT: Final = (
    "The policy goes to stdout, or to --output. A report says what became of each setting: kept exactly, kept with a "
    "difference, or not covered."
)
_PRODUCTS: Final = {
    "activemq": (of_activemq.read, "Read an activemq.xml of ActiveMQ Classic."),
    "artemis": (of_artemis.read, "Read a broker.xml of Apache Artemis, and files that it includes."),
    "blazingmq": (of_blazingmq.read, "Read domains/*.json of BlazingMQ, and bmqbrkrcfg.json and clusters.json."),
    "ems": (of_ems.read, "Read tibemsd.conf of TIBCO EMS, and queues.conf, topics.conf and others beside it."),
    "rabbitmq": (of_rabbitmq.read, "Read exported definitions of RabbitMQ, or policies, in JSON."),
}


def _command(product: str) -> Callable[..., None]:
    """Return the command that reads the files of one product."""

    def command(
        files: Files,
        output: Output = None,
        check: Check = False,
        redis: Redis = None,
        namespace: Namespace = "default",
        as_json: Json = False,
    ) -> None:
        if output is not None and output.exists():
            raise InvalidValue(f"--output {output}: is there already; name a new file")
        imported = _read(product, [_STDIN if str(file) == "-" else file for file in files])
        policy = _policy(imported, output.name if output else "policy.toml")
        planned = _compare(imported, redis, namespace) if check else None
        _write(imported, output)
        _show(imported, policy, planned, document=output is None, as_json=as_json)
        if planned is not None and not planned.alike:
            raise typer.Exit(FAILED)

    return command


for _name, (_, _help) in _PRODUCTS.items():
    app.command(_name, help=f"{_help}\n\n{_REPORT}")(_command(_name))


def _read(product: str, files: Sequence[Path]) -> Imported:
    """Return what the files amount to; where they are another product's, the error names its command."""
    try:
        return _PRODUCTS[product][0](files)
    except InvalidValue as error:
        others = [other for other in _PRODUCTS if other != product and _holds(other, files)]
        hint = f"; `headgate import {others[0]}` reads it" if len(others) == 1 else ""
        raise InvalidValue(f"{error}{hint}") from None


def _holds(product: str, files: Sequence[Path]) -> bool:
    """Return whether the files have settings of a product, and nothing but files, which can be read again."""
    try:
        return all(file.is_file() for file in files) and bool(_PRODUCTS[product][0](files).rows)
    except InvalidValue:
        return False


def _write(imported: Imported, output: Path | None) -> None:
    if output is None:
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(imported.document)
    except OSError as error:
        raise InvalidValue(f"--output {output}: {error.strerror}; name a new file") from None


def _show(imported: Imported, policy: Policy, planned: Plan | None, *, document: bool, as_json: bool) -> None:
    traps = find_traps(policy, Setup())
    if as_json:
        plan_of = {} if planned is None else {"plan": planned.as_dict()}
        print_json(imported.as_dict() | {"traps": [trap.as_dict() for trap in traps]} | plan_of)
        return
    if document:
        typer.echo(imported.document, nl=False)
    for line in (*imported.rows, *traps, imported.summary, *(planned.lines() if planned else ())):
        typer.echo(_folded(str(line), sys.stderr if document else sys.stdout), err=document)


def _folded(line: str, stream: TextIO) -> str:
    """Return a line of the report as wide as the terminal that shows it; for a file or a pipe it is one line."""
    if not stream.isatty():
        return line
    width = max(40, shutil.get_terminal_size().columns)
    return textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _policy(imported: Imported, name: str) -> Policy:
    """Return the policy; where its settings go beyond what there is here, the error names where they come from."""
    try:
        return documents.loads(imported.document, name)
    except documents.BadDocument as error:
        problem = error.problems[0]
        place = _place(imported.document.split("\n"), problem.line - 1) or imported.place
        raise InvalidValue(f"{place}: {problem.key}: {problem.text}") from None


def _place(lines: Sequence[str], at: int) -> str:
    """Return where a line of a document comes from; where it does not say so, where another line of its table does."""
    begin = next((line for line in range(at, -1, -1) if lines[line].startswith("[[")), 0)
    end = next((line for line in range(at, len(lines)) if not lines[line]), len(lines))
    found = (_COMES_FROM.search(line) for line in (lines[at], *lines[begin:end]))
    return next((each[1] for each in found if each), "")


def _compare(imported: Imported, redis: str | None, namespace: str) -> Plan:
    async def work() -> Plan:
        async with connect(redis, namespace) as client:
            in_force = await client.policy()  # whose file may have any name
            return await plan(client, documents.loads(imported.document, in_force.source or "policy.toml"))

    return run(work())
