"""Limits for the LiteLLM proxy: tokens per minute, requests per minute and parallel calls, shared by all its replicas.

    litellm_settings:
      callbacks: ["leaseway.litellm.limiter"]

Before a call the limiter reserves an estimate of its tokens, one request and one slot of each limit, or nothing if one
of them refuses. Afterwards it settles what the call used. It decides from leases, in process. Each limit is a resource of
the cluster, so the capacities are in the cluster's configuration. `Settings.from_env` lists the environment variables.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from string import Formatter
from typing import Any, Literal, Optional, Union
from urllib.parse import quote

from fastapi import HTTPException
from litellm.constants import NON_INFERENCE_CALL_TYPES
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import hash_token
from litellm.proxy.common_utils.proxy_rate_limit_error import ProxyRateLimitError
from litellm.types.utils import MCP_GUARDRAIL_CALL_TYPES
from pydantic import BaseModel, Field, ValidationError, field_validator

from leaseway import Client, DebtExceeded, Gauge, LeasewayError, NotReady, Permit, Rate, Reservation, Timeout

log = logging.getLogger("leaseway.litellm")

#: Scopes from the narrowest to the broadest. A call that waits for a limit holds only narrower ones.
SCOPES = ("key", "user", "team", "organization", "model")
#: Limits in the order in which a call takes them: unit in headers, unit in messages, LiteLLM's own setting.
LIMITS = {
    "parallel": ("parallel", "parallel calls", "max_parallel_requests"),
    "rpm": ("requests", "requests per minute", "rpm_limit"),
    "tpm": ("tokens", "tokens per minute", "tpm_limit"),
}
#: Where LiteLLM keeps the metadata of a scope.
METADATA = {"key": "metadata", "team": "team_metadata", "organization": "organization_metadata"}
#: Calls that run no model.
UNLIMITED_CALL_TYPES = NON_INFERENCE_CALL_TYPES | MCP_GUARDRAIL_CALL_TYPES
#: Parts of the types of calls that have no output tokens.
WITHOUT_OUTPUT = ("embedding", "moderation", "rerank", "speech", "transcription", "image", "ocr", "search")

#: How long a call that has ended waits for LiteLLM to report its usage.
USAGE_SECONDS = 30.0
#: Handles of limits that no call used for this long are closed.
IDLE_SECONDS = 600.0
SWEEP_INTERVAL_SECONDS = 30.0
#: Maximum number of permits in one reservation.
MAX_PERMITS = 2**31 - 1
#: What a limit asks for at first. A resource without a template gets all of it, one with a template gets a share.
PROBE_WANTS = 1e12


class SettingsError(LeasewayError, ValueError):
    """A LEASEWAY_LITELLM_* variable has an invalid value."""


class Settings(BaseModel, frozen=True):
    """Settings of a limiter. Each is read from the variable LEASEWAY_LITELLM_ and its name in capitals."""

    #: Enforced limits as (scope, limit); in the variable as SCOPE/LIMIT, separated by commas or spaces.
    limits: tuple[tuple[str, str], ...] = tuple((scope, limit) for scope in SCOPES for limit in LIMITS)
    #: Pattern of resource names, with {scope}, {id}, {limit} and perhaps {tier}.
    resource: str = "litellm/{scope}/{id}/{limit}"
    #: Maximum time that a call waits for its limits, in seconds.
    wait: float = Field(2.0, ge=0, allow_inf_nan=False)
    #: What a worker may save up of a rate, in seconds of its lease.
    window: float = Field(60.0, ge=0, allow_inf_nan=False)
    #: Output tokens to reserve for a call that sets no maximum.
    output_tokens: int = Field(1000, ge=0)
    #: What happens to calls while no server has answered yet.
    unready: Literal["refuse", "allow"] = "refuse"

    @classmethod
    def from_env(cls, environ: Optional[Mapping[str, str]] = None) -> Settings:
        environ = os.environ if environ is None else environ
        variables = {name: f"LEASEWAY_LITELLM_{name.upper()}" for name in cls.model_fields}
        try:
            return cls.model_validate(
                {n: environ[variable] for n, variable in variables.items() if variable in environ}
            )
        except ValidationError as invalid:
            errors = [(variables[str(one["loc"][0])], one["input"], one["msg"]) for one in invalid.errors()]
            raise SettingsError("; ".join(f"{name}={value!r}: {why}" for name, value, why in errors)) from None

    @field_validator("limits", mode="before")
    @classmethod
    def _read_limits(cls, limits: Any) -> Any:
        pairs = [tuple(one.split("/")) for one in re.findall("[^, ]+", limits)] if isinstance(limits, str) else limits
        every = [(scope, limit) for scope in SCOPES for limit in LIMITS]
        for pair in pairs:
            if pair not in every:
                raise ValueError(
                    f"{'/'.join(pair)!r} is not SCOPE/LIMIT with a scope of {', '.join(SCOPES)}"
                    f" and a limit of {', '.join(LIMITS)}"
                )
        # The order in which a call takes them.
        return tuple(pair for pair in every if pair in pairs)

    @field_validator("resource")
    @classmethod
    def _check_resource(cls, pattern: str) -> str:
        if {name for _, name, _, _ in Formatter().parse(pattern) if name is not None} - {"tier"} != {
            "scope",
            "id",
            "limit",
        }:
            raise ValueError("it must contain {scope}, {id} and {limit}, perhaps {tier}, and no other braces")
        return pattern


class Limit:
    """An open limit: a resource of the cluster."""

    __slots__ = ("scope", "limit", "handle", "last_used", "_probes")

    def __init__(self, scope: str, limit: str, handle: Union[Rate, Gauge]) -> None:
        self.scope, self.limit, self.handle = scope, limit, handle
        self.last_used = 0.0
        self._probes = True

    async def is_unlimited(self, deadline: float) -> bool:
        """Whether the resource has no template. Waits for the first lease."""
        if not self._probes:
            return False
        if self.handle.lease is None and math.isfinite(self.handle.capacity):
            await self.handle.ready_async(_left(deadline))
        if self.handle.capacity >= PROBE_WANTS / 2:
            return True
        self._probes = False
        self.handle.estimate_wants()
        return False

    def retry_after(self, n: int) -> float:
        """Seconds until this worker probably has n permits."""
        if isinstance(self.handle, Gauge):
            return 1.0
        standing = self.handle.standing
        ready = standing.ready_in(min(n, max(1, int(standing.burst))))
        return 60.0 if ready is None else ready

    def headers(self) -> dict[str, str]:
        """The lease of this worker, and what is left of it."""
        if isinstance(self.handle, Gauge):
            total = self.handle.capacity
            remaining = total - self.handle.in_use
        else:
            standing = self.handle.standing
            total, remaining = standing.capacity * 60, standing.available
        if self._probes or not math.isfinite(total):
            return {}
        unit = LIMITS[self.limit][0]
        return {
            f"x-ratelimit-{self.scope}-limit-{unit}": str(int(total)),
            f"x-ratelimit-{self.scope}-remaining-{unit}": str(max(0, int(remaining))),
        }


class Hold:
    """What one call has taken."""

    def __init__(self, limits: list[Limit], call_id: Optional[str], outer: Optional[Hold]) -> None:
        self.limits, self.call_id, self.outer = limits, call_id, outer
        self.taken: list[tuple[Limit, Union[Reservation, Permit]]] = []
        self.prompt_tokens = 0
        self.estimate = 0
        #: Whether a stream is in charge of the end.
        self.streaming = False
        self._timer: Optional[asyncio.TimerHandle] = None

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended yet."""
        return bool(self.taken) and self._timer is None

    def release_slots(self) -> None:
        slots = [what for _, what in self.taken if isinstance(what, Permit)]
        self.taken = [pair for pair in self.taken if not isinstance(pair[1], Permit)]
        for slot in slots:
            slot.release()

    def settle(self, tokens: int, requests: int = 1) -> None:
        """Ends the hold: returns slots, and settles rates for what was used."""
        self.release_slots()
        if self._timer is not None:
            self._timer.cancel()
        taken, self.taken = self.taken, []
        for limit, what in taken:
            try:
                what.settle(tokens if limit.limit == "tpm" else requests)  # type: ignore[union-attr]
            except DebtExceeded as exceeded:
                log.warning("%s: %s", limit.handle.id, exceeded)
            except LeasewayError as error:
                log.debug("%s: %s", limit.handle.id, error)

    def settle_later(self, tokens: int) -> None:
        """Returns slots now, and settles rates when LiteLLM reports the usage, or for `tokens` if it does not."""
        self.release_slots()
        if self.is_open:
            self._timer = asyncio.get_running_loop().call_later(USAGE_SECONDS, self.settle, tokens)

    def task_done(self, task: asyncio.Task[Any]) -> None:
        """Ends a call whose request has ended and that no hook has ended: it was cancelled, its stream never began, or
        its endpoint runs no hook."""
        if self.streaming or not self.is_open:
            return
        if not task.cancelled() and task.exception() is not None:
            self.settle(0, 0)
        else:
            self.settle_later(self.estimate)


