"""`leaseway.litellm`: its hooks, called as the proxy calls them, with a real server.

Needs LEASEWAY_TEST_LITELLM, LiteLLM's command. `test_litellm_proxy.py` runs the real proxy.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from conftest import Server, budget, eventually, free_address, template

from leaseway import Client

if "LEASEWAY_TEST_LITELLM" not in os.environ:
    pytest.skip("LEASEWAY_TEST_LITELLM is not set", allow_module_level=True)

import litellm as real_litellm
from fastapi import HTTPException
from litellm.proxy._types import UserAPIKeyAuth

from leaseway import litellm
from leaseway.litellm import Limiter, Settings, SettingsError

LIMITS = (
    template("litellm/team/t/tpm", 1000),
    template("litellm/team/t/rpm", 100),
    template("litellm/team/t/parallel", 2),
    template("litellm/key/*/rpm", 10),
)
MESSAGES = [{"role": "user", "content": "x" * 40}]


@pytest.fixture
def limiter(serve: Callable[..., Server]) -> Iterator[Limiter]:
    with Client(serve(*LIMITS).address) as client:
        yield Limiter(Settings(), client)


def auth(team: Optional[str] = "t", **more: Any) -> UserAPIKeyAuth:
    return UserAPIKeyAuth(**{"api_key": "k", "team_id": team, **more})


async def begin(limiter: Limiter, of: Any = None, call_type: str = "acompletion", **data: Any) -> dict[str, Any]:
    """A call of 10 prompt tokens and at most 100 output tokens."""
    data = {"model": "m", "messages": MESSAGES, "max_tokens": 100, "litellm_call_id": "c", **data}
    await limiter.async_pre_call_hook(of or auth(), None, data, call_type)
    return data


def in_a_task(run: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a request: a task of its own, and then whatever its end has started."""

    async def main() -> Any:
        try:
            return await asyncio.ensure_future(run())
        finally:
            await asyncio.sleep(0)

    return asyncio.run(main())


def usage(tokens: int) -> SimpleNamespace:
    return SimpleNamespace(usage=SimpleNamespace(total_tokens=tokens))


def chunk(text: Optional[str] = None, tokens: Optional[int] = None) -> SimpleNamespace:
    choices = [] if text is None else [SimpleNamespace(delta=SimpleNamespace(content=text))]
    return SimpleNamespace(choices=choices, usage=None if tokens is None else SimpleNamespace(total_tokens=tokens))


class Meters:
    """What the limits of team `t` have taken."""

    def __init__(self, limiter: Limiter) -> None:
        self.of = {limit.limit: limit.handle for limit in limiter._limits.values() if limit.scope == "team"}

    @property
    def slots(self) -> int:
        return self.of["parallel"].in_use


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, float]]:
    """Settlements of reservations as (limit, reserved, used)."""
    seen: list[tuple[str, float, float]] = []
    original = litellm.Hold._settle

    def settle(hold: litellm.Hold, used: dict[str, float]) -> None:
        for limit, what in hold.taken:
            if limit.limit in used:
                seen.append((f"{limit.scope}/{limit.limit}", what.reserved, used[limit.limit]))
        original(hold, used)

    monkeypatch.setattr(litellm.Hold, "_settle", settle)
    return seen


def everything(tokens: int, requests: int = 1) -> list[tuple[str, int, int]]:
    return [("key/rpm", 1, requests), ("team/rpm", 1, requests), ("team/tpm", 110, tokens)]


def test_a_success_settles_what_it_used(limiter, settled):
    async def run() -> None:
        data = await begin(limiter)
        assert Meters(limiter).slots == 1
        await limiter.async_post_call_success_hook(data, auth(), usage(30))

    in_a_task(run)
    assert settled == everything(30)
    assert Meters(limiter).slots == 0


def test_a_failure_gives_everything_back(limiter, settled):
    async def run() -> None:
        data = await begin(limiter)
        await limiter.async_post_call_failure_hook(data, ValueError(), auth())

    in_a_task(run)
    assert settled == everything(0, 0)
    assert Meters(limiter).slots == 0


