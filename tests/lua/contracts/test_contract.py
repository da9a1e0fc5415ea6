"""The scripts say what they do: each header against its body, the keys against Python's, and what no script may use."""

import re
from pathlib import Path
from typing import Final

import pytest
from redis import Redis

from headgate.redis.keys import (
    INDEX,
    LIMITER_PARTS,
    NODES,
    OWNED,
    PARTS,
    Address,
    PoolAddress,
    index_keys,
    node_keys,
    owned_keys,
)
from headgate.redis.scripts import ScriptError, expand, lua_root, parse, script, script_names
from headgate.redis.text.hastening import enclose, lessen
from tests.support.extent import each

LUA: Final = Path(__file__).resolve().parents[3] / "lua"
SCRIPTS: Final = sorted(path.stem for path in LUA.glob("*.lua"))
_POOL: Final = ("the pool's, as lib/pool_keys", "local K_POOL = KEYS[1]")
_LIMITER: Final = ("the destination's and a limiter's, as lib/limiter_keys", "local K_HOLDS = KEYS[23]")
_INDEX: Final = ("the namespace's, as lib/index", "local K_WILDCARDS = KEYS[1]")
KEYS: Final = {
    "*": ("the destination's, as lib/keys", "local K_DESTINATION = KEYS[1]"),
    "node": ("the namespace's registry of nodes, as lib/node_keys", "local K_NODES = KEYS[1]"),
    "policy": ("the namespace's policy", "local K_POLICY = KEYS[1]"),
    "users": ("the namespace's users", "local K_USERS = KEYS[1]"),
    "note": ("notes of the namespace, of one sort", "local K_NOTES = KEYS[1]"),
    "made": ("those of one user of the namespace", "local K_MADE = KEYS[1]"),
    "lease": ("the namespace's, as lib/owned", "local K_OWNED = KEYS[1]"),
    "topic": _INDEX,
    "wildcard": _INDEX,
    "admit": _LIMITER,
    "hold_off": _LIMITER,
    "levels": _LIMITER,
    "pin": _LIMITER,
    "parted": _LIMITER,
    "join": _LIMITER,
    "pool": _POOL,
    "pool_set": _POOL,
    "pool_forget": _POOL,
    "pool_share": _POOL,
    "pool_site": ("the pool's and a site's, as lib/site_key", "local K_SITE = KEYS[4]"),
}
"""What a script's header says of its keys, and where it has them from."""
COMPILED: Final = "local made, why = loadstring(ARGV[1]); return { made and 1 or 0, why or '' }"
"""Lua takes at most 200 local names, and 60 of outer functions, in one function."""
FILES: Final = sorted(path.relative_to(LUA).as_posix() for path in LUA.rglob("*.lua"))


def without_comments(text: str) -> str:
    text = re.sub(r"--\[\[.*?\]\]", "", text, flags=re.DOTALL)
    return re.sub(r"--[^\n]*", "", text)


def body(name: str) -> str:
    return without_comments((LUA / f"{name}.lua").read_text(encoding="utf-8"))


