"""The commands `headgate import ...`: configurations of other brokers become policies."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

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
    typer.Argument(metavar="FILE...", help="Configuration files of one broker, in the order in which it reads them."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="POLICY", show_default=False, help="Write the policy to this new file."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Compare with the policy in force; exits with 1 where they differ.")
]


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


def _command(read: Callable[[Sequence[Path]], Imported]) -> Callable[..., None]:
    """Return the command that reads the files of one product."""

    def command(
        files: Files,
        output: Output = None,
        check: Check = False,
        redis: Redis = None,
        namespace: Namespace = "default",
        as_json: Json = False,
    ) -> None:
        imported = read(files)
        _show(imported, output, as_json=as_json)
        if check:
            _compare(imported, redis, namespace)

    return command


for _name, (_read, _help) in _PRODUCTS.items():
    app.command(_name, help=f"{_help}\n\n{_REPORT}")(_command(_read))


def _show(imported: Imported, output: Path | None, *, as_json: bool) -> None:
    name = output.name if output else "policy.toml"
    traps = find_traps(_policy(imported, name), Setup())
    if output is not None:
        try:
            with output.open("x", encoding="utf-8") as file:
                file.write(imported.document)
        except OSError as error:
            raise InvalidValue(f"--output {output}: {error.strerror}; name a new file") from None
    if as_json:
        print_json(imported.as_dict() | {"traps": [trap.as_dict() for trap in traps]})
        return
    if output is None:
        typer.echo(imported.document, nl=False)
    for line in (*imported.rows, *traps):
        typer.echo(str(line), err=output is None)
    typer.echo(imported.summary, err=output is None)


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


def _compare(imported: Imported, redis: str | None, namespace: str) -> None:
    async def work() -> Plan:
        async with connect(redis, namespace) as client:
            in_force = await client.policy()  # whose file may have any name
            return await plan(client, documents.loads(imported.document, in_force.source or "policy.toml"))

    planned = run(work())
    typer.echo("\n".join(planned.lines()), err=True)
    if not planned.same:
        raise typer.Exit(FAILED)