def test_a_refused_call_has_taken_nothing(limiter, settled):
    async def run() -> None:
        await begin(limiter)
        await begin(limiter)
        with pytest.raises(HTTPException) as refused:
            await begin(limiter)
        assert refused.value.status_code == 429
        assert "parallel calls of this team (resource litellm/team/t/parallel)" in refused.value.detail
        assert refused.value.headers["retry-after"] == "1"
        assert refused.value.headers["x-ratelimit-resource"] == "litellm/team/t/parallel"
        assert settled == [("key/rpm", 1, 0)]

    in_a_task(run)


def test_a_refusal_tells_when_to_try_again(limiter):
    limiter.settings = Settings(wait=0.2)

    async def run() -> None:
        with pytest.raises(HTTPException) as refused:
            await begin(limiter, max_tokens=20_000)
        assert "tokens per minute of this team" in refused.value.detail
        assert 15 <= int(refused.value.headers["retry-after"]) <= 20

    in_a_task(run)


def test_the_log_event_settles_an_answer_without_usage(limiter, settled):
    async def run() -> None:
        data = await begin(limiter)
        await limiter.async_post_call_success_hook(data, auth(), SimpleNamespace())
        assert Meters(limiter).slots == 0
        assert settled == []
        await limiter.async_log_success_event({"litellm_call_id": "other"}, usage(5), None, None)
        assert settled == [], "a call that a callback has made"
        event = {"litellm_call_id": "c", "standard_logging_object": {"total_tokens": 40}}
        await limiter.async_log_success_event(event, None, None, None)

    in_a_task(run)
    assert settled == everything(40)


def test_usage_that_nobody_reports_is_the_estimate(limiter, settled, monkeypatch):
    monkeypatch.setattr(litellm, "USAGE_SECONDS", 0.1)

    async def run() -> None:
        data = await begin(limiter)
        await limiter.async_post_call_success_hook(data, auth(), SimpleNamespace())
        await asyncio.sleep(0.5)

    in_a_task(run)
    assert settled == everything(110)


async def stream(limiter: Limiter, data: dict[str, Any], *chunks: Any) -> AsyncIterator[Any]:
    async def response() -> AsyncIterator[Any]:
        for one in chunks:
            if isinstance(one, Exception):
                raise one
            yield one

    async for one in limiter.async_post_call_streaming_iterator_hook(auth(), response(), data):
        yield one


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([chunk("a"), chunk("b"), chunk(tokens=25)], everything(25)),
        ([chunk("a" * 20), chunk("b" * 20)], everything(20)),
        ([b"data: {}", b"data: {}"], everything(110)),
        ([ValueError()], everything(0, 0)),
        ([chunk("a" * 40), ValueError()], everything(20)),
    ],
    ids=["usage", "text", "opaque", "failed", "failed later"],
)
def test_a_stream_is_settled(limiter, settled, monkeypatch, chunks, expected):
    monkeypatch.setattr(litellm, "USAGE_SECONDS", 0.1)

    async def run() -> None:
        data = await begin(limiter)
        try:
            async for _ in stream(limiter, data, *chunks):
                assert Meters(limiter).slots == 1
        except ValueError:
            await limiter.async_post_call_failure_hook(data, ValueError(), auth())
        assert Meters(limiter).slots == 0
        await asyncio.sleep(0.5)

    in_a_task(run)
    assert settled == expected


def test_a_stream_that_is_broken_off_is_settled_for_what_was_delivered(limiter, settled, monkeypatch):
    monkeypatch.setattr(litellm, "USAGE_SECONDS", 0.1)

    async def run() -> None:
        chunks = limiter.async_post_call_streaming_iterator_hook(auth(), forever(), await begin(limiter))
        for _ in range(2):
            await chunks.__anext__()
        await chunks.aclose()
        assert Meters(limiter).slots == 0
        await asyncio.sleep(0.5)

    async def forever() -> AsyncIterator[Any]:
        while True:
            yield chunk("a" * 20)

    in_a_task(run)
    assert settled == everything(20)


