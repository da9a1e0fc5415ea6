"""LiteLLM's calls wait for a limiter, and are settled by what their answers used."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import headgate
from headgate.charge import Charge
from tests.support.waiting import wait_until

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is downloaded
litellm = pytest.importorskip("litellm", reason="a large wheel, which the tests do not ask for", exc_type=ImportError)
module = pytest.importorskip("headgate.llm.litellm", exc_type=ImportError)

pytestmark = [
    pytest.mark.one_server,
    pytest.mark.asyncio(loop_scope="module"),  # LiteLLM keeps what it will say on one loop
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic"),
]
BURST, RESERVED = 50_000, 5_000
CALL: dict[str, Any] = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "how are you?"}]}


@pytest_asyncio.fixture(loop_scope="module")
async def limiter(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Limiter]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        limits = {
            "requests": {"rate": "1/h", "burst": 50},
            "tokens": {"rate": "1/h", "burst": BURST},
            "slots": {"at_once": 1},
        }
        await client.apply("llm", kind="limiter", limits=limits)
        async with client.session("llm") as session:
            limiter = await session.limiter("llm", in_hand=False)
            before = litellm.callbacks
            charge = Charge(limiter, requests=1, slots=1, tokens=lambda _: RESERVED, timeout=30)
            litellm.callbacks = [module.LimitedModels(charge)]
            yield limiter
            litellm.callbacks = before


async def taken(limiter: headgate.Limiter, *, requests: int, tokens: int) -> None:
    """Wait until nothing is held, and so much was used."""

    async def there() -> bool:
        state = await limiter.state()
        left = BURST - state["tokens"].remaining, 50 - state["requests"].remaining
        return state["slots"].taken == 0 and left == (tokens, requests)

    await wait_until(there, timeout=60)


async def test_an_answer_settles_its_tokens(limiter: headgate.Limiter) -> None:
    answer = await litellm.acompletion(**CALL, mock_response="well")
    await taken(limiter, requests=1, tokens=answer.usage.total_tokens)
    await litellm.aembedding(model="openai/text-embedding-3-small", input=["well"], mock_response=[0.5])
    await taken(limiter, requests=2, tokens=answer.usage.total_tokens + 10)
    many = [litellm.acompletion(**CALL, mock_response="well") for _ in range(4)]
    assert len(await asyncio.gather(*many)) == 4  # one at a time
    await taken(limiter, requests=6, tokens=5 * answer.usage.total_tokens + 10)


async def test_a_stream_holds_until_its_end(limiter: headgate.Limiter) -> None:
    stream = await litellm.acompletion(
        **CALL, mock_response="well " * 20, stream=True, stream_options={"include_usage": True}
    )
    assert (await limiter.state())["slots"].taken == 1
    parts = [part async for part in stream]
    used = parts[-1].usage.total_tokens
    await taken(limiter, requests=1, tokens=used)
    left = await litellm.acompletion(**CALL, mock_response="well " * 20, stream=True)
    await anext(left)
    del left
    await taken(limiter, requests=2, tokens=used + RESERVED)


async def test_a_call_that_failed_or_is_cancelled_is_released(limiter: headgate.Limiter) -> None:
    model = {"model_name": "chat", "litellm_params": {"model": CALL["model"], "api_key": "none"}}
    router = litellm.Router(model_list=[model], num_retries=1, retry_after=0)
    with pytest.raises(litellm.InternalServerError):
        await router.acompletion("chat", messages=CALL["messages"], mock_response="litellm.InternalServerError")
    await taken(limiter, requests=2, tokens=0)  # two attempts, and no tokens
    late = asyncio.create_task(litellm.acompletion(**CALL, mock_response="well", mock_delay=600))

    async def held() -> bool:
        return (await limiter.state())["slots"].taken == 1

    await wait_until(held, timeout=60)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    del late
    await taken(limiter, requests=3, tokens=RESERVED)


async def test_what_is_not_admitted_in_time_is_not_called(limiter: headgate.Limiter) -> None:
    litellm.callbacks = [module.LimitedModels(Charge(limiter, slots=1, timeout=2))]
    async with limiter.admit(slots=1):
        with pytest.raises(headgate.CreditTimeout):
            await litellm.acompletion(**CALL, mock_response="well")
    await taken(limiter, requests=0, tokens=0)


async def test_where_no_tokens_are_charged_there_are_none_to_settle(
    limiter: headgate.Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    """Breaks where a hold is settled by nothing, which is an error of each call: LiteLLM logs it, or the loop does."""
    wrong = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, told: wrong.append(told))
    litellm.callbacks = [module.LimitedModels(Charge(limiter, requests=1, slots=1, timeout=30))]
    await litellm.acompletion(**CALL, mock_response="well")
    await taken(limiter, requests=1, tokens=0)
    left = await litellm.acompletion(**CALL, mock_response="well " * 20, stream=True)
    await anext(left)
    del left
    await taken(limiter, requests=2, tokens=0)
    asyncio.get_running_loop().set_exception_handler(None)
    assert (wrong, [one for one in caplog.records if one.levelname == "ERROR"]) == ([], [])


async def test_what_a_call_reserves() -> None:
    counted = litellm.token_counter(model=CALL["model"], messages=CALL["messages"])
    assert module.reserved({**CALL}) == counted + module.ANSWER
    assert module.reserved({**CALL, "max_tokens": 7, "n": 3}) == counted + 21
    assert module.reserved({**CALL, "max_tokens": "junk", "n": -1}) == counted + module.ANSWER
    assert module.reserved({"model": CALL["model"], "messages": ["well"], "max_tokens": 1}) > 1
    assert module.used({"usage": {"input_tokens": 3, "output_tokens": 4}}) == 7
    assert module.used("well") is None
