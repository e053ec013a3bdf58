"""`leaseway.litellm.limiter` in real LiteLLM proxies, with a real server and a mock model.

Needs LEASEWAY_TEST_LITELLM, LiteLLM's command. `test_litellm.py` calls the hooks directly.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import eventually

if "LEASEWAY_TEST_LITELLM" not in os.environ:
    pytest.skip("LEASEWAY_TEST_LITELLM is not set", allow_module_level=True)

import httpx

sys.path.append(str(Path(__file__).parent / "litellm_proxy"))
from setup import AMOUNT, LEASE_SECONDS, MOST, SLOTS, TOKENS, Proxy, Setup, load, post, request

numbers = itertools.count()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    setup = Setup(tmp_path_factory.mktemp("litellm"), 2, 1)
    try:
        setup.ready()
        yield setup
    finally:
        setup.stop()


@pytest.mark.parametrize("proxies", [1, 2])
def test_a_team_alone_reaches_its_tokens_and_not_more(setup, proxies):
    tag = f"t{next(numbers)}"
    begun = time.time()
    statuses = asyncio.run(load(setup.proxies[-proxies:], 30, 12, "tokens", f"tag={tag} hello"))
    used = setup.used(tag)
    late = sum(tokens for at, tokens in used if begun + 10 <= at < begun + 30) / 20
    print(f"{proxies} proxies: {statuses}, {late / TOKENS:.1%} of the limit")
    assert set(statuses) <= {200, 429}
    # How much is used depends on the speed of the machine.
    assert late > 0.5 * TOKENS
    # Buckets begin empty, or with what idle workers saved.
    saved = TOKENS * 5 * (proxies - 1)
    for at, total in zip((at for at, _ in used), itertools.accumulate(tokens for _, tokens in used)):
        assert total <= saved + TOKENS * (at - begun)


def test_answers_tell_limit_and_remaining(setup):
    answer = post(setup.proxies[1], "tokens-u", "hello")
    assert answer.status_code == 200, answer.text
    assert 0 < int(answer.headers["x-ratelimit-team-limit-tokens"]) <= TOKENS * 60
    assert "x-ratelimit-team-remaining-tokens" in answer.headers
    assert not [name for name in answer.headers if name.startswith("x-ratelimit-key")], "no template"


def test_a_refusal_names_the_limit(setup):
    proxy = setup.proxies[1]
    with httpx.stream("POST", **request(proxy, "plain-u", "sleep=60", model="scarce", stream=True)) as first:
        assert first.status_code == 200
        refused = post(proxy, "plain-v", "hello", model="scarce")
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-ratelimit-scope"] == "model"
    assert refused.headers["x-ratelimit-resource"] == "litellm/model/scarce/parallel"
    error = refused.json()["error"]
    print(error)
    assert "parallel calls of this model (resource litellm/model/scarce/parallel)" in error["message"]
    eventually(lambda: post(proxy, "plain-v", "hello", model="scarce").status_code == 200)


def all_slots_are_free(setup: Setup, proxies: int = 2) -> None:
    """Calls get all slots at the same time, and never more."""
    tag = f"t{next(numbers)}"
    end = time.monotonic() + 60

    async def caller(client: httpx.AsyncClient, n: int) -> None:
        while setup.active(tag)[1] < SLOTS:
            assert time.monotonic() < end, "timed out"
            await client.post(**request(setup.proxies[n % proxies], "slots-u", f"tag={tag} sleep=4"))
            await asyncio.sleep(0.1)

    async def callers() -> None:
        # A connection for each call, so that all workers get some.
        async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as client:
            await asyncio.gather(*(caller(client, n) for n in range(2 * SLOTS)))

    asyncio.run(callers())
    assert setup.active(tag)[1] == SLOTS


def test_parallel_calls_are_shared(setup):
    all_slots_are_free(setup)


def test_failures_give_everything_back(setup):
    async def calls() -> list[httpx.Response]:
        async with httpx.AsyncClient() as client:
            asked = (request(setup.proxies[n % 2], "slots-u", "fail") for n in range(5 * SLOTS))
            return await asyncio.gather(*(client.post(**one) for one in asked))

    answers = asyncio.run(calls())
    assert 400 in {answer.status_code for answer in answers}
    for answer in answers:
        # On a busy machine the proxy itself fails now and then, with 500.
        assert answer.status_code in (400, 429, 500) and "Traceback" not in answer.text, answer.text
    all_slots_are_free(setup)


@pytest.mark.parametrize("prompt", ["used=400", "used=400 nousage"])
def test_streams_are_settled(setup, prompt):
    answer = post(setup.proxies[1], "slots-u", prompt, stream=True)
    assert answer.status_code == 200
    assert answer.text.rstrip().endswith("[DONE]")
    all_slots_are_free(setup)


def broken_off(proxy: Proxy, key: str) -> int:
    """The status of a stream that the client breaks off after the first chunk."""
    with httpx.stream("POST", **request(proxy, key, "sleep=0.5", stream=True, max_tokens=400)) as answer:
        if answer.status_code == 200:
            next(answer.iter_lines())
        return answer.status_code


def test_streams_that_the_client_breaks_off_are_settled_and_give_their_slots_back(setup):
    proxy = setup.proxies[1]

    for _ in range(2 * SLOTS):
        broken_off(proxy, "slots-u")
    all_slots_are_free(setup)
    # Without a settlement each of them would keep the reserved tokens of four seconds, and the next would be refused.
    eventually(lambda: broken_off(proxy, "streams-u") == 200)
    eventually(lambda: [broken_off(proxy, "streams-u") for _ in range(5)] == [200] * 5)


def spend(setup: Setup, proxies: Sequence[Proxy], team: str, least: float) -> float:
    """Calls, streams and failing calls until `least` dollars are billed and all callers are refused. Returns what
    LiteLLM has billed."""
    end = time.monotonic() + 150
    answered = before = len(setup.billed(team))

    async def caller(client: httpx.AsyncClient, n: int) -> None:
        nonlocal answered
        refused = 0
        while refused < 3 or sum(setup.billed(team)) < least:
            assert time.monotonic() < end, f"timed out: {sum(setup.billed(team))} dollars of {least}"
            kind = random.choice(("answer", "stream", "fail"))
            asked = request(proxies[n % len(proxies)], f"{team}-u", f"{kind} hello", stream=kind == "stream")
            status = (await client.post(**asked)).status_code
            assert status in (200, 400, 422, 500), status
            refused = refused + 1 if status == 422 else 0
            answered += status == 200

    async def callers() -> None:
        # A connection for each call, so that all workers get some.
        async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0)) as client:
            await asyncio.gather(*(caller(client, n) for n in range(12)))

    asyncio.run(callers())
    eventually(lambda: len(setup.billed(team)) >= answered)
    billed = setup.billed(team)
    print(f"{team}: {len(billed) - before} calls, {sum(billed):.4f} of {AMOUNT} dollars billed")
    return sum(billed)


def test_a_budget_is_spent_and_never_overspent(setup):
    billed = spend(setup, setup.proxies, "money", 0.9 * AMOUNT)
    assert 0.9 * AMOUNT <= billed <= AMOUNT
    eventually(lambda: setup.spent("money") == pytest.approx(billed, abs=1e-6))
    refused = post(setup.proxies[1], "money-u", "hello")
    assert refused.status_code == 422
    assert refused.headers["retry-after"] == "60"
    assert refused.headers["x-ratelimit-scope"] == "team"
    assert refused.headers["x-ratelimit-resource"] == "litellm/team/money/budget"
    error = refused.json()["error"]
    print(error)
    assert error["type"] == "budget_exceeded"
    assert "budget of this team (resource litellm/team/money/budget) for a call of up to 0.1" in error["message"]


def test_failed_calls_and_streams_that_are_broken_off_give_their_price_back(setup):
    proxy = setup.proxies[1]
    for _ in range(20):
        failed = post(proxy, "refunds-u", "fail")
        assert failed.status_code in (400, 500), failed.text
    assert setup.billed("refunds") == []
    for _ in range(20):
        # LiteLLM bills the chunks before the break a little later.
        eventually(lambda: broken_off(proxy, "refunds-u") == 200)
    eventually(lambda: len(setup.billed("refunds")) >= 20)
    assert sum(setup.billed("refunds")) < 0.5
    answer = post(proxy, "refunds-u", "used=100")
    assert answer.status_code == 200, answer.text
    assert float(answer.headers["x-ratelimit-team-remaining-budget"]) <= 1 - sum(setup.billed("refunds"))


def test_cached_answers_cost_nothing(setup):
    asked = {"max_tokens": 1000, "cache": {"use-cache": True}}
    before = len(setup.billed("refunds"))
    # Each reserves 0.2 dollars, and without the cache costs 0.1.
    for n in range(12):
        eventually(lambda: post(setup.proxies[1], "refunds-u", "used=500", **asked).status_code == 200)
        eventually(lambda: len(setup.billed("refunds")) > before + n)
    assert [cost > 0 for cost in setup.billed("refunds")[before:]] == [True] + [False] * 11


def test_the_fallback_of_a_model_answers_when_its_budget_is_spent(setup):
    answer = post(setup.proxies[1], "plain-u", "hello", model="dear")
    assert answer.status_code == 200, answer.text
    refused = post(setup.proxies[1], "plain-u", "hello", model="dear", disable_fallbacks=True)
    assert (refused.status_code, refused.headers["x-ratelimit-scope"]) == (422, "model")
    assert int(refused.headers["x-ratelimit-model-reset-budget"]) > 0


def test_a_killed_proxy_costs_at_most_its_slice(setup):
    victim = setup.start(1)
    try:
        victim.ready()
        calls = 0
        while sum(setup.billed("killed")) < 1.5:
            calls += post(victim, "killed-u", "hello").status_code == 200
        eventually(lambda: len(setup.billed("killed")) == calls)
    finally:
        victim.kill()
    # A slice of one dollar, the call under way at the last report, and the rest of each worker that covers no call.
    least = AMOUNT - 1 - 4 * MOST
    assert least <= spend(setup, setup.proxies, "killed", least) <= AMOUNT


def test_a_killed_proxy_loses_its_slots_within_a_lease(setup):
    victim = setup.proxies.pop()

    async def fill(tag: str) -> None:
        async with httpx.AsyncClient() as client:
            asked = [client.post(**request(victim, "slots-u", f"tag={tag} sleep=60")) for _ in range(SLOTS)]
            calls = [asyncio.ensure_future(one) for one in asked]
            while setup.active(tag)[0] < SLOTS:
                assert not any(call.done() and call.result().status_code == 200 for call in calls)
                await asyncio.sleep(0.1)
                for n, call in enumerate(calls):
                    if call.done():
                        one = request(victim, "slots-u", f"tag={tag} sleep=60")
                        calls[n] = asyncio.ensure_future(client.post(**one))
            victim.kill()
            await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(fill(f"t{next(numbers)}"))
    killed = time.monotonic()
    eventually(lambda: post(setup.proxies[0], "slots-u", "hello").status_code == 200, LEASE_SECONDS + 20)
    print(f"a slot after {time.monotonic() - killed:.1f} s of a lease of {LEASE_SECONDS} s")
    all_slots_are_free(setup, proxies=1)
    print(f"all slots after {time.monotonic() - killed:.1f} s")