def test_a_stream_outlives_the_task_that_began_it(limiter, settled):
    """With keep-alive comments, LiteLLM begins the stream in another task than it ends it in."""

    async def main() -> None:
        async def first() -> Any:
            chunks = stream(limiter, await begin(limiter), b"1", b"2")
            await chunks.__anext__()
            return chunks

        chunks = await asyncio.ensure_future(first())
        await asyncio.sleep(0)
        assert Meters(limiter).slots == 1
        assert [one async for one in chunks] == [b"2"]
        assert Meters(limiter).slots == 0
        await limiter.async_log_success_event({"litellm_call_id": "c"}, usage(25), None, None)

    asyncio.run(main())
    assert settled == everything(25)


def test_a_request_that_is_cancelled_or_whose_stream_never_begins_gives_its_slot_back(limiter, settled, monkeypatch):
    monkeypatch.setattr(litellm, "USAGE_SECONDS", 0.1)

    async def main() -> None:
        async def hangs() -> None:
            await begin(limiter)
            await asyncio.sleep(60)

        async def never_begins() -> None:
            stream(limiter, await begin(limiter), chunk("a"))

        request = asyncio.ensure_future(hangs())
        await asyncio.sleep(0.5)
        assert Meters(limiter).slots == 1
        request.cancel()
        await asyncio.wait([request])
        await asyncio.ensure_future(never_begins())
        await asyncio.sleep(0)
        assert Meters(limiter).slots == 0
        await asyncio.sleep(0.5)

    asyncio.run(main())
    assert settled == everything(110) * 2


def test_a_request_that_fails_without_a_hook_gives_everything_back(limiter, settled):
    async def run() -> None:
        await begin(limiter)
        raise ValueError

    with pytest.raises(ValueError):
        in_a_task(run)
    assert settled == everything(0, 0)
    assert Meters(limiter).slots == 0


def test_calls_with_the_same_id_are_told_apart(limiter, settled):
    """Clients may choose the id."""

    async def main() -> None:
        ready = asyncio.Event()

        async def one() -> None:
            data = await begin(limiter)
            await ready.wait()
            await limiter.async_post_call_success_hook(data, auth(), usage(10))

        async def two() -> None:
            data = await begin(limiter)
            await limiter.async_post_call_failure_hook(data, ValueError(), auth())
            ready.set()

        await asyncio.gather(one(), two())

    asyncio.run(main())
    assert settled == everything(0, 0) + everything(10)


def test_calls_inside_a_call_are_settled_by_themselves(limiter, settled):
    async def run() -> None:
        outer = await begin(limiter)
        inner = await begin(limiter, litellm_call_id="inner")
        await limiter.async_post_call_success_hook(inner, auth(), usage(1))
        await limiter.async_post_call_success_hook(outer, auth(), usage(2))

    in_a_task(run)
    assert settled == everything(1) + everything(2)


def test_only_declared_limits_refuse(limiter):
    async def run() -> None:
        for _ in range(50):
            await begin(limiter, auth(team="other", api_key=None), max_tokens=1_000_000)

    in_a_task(run)


def test_an_outage_refuses_no_call_of_a_limit_without_a_template(serve):
    # Unmatched resources have these settings, but longer leases.
    server = serve(template("litellm/*/*/*", 0, lease=2, kind="NO_ALGORITHM") + "  safe_capacity: -1\n")
    with Client(server.address) as client:
        limiter = Limiter(Settings(wait=0.5), client)
        in_a_task(lambda: begin(limiter))
        server.kill()
        eventually(lambda: all(limit.handle.lease is None for limit in limiter._limits.values()))
        in_a_task(lambda: begin(limiter))


def test_calls_without_a_model_are_not_limited(limiter):
    async def run() -> None:
        await begin(limiter, call_type="alist_input_items")
        await begin(limiter, call_type="call_mcp_tool")

    in_a_task(run)
    assert not limiter._limits


