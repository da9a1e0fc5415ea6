"""Limiters over HTTP: for programs of any language, with users' rights, at any node."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest

import headgate
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate_coordinator import holds
from headgate_coordinator.admin import AdminServer, create_app
from headgate_coordinator.admin.limits import MOST_IN_LINE, MOST_OF_ONE
from headgate_coordinator.security import Action, Users
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.tokens import TokenOptions, TokenVerifier
from tests.remote.grants import users
from tests.security.certificates import AUDIENCE, ISSUER, make_key, token_of, write_keys
from tests.support.waiting import wait_until

LLM = "/v1/limits/llm"
LIMITS: dict[str, Any] = {"slots": {"at_once": 2}, "tokens": {"rate": "100/s", "burst": 1000}}
Http = httpx.AsyncClient


@asynccontextmanager
async def served(client: headgate.Client, users: Users | None = None, token: str | None = None) -> AsyncIterator[Http]:
    """A real server; two of them are two nodes."""
    server = AdminServer(create_app(client, None, token=token, users=users), token=token)
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False, timeout=60) as http:
        yield http
    await server.close()


@pytest.fixture
async def llm(client: headgate.Client) -> headgate.Client:
    await client.apply("llm", kind="limiter", limits=LIMITS, key_limits={"slots": {"at_once": 1}})
    return client


@pytest.fixture
async def two(llm: headgate.Client, url: str, namespace: str) -> AsyncIterator[tuple[Http, Http]]:
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(headgate.connect(url, namespace=namespace))
        yield await stack.enter_async_context(served(llm)), await stack.enter_async_context(served(other))


async def post(http: Http, what: str, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> Any:
    answer = await http.post(f"{LLM}/{what}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer


async def taken(http: Http, limit: str = "slots") -> int:
    return int((await http.get(LLM)).json()["limits"][limit]["taken"])


async def test_a_hold_of_one_node_is_renewed_settled_and_released_at_another(
    two: tuple[Http, Http],
) -> None:
    one, other = two
    admitted = await post(one, "admit", amounts={"slots": 1, "tokens": 400}, key="acme", ttl=20)
    hold = admitted.json()["hold"]
    assert admitted.headers["RateLimit-Policy"] == '"slots";q=2;qu="concurrent-requests", "tokens";q=1000;w=10'
    assert await taken(other) == 1
    assert (await post(other, "renew", hold=hold, ttl=60)).json()["ttl"] == 60
    assert (await post(other, "settle", hold=hold, used={"tokens": 100})).json()["counted"]
    assert not (await post(one, "settle", hold=hold, used={"tokens": 0})).json()["counted"], "the first one counts"
    assert (await post(other, "release", hold=hold)).json() == {"limiter": "llm", "hold": hold, "held": True}
    assert not (await post(one, "release", hold=hold)).json()["held"]
    assert await taken(one) == 0
    gone = await post(one, "renew", 410, hold=hold)
    assert (gone.json()["type"], gone.json()["hold"]) == ("urn:headgate:problem:hold-over", hold)


async def test_what_is_refused_says_which_limit_binds_and_when_to_come_again(two: tuple[Http, Http]) -> None:
    http = two[0]
    await post(http, "admit", amounts={"tokens": 1000})
    refused = await post(http, "admit", 429, amounts={"slots": 1, "tokens": 500})
    facts = refused.json()
    assert (facts["type"], facts["limit"], facts["rule"]) == ("urn:headgate:problem:quota-exceeded", "tokens", "all")
    assert 1 <= int(refused.headers["Retry-After"]) <= 5
    assert facts["violated-policies"] == ["tokens"]
    said = re.fullmatch(r'"slots";r=2, "tokens";r=\d+;t=(\d+)', refused.headers["RateLimit"])
    assert said, refused.headers["RateLimit"]
    assert said[1] == refused.headers["Retry-After"], "the whole burst is there later, and is not what it is about"
    never = await post(http, "admit", 422, amounts={"tokens": 1001})
    assert never.json()["type"] == "urn:headgate:problem:message-too-large"
    assert (await taken(http)) == 0, "what was refused took nothing"


async def test_a_request_that_waits_is_admitted_when_another_node_releases(two: tuple[Http, Http]) -> None:
    one, other = two
    first = (await post(one, "admit", amounts={"slots": 2})).json()["hold"]
    waits = asyncio.create_task(post(other, "admit", amounts={"slots": 1}, wait=60))
    await wait_until(lambda: waiting(one, 1), description="it stands in line")
    await post(one, "release", hold=first)
    assert (await waits).json()["amounts"] == {"slots": 1}


async def waiting(http: Http, count: int) -> bool:
    return int((await http.get(LLM)).json()["waiting"]) == count


async def test_who_goes_first_is_said_in_the_body_or_as_its_priority(llm: headgate.Client) -> None:
    """Mutants: neither is heeded; the header counts for more than the body."""
    await llm.apply("llm", aging=1, shed={"7": 0.5}, fail_if_late="no", ledger="all")
    async with served(llm) as http:
        first = await post(http, "admit", amounts={"slots": 2}, ttl=60)
        for band, headers in ((7, None), (None, {"Priority": "i, u=7"})):
            refused = await post(http, "admit", 429, headers, amounts={"slots": 1}, band=band)
            assert refused.json()["type"].endswith(":shed")
            assert [refused.json()[fact] for fact in ("band", "limit", "fill")] == [7, "slots", 1.0]
        order: list[str] = []

        async def call(name: str, headers: dict[str, str], **body: Any) -> None:
            answer = await post(http, "admit", 200, {"Prefer": "wait=60"} | headers, amounts={"slots": 2}, **body)
            order.append(name)
            await post(http, "release", hold=answer.json()["hold"])

        async with asyncio.TaskGroup() as group:
            calls: tuple[tuple[str, dict[str, str], dict[str, Any]], ...] = (
                ("late", {"Priority": "u=0"}, {"band": 6}), ("usual", {}, {}), ("first", {"Priority": "u=0"}, {}),
            )  # fmt: skip
            for count, (name, headers, body) in enumerate(calls, 1):
                group.create_task(call(name, headers, **body))

                async def waits(count: int = count) -> bool:
                    return bool((await http.get(LLM)).json()["waiting"] == count)

                await wait_until(waits, timeout=60)
            await post(http, "release", hold=first.json()["hold"])
        assert order == ["first", "usual", "late"]
        for wrong in (8, -1, "3", 1.5):
            await post(http, "admit", 400, amounts={"slots": 1}, band=wrong)


async def test_the_caller_with_the_earliest_deadline_goes_first_whatever_node_it_asks(llm: headgate.Client) -> None:
    """Mutant: a node waits on for itself and names no deadline to the line."""
    await llm.apply("llm", order="deadline", ledger="all")
    async with served(llm) as one, served(llm) as other:
        first = await post(one, "admit", amounts={"slots": 2}, ttl=60)
        order: list[str] = []

        async def call(http: Http, name: str, headers: dict[str, str] | None, **body: Any) -> None:
            answer = await post(http, "admit", 200, headers, amounts={"slots": 2}, **body)
            order.append(name)
            await post(http, "release", hold=answer.json()["hold"])

        async with asyncio.TaskGroup() as group:
            calls: tuple[tuple[Http, str, dict[str, str] | None, dict[str, Any]], ...] = (
                (one, "last", None, {"wait": 250}), (other, "second", {"Prefer": "wait=200"}, {}),
                (one, "first", None, {"wait": 150}),
            )  # fmt: skip
            for count, (http, name, headers, body) in enumerate(calls, 1):
                group.create_task(call(http, name, headers, **body))
                await wait_until(lambda count=count: waiting(one, count), timeout=60)  # type: ignore[misc]
            await post(one, "release", hold=first.json()["hold"])
        assert order == ["first", "second", "last"]


async def test_what_would_not_be_admitted_in_time_is_refused_at_once(llm: headgate.Client) -> None:
    async with served(llm) as http:
        await post(http, "admit", amounts={"tokens": 1000})
        refused = await post(http, "admit", 429, amounts={"tokens": 1000}, wait=2, fail_if_late=True)
        assert refused.json()["limit"] == "tokens"
        assert refused.json()["retry_after"] > 5
        assert refused.json()["waited"] < 2


async def test_who_hangs_up_leaves_the_line(two: tuple[Http, Http]) -> None:
    """A mutant that answers on although nobody listens holds a slot for its whole lease."""
    one, other = two
    first = (await post(one, "admit", amounts={"slots": 2})).json()["hold"]
    waits = asyncio.create_task(post(other, "admit", amounts={"slots": 1}, wait=60))
    await wait_until(lambda: waiting(one, 1), description="it stands in line")
    waits.cancel()
    await wait_until(lambda: waiting(one, 0), timeout=60, description="it has left the line")
    await post(one, "release", hold=first)
    assert await taken(one) == 0


async def test_whoever_stands_in_line_leaves_places_for_probes_and_for_other_users(llm: headgate.Client) -> None:
    """Breaks where all connections of a node may wait: then no probe is answered, and who asks it kills the node."""
    names = ("ann", "bob", "cyd")
    people = users(**{name: {"llm": {Action.PRODUCE}} for name in names})
    secret = {name: httpx.BasicAuth(name, "secret") for name in names}
    async with AsyncExitStack() as stack, served(llm, people, token="t0ken") as http:
        await post(http, "admit", amounts={"slots": 2}, headers={"Authorization": "Bearer t0ken"}, ttl=3600)

        async def wait(name: str) -> int:
            own = await stack.enter_async_context(httpx.AsyncClient(base_url=http.base_url, verify=False, timeout=90))
            body = {"amounts": {"slots": 1}, "wait": 60}
            answer = await own.post(f"{LLM}/admit", json=body, auth=secret[name])
            assert answer.headers["Retry-After"] == "1"
            return answer.status_code

        def in_line() -> int:
            return sum(not task.done() for task in tasks)

        tasks: list[asyncio.Task[int]] = []
        for name, most in (("ann", MOST_OF_ONE), ("bob", MOST_IN_LINE), ("cyd", MOST_IN_LINE)):
            tasks += [asyncio.create_task(wait(name)) for _ in range(MOST_OF_ONE + 5 if name != "cyd" else 2)]
            await wait_until(lambda most=most: in_line() == most)  # type: ignore[misc]
        assert (await http.get("/live")).status_code == 200
        assert [await task for task in tasks if task.done()] == [503] * 12
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_request_repeated_under_its_key_is_taken_once_also_by_another_node(
    two: tuple[Http, Http],
) -> None:
    one, other = two
    again = {"Idempotency-Key": "order 4711"}
    holds = [
        (await post(http, "admit", headers=again, amounts={"slots": 1, "tokens": 300})).json()["hold"]
        for http in (one, other, one)
    ]
    assert (len(set(holds)), await taken(one)) == (1, 1)
    assert 0 < await taken(one, "tokens") <= 300
    more = (await post(two[1], "admit", headers=again, amounts={"tokens": "500B", "slots": 1}, key="b")).json()
    assert (more["hold"] in holds, more["amounts"]) == (False, {"tokens": 500, "slots": 1}), (
        "it asks for something else"
    )
    assert await taken(one) == 2
    same = (await post(two[0], "admit", headers=again, amounts={"slots": 1, "tokens": 500}, key="b", ttl=60)).json()
    assert same["hold"] == more["hold"]
    await post(one, "release", hold=holds[0])
    await post(one, "release", hold=same["hold"])
    assert (await post(one, "admit", headers={"Idempotency-Key": "another"}, amounts={"slots": 1})).json()[
        "hold"
    ] != holds[0]


async def test_a_hold_that_nobody_renews_ends_with_its_lease(two: tuple[Http, Http]) -> None:
    await post(two[0], "admit", amounts={"slots": 2}, ttl=1)
    admitted = await post(two[1], "admit", amounts={"slots": 2}, wait=60)
    assert admitted.json()["amounts"] == {"slots": 2}


async def test_a_hold_off_stops_all_nodes_and_has_an_end(two: tuple[Http, Http]) -> None:
    one, other = two
    assert (await post(one, "hold-off", seconds=30, reason="429 from the provider")).json()["seconds"] == 30
    refused = await post(other, "admit", 429, amounts={"slots": 1})
    assert refused.json()["limit"] == "hold_off"
    assert 25 <= int(refused.headers["Retry-After"]) <= 30
    state = (await other.get(LLM)).json()
    assert (state["reason"], state["held_off"] > 25) == ("429 from the provider", True)
    await post(other, "hold-off", seconds=0)
    assert (await one.get(LLM)).json()["held_off"] == 0


@pytest.mark.parametrize(
    ("what", "body", "status", "word"),
    [
        ("admit", {}, 400, "amounts"),
        ("admit", {"amounts": {}}, 400, "amounts"),
        ("admit", {"amounts": {"slots": -1}}, 400, "slots"),
        ("admit", {"amounts": {"slots": True}}, 400, "amounts.slots: use a whole number"),
        ("admit", {"amounts": {"slots": 1.5}}, 400, "amounts.slots: use a whole number"),
        ("admit", {"amounts": {"slots": 0}}, 400, "at least 1"),
        ("admit", {"amounts": {"slot": 1}}, 400, "did you mean 'slots'"),
        ("admit", {"amounts": {f"l{n}": 1 for n in range(17)}}, 400, "amounts"),
        ("admit", {"amounts": {"slots": 1}, "wait": 301}, 400, "wait"),
        ("admit", {"amounts": {"slots": 1}, "wait": "NaN"}, 400, "wait"),
        ("admit", {"amounts": {"slots": 1}, "ttl": 0}, 400, "ttl"),
        ("admit", {"amounts": {"slots": 1}, "key": "k" * 256}, 400, "key"),
        ("admit", {"amounts": {"slots": 1}, "tll": 5}, 400, "tll"),
        ("renew", {"hold": "no id"}, 400, "hold"),
        ("renew", {"hold": "http.1"}, 410, "http.1"),
        ("settle", {"hold": "http.1", "used": {"slots": 1}}, 410, "http.1"),
        ("settle", {"hold": "http.1", "used": {}}, 400, "used"),
        ("hold-off", {"seconds": 1e9}, 400, "seconds"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_its_place(
    open_http: Any, llm: headgate.Client, what: str, body: dict[str, Any], status: int, word: str
) -> None:
    answer = await (await open_http(llm)).post(f"{LLM}/{what}", json=body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.text
    assert word in answer.json()["detail"]


async def test_a_key_that_is_no_text_is_not_answered_for_another(open_http: Any, llm: headgate.Client) -> None:
    """Mutant: bytes that are not UTF-8 are read as U+FFFD, which is a key too."""
    http = await open_http(llm)
    assert (await http.get(f"{LLM}?key=%C3%A9")).json()["key"] == "é"
    for wrong in ("%ff", "%C3", "a%EDb"):
        answer = await http.get(f"{LLM}?key={wrong}")
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:headgate:problem:invalid-value"), answer.text


async def test_what_is_no_limiter_is_not_there(open_http: Any, llm: headgate.Client) -> None:
    await llm.apply("orders", kind="queue", limit=1000)
    http = await open_http(llm)
    for name, status in (("orders", 409), ("unknown", 404)):
        answer = await http.post(f"/v1/limits/{name}/admit", json={"amounts": {"slots": 1}})
        assert answer.status_code == status, answer.text
        assert name in answer.json()["detail"]


async def test_users_may_what_their_grants_say_and_the_token_may_all(llm: headgate.Client, tmp_path: Path) -> None:
    await llm.apply("other", kind="limiter", limits={"slots": {"at_once": 1}})
    file = tmp_path / "users.toml"
    grants = "grants = [{ match = 'llm', actions = ['produce'] }, { match = 'other', actions = ['consume'] }]"
    file.write_text(f"[[user]]\nname = 'ann'\npassword_hash = '{hashed('secret-of-ann')}'\n{grants}\n")
    known = Users.from_file(file)
    await known.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(known.close)
        http = await stack.enter_async_context(served(llm, known, token="t0ken"))
        body = {"amounts": {"slots": 1}}
        asked: tuple[tuple[Any, str, int], ...] = (
            (None, "llm", 401),
            (("ann", "wrong"), "llm", 401),
            (("bob", "secret-of-ann"), "llm", 401),
            (("ann", "secret-of-ann"), "llm", 200),
            (("ann", "secret-of-ann"), "other", 403),
            (("ann", "secret-of-ann"), "#", 403),
        )
        for auth, name, status in asked:
            answer = await http.post(f"/v1/limits/{quote(name)}/admit", json=body, auth=auth)
            assert answer.status_code == status, (auth, name, answer.text)
            assert "secret" not in answer.text
        for token, status in (("t0ken", 200), ("another", 401)):
            answer = await http.post(f"{LLM}/admit", json=body, headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == status
        for authorization in ("Basic", "Basic !!", "Basic " + "QQ==" * 1500, "Digest x"):
            answer = await http.post(f"{LLM}/admit", json=body, headers={"Authorization": authorization})
            assert answer.status_code == 401, authorization
        assert (await http.get("/api/v1/overview", auth=("ann", "secret-of-ann"))).status_code == 403
        described = (await http.get("/api/v1/openapi.json", headers={"Authorization": "Bearer t0ken"})).json()
        assert described["paths"]["/v1/limits/{name}/admit"]["post"]["security"] == [{"user": []}, {"token": []}]


async def test_users_come_by_tokens_of_their_own_too(llm: headgate.Client, tmp_path: Path) -> None:
    """Mutant: whatever is borne is believed."""
    key, other, file = make_key(), make_key(), tmp_path / "users.toml"
    grants = "grants = [{ match = 'llm', actions = ['produce'] }]"
    file.write_text(f"[[user]]\nname = 'ann'\n{grants}\n[[user]]\nname = 'bob'\n")
    options = TokenOptions(write_keys(tmp_path / "keys.json", key), ISSUER, AUDIENCE)
    known = Users.from_file(file, tokens=TokenVerifier(options))
    await known.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(known.close)
        http = await stack.enter_async_context(served(llm, known, token="t0ken"))
        for token, status in (
            (token_of(key), 200), ("t0ken", 200), (token_of(key, "bob"), 403), (token_of(key, "eve"), 401),
            (token_of(other), 401), (token_of(key, exp=1), 401), (token_of(key, aud="else"), 401), ("x", 401),
            ("x" * 7000, 401),
        ):  # fmt: skip
            headers = {"Authorization": f"Bearer {token}"}
            answer = await http.post(f"{LLM}/admit", json={"amounts": {"slots": 1}}, headers=headers)
            assert answer.status_code == status, (token[-20:], answer.text)


async def test_who_lost_the_right_while_it_waited_is_admitted_to_nothing(llm: headgate.Client) -> None:
    people = users(ann={"llm": {Action.PRODUCE}})
    async with served(llm, people, token="t0ken") as http:
        operator = {"Authorization": "Bearer t0ken"}
        first = (await post(http, "admit", headers=operator, amounts={"slots": 2})).json()["hold"]
        body = {"amounts": {"slots": 1}, "wait": 60}
        waits = asyncio.create_task(http.post(f"{LLM}/admit", json=body, auth=("ann", "secret")))
        store, address = LimiterStore(llm.store.server), Address.of(llm.namespace, "llm")

        async def waiting_are(count: int) -> bool:
            levels = await store.levels(address, most=100)
            return levels is not None and levels.waiting == count

        await wait_until(lambda: waiting_are(1), timeout=60, description="it stands in line")
        cast(Any, people).may("ann", {})
        await post(http, "release", headers=operator, hold=first)
        assert (await waits).status_code == 403
        levels = await store.levels(address, most=100)
        assert levels is not None
        assert levels.holds == {}


PATTERN = '[[limiter]]\nmatch = "t.*"\n[[limiter.limit]]\nname = "slots"\nat_once = 1\n'


async def test_a_user_makes_no_more_limiters_than_it_may(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: what HTTP makes is not counted, and every name that a pattern matches stays in Redis."""
    await client.apply_policy(loads(PATTERN))
    file = tmp_path / "users.toml"
    grants = "grants = [{ match = 't.#', actions = ['produce'] }]"
    file.write_text(f"[[user]]\nname = 'ann'\npassword_hash = '{hashed('secret')}'\nmax_destinations = 2\n{grants}\n")
    known = Users.from_file(file)
    await known.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(known.close)
        http = await stack.enter_async_context(served(client, known))
        answers = [
            await http.post(f"/v1/limits/t.{n}/admit", json={"amounts": {"slots": 1}}, auth=("ann", "secret"))
            for n in range(4)
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 403, 403]
    assert answers[2].json()["type"] == "urn:headgate:problem:too-many-destinations"
    assert sorted(await client.destinations()) == ["t.0", "t.1"]


