"""The line before the check of passwords, under those who flood it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headgate_coordinator.security.password_queue import AT_A_TIME, MOST, Network, PasswordQueue, PasswordQueueFull
from tests.support.waiting import wait_until


class Gate:
    """Checks that end when they are told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = asyncio.Event()
        self.failure: Exception | None = None

    async def check(self, password: str, known: str) -> bool:
        self.begun.append(password)
        await self.go.wait()
        if self.failure:
            raise self.failure
        return password == known


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def line(gate: Gate) -> AsyncIterator[PasswordQueue]:
    line = PasswordQueue(gate.check)
    yield line
    line.close()


def ask(line: PasswordQueue, password: str, peer: str = "evil", user: str = "ann") -> "asyncio.Task[bool]":
    return asyncio.create_task(line.ask((Network(peer), user), f"{user}:{password}".encode(), password, "secret"))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def flood(line: PasswordQueue, count: int, **who: str) -> "list[asyncio.Task[bool]]":
    tasks = [ask(line, f"wrong {n}", **who) for n in range(count)]
    await settle()
    return tasks


async def end(tasks: "list[asyncio.Task[bool]]") -> list[object]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("who", [{"peer": "home"}, {"user": "bob"}, {}], ids=["peer", "user", "neither"])
async def test_behind_a_flood_the_newest_of_another_peer_or_user_is_next(
    line: PasswordQueue, gate: Gate, who: dict[str, str]
) -> None:
    """Mutants: first come first served; turns by peer alone."""
    flooding = await flood(line, MOST)
    asked = ask(line, "secret", **who)
    await settle()
    if who:
        flooding += await flood(line, 2 * AT_A_TIME)
    gate.go.set()
    assert await asked
    assert gate.begun.index("secret") <= 2 * AT_A_TIME
    await end(flooding)


async def test_the_line_is_bounded_and_puts_out_the_oldest_of_who_has_most(line: PasswordQueue, gate: Gate) -> None:
    """Mutant: the newest of all is refused."""
    asked = ask(line, "secret", peer="home")
    flooding = await flood(line, 4 * MOST)
    assert len(line) <= MOST
    done = [task for task in flooding if task.done()]
    assert len(done) == 4 * MOST - MOST - 1  # one of them is checked, and one of another peer
    with pytest.raises(PasswordQueueFull):
        await done[0]
    gate.go.set()
    assert await asked
    await end(flooding)


async def test_who_goes_leaves_the_line(line: PasswordQueue, gate: Gate) -> None:
    """Breaks when checks outlive the connections that asked for them: the next waited behind a thousand."""
    await end(await flood(line, MOST))
    assert len(line) == 0
    assert len(gate.begun) <= AT_A_TIME
    asked = ask(line, "secret")
    gate.go.set()
    assert await asked
    assert len(gate.begun) <= AT_A_TIME + 1


async def test_one_group_leaves_room_for_checks_of_others(line: PasswordQueue, gate: Gate) -> None:
    """Breaks when a flood has all checks that are made at a time: the next waits for the end of one."""
    flooding = await flood(line, MOST)
    assert len(gate.begun) == 1
    asked = ask(line, "secret", user="bob")
    await settle()
    assert gate.begun[1:] == ["secret"]
    await end([*flooding, asked])


@pytest.mark.parametrize("went", [True, False], ids=["gone", "put out"])
async def test_who_comes_again_with_the_same_password_is_before_who_guesses(
    line: PasswordQueue, gate: Gate, *, went: bool
) -> None:
    """Breaks when the newest is next whatever it is: a flood from the same peer for the same user is always newer."""
    flooding = await flood(line, AT_A_TIME)
    first = ask(line, "secret")
    await settle()
    if went:
        await end([first])
    else:
        flooding += await flood(line, 2 * MOST)
        with pytest.raises(PasswordQueueFull):
            await first
    flooding += [ask(line, f"older {n}") for n in range(20)]
    again = ask(line, "secret")
    await settle()
    flooding += [ask(line, f"newer {n}") for n in range(20)]
    await settle()
    gate.go.set()
    assert await again
    assert gate.begun.index("secret") == 1
    await end(flooding)


async def test_equal_ones_are_checked_once_and_one_that_goes_takes_no_other_along(
    line: PasswordQueue, gate: Gate
) -> None:
    busy = [ask(line, "wrong", user=f"bob{n}") for n in range(AT_A_TIME)]
    alike = [ask(line, "secret") for _ in range(100)]
    await settle()
    alike[0].cancel()
    await settle()
    assert len(line) == 1
    gate.go.set()
    assert await asyncio.gather(*alike[1:]) == [True] * 99
    assert gate.begun.count("secret") == 1
    await asyncio.gather(*busy)


async def test_a_check_that_fails_is_told_and_the_line_goes_on(line: PasswordQueue, gate: Gate) -> None:
    gate.failure = RuntimeError("no memory")
    gate.go.set()
    with pytest.raises(RuntimeError, match="no memory"):
        await ask(line, "secret")
    gate.failure = None
    assert await ask(line, "secret")


async def test_closing_leaves_nobody_waiting(line: PasswordQueue, gate: Gate) -> None:
    asked = await flood(line, 5)
    line.close()
    await wait_until(lambda: sum(task.done() for task in asked) == 5 - 1)
    await end(asked)