def without_calls(text: str) -> str:
    """Cut out every ``redis.call(...)``, whose upper-case words are Redis' own."""
    while (start := text.find("redis.call(")) >= 0:
        depth, end = 0, start
        for end in range(text.index("(", start), len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        text = text[:start] + text[end + 1 :]
    return text


def test_python_finds_the_scripts_that_are_there() -> None:
    assert list(script_names()) == SCRIPTS


@each("name", SCRIPTS)
def test_a_header_says_what_the_script_is(name: str) -> None:
    source = (LUA / f"{name}.lua").read_text(encoding="utf-8")
    assert re.match(rf"--\[\[\n  {name} - \S.*[.]\n", source)
    assert f"\n  KEYS  {KEYS.get(name, KEYS['*'])[0]}\n" in source
    assert re.search(r"^  Returns \{code", source, re.MULTILINE)
    assert script(name).codes


@each("name", SCRIPTS)
def test_a_header_declares_the_arguments_that_the_body_uses(name: str) -> None:
    declared, text = script(name), body(name)
    used = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", text)}
    count = len(declared.arguments)
    fixed = count - 1 if declared.variadic else count
    assert used == set(range(1, fixed + 1))
    computed = set(re.findall(r"ARGV\[([^\]\d][^\]]*)\]|(#)ARGV|ARGV\[(\d+ \+ \w+)\]", text))
    assert bool(computed) == declared.variadic
    if declared.variadic:
        assert re.search(rf"for \w+ = {count}, #ARGV|local at = {count - 1}\b", text), "it reads the rest from there on"


@each("name", SCRIPTS)
def test_a_header_declares_the_codes_that_the_body_returns(name: str) -> None:
    said = set(re.findall(r"'([A-Z][A-Z_]+)'", without_calls(body(name))))
    assert said == set(script(name).codes)


@each("name", SCRIPTS)
def test_every_script_names_its_keys_through_lib_keys(name: str) -> None:
    assert KEYS.get(name, KEYS["*"])[1] in expand(LUA, name)
    assert "KEYS[" not in body(name)


def test_lua_and_python_have_the_keys_in_the_same_order() -> None:
    declared = re.findall(r"^local K_([A-Z]+) = KEYS\[(\d+)\]$", (LUA / "lib/keys.lua").read_text(), re.MULTILINE)
    assert [int(number) for _, number in declared] == list(range(1, len(PARTS) + 3))
    assert [part.lower() for part, _ in declared] == ["destination", *PARTS, "receipt"]
    keys = Address.of("shop", "orders").keys("ann")
    assert keys[0] == b"hg:{shop/orders}"
    assert keys[1:] == (*(f"hg:{{shop/orders}}:{part}".encode() for part in PARTS), b"hg:{shop/orders}:receipt:ann")


def test_lua_and_python_have_the_keys_of_a_limiter_in_the_same_order() -> None:
    declared = re.findall(
        r"^local K_([A-Z]+) = KEYS\[(\d+)\]$", (LUA / "lib/limiter_keys.lua").read_text(), re.MULTILINE
    )
    first = len(PARTS) + 3
    assert [(part.lower(), int(number)) for part, number in declared] == list(
        zip(LIMITER_PARTS, range(first, first + len(LIMITER_PARTS)), strict=True)
    )
    address = Address.of("shop", "llm")
    more = tuple(f"hg:{{shop/llm}}:{part}".encode() for part in LIMITER_PARTS)
    assert address.limiter_keys("ann") == (*address.keys("ann"), *more)


def test_lua_and_python_have_the_keys_of_a_pool_in_the_same_order() -> None:
    declared = re.findall(r"^local K_([A-Z]+) = KEYS\[(\d+)\]$", (LUA / "lib/pool_keys.lua").read_text(), re.MULTILINE)
    assert declared == [(name, str(number + 1)) for number, name in enumerate(("POOL", "MEMBERS", "LINE"))]
    assert PoolAddress.of("shop", "disk 1").keys == (
        b"hg:{shop}:pool:disk%201",
        b"hg:{shop}:pool:disk%201:members",
        b"hg:{shop}:pool:disk%201:line",
    )


def test_lua_and_python_have_the_keys_of_the_index_in_the_same_order() -> None:
    declared = re.findall(r"^local K_([A-Z]+) = KEYS\[(\d+)\]$", (LUA / "lib/index.lua").read_text(), re.MULTILINE)
    assert [(part.lower(), int(number)) for part, number in declared] == [(p, n + 1) for n, p in enumerate(INDEX)]
    assert index_keys("shop") == tuple(f"hg:{{shop}}:{part}".encode() for part in INDEX)


def test_lua_and_python_have_the_keys_of_the_nodes_in_the_same_order() -> None:
    declared = re.findall(r"^local K_([A-Z]+) = KEYS\[(\d+)\]$", (LUA / "lib/node_keys.lua").read_text(), re.MULTILINE)
    assert [(part.lower(), int(number)) for part, number in declared] == [(p, n + 1) for n, p in enumerate(NODES)]
    assert node_keys("shop") == tuple(f"hg:{{shop}}:{part}".encode() for part in NODES)


def test_lua_and_python_have_the_keys_of_leases_in_the_same_order() -> None:
    declared = re.findall(r"^local K_([A-Z]+) = KEYS\[(\d+)\]$", (LUA / "lib/owned.lua").read_text(), re.MULTILINE)
    assert [(part.lower(), int(number)) for part, number in declared] == [(p, n + 1) for n, p in enumerate(OWNED)]
    assert owned_keys("shop") == tuple(f"hg:{{shop}}:{part}".encode() for part in OWNED)


@each("file", FILES)
def test_no_script_uses_what_is_forbidden(file: str) -> None:
    text = without_comments((LUA / file).read_text(encoding="utf-8"))
    assert ("'TIME'" in text) == (file == "lib/clock.lua")
    assert not re.findall(r"\b(?:cjson|cmsgpack|struct|bit|loadstring|dofile|math\.random|os|io)\b\s*[.(]", text)
    commands = set(re.findall(r"redis\.p?call\('(\w+)'", text))
    assert not commands & {
        "KEYS",
        "SCAN",
        "FLUSHALL",
        "FLUSHDB",
        "EVAL",
        "SORT",
        "RANDOMKEY",
        "WAIT",
        "SELECT",
        "SMEMBERS",
    }
    assert all(command.isupper() for command in commands)
    assert "pcall" not in text, "an error is an error"
    assert not re.findall(r"\b(?:while|repeat)\b", text), "every loop is bounded"
    assert "MAXLEN" not in text.replace("'XADD', key or K_LEDGER, 'MAXLEN'", ""), "no message is ever trimmed"


@each("file", FILES)
def test_no_script_assigns_a_global(file: str) -> None:
    text = without_comments((LUA / file).read_text(encoding="utf-8"))
    assert not re.findall(r"^function \w+", text, re.MULTILINE)
    known = set(re.findall(r"\b(?:local function|function) (\w+)", text))
    for names in re.findall(r"\blocal ((?:\w+\s*,\s*)*\w+)", text) + re.findall(r"\bfor ((?:\w+\s*,\s*)*\w+)", text):
        known.update(re.split(r"\s*,\s*", names))
    for names in re.findall(r"\bfunction\s*\w*\(([^)]*)\)", text):
        known.update(re.split(r"\s*,\s*", names))
    assigned = set()
    for names in re.findall(r"^[ \t]*((?:\w+,\s*)*\w+) = ", text, re.MULTILINE):
        assigned.update(re.split(r"\s*,\s*", names))
    inside_tables = set(re.findall(r"[{,]\s*(\w+) =", text))
    assert assigned - known - inside_tables <= {"d", "raw", "limiter", "now_us"}, "but for what a call reads once"


def test_every_library_is_included_somewhere() -> None:
    included = set(re.findall(r'@include "([\w/]+)"', "".join((LUA / file).read_text() for file in FILES)))
    assert included == {file.removesuffix(".lua") for file in FILES if file.startswith("lib/")}


@each("name", SCRIPTS)
def test_a_library_is_included_once_and_before_it_is_used(name: str) -> None:
    source = without_comments(script(name).source)
    functions = re.findall(r"^local function (\w+)", source, re.MULTILINE)
    assert len(functions) == len(set(functions))
    uses = {use[1]: use.start() for use in reversed([*re.finditer(r"\b(\w+)\(", source)])}  # each first one
    for function in functions:
        assert source.endswith("local function ", 0, uses[function]), f"{function} is used before it is there"


BOUNDED: Final = re.compile(
    r"#ARGV|\bMAX_[A-Z_]+|\bMOST_[A-Z_]+|\bCHUNK\b|\bPIECE\b|#FIELDS|unpack\((?:names|NUMBERS|RULES)\)|ipairs\(\{"
    r"|at_most_100"
)
"""What bounds a loop where it stands: arguments, whose number a header says, a constant, or a list in the script."""
LOOPS: Final[dict[str, dict[str, str]]] = {
    "at most the arguments": {
        "apply": "for field in pairs(settings) do",
        "pool_set": "for field, value in pairs(settings) do",
        "lib/append": "for i = 1, count do|for n, i in ipairs(puts) do"
        "|for key in string.gmatch(text, '%S+') do"
        "|for i = #keys + 1, count do",
        "lib/hot": "for i = 1, count do",
        "lib/plain": "for i = 1, count do",
        "admit": "for _ = 1, math.max(count, 1) do",
        "lib/alike": "for _, group in pairs(alike) do",
        "lib/together": "for each = at, at + 6 * count - 1, 6 do|for key, of_key in pairs(groups) do"
        "|for text, group in pairs(of_key) do|for _ = 1, count do",
        "lib/sendrate": "for i = 1, #sizes do|for i = sent + 2, #send_line > 0 and #sizes or 0 do",
        "lib/later": "for at, ms in string.gmatch(text, '(@?)([%d-]+)') do|for i = #dues + 1, count do",
        "lib/aside": "for i = dues and #ids or 0, 1, -1 do",
        "lib/spooled": "for i = 1, count do|for i = 1, fits do",
        "lib/tried": "for _, amount in ipairs(amounts) do|for i = 1, count do",
        "lib/brought": "for i = 1, #puts do",
        "lib/beyond": "for _, i in ipairs(puts) do",
        "settle": "for i = at + 1, at + tonumber(n) do|for _, id in ipairs(back) do",
        "lib/mine": "for _, id in ipairs(ids) do|for _, entry in ipairs(look) do",
    },
    "at most 256 ids or entries, as their callers count them": {
        "lib/consumer": "for i, entry in ipairs(redis.call("
        "'XPENDING', K_MESSAGES, sub, '-', '+', int(count), consumer)) do|for _, id in ipairs(ids) do",
        "lib/expiry": "for _, id in ipairs(ids) do|for _, entry in ipairs(entries) do",
        "lib/orphans": "for _, entry in ipairs(entries) do"
        "|for _, entry in ipairs(unexpired_entries(name, wanted(name, counting))) do",
        "lib/selecting": "for _, entry in ipairs(entries) do",
        "lib/putback": "for i, id in ipairs(ids) do|for _, id in ipairs(ids) do",
        "lib/redeliver": "for i, id in ipairs(ids) do|for _, entry in ipairs(entries) do"
        "|for i, entry in ipairs(entries) do"
        "|for i = 1, math.min(#ids, max_messages) do"
        "|for _, entry in ipairs("
        "#living > 0 and redis.call('XCLAIM', K_MESSAGES, c.sub, cid, 0, unpack(living)) or {}) do"
        "|for i, n in ipairs(had and #claimed > 0 and delivery_counts(c.sub, claimed) or {}) do"
        "|for i, n in ipairs(delivery_counts(sub, ids)) do",
        "lib/in_turn": "for _, id in ipairs(ids) do",
        "lib/filing": "for i, id in ipairs(ids) do|for i, entry in ipairs(entries) do"
        "|for _, entry in ipairs(entries) do|for i, member in ipairs(its) do",
        "lib/queue_bands": "for _, key in ipairs(keys) do",
        "lib/next_in_turn": "for _, member in ipairs(its) do|for i, id in ipairs(ids) do"
        "|for _, entry in ipairs(redis.call(unpack(claim))) do|for _, id in ipairs(#entries < #ids and ids or {}) do",
        "lib/band_plan": "for _ = 1, left do",
        "lib/next_by_band": "for _ = 1, run.some do|for i, run in ipairs(runs) do|for _, run in ipairs(runs) do",
        "lib/next_in_order": "for _, entry in ipairs(entries) do|for _, held in ipairs(redis.call("
        "'XPENDING', K_MESSAGES, c.sub, entries[1][1], entries[#entries][1], #entries)) do",
        "lib/renumber": "for _, id in ipairs(unexpired(sub, ids)) do",
        "lib/settle": "for _, id in ipairs(ids) do",
        "lib/retry": "for _, id in ipairs(ids) do",
        "lib/later": "for i, due in ipairs(dues) do"
        "|for i, member in ipairs(members) do|for _, member in ipairs(d.next_due and members or {}) do"
        "|for i, id in ipairs(ids) do"
        "|for i, id in ipairs(pending_ids(sub, LATER, most - #ids)) do",
        "lib/aside": "for i, id in ipairs(ids) do|for _, id in ipairs(ids) do|for _, entry in ipairs(entries) do"
        "|for i, score in ipairs(#ids > 0 and redis.call('ZMSCORE', K_LATER, unpack(ids)) or {}) do",
        "lib/promote": "for i = 1, #due, 2 do",
        "lib/in_hand": "for i, entry in ipairs(entries) do",
        "link_read": "for _, entry in ipairs(entries) do",
        "lib/wake": "for i, record in ipairs(hungry[1] and redis.call('HMGET', K_CONSUMERS, unpack(hungry)) or {}) do"
        "|for i = 1, #popped, 2 do",
        "node": "for i = 1, #there, 2 do|for i = 1, #gone do",
        "note": "for i = 1, #found, 2 do",
        "spent": "for i = 1, #rows, 2 do",
        "admit": "for answer in string.gmatch(seq == last and stored or '', '\\n([^\\n]*)') do"
        "|for i, id in pairs(waiting) do",
        "take": "for slot in string.gmatch(string.sub(stored, #seq + 2), '%S+') do",
        "remove": "for i, entry in ipairs(entries) do"
        "|for _, entry in ipairs(redis.call('XPENDING', K_MESSAGES, sub, ids[1], ids[#ids], int(#ids))) do",
    },
    "the entries of a text that a header bounds": {
        "lib/held_beyond": "for number in string.gmatch(numbers, '%d+') do",
        "lib/sites": "for site, most, weight in string.gmatch(text or '', '([a-z0-9-]+)=(%d+)%*?(%d*)') do"
        "|for site, least in string.gmatch(leasts or '', '([a-z0-9-]+)=(%d+)') do",
        "lib/pool_room": "for _, site in pairs(p.sites) do",
        "pool_set": "for member, m in pairs(p.sites) do",
        "lib/letters": "for i, word in ipairs(numbers) do",
        "lib/selecting": "for sub, id in string.gmatch(string.match(text, '^%S*'), '([^,=]+)=(%d+)') do"
        "|for mask in string.gmatch(text, ' (%d+)') do|for i, sub in ipairs(subs) do"
        "|for name, wants in string.gmatch(before, '([^= ]+)(=%S+)') do",
        "lib/limiter_settings": "for entry in string.gmatch(text == '' and '' or text .. ';', '([^;]*);') do"
        "|for from, offset in string.gmatch(text, '(%d+) %-?(%d+)') do"
        "|for name, limit in pairs(others or {}) do",
        "lib/carry_over": "for entry in string.gmatch(levels, '[^;]+') do",
        "lib/sides": "for name, limit in string.gmatch(text .. ';', '([%w_]+) ([^;]*);') do",
        "lib/would_wait": "for name, times, most in string.gmatch(kept[2] or '', '([%w_]+:%a+):(%d+):(%d+)') do",
        "lib/tried": "for name, us in string.gmatch(redis.call('HGET', K_DESTINATION, 'levels') or '', "
        "'S_([%w_]+)=(%d+)') do|for name, us in pairs(levels) do"
        "|for name, form, number, burst in string.gmatch(d.shadow .. ';', '([%w_]+) (%S+) ([^ ;]+) ?(%d*);') do",
    },
    "the fields of one record or entry": {
        "lib/account": "for name, value in pairs(claim) do|for name, value in pairs(with_claim(s, s.inc, claim)) do",
        "lib/backlog": "for i = 1, #group, 2 do",
        "lib/renumber": "for i = 1, #entry[2], 2 do",
        "lib/aside": "for i = 3, #fields, 2 do",
        "lib/index": "for word in string.gmatch(words, '([^.]*)%.') do",
        "lib/link": "for i = 3, #fields, 2 do",
        "snapshot": "for j = 1, #info, 2 do|for i = 1, rules[1] and (rules[2] or rules[3]) and #consumers or 0, 2 do",
    },
    "the letters of a key, 800 at the most": {
        "lib/pinned": "for i = 1, (key == '*' or pinned.is_part(key)) and 0 or #key do",
    },
    "the eight bands of a queue": {
        "lib/queue_bands": "for i, key in ipairs(bands()) do|for i, key in ipairs(known_bands) do",
        "lib/next_by_band": "for i, key in ipairs(bands()) do|for _, band in ipairs(waiting) do",
        "lib/band_plan": "for _, band in ipairs(waiting) do|for _, other in ipairs(waiting) do",
    },
    "the limits of a limiter, 16 at the most, and what one of its records has; amounts have 800 bytes": {
        "levels": "for i, limit in ipairs(limits) do",
        "hold_off": "for _, limit in ipairs(key == NO_KEY and limiter.limits or limiter.key_limits) do"
        "|for _, limit in ipairs(limiter.shadows and limiter.shadows[key == NO_KEY and 1 or 2] or {}) do",
        "lib/shadow": "for _, amount in ipairs(amounts_of(amounts)) do|for i = 1, (key == NO_KEY or "
        "pinned.is_part(key)) and 1 or 2 do|for i = 1, limiter.shadows and "
        "((h.key == NO_KEY or pinned.is_part(h.key)) and 1 or 2) or 0 do",
        "lib/pinned": "for _, limit in ipairs(limiter.limits) do"
        "|for _, limit in ipairs(limiter.shadows and limiter.shadows[1] or {}) do"
        "|for name in string.gmatch(limiter.of_all and amounts or '', '([%w_]+)[=:]') do",
        "lib/would_wait": "for of, count in pairs(would_wait[2]) do",
        "lib/shadow_limits": "for i = 1, 2 do|for _, limit in ipairs((parse_limits(texts[i]))) do",
        "lib/limits": "for name, form, most, second, third in string.gmatch(text or '', LIMIT) do"
        "|for name, sign, value, from in string.gmatch(text or '', LEVEL) do|for name, tat in pairs(levels.tat) do"
        "|for name, held in pairs(levels.held) do|for name, used in pairs(levels.used) do"
        "|for name, held in pairs(pinned.held_apart(levels)) do|for name, away in pairs(levels.away) do"
        "|for name, number, from in string.gmatch(text, '([%w_]+)=(%d+)@?(%d*)') do",
        "lib/parting": "for name, sign, value, from in string.gmatch(levels_text(keyed[key].levels), LEVEL) do"
        "|for name, number in pairs(levels.away or {}) do"
        "|for name, sign, value, from in string.gmatch(record, LEVEL) do",
        "lib/calendar": "for from, value in string.gmatch(windows.zone or '', '(%d+) (%-?%d+)') do",
        "lib/keyed": "for name, tat in pairs(levels.tat) do|for name, number in pairs(levels.used) do",
        "lib/known": "for name in string.gmatch(text, '([%w_]+)[=:]') do",
        "lib/sampling": "for _, amount in ipairs(amounts_of(text)) do",
        "lib/hold": "for name, sign, number in string.gmatch(text, AMOUNT) do"
        "|for _, amount in ipairs(amounts_of(text)) do"
        "|for _, limit in ipairs(limiter.limits) do",
        "lib/holding": "for i = 1, 2 do|for _, amount in ipairs(amounts_of(amounts)) do"
        "|for _, amount in ipairs(amounts_of(h.amounts)) do|for _, amount in ipairs(amounts_of(text)) do",
        "lib/shedding": "for i = 1, 2 do|for _, amount in ipairs(above and amounts_of(amounts) or {}) do",
        "lib/together": "for i = 1, 2 do|for _, amount in ipairs(amounts_of(amounts)) do",
        "lib/comes_back": "for _, limit in ipairs(limiter.limits) do",
        "lib/estimate": "for i = 1, 2 do|for _, amount in ipairs(amounts_of(amounts)) do",
        "lib/aging": "for _, amount in ipairs(limiter.banded and amounts_of(amounts) or {}) do",
        "lib/passing": "for i = 1, 2 do|for _, amount in ipairs(amounts_of(amounts)) do"
        "|for _, turn in ipairs(first.turns) do",
        "lib/turns": "for _, amount in ipairs(amounts_of(amounts)) do|for _, limit in ipairs(limiter.limits) do",
    },
    "the 8 bands of a line": {
        "lib/ahead": "for each = 0, band do",
        "lib/reserve": "for upto, share in string.gmatch(d.reserve, '([0-7])=(%d+)') do",
        "lib/shedding": "for from, share in string.gmatch(d.shed, '([0-7])=(%d+)') do",
        "lib/aging": "for _ = 1, BANDS do|for _, band in ipairs(bands) do|for band, place in pairs(clock.places) do"
        "|for band, place in string.gmatch(places, '(%d)@([%d.]+)') do",
        "lib/by_band": "for limit in string.gmatch(limiter.text or '', '[^;]+') do"
        "|for _, event in ipairs(all) do|for band, counts in pairs(changes) do|for band, waiting, admitted, shed in "
        "string.gmatch(redis.call('HGET', K_DESTINATION, 'by_band') or '', '(%d) (%d+) (%d+) (%d+)') do",
    },
    "the 17 lines of a limiter": {
        "lib/aging": "for line, clock in pairs(read_clocks()) do"
        "|for line, work, places in string.gmatch(limiter.banded or '', '(%d+) ([%d.]+) ([^;]*)') do",
        "lib/passing": "for _ = 1, NEW do|for at, first in pairs(kept) do|for at = line, NEW do",
        "lib/listing": "for _ = 0, NEW do",
    },
    "at most the operations of a call, MAX_LAPSED and those served of the line": {
        "lib/hold_records": "for i, text in ipairs(#ids > 0 and redis.call('HMGET', K_HOLDS, unpack(ids)) or {}) do"
        "|for id in pairs(changed) do|for id, ms in pairs(leases) do",
    },
    "at most MAX_COUNTED units of each band, and MAX_WEIGHED waiters of each": {
        "lib/ahead": "for _, member in ipairs(some) do|for _, unit in ipairs(units) do"
        "|for _, other in ipairs(before.others) do",
        "lib/estimate": "for _, other in ipairs(others) do",
    },
    "at most MAX_UNITS": {
        "lib/waiters": "for _, unit in ipairs(d.blocked > 0 and units_of(key) or {}) do",
        "lib/in_turn_of_key": "for _, other in ipairs(next(k.forms) and units_of(key) or {}) do|"
        "for _, amount in ipairs(amounts_of(h.amounts)) do",
        "lib/firsts": "for _, other in ipairs(#units > 1 and units or {}) do",
        "lib/listing": "for _, unit in ipairs(units_of(of)) do",
        "lib/estimate": "for _, unit in ipairs(units_of(key)) do",
    },
    "at most `most`, up to 1000, of each sort, and MAX_LISTED": {
        "lib/listing": "for _, member in ipairs(redis.call('ZRANDMEMBER', K_WAITERS, int(most))) do"
        "|for i, text in ipairs(#ids > 0 and redis.call('HMGET', K_HOLDS, unpack(ids)) or {}) do"
        "|for i = 1, #found, 2 do|for of in pairs(wanted) do",
    },
    "by the limits of a limiter, at most 16 of all keys and of each, and two words more": {
        "lib/refused": "for count in string.gmatch(counts, '[^;]+') do",
    },
    "at most the keys of one call, and MAX_SWEPT": {
        "parted": "for i = 1, #found[2], 2 do",
        "lib/sweeping": "for i = 1, #found[2], 2 do",
        "lib/keyed": "for key, k in pairs(keyed) do",
    },
    "the 25 numbers of a limit that adapts": {
        "lib/adapting": "for i, name in ipairs(names) do|for _, name in ipairs(names) do",
        "lib/sampling": "for _, name in ipairs(adapting.of_sample) do",
    },
    "at most twice MAX_TOLD, for all others are taken out before": {
        "snapshot": "for i, key in ipairs(names) do",
    },
    "at most CHUNK": {
        "recount": "for _, entry in ipairs(entries) do",
        "lib/turns_anew": "for _, entry in ipairs(taken and entries or {}) do|for _, entry in ipairs(entries) do",
    },
    "at most 256 weights": {
        "lib/weights": "for pattern, weight in string.gmatch(weights, '([^=;]+)=(%d+)') do",
    },
    "at most 5 pools, at most 20 rules": {
        "lib/slice": "for _, pool in ipairs(now.wanted) do",
        "lib/rules": "for _, name in ipairs(read.pools) do|for word in string.gmatch(text, '%S+') do",
        "lib/lent": "for _, name in ipairs(d.pools or {}) do",
        "resolve": "for _, name in ipairs(d.pools or {}) do",
    },
    "at most MAX_BEYOND, which is asked before": {
        "lib/beyond": "for number in string.gmatch(tonumber(from) == born and numbers or '', '%d+') do",
    },
    "at most MAX_LEASES, which is asked before": {
        "lib/destination": "for _, record in ipairs(records) do",
        "lib/learning": "for _, record in ipairs(redis.call('HVALS', K_HOLDS)) do",
    },
    "the slices of one destination, 48 at the most": {
        "lib/full": "for i = 1, #members, 2 do|for _, one in ipairs(waiting) do"
        "|for _, member in ipairs(redis.call('ZRANGE', K_LINE, 0, -1)) do",
    },
    "at most MAX_COMPARED members, which is asked before": {
        "lib/fair": "for i = 1, #members, 2 do",
    },
    "at most MOST_IN_SEND_LINE": {
        "lib/sendline": "for id, turn, need, due in string.gmatch(send_line.text, SENDER_PATTERN) do"
        "|for i, one in ipairs(send_line) do|for _, one in ipairs(send_line) do"
        "|for _, id in ipairs(send_line.gone) do|for id in pairs(d.left_send_line or {}) do",
    },
    "at most MOST_KEPT": {
        "lib/lent_rate": "for id, amount, at in string.gmatch("
        "redis.call('HGET', K_DESTINATION, kind .. '_kept') or '', KEPT_PATTERN) do",
    },
    "at most 48 slices": {
        "lib/lender": "for k, e, granted, spent, back in string.gmatch(text, BORROWER_PATTERN) do"
        "|for k, m in pairs(l.members) do",
        "rate_lend": "for k, one in pairs(lender.members) do|for k = 0, d.of_slices - 1 do",
    },
    "at most 100, which is asked before": {
        "snapshot": "for i, info in ipairs(redis.call('XINFO', 'GROUPS', K_MESSAGES)) do"
    },
    "at most `most`, which is asked before, and at most a million": {
        "lib/later_anew": "for _, member in ipairs(redis.call('ZRANGE', K_LATER, 0, int(most))) do"
        "|for _, sub in ipairs(redis.call('HKEYS', K_SUBSCRIPTIONS)) do"
        "|for _, id in ipairs(pending_ids(sub, LATER, most)) do",
        "recount": "for _, record in ipairs(redis.call('HVALS', K_REFS)) do"
        "|for i, sid in ipairs(redis.call('HKEYS', K_SESSIONS)) do"
        "|for _, cid in ipairs(redis.call('HKEYS', K_CONSUMERS)) do",
    },
    "by the subscriptions of one topic, which no constant bounds": {
        "lib/alone": "for _, sub in ipairs(redis.call('HKEYS', K_SUBSCRIPTIONS)) do",
        "lib/expiry": "for _, sub in ipairs(subs) do",
        "lib/promote": "for _, sub in ipairs(subs) do",
        "lib/backlog": "for _, group in ipairs(redis.call('XINFO', 'GROUPS', K_MESSAGES)) do",
        "remove": "for _, sub in ipairs(redis.call('HKEYS', K_SUBSCRIPTIONS)) do",
    },
    "by the links that are or were here, which no constant bounds; and the fields of one message": {
        "lib/moved": "for _, name in ipairs(names) do|for i = 1, #entry[2], 2 do",
    },
    "by the consumers of one subscription, which no constant bounds": {
        "lib/backlog": "for _, holder in ipairs(summary[4] or {}) do",
    },
}
"""Why each other loop is bounded, as it was reviewed: file -> loops."""


def test_every_loop_is_bounded_or_was_reviewed() -> None:
    found = {
        (file.removesuffix(".lua"), loop)
        for file in FILES
        for loop in re.findall(r"\bfor [^\n]*? do\b", without_comments((LUA / file).read_text(encoding="utf-8")))
        if not BOUNDED.search(loop)
    }
    reviewed = {(file, loop) for files in LOOPS.values() for file, all_ in files.items() for loop in all_.split("|")}
    assert found == reviewed


class TestLoader:
    def test_a_circle_is_named_with_its_chain(self, tmp_path: Path) -> None:
        for name, other in (("a", "b"), ("b", "c"), ("c", "b")):
            (tmp_path / f"{name}.lua").write_text(f'--- @include "{other}"\n')
        with pytest.raises(ScriptError, match="circular include: a -> b -> c -> b"):
            expand(tmp_path, "a")

    def test_a_missing_include_is_named_with_its_chain(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "a.lua").write_text('--- @include "lib/b"\n')
        (tmp_path / "lib/b.lua").write_text('--- @include "lib/none"\n')
        with pytest.raises(ScriptError, match="missing include: a -> lib/b -> lib/none"):
            expand(tmp_path, "a")

    def test_what_two_files_include_comes_once(self, tmp_path: Path) -> None:
        for name, text in (("a", ("b", "c")), ("b", ("d",)), ("c", ("d", "b"))):
            (tmp_path / f"{name}.lua").write_text("".join(f'--- @include "{i}"\n' for i in text) + f"{name}\n")
        (tmp_path / "d.lua").write_text("d\n")
        assert expand(tmp_path, "a").split() == ["d", "b", "c", "a"]

    def test_a_constant_is_put_where_it_is_used_and_nowhere_else(self) -> None:
        source = """--[[ MOST of all, 'EMPTY ]]
local K_LINE = KEYS[3]
local MOST = 16 -- a MOST of something
local EMPTY = 'MOST'
local LONG = 'a'
  .. 'b'
return { 'EMPTY', EMPTY, MOST, K_LINE, LONG, MOST_OF_ALL } -- EMPTY
"""
        lessened = lessen(source).splitlines()
        assert lessened[6] == "return { 'EMPTY', 'MOST', 16, KEYS[3], LONG, MOST_OF_ALL } -- EMPTY"
        assert lessened[4:6] == ["local LONG = 'a'", "  .. 'b'"]
        assert lessened[0] == source.splitlines()[0]
        assert len(lessened) == len(source.splitlines()), "an error names the line as it is in the files together"

    def test_functions_that_no_statement_leads_to_are_left_out(self) -> None:
        source = """local function lone(n)
  return lone(n - 1) + used() -- both() is for others
end
local function used()

  return 'lone()'
end
local function short() return used() end
local function both()
-- used by nobody
  return lone(1)
end
return short()
"""
        lines = lessen(source).splitlines()
        assert lines == ["", "", "", *source.splitlines()[3:8], "", "", "", "", "return short()"]

    def test_what_follows_a_mark_is_a_function_of_its_own(self) -> None:
        assert enclose("local d\n--- @enclose\nreturn d\n") == "local d\nreturn (function()\nreturn d\nend)()\n"

    @pytest.mark.one_server
    def test_every_script_has_room_for_more_names(self, redis_url: str) -> None:
        more = f"local {', '.join(f'more_{number}' for number in range(20))}\n"
        for name in script_names():
            source = script(name).source.replace("return (function()", f"return (function() {more}")
            compiled, why = Redis.from_url(redis_url).eval(COMPILED, 0, more + source)
            assert compiled, f"{name}: {why}; a part that goes before, such as lib/hold_records, may be enclosed"

    def test_arguments_are_numbered_without_a_gap(self) -> None:
        with pytest.raises(ScriptError, match=r"x\.lua.*ARGV\[3\]"):
            parse("x", "--[[\n  ARGV[1] one\n  ARGV[3] three\n]]\n")
        with pytest.raises(ScriptError, match=r"ARGV\[2\]"):
            parse("x", "--[[\n  ARGV[1..] rest\n  ARGV[2] two\n]]\n")

    def test_arguments_are_given_by_name(self) -> None:
        found = parse("x", "--[[\n  ARGV[1] one  first\n  ARGV[2] two\n  ARGV[3..] rest\n  Codes    OK, NO (why)\n]]\n")
        assert (found.arguments, found.variadic, found.codes) == (("one", "two", "rest"), True, ("OK", "NO"))
        assert found.argv({"two": 2, "one": 1}, (3, 4)) == [1, 2, 3, 4]
        with pytest.raises(TypeError, match="x takes one, two; got one"):
            found.argv({"one": 1})
        with pytest.raises(TypeError, match="two"):
            found.argv({"one": 1, "three": 3})


def test_each_field_of_a_destination_is_taken_from_its_place() -> None:
    text = (lua_root() / "lib" / "destination.lua").read_text(encoding="utf-8")
    fields = re.findall(r"'(\w+)'", text.partition("local FIELDS = {")[2].partition("}")[0])
    taken = re.findall(r"(\w+) = (?:limit_of\()?r\[(\d+)\]", text)
    assert [name for name, _ in taken] == fields
    assert [int(place) for _, place in taken] == list(range(1, len(fields) + 1))
