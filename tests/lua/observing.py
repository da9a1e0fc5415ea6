"""Everything there is of one destination, read at one instant by a script of the tests' own."""

from dataclasses import dataclass, field
from typing import Any, Final

from headgate.redis.keys import Address
from headgate.redis.replies import record
from headgate.redis.scripts import Script, parse
from headgate.redis.server import Server
from tests.model.credit import Amount

_OBSERVE: Final[Script] = parse(
    "observe",
    """--[[
  observe - everything.
  Codes    OK
]]
local held = {}
for _, name in ipairs(redis.call('HKEYS', KEYS[6])) do
  held[#held + 1] = name
  held[#held + 1] = redis.call('XPENDING', KEYS[5], name, '-', '+', 100000)
end
return { 'OK', redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), redis.call('ZRANGE', KEYS[4], 0, -1),
  redis.call('XRANGE', KEYS[5], '-', '+'), redis.call('HGETALL', KEYS[6]), redis.call('HGETALL', KEYS[7]),
  redis.call('ZRANGE', KEYS[8], 0, -1), redis.call('HGETALL', KEYS[9]), redis.call('HGETALL', KEYS[10]),
  redis.call('ZRANGE', KEYS[11], 0, -1), held,
  redis.call('ZRANGE', KEYS[18], 0, -1), redis.call('ZRANGE', KEYS[19], 0, -1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[20], 0, -1, 'WITHSCORES') }
""",
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What lies in Redis. ``holders``: by subscription, message number to consumer; ``fair``: what is in whose turn."""

    fields: dict[str, str]
    sessions: dict[str, dict[str, int]]
    leases: dict[str, int]
    line: list[str]
    messages: dict[int, bytes]
    subscriptions: dict[str, dict[str, str]]
    consumers: dict[str, dict[str, str]]
    hungry: list[str]
    failures: dict[str, int]
    references: dict[int, int]
    orphans: list[str]
    holders: dict[str, dict[int, str]] = field(default_factory=dict)
    fair: set[tuple[str, int]] = field(default_factory=set)
    rota: dict[str, int] = field(default_factory=dict)
    later: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return int(self.fields[name])

    @property
    def pending(self) -> Amount:
        return Amount(self.number("pending_bytes"), self.number("pending_messages"))

    @property
    def leased(self) -> Amount:
        return Amount(self.number("leased_bytes"), self.number("leased_messages"))

    def granted(self, sid: str) -> Amount:
        return Amount(self.sessions[sid]["granted"], self.sessions[sid]["granted_m"])

    def held(self, sid: str) -> Amount:
        s = self.sessions[sid]
        used = Amount(s["used"], s["used_m"])
        return self.granted(sid) - used - Amount(s["returned"], s["returned_m"])

    @property
    def returned(self) -> int:
        return sum(who == "~returned" for held in self.holders.values() for who in held.values())


def would_have_waited(seen: Observation) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return what shadow limits counted, in all and by limit, with how far above it the furthest was."""
    counts = [one.split(":") for one in seen.fields.get("shadowed", "").split(";") if one]
    return int(seen.fields.get("would_wait", 0)), {name: (int(times), int(most)) for name, _, times, most in counts}


async def observe(server: Server, address: Address) -> Observation | None:
    """Return what there is; None when there is no such destination."""
    reply = await server.call(_OBSERVE, address.keys("-"), ())
    if not reply[1]:
        return None
    fields, sessions, leases = _pairs(reply[1]), _pairs(reply[2]), _pairs(reply[3])
    return Observation(
        fields={name: value.decode() for name, value in fields.items()},
        sessions={sid: {k: int(v) for k, v in record(text).items()} for sid, text in sessions.items()},
        leases={sid: int(float(score)) for sid, score in leases.items()},
        line=[sid.decode() for sid in reply[4]],
        messages={seq_of(number): entry[1] for number, entry in reply[5]},
        subscriptions={name: record(text) for name, text in _pairs(reply[6]).items()},
        consumers={cid: record(text) for cid, text in _pairs(reply[7]).items()},
        hungry=[cid.decode() for cid in reply[8]],
        failures={name: int(count) for name, count in _pairs(reply[9]).items()},
        references={int(seq): int(count) for seq, count in _pairs(reply[10]).items() if seq.isdigit()},  # no segment
        orphans=[member.decode() for member in reply[11]],
        holders={name: {seq_of(e[0]): e[1].decode() for e in held} for name, held in _pairs(reply[12]).items()},
        fair={(key.decode(), seq_of(id_)) for key, *_, id_ in (member.split(b" ") for member in reply[13])},
        rota={key: int(float(score)) for key, score in _pairs(reply[14]).items()},
        later={key: int(float(score)) for key, score in _pairs(reply[15]).items()},
    )


def seq_of(identifier: bytes | str) -> int:
    """Return the number of a message from its id ``<seq>-<size>``."""
    text = identifier.decode() if isinstance(identifier, bytes) else identifier
    return int(text.partition("-")[0])


def _pairs(flat: list[Any]) -> dict[str, Any]:
    return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