def test_headers_tell_limit_and_remaining(limiter):
    async def run() -> dict[str, str]:
        data = await begin(limiter)
        return await limiter.async_post_call_response_headers_hook(data, auth(), None)

    headers = in_a_task(run)
    assert headers["x-ratelimit-team-limit-parallel"] == "2"
    assert headers["x-ratelimit-team-remaining-parallel"] == "1"
    assert 0 < int(headers["x-ratelimit-team-limit-requests"]) <= 6000
    assert 0 < int(headers["x-ratelimit-key-limit-requests"]) <= 600
    assert "x-ratelimit-key-limit-tokens" not in headers


@pytest.mark.parametrize("allow", [False, True])
def test_calls_before_any_server_has_answered(allow):
    async def run(limiter: Limiter) -> None:
        if allow:
            await begin(limiter)
            return
        with pytest.raises(HTTPException) as refused:
            await begin(limiter)
        assert refused.value.status_code == 503
        assert "no lease yet" in refused.value.detail

    with Client(free_address()) as client:
        limiter = Limiter(Settings(wait=0.2, unready="allow" if allow else "refuse"), client)
        in_a_task(lambda: run(limiter))


def names(limiter: Limiter, of: UserAPIKeyAuth, model: str = "m") -> set[str]:
    return {limit.handle.id for limit in limiter._limits_of(of, {"model": model})}


def test_names_of_resources(serve):
    with Client(serve().address) as client:
        named = Limiter(
            Settings(limits=(("key", "rpm"), ("user", "tpm"), ("organization", "rpm"), ("model", "tpm"))), client
        )
        of = auth(api_key="sk-secret", user_id="a b@c", org_id="o/1")
        assert f"litellm/key/{hashlib.sha256(b'sk-secret').hexdigest()}/rpm" in names(named, of)
        ids = {name for name in names(named, of, "openai/gpt") if not name.startswith("litellm/key/")}
        assert ids == {"litellm/user/a%20b@c/tpm", "litellm/organization/o%2F1/rpm", "litellm/model/openai%2Fgpt/tpm"}
        assert names(named, auth(team=None, api_key=None), "m") == {"litellm/model/m/tpm"}

        limits = (("key", "tpm"), ("key", "rpm"), ("team", "tpm"), ("user", "rpm"), ("team", "budget"))
        tiers = Limiter(Settings(limits=limits, resource="{scope}/{tier}/{id}/{limit}"), client)
        hashed = hashlib.sha256(b"k").hexdigest()
        of = auth(metadata={"leaseway_tier": "gold"}, team_tpm_limit=60_000, team_max_budget=500.0, user_id="u")
        assert names(tiers, of) == {
            f"key/gold/{hashed}/tpm",
            f"key/gold/{hashed}/rpm",
            "team/60000/t/tpm",
            "team/500/t/budget",
            "user/default/u/rpm",
        }


def test_idle_limits_are_closed(limiter, monkeypatch):
    monkeypatch.setattr(litellm, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(litellm, "SWEEP_INTERVAL_SECONDS", 0.0)
    limiter._limits_of(auth(team="a"), {})
    limiter._limits_of(auth(team="b"), {})
    assert not [name for _, _, name in limiter._limits if "/a/" in name]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("LIMITS", "team/tpm,team/tps", "'team/tps' is not SCOPE/LIMIT"),
        ("RESOURCE", "{scope}/{limit}", "it must contain {scope}, {id} and {limit}"),
        ("RESOURCE", "{scope}/{id}/{limit}/{x}", "no other braces"),
        ("WAIT", "soon", "LEASEWAY_LITELLM_WAIT='soon': Input should be a valid number"),
        ("OUTPUT_TOKENS", "-1", "Input should be greater than or equal to 0"),
        ("UNREADY", "maybe", "Input should be 'refuse' or 'allow'"),
    ],
)
def test_invalid_settings_are_named(name, value, why):
    with pytest.raises(SettingsError) as error:
        Settings.from_env({f"LEASEWAY_LITELLM_{name}": value})
    assert why in str(error.value)