#: The innermost call of this context. Hooks and log events of a request run in the context of its task.
_hold: ContextVar[Optional[Hold]] = ContextVar("leaseway_litellm_hold", default=None)


def _open_hold() -> Optional[Hold]:
    hold = _hold.get()
    while hold is not None and not hold.is_open:
        hold = hold.outer
    return hold


class Limiter(CustomLogger):
    """Enforces the limits of a cluster in a LiteLLM proxy. Each worker process has a client of its own.

    Add an instance to `litellm_settings.callbacks`: `limiter` of this module, which reads the environment."""

    def __init__(self, settings: Optional[Settings] = None, client: Optional[Client] = None) -> None:
        super().__init__()
        self.settings = Settings.from_env() if settings is None else settings
        self._client = client
        self._limits: dict[tuple[str, str, str], Limit] = {}
        self._next_sweep = 0.0

    # Hooks of the proxy.

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> Optional[dict[str, Any]]:
        if call_type in UNLIMITED_CALL_TYPES:
            return None
        limits = self._limits_of(user_api_key_dict, data)
        if not limits:
            return None
        hold = Hold(limits, data.get("litellm_call_id"), _open_hold())
        hold.prompt_tokens = _tokens(_prompt(data))
        output_tokens = _output_tokens(data, call_type, self.settings.output_tokens if hold.prompt_tokens else 0)
        hold.estimate = max(1, min(MAX_PERMITS, hold.prompt_tokens + output_tokens))
        await self._take(hold)
        _hold.set(hold)
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(hold.task_done)
        return None

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        hold = _open_hold()
        if hold is not None:
            used = used_tokens(response)
            if used is None:
                hold.settle_later(hold.estimate)
            else:
                hold.settle(used)
        return response

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: Optional[str] = None,
    ) -> None:
        hold = _open_hold()
        if hold is not None:
            hold.settle(0, 0)

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        hold = _open_hold()
        if hold is None:
            async for chunk in response:
                yield chunk
            return
        hold.streaming = True
        used: Optional[int] = None
        delivered = 0
        opaque = failed = False
        try:
            async for chunk in response:
                found = used_tokens(chunk)
                used = used if found is None else found
                text = _delta(chunk)
                opaque = opaque or (text is None and found is None)
                delivered += len(text or "")
                yield chunk
                # Another task may go on with the stream; the log event runs in its context.
                _hold.set(hold)
        except Exception:
            failed = not (delivered or opaque)
            raise
        finally:
            # Also runs when the client disconnects.
            if failed:
                hold.settle(0, 0)
            elif used is not None:
                hold.settle(used)
            else:
                hold.settle_later(hold.estimate if opaque else hold.prompt_tokens + _tokens(delivered))

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: Optional[dict[str, str]] = None,
        litellm_call_info: Optional[dict[str, Any]] = None,
    ) -> dict[str, str]:
        hold = _hold.get()
        headers: dict[str, str] = {}
        for limit in hold.limits if hold is not None else ():
            headers.update(limit.headers())
        return headers

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        hold = _hold.get()
        # Callbacks make calls of their own, with ids of their own.
        while hold is not None and not (hold.taken and hold.call_id in (None, kwargs.get("litellm_call_id"))):
            hold = hold.outer
        if hold is None:
            return
        used = 0 if kwargs.get("cache_hit") is True else used_tokens(response_obj)
        if used is None:
            used = _get(kwargs.get("standard_logging_object"), "total_tokens")
        if used is not None:
            hold.settle(used)

    # Limits.

    def _limits_of(self, auth: Any, data: Mapping[str, Any]) -> list[Limit]:
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_INTERVAL_SECONDS
            for key in [key for key, limit in self._limits.items() if now - limit.last_used >= IDLE_SECONDS]:
                del self._limits[key]
        ids = {
            "key": _key_id(auth),
            "user": getattr(auth, "user_id", None),
            "team": getattr(auth, "team_id", None),
            "organization": getattr(auth, "org_id", None),
            "model": data.get("model"),
        }
        found = []
        for scope, name in self.settings.limits:
            id = ids[scope]
            if not isinstance(id, str) or not id:
                continue
            resource = _resource(self.settings.resource, scope, id, name, _tier(auth, scope, name))
            limit = self._limits.get((scope, name, resource))
            if limit is None:
                if scope == "model" and not _is_served(id):
                    continue
                limit = self._limits[scope, name, resource] = self._open(scope, name, resource)
            limit.last_used = now
            found.append(limit)
        return found

    def _open(self, scope: str, name: str, resource: str) -> Limit:
        if self._client is None:
            self._client = Client.from_env()
        if name == "parallel":
            return Limit(scope, name, self._client.gauge(resource, wants=PROBE_WANTS))
        return Limit(scope, name, self._client.rate(resource, wants=PROBE_WANTS, window=self.settings.window))

    # Reservations.

    async def _take(self, hold: Hold) -> None:
        """Takes all limits, or none."""
        deadline = time.monotonic() + self.settings.wait
        complete = False
        try:
            for limit in hold.limits:
                n = hold.estimate if limit.limit == "tpm" else 1
                try:
                    if await limit.is_unlimited(deadline):
                        continue
                    hold.taken.append((limit, await self._take_one(limit, n, deadline)))
                except NotReady as error:
                    if self.settings.unready == "refuse":
                        raise _refusal(503, limit, f"no lease yet: {error.why}", 1.0) from None
                except Timeout:
                    raise _refusal(429, limit, "limit reached", limit.retry_after(n)) from None
            complete = True
        finally:
            if not complete:
                hold.settle(0, 0)

    async def _take_one(self, limit: Limit, n: int, deadline: float) -> Union[Reservation, Permit]:
        handle = limit.handle
        taken = handle.try_acquire() if isinstance(handle, Gauge) else handle.try_reserve(n)
        if taken is not None:
            return taken
        if isinstance(handle, Gauge):
            return await handle.acquire_async(1, _left(deadline))
        try:
            return await handle.reserve_async(n, _left(deadline))
        except Timeout:
            # A call larger than the bucket of this worker takes the whole bucket, and owes the rest when it ends.
            standing = handle.standing
            bucket = int(standing.burst)
            if n > bucket >= 1 and standing.available >= bucket * 0.9:
                reservation = handle.try_reserve(min(bucket, int(standing.available)))
                if reservation is not None:
                    return reservation
            raise


