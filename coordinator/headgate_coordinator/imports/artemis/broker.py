"""A broker.xml has addresses, bridges, diverts and transports; all else is noted as what it is about."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, BrokerSetting, words
from headgate.core.printable import printable
from headgate.errors import InvalidValue
from headgate_coordinator.imports.artemis.address_settings import address_settings, in_bytes, page_where_full
from headgate_coordinator.imports.artemis.settings import DEFAULTS, FOLDER, KINDS, UNKNOWN, setting, value_of
from headgate_coordinator.imports.names import is_name
from headgate_coordinator.imports.reading import Reading
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.imports.windows import fit_windows
from headgate_coordinator.imports.xml_tree import Element, read_xml

_POOL: Final = "global"


def read(files: Sequence[Path]) -> Imported:
    """Return the policy that these files amount to, and a report of each setting.

    Raises:
        InvalidValue: a file cannot be read, is no XML, has no settings of Artemis, or is too large.
    """
    reading = Reading()
    base = reading.draft.rule("#")
    for key, value in DEFAULTS.items():
        base.set(key, value, "default of Artemis")
    for file in files:
        root = read_xml(file)
        reading.file = printable(file.name)
        known = False
        for element in _of_core(root):
            known = True
            _CORE.get(element.name, setting)(reading, element)
        if not known:
            raise InvalidValue(
                f"{file.name}:{root.line}: <{root.name}> holds no settings of Artemis; give a broker.xml"
            )
    page_where_full(reading)
    fit_windows(reading)
    reading.free_dead_letters()
    return reading.imported(files, "Apache Artemis")


def _of_core(root: Element) -> Iterator[Element]:
    """Return the settings of a broker: all of ``<core>``, or an element of it that is a file of its own."""
    if root.name == "configuration":
        for part in root.children:
            yield from part.children if part.name == "core" else [part]
    elif root.name in ("core", "broker"):
        yield from root.children
    elif root.name in _CORE:
        yield root


def _addresses(reading: Reading, element: Element) -> None:
    for address in element.find("address"):
        name = address.attributes.get("name", "")
        kinds = [child.name for child in address.children if child.name in KINDS]
        kind = KINDS[kinds[0]] if kinds else ""
        word = BrokerSetting(
            "address", "name", "match", states="Address model: an address, with anycast or multicast queues"
        )
        if len(kinds) > 1:
            why = "it is both anycast and multicast; a destination is a queue or a topic: give one of them another name"
            reading.note(address, word, NOT_COVERED, name, why=why)
        elif not is_name(name):
            reading.note(address, word, NOT_COVERED, name, why="no destination can have this name; choose another")
        else:
            rule = reading.draft.rule(name, kind)
            rule.places["match"] = reading.place(address)
            reading.note(address, word, KEPT, name, f'match = "{name}"' + (f', kind = "{kind}"' if kind else ""))
        for child in address.children:
            for queue in child.find("queue"):
                _queue(reading, queue, name, child.name)


def _queue(reading: Reading, queue: Element, address: str, routing: str) -> None:
    name = queue.attributes.get("name", "")
    word = BrokerSetting("address", "queue", states="Address model: a queue of an address")
    if routing == "multicast":
        why = f"subscribe to the topic {address!r} with the durable subscription {name!r}; nothing is kept before"
        reading.note(queue, word, DIFFERS, name, f'a subscription named "{name}"', why)
    elif name == address:
        reading.note(queue, word, KEPT, name, f'the queue "{name}"')
    else:
        why = f"a queue has its address' name: receive from {address!r}, or have a topic with subscriptions"
        reading.note(queue, word, NOT_COVERED, name, why=why)
    for key, value in queue.attributes.items():
        if key != "name":
            known = words("artemis")["address-setting"].get(f"default-{key}")
            why = known.differs if known else UNKNOWN
            reading.note(queue, BrokerSetting("queue", key), NOT_COVERED, value, why=why)
    for one in queue.children:
        why = "the queue keeps what is durable, always" if one.name == "durable" else UNKNOWN
        if one.name == "filter":
            why = "give a subscription's link a selector: a [[bridge]] with selector, from the topic"
        reading.note(one, BrokerSetting("queue", one.name), NOT_COVERED, value_of(one), why=why)


def _connectors(reading: Reading, element: Element) -> None:
    for one in element.children:
        _url(reading, one, "a client's URL names nodes: amqp://host:5672, several with commas between")


def _acceptors(reading: Reading, element: Element) -> None:
    for one in element.children:
        _url(reading, one, "headgate node --host HOST --port PORT takes AMQP 1.0, with --tls-cert for amqps")


def _url(reading: Reading, one: Element, instead: str) -> None:
    word = BrokerSetting(one.name, "url", states="Configuring transports: where it listens or connects")
    try:
        url = urlsplit(one.text)
    except ValueError:  # brackets that hold no address
        reading.note(one, word, NOT_COVERED, one.text, why="Artemis would not accept this URL; correct it there")
        return
    address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    reading.note(one, word, NOT_COVERED, f"{one.attributes.get('name', '')} {address}".strip(), why=instead)
    for key, value in parse_qsl(url.query.replace(";", "&"), keep_blank_values=True):
        known = words("artemis")["url"].get(
            key, BrokerSetting("url", key, differs="a setting of the transport; a node has its own")
        )
        reading.plain(one, known, value)


def _bridges(reading: Reading, element: Element) -> None:
    for bridge in element.children:
        given = {one.name: one for one in bridge.children}
        source = given["queue-name"].text if "queue-name" in given else ""
        target = given["forwarding-address"].text if "forwarding-address" in given else ""
        name = bridge.attributes.get("name", source)
        made = _bridge(reading, bridge, name, {"from": source, "to": target})
        for one in bridge.children:
            _of_link(reading, one, "bridge", name, made=made)


def _diverts(reading: Reading, element: Element) -> None:
    for divert in element.children:
        given = {one.name: one for one in divert.children}
        source, target = (given[key].text if key in given else "" for key in ("address", "forwarding-address"))
        exclusive = "exclusive" in given and given["exclusive"].text.lower() == "true"
        values = {"from": source, "to": target} | ({} if exclusive else {"copies": True})
        name = divert.attributes.get("name", source)
        made = _bridge(reading, divert, name, values)
        for one in divert.children:
            _of_link(reading, one, "divert", name, made=made)


def _bridge(reading: Reading, element: Element, name: str, values: dict[str, str | bool]) -> bool:
    """Return whether a bridge became one of ours."""
    word = BrokerSetting(element.name, "name", "bridge.name", states="the name of it")
    if not (is_name(str(values["from"])) and is_name(str(values["to"])) and is_name(name)):
        why = "a bridge has a name, a source and a target here, none of them a pattern; write [[bridge]] yourself"
        reading.note(element, word, NOT_COVERED, name, why=why)
        return False
    bridge = reading.draft.named("bridge", name)
    for key, value in values.items():
        bridge.set(key, value, reading.place(element))
    why = (
        "the target has to be in this namespace; one of another broker is a [[site]]"
        if element.name == "bridge"
        else ""
    )
    reading.note(element, word, DIFFERS if why else KEPT, name, f'[[bridge]] "{name}"', why)
    return True


def _of_link(reading: Reading, one: Element, group: str, name: str, *, made: bool) -> None:
    word = words("artemis")[group].get(one.name)
    if word is None or not made:
        why = UNKNOWN if word is None else "the bridge as a whole is not covered"
        reading.note(one, word or BrokerSetting(group, one.name), NOT_COVERED, value_of(one), why=why)
    elif one.name == "filter":
        selector = one.attributes.get("string", one.text)
        reading.draft.named("bridge", name).set("selector", selector, reading.place(one))
        reading.plain(one, word, selector, f"selector = {selector!r}")
    elif one.name == "static-connectors":
        for reference in one.children:
            reading.plain(reference, word, reference.text)
    else:
        reading.plain(one, word, value_of(one))


def _global_size(reading: Reading, element: Element) -> None:
    word = words("artemis")["core"][element.name]
    try:
        amount = in_bytes(element.text)
    except ValueError:
        why = "a share of the JVM's heap; write the bytes that all destinations may have together"
        reading.note(element, word, NOT_COVERED, element.text, why=why)
        return
    if amount > 0:
        reading.draft.named("pool", _POOL).set("limit", amount, reading.place(element))
        reading.draft.rule("#").set("pools", [_POOL], reading.place(element))
    reading.plain(element, word, element.text, f"pool.limit = {amount}" if amount > 0 else "no pool")


def _paging_directory(reading: Reading, element: Element) -> None:
    reading.plain(element, words("artemis")["core"][element.name], element.text, f'store.url = "{FOLDER}"')


_CORE: Final[dict[str, Callable[[Reading, Element], None]]] = {
    "address-settings": address_settings,
    "addresses": _addresses,
    "connectors": _connectors,
    "acceptors": _acceptors,
    "bridges": _bridges,
    "diverts": _diverts,
    "global-max-size": _global_size,
    "paging-directory": _paging_directory,
}
