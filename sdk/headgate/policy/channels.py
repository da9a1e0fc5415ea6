"""A document's channels are compiled to rules of the topics that they send.

They are checked for what would make them send nonsense.
"""

from collections.abc import Iterator

from headgate.core.limits.slices import is_sliced
from headgate.core.links.channel import HEADERS, Channel
from headgate.core.links.multicast import room
from headgate.core.names import encode_name
from headgate.core.policy import Policy, Rule
from headgate.policy.channel_forms import SMALLEST, byte_rate
from headgate.policy.channel_table import ChannelTable
from headgate.policy.line_numbers import Path
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.redis.keys import link_id
from headgate.units import parse_size


def compile_channels(tables: list[ChannelTable], source: Source, at: Origin, problems: list[Problem]) -> list[Channel]:
    """Return the channels of a document."""
    names: set[str] = set()
    groups: dict[tuple[str, int], str] = {}
    of_topic: dict[str, str] = {}
    channels: list[Channel] = []
    for position, table in enumerate(tables):
        path: Path = ("channel", position)

        def wrong(key: str, text: str, path: Path = path) -> None:
            problems.append(source.problem((*path, key), text))

        if table.name in names:
            wrong("name", f"there is a channel {table.name!r} already; keep one")
        names.add(table.name)
        other = groups.setdefault((table.group, table.port), table.name)
        if other != table.name:
            wrong("group", f"channel {other!r} sends to {table.group}:{table.port} already; use another group or port")
        for topic in table.topics:
            other = of_topic.setdefault(topic, table.name)
            if other != table.name:
                wrong("topics", f"channel {other!r} sends {topic!r} already; a topic is in one channel")
        channel = Channel(
            table.name,
            tuple(table.topics),
            table.group,
            table.port,
            table.ttl,
            table.interface or "",
            byte_rate(table.maxrate, "maxrate"),
            parse_size(table.packet, "packet"),
            at(path),
        )
        if least := next((topic for topic in channel.topics if room(channel.name, topic, channel.packet) < 64), None):
            wrong("packet", f"{table.packet!r} bytes are too few beside the names of {least!r}; use more")
        if channel.maxrate < channel.packet + HEADERS:
            wrong(
                "maxrate",
                f"{table.maxrate!r} is less than a packet of {channel.packet} bytes, and {HEADERS} of headers, a "
                f"second; raise it, or make packets smaller (from {SMALLEST})",
            )
        channels.append(channel)
    return channels


def rules_of(channels: list[Channel], *, confirm: bool) -> Iterator[Rule]:
    """Yield what channels mean for their topics: their own limit plays no part.

    Args:
        channels: of the document.
        confirm: whether who sends there waits until the channel has sent, too.
    """
    for channel in channels:
        for feed in channel.feeds:
            fields = {"enforce": "off"}
            if confirm:
                fields["confirm"] = f"{link_id(feed.link)} {encode_name(channel.name, 'channel')}"
            yield Rule(feed.source, "topic", fields, dict.fromkeys(("kind", *fields), channel.origin))


def check_channels(policy: Policy) -> Iterator[Problem]:
    """Yield what is wrong with the channels of a compiled policy, given what its rules say."""
    for channel in policy.channels:
        for topic in channel.topics:
            kinds = [rule.kind for rule in policy.matching(topic) if rule.kind and rule.pattern.exact]
            other = next((kind for kind in kinds if kind != "topic"), None)
            if other:
                yield Problem(
                    channel.origin,
                    "channel.topics",
                    f"{topic!r} is a {other}; a channel sends topics only",
                )
            fields = policy.resolve(topic, "topic").fields
            if is_sliced(fields) and not fields.get("confirm"):  # else that is beside slices
                text = f"{topic!r} has slices, and a channel sends what one of them has; leave out one of the two"
                yield Problem(channel.origin, "channel.topics", text)