@functools.lru_cache(maxsize=10_000)
def _resource(pattern: str, scope: str, id: str, limit: str, tier: str) -> str:
    return pattern.format(scope=scope, id=quote(id, safe="@:+"), limit=limit, tier=quote(tier, safe="@:+"))


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _key_id(auth: Any) -> Optional[str]:
    """The hash of the key, as LiteLLM stores it. Custom authentication may leave the key itself here."""
    key = getattr(auth, "api_key", None)
    return hash_token(key) if key and not re.fullmatch("[0-9a-f]{64}", key) else key


def _tier(auth: Any, scope: str, limit: str) -> str:
    """The metadata `leaseway_tier` of the key, team or organization; else LiteLLM's own limit; else "default"."""
    tier = (getattr(auth, METADATA.get(scope, ""), None) or {}).get("leaseway_tier")
    if tier is None:
        prefix = "" if scope == "key" else f"{scope}_"
        tier = getattr(auth, prefix + LIMITS[limit][2], None)
    return "default" if tier is None else str(tier)


def _is_served(model: str) -> bool:
    """Whether the proxy serves this model. Callers can ask for any name, and each limit costs memory."""
    router = getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)
    return router is None or bool(router.get_model_list(model_name=model))


def _refusal(status: int, limit: Limit, why: str, retry_after: float) -> HTTPException:
    seconds = max(1, math.ceil(retry_after))
    unit = LIMITS[limit.limit][1]
    detail = f"{why}: {unit} of this {limit.scope} (resource {limit.handle.id}); retry after {seconds} s"
    headers = {
        "retry-after": str(seconds),
        "x-ratelimit-scope": limit.scope,
        "x-ratelimit-resource": limit.handle.id,
        **limit.headers(),
    }
    if status == 429 and limit.scope == "model":
        # LiteLLM then tries the fallbacks of the model.
        return ProxyRateLimitError(detail=detail, headers=headers)
    return HTTPException(status_code=status, detail=detail, headers=headers)