def test_settings():
    assert len(Settings.from_env({}).limits) == 20
    read = Settings.from_env({"LEASEWAY_LITELLM_LIMITS": "team/tpm, key/rpm", "LEASEWAY_LITELLM_WAIT": "0.5"})
    assert read.limits == (("key", "rpm"), ("team", "tpm"))
    assert read.wait == 0.5


def test_estimates():
    def estimate(call_type: str = "acompletion", **data: Any) -> int:
        return litellm._output_tokens(data, call_type, 1000)

    assert estimate() == 1000
    assert estimate(max_tokens=7, n=3) == 21
    assert estimate("aresponses", max_output_tokens=9) == 9
    assert estimate("aembedding") == 0
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    assert (
        litellm._prompt({"messages": [{"role": "user", "content": [{"type": "text", "text": "abcd"}, picture]}]}) == 4
    )
    assert litellm._prompt({"input": [1, 2, 3]}) == 12
    assert litellm._prompt({"input": "naïve 日本"}, litellm._bytes) == 13


# Budgets. A call of `begin` reserves 40 bytes and two messages at 0.001 dollars, and 100 tokens of output at 0.002.

BUDGETS = (
    budget("litellm/key/*/budget", 5),
    budget("litellm/team/b/budget", 10),
    template("litellm/team/b/rpm", 100),
    template("litellm/team/wrong/budget", 10),
)
PROMPT_PRICE = 0.06
PRICE = PROMPT_PRICE + 0.2


