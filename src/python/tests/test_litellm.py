"""`leaseway.litellm`: its hooks, called as the proxy calls them, with a real server.

Needs LEASEWAY_TEST_LITELLM, LiteLLM's command. `test_litellm_proxy.py` runs the real proxy.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from conftest import Server, eventually, free_address, template

from leaseway import Client

if "LEASEWAY_TEST_LITELLM" not in os.environ:
    pytest.skip("LEASEWAY_TEST_LITELLM is not set", allow_module_level=True)

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
def settled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Settlements of reservations as (limit, reserved, used)."""
    seen: list[tuple[str, int, int]] = []
    original = litellm.Hold.settle

    def settle(hold: litellm.Hold, tokens: int, requests: int = 1) -> None:
        for limit, what in hold.taken:
            if not isinstance(what, litellm.Permit):
                used = tokens if limit.limit == "tpm" else requests
                seen.append((f"{limit.scope}/{limit.limit}", what.reserved, used))
        original(hold, tokens, requests)

    monkeypatch.setattr(litellm.Hold, "settle", settle)
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

        limits = (("key", "tpm"), ("key", "rpm"), ("team", "tpm"), ("user", "rpm"))
        tiers = Limiter(Settings(limits=limits, resource="{scope}/{tier}/{id}/{limit}"), client)
        hashed = hashlib.sha256(b"k").hexdigest()
        of = auth(metadata={"leaseway_tier": "gold"}, team_tpm_limit=60_000, user_id="u")
        assert names(tiers, of) == {
            f"key/gold/{hashed}/tpm",
            f"key/gold/{hashed}/rpm",
            "team/60000/t/tpm",
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
    assert len(Settings.from_env({}).limits) == 15
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