# Tokens.


def used_tokens(response: Any) -> Optional[int]:
    """Tokens that a response or its last chunk says it used; None if it says nothing."""
    hidden = getattr(response, "_hidden_params", None)
    if isinstance(hidden, dict) and hidden.get("cache_hit") is True:
        return 0
    usage = _get(response, "usage") or _get(_get(response, "response"), "usage")
    total = _get(usage, "total_tokens")
    if isinstance(total, int):
        return total
    parts = [_get(usage, name) for name in ("input_tokens", "output_tokens")]
    return sum(parts) if all(isinstance(part, int) for part in parts) else None


def _get(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, dict) else getattr(of, name, None)


def _tokens(characters: int) -> int:
    """LiteLLM's estimate, without a tokenizer: the usage is settled later."""
    return -(-characters // 4)


def _output_tokens(data: Mapping[str, Any], call_type: str, default: int) -> int:
    """The maximum number of output tokens of a call, or the default if it sets none."""
    if any(part in call_type for part in WITHOUT_OUTPUT):
        return 0
    maxima = (data.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
    maximum = next((one for one in maxima if isinstance(one, int) and one >= 0), default)
    choices = data.get("n")
    return maximum * (choices if isinstance(choices, int) and choices > 1 else 1)


def _prompt(data: Mapping[str, Any]) -> int:
    """Characters of a request's prompt, without images and audio."""
    return sum(_length(data.get(name)) for name in ("messages", "system", "prompt", "input", "contents", "tools"))


def _length(of: Any) -> int:
    if isinstance(of, str):
        return 0 if of.startswith("data:") else len(of)
    if isinstance(of, dict):
        return sum(_length(value) for name, value in of.items() if name not in ("role", "type", "data", "file_data"))
    if isinstance(of, list):
        return sum(4 if isinstance(part, int) else _length(part) for part in of)
    return 0


def _delta(chunk: Any) -> Optional[str]:
    """The text that a chunk adds; None if its format is unknown."""
    choices = _get(chunk, "choices")
    if not isinstance(choices, list):
        return None
    texts = []
    for choice in choices:
        delta = _get(choice, "delta")
        calls = [_get(_get(call, "function"), "arguments") for call in _get(delta, "tool_calls") or ()]
        texts += [_get(delta, "content"), _get(delta, "reasoning_content"), _get(choice, "text"), *calls]
    return "".join(text for text in texts if isinstance(text, str))


limiter = Limiter()