@pytest.fixture
def spender(serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> Iterator[Limiter]:
    known = {"litellm_provider": "openai", "mode": "chat", "max_output_tokens": 50_000}
    prices = {
        "m": {"input_cost_per_token": 0.001, "output_cost_per_token": 0.002, **known},
        "dear": {"input_cost_per_token": 0.01, "output_cost_per_token": 0.02, **known},
        "brief": {"input_cost_per_token": 0.001, "output_cost_per_token": 0.002, **known, "max_output_tokens": 20},
    }
    monkeypatch.setattr(real_litellm, "model_cost", {**real_litellm.model_cost})
    real_litellm.register_model(prices)
    with Client(serve(*BUDGETS).address) as client:
        yield Limiter(Settings(wait=20), client)


def near(dollars: Any) -> Any:
    """Costs are rounded up to parts of a dollar, once or twice."""
    return pytest.approx(dollars, abs=4 / litellm.COST_UNITS)


def keyless(team: str = "b") -> UserAPIKeyAuth:
    return auth(team, api_key=None)


async def refusal(limiter: Limiter, of: UserAPIKeyAuth, says: str, **data: Any) -> HTTPException:
    """The refusal of a call that waits for half a second. On a busy machine the first ones may be others, without a
    lease yet."""
    patient, limiter.settings = limiter.settings, Settings(wait=0.5)
    end = time.monotonic() + 30
    while True:
        with pytest.raises(HTTPException) as refused:
            await begin(limiter, of, **data)
        if says in refused.value.detail:
            limiter.settings = patient
            return refused.value
        assert time.monotonic() < end, refused.value.detail


def team_budget(limiter: Limiter) -> Any:
    return next(limit.handle for limit in limiter._limits.values() if (limit.scope, limit.limit) == ("team", "budget"))


async def billed(limiter: Limiter, cost: float, call_id: str = "c", **more: Any) -> None:
    """LiteLLM's log event."""
    payload = {"response_cost": cost, "total_tokens": 30}
    event = {"litellm_call_id": call_id, "standard_logging_object": payload, **more}
    await limiter.async_log_success_event(event, usage(30), None, None)


def test_a_call_reserves_its_maximum_price_and_is_settled_for_what_litellm_bills(spender, settled):
    async def run() -> None:
        data = await begin(spender, keyless())
        assert team_budget(spender).spent == near(PRICE)
        await spender.async_post_call_success_hook(data, keyless(), usage(30))
        assert settled == [("team/rpm", 1, 1)], "the cost is not reported yet"
        await billed(spender, 0.05)
        await billed(spender, 0.05)

    in_a_task(run)
    assert settled[1:] == [("team/budget", near(PRICE), near(0.05))]
    assert team_budget(spender).spent == near(0.05)


def test_a_failed_call_and_a_cached_answer_cost_nothing(spender):
    async def run() -> None:
        data = await begin(spender, keyless())
        await spender.async_post_call_failure_hook({**data, "response_cost": 1.0}, ValueError(), keyless())
        assert team_budget(spender).spent == 0
        data = await begin(spender, keyless(), litellm_call_id="d")
        await spender.async_post_call_success_hook(data, keyless(), usage(30))
        await billed(spender, 0.05, "d", cache_hit=True)

    in_a_task(run)
    assert team_budget(spender).spent == 0


def test_what_litellm_bills_for_failed_calls_is_spent(spender, monkeypatch):
    """A stream that breaks, and a call that fails after the provider has answered."""

    async def run() -> None:
        data = await begin(spender, keyless())
        with pytest.raises(ValueError):
            async for _ in stream(spender, data, chunk("a"), ValueError()):
                pass
        lifted = {**data, "combined_usage_object": real_litellm.Usage(), "response_cost": 0.03}
        await spender.async_post_call_failure_hook(lifted, ValueError(), keyless())
        assert team_budget(spender).spent == near(0.03)
        data = await begin(spender, keyless(), litellm_call_id="d")
        await spender.async_post_call_failure_hook(data, ValueError(), keyless())
        await billed(spender, 0.05, "d")

    in_a_task(run)
    assert team_budget(spender).spent == near(0.08)


def test_a_cost_that_nobody_reports_is_the_price_of_the_tokens(spender, monkeypatch):
    monkeypatch.setattr(litellm, "USAGE_SECONDS", 0.1)

    async def run() -> None:
        data = await begin(spender, keyless())
        await spender.async_post_call_success_hook(data, keyless(), usage(30))
        await asyncio.sleep(0.5)
        assert team_budget(spender).spent == near(10 * 0.001 + 20 * 0.002)
        chunks = stream(spender, await begin(spender, keyless(), litellm_call_id="d"), chunk("a" * 20), chunk("a" * 20))
        await chunks.__anext__()
        await chunks.aclose()
        await asyncio.sleep(0.5)

    in_a_task(run)
    assert team_budget(spender).spent == near(20 * 0.001 + 25 * 0.002)


def test_a_stream_is_settled_for_its_last_cost(spender):
    async def run() -> None:
        data = await begin(spender, keyless())
        async for _ in stream(spender, data, chunk("a"), chunk(tokens=25)):
            assert team_budget(spender).spent == near(PRICE)
        await billed(spender, 0.04)

    in_a_task(run)
    assert team_budget(spender).spent == near(0.04)


@pytest.mark.parametrize("status", [422, 429])
def test_a_refusal_of_a_budget_has_litellms_status_and_names_the_period(spender, settled, monkeypatch, status):
    monkeypatch.setattr(real_litellm, "budget_exceeded_status_code", status)

    async def run() -> None:
        of = "budget of this team (resource litellm/team/b/budget)"
        says = f"limit reached: {of} for a call of up to 12.060000 dollars, period until 20"
        answer = await refusal(spender, keyless(), says, max_tokens=6000)
        assert (answer.status_code, answer.type) == (status, "budget_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert 0 < int(answer.headers["x-ratelimit-team-reset-budget"]) <= 31 * 86400
        assert settled[-1] == ("team/rpm", 1, 0)
        await begin(spender, keyless())

    in_a_task(run)


def test_several_budgets_are_reserved_together_or_not_at_all(spender):
    async def run() -> None:
        await begin(spender, auth("b"), max_tokens=1000)
        spent = {limit.scope: limit.handle.spent for limit in spender._limits.values() if limit.limit == "budget"}
        assert spent["key"] == spent["team"] == near(2.06)
        refused = await refusal(spender, auth("b"), "budget of this key", max_tokens=2000)
        assert refused.headers["x-ratelimit-scope"] == "key"
        await begin(spender, keyless(), max_tokens=3500)
        refused = await refusal(spender, auth("b"), "budget of this team", max_tokens=1000)
        assert refused.headers["x-ratelimit-scope"] == "team"
        spent = {limit.scope: limit.handle.spent for limit in spender._limits.values() if limit.limit == "budget"}
        assert (spent["key"], spent["team"]) == near((2.06, 9.12))

    in_a_task(run)


def test_headers_tell_what_is_left_of_a_budget(spender):
    async def run() -> dict[str, str]:
        data = await begin(spender, keyless())
        return await spender.async_post_call_response_headers_hook(data, keyless(), None)

    headers = in_a_task(run)
    assert float(headers["x-ratelimit-team-remaining-budget"]) <= 10 - PRICE
    assert 0 < int(headers["x-ratelimit-team-reset-budget"]) <= 31 * 86400
    assert "x-ratelimit-model-remaining-budget" not in headers


def test_the_template_of_a_budget_must_be_one(spender):
    says = "its template must have the kind BUDGET: budget of this team"
    assert in_a_task(lambda: refusal(spender, keyless("wrong"), says)).status_code == 503


def test_budgets_can_be_left_out(spender):
    spender.settings = Settings(limits=(("team", "rpm"),), wait=20)
    in_a_task(lambda: begin(spender, keyless(), max_tokens=1_000_000))
    assert [limit.limit for limit in spender._limits.values()] == ["rpm"]


def test_models_without_a_price_cost_nothing_and_free_ones_need_no_budget(spender, monkeypatch):
    free = {"model": "openai/unheard-of", "input_cost_per_token": 0, "output_cost_per_token": 0}
    proxy_router(monkeypatch, {"free": [free], "unpriced": ["openai/unheard-of"]})

    async def run() -> None:
        await begin(spender, keyless(), model="unpriced", max_tokens=1_000_000)
        assert team_budget(spender).spent == near(litellm.MIN_COST)
        await billed(spender, 0.0)
        assert team_budget(spender).spent == 0
        await begin(spender, keyless(), model="free")
        assert team_budget(spender).spent == 0
        team_budget(spender).charge(10)
        await begin(spender, keyless(), model="free")
        await refusal(spender, keyless(), "budget of this team", model="unpriced")

    in_a_task(run)


def proxy_router(monkeypatch: pytest.MonkeyPatch, models: dict[str, list[Any]], **more: Any) -> None:
    """A router as that of the proxy, with deployments as names or parameters."""
    deployments = [
        {"model_name": name, "litellm_params": {"api_key": "none", **(of if isinstance(of, dict) else {"model": of})}}
        for name, all_of in models.items()
        for of in all_of
    ]
    router = real_litellm.Router(model_list=deployments, **more)
    monkeypatch.setattr(litellm, "_router", lambda: router)


def test_the_dearest_deployment_and_fallback_is_reserved(spender, monkeypatch):
    custom = {"model": "openai/unheard-of", "input_cost_per_token": 0.1, "output_cost_per_token": 0.2}
    models = {"one": ["openai/m"], "two": ["openai/m", "openai/dear"], "three": ["openai/m"], "four": ["openai/brief"]}
    proxy_router(monkeypatch, {**models, "custom": [custom]}, fallbacks=[{"three": ["two"]}])

    def price(**data: Any) -> float:
        async def run() -> float:
            before = team_budget(spender).spent if spender._limits else 0
            data["messages"] = MESSAGES
            await begin(spender, keyless(), **data)
            return team_budget(spender).spent - before

        return in_a_task(run)

    assert price(model="one") == near(PRICE)
    dear = PROMPT_PRICE * 10 + 0.2
    assert price(model="two", max_tokens=10) == near(dear)
    assert price(model="three", max_tokens=10) == near(dear)
    assert price(model="one", max_tokens=10, fallbacks=["two"]) == near(dear)
    assert price(model="custom", max_tokens=1) == near(PROMPT_PRICE * 100 + 0.2)
    assert price(model="one", n=2) == near(PRICE + 0.2)
    assert price(model="four", n=2) == near(PROMPT_PRICE + 0.08)
