"""The command `headgate multicast listen` prints the messages that a channel sends, and what is lost."""

import json
from typing import Annotated

import typer

import headgate.multicast
from headgate.errors import HeadgateError, InvalidValue
from headgate.multicast import Loss, MulticastMessage
from headgate_coordinator.cli.options import Json, run

app = typer.Typer(no_args_is_help=True, help="Watch what channels send.")


@app.callback()
def multicast() -> None:
    """Look at what channels send."""


@app.command()
def listen(
    group: Annotated[str, typer.Argument(metavar="GROUP:PORT", help="Group and port of the channel.")],
    interface: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the interface to join at.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Show only this topic; may be given several times.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after N messages.")] = None,
    as_json: Json = False,
) -> None:
    """Print the messages that a channel sends, and what is lost, until it is interrupted."""
    address, _, port = group.rpartition(":")
    if not address or not port.isdecimal():
        raise InvalidValue(f"{group!r}; write GROUP:PORT, such as 239.1.2.3:7000")

    def lost(loss: Loss) -> None:
        entry = {"lost": loss.messages, "topic": loss.topic, "first": loss.first, "last": loss.last}
        text = f"{loss.topic}: {loss.messages} lost, {loss.first} to {loss.last}"
        typer.echo(json.dumps(entry) if as_json else text, err=not as_json)

    async def work() -> None:
        topics = topic or None
        reader = headgate.multicast.reader(address, int(port), interface=interface, topics=topics, on_loss=lost)
        try:
            await reader.__aenter__()
        except OSError as error:
            raise HeadgateError(f"cannot join {group}: {error.strerror}; see --interface") from None
        left = count
        async for message in reader:
            typer.echo(json.dumps(_fields(message)) if as_json else _line(message))
            left = None if left is None else left - 1
            if left == 0:
                reader.close()
                return

    run(work())


def _fields(message: MulticastMessage) -> dict[str, object]:
    body = message.body if isinstance(message.body, str) else message.body.decode("utf-8", "backslashreplace")
    headers = {name: str(value) for name, value in message.headers.items()}
    return {"channel": message.channel, "topic": message.topic, "seq": message.seq, "headers": headers, "body": body}


def _line(message: MulticastMessage) -> str:
    return f"{message.topic} {message.seq}: {_fields(message)['body']}"