async def test_more_limiters_than_a_node_has_open_take_turns_and_none_is_closed_where_somebody_waits(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: whoever names many limiters keeps all others out; a request in line ends as its limiter is closed."""
    monkeypatch.setattr(holds, "MOST_LIMITERS", 2)
    await client.apply_policy(loads(PATTERN))
    async with served(client) as http:
        body = {"amounts": {"slots": 1}, "ttl": 60}
        held = {}
        for name in ("t.0", "t.1", "t.2", "t.3"):
            answer = await http.post(f"/v1/limits/{name}/admit", json=body)
            assert answer.status_code == 200, answer.text
            held[name] = answer.json()["hold"]
        waits = asyncio.create_task(http.post("/v1/limits/t.0/admit", json=body | {"wait": 60}))

        async def stands_in_line() -> bool:
            return int((await http.get("/v1/limits/t.0")).json()["waiting"]) == 1

        await wait_until(stands_in_line, timeout=60, description="it stands in line")
        for name in ("t.1", "t.2", "t.3"):
            answer = await http.post(f"/v1/limits/{name}/renew", json={"hold": held[name]})
            assert answer.status_code == 200, "held on, though its limiter was closed meanwhile"
        await http.post("/v1/limits/t.0/release", json={"hold": held["t.0"]})
        assert (await waits).status_code == 200


async def test_outcomes_are_said_with_settle_and_release_at_any_node(client: headgate.Client) -> None:
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": {"min": 2, "max": 9, "adapt": "aimd"}}})
    async with served(client) as one, served(client) as other:
        for outcome in ("ok", "overload", "ignore"):
            hold = (await post(one, "admit", amounts={"slots": 1})).json()["hold"]
            assert (await post(other, "release", hold=hold, outcome=outcome)).json()["held"]
            assert not (await post(other, "release", hold=hold)).json()["held"]
        hold = (await post(one, "admit", amounts={"slots": 1})).json()["hold"]
        await post(other, "settle", hold=hold, used={"slots": 0}, release=True, outcome="overload")
        await post(other, "release", 400, hold=hold, outcome="fine")
        adapting = (await other.get(LLM)).json()["limits"]["slots"]["adapting"]
        assert adapting["outcomes"] == {"ok": 1, "overload": 2, "ignore": 1}


@pytest.mark.parametrize("body", ['{"amounts":{%s}}', "{%s}"], ids=["amounts", "fields"])
async def test_a_body_full_of_mistakes_takes_no_time_and_has_a_short_answer(llm: headgate.Client, body: str) -> None:
    """A MiB of these took half a second of the loop, and eight MiB of an answer."""
    async with served(llm) as http:
        for size, status in ((60_000, 400), (70_000, 413), (1_000_000, 413)):
            wrong = ",".join(f'"{number:04x}":[]' for number in range(size // 10))
            answer = await http.post(f"{LLM}/admit", content=body % wrong, headers={"Content-Type": "application/json"})
            assert answer.status_code == status
            assert len(answer.content) < 10_000
