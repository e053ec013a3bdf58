"""`leaseway.litellm.limiter` in real LiteLLM proxies, with a real server and a mock model.

Needs LEASEWAY_TEST_LITELLM, LiteLLM's command. `test_litellm.py` calls the hooks directly.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import eventually

if "LEASEWAY_TEST_LITELLM" not in os.environ:
    pytest.skip("LEASEWAY_TEST_LITELLM is not set", allow_module_level=True)

import httpx

sys.path.append(str(Path(__file__).parent / "litellm_proxy"))
from setup import LEASE_SECONDS, SLOTS, TOKENS, Setup, load, post, request

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


def test_streams_that_the_client_breaks_off_are_settled_and_give_their_slots_back(setup):
    proxy = setup.proxies[1]

    def broken_off(key: str) -> int:
        with httpx.stream("POST", **request(proxy, key, "sleep=0.5", stream=True, max_tokens=400)) as answer:
            if answer.status_code == 200:
                next(answer.iter_lines())
            return answer.status_code

    for _ in range(2 * SLOTS):
        broken_off("slots-u")
    all_slots_are_free(setup)
    # Without a settlement each of them would keep the reserved tokens of four seconds, and the next would be refused.
    eventually(lambda: broken_off("streams-u") == 200)
    eventually(lambda: [broken_off("streams-u") for _ in range(5)] == [200] * 5)


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
