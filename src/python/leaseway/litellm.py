"""Limits for the LiteLLM proxy, shared by all its replicas: tokens and requests per minute, parallel calls, and budgets
in dollars.

    litellm_settings:
      callbacks: ["leaseway.litellm.limiter"]

Before a call the limiter reserves an estimate of its tokens, its maximum price, one request and one slot of each limit,
or nothing if one of them refuses. Afterwards it settles what the call used, and what LiteLLM bills for it. It decides
from leases, in process. Each limit is a resource of the cluster, so the capacities are in the cluster's configuration.
`Settings.from_env` lists the environment variables.
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
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timezone
from string import Formatter
from typing import Any, Literal, NamedTuple, Optional, Union
from urllib.parse import quote

import litellm
from fastapi import HTTPException
from litellm.constants import NON_INFERENCE_CALL_TYPES
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import ProxyErrorTypes, hash_token
from litellm.proxy.common_utils.proxy_rate_limit_error import ProxyRateLimitError
from litellm.router_utils.fallback_event_handlers import get_fallback_model_group
from litellm.types.utils import MCP_GUARDRAIL_CALL_TYPES, Usage
from pydantic import BaseModel, Field, ValidationError, field_validator

from leaseway import (
    Budget,
    BudgetReservation,
    Client,
    DebtExceeded,
    Gauge,
    LeasewayError,
    NotReady,
    Permit,
    Rate,
    Reservation,
    Timeout,
)

log = logging.getLogger("leaseway.litellm")

#: Scopes from the narrowest to the broadest. A call that waits for a limit holds only narrower ones.
SCOPES = ("key", "user", "team", "organization", "model")
#: Limits in the order in which a call takes them: unit in headers, unit in messages, LiteLLM's own setting.
LIMITS = {
    "parallel": ("parallel", "parallel calls", "max_parallel_requests"),
    "rpm": ("requests", "requests per minute", "rpm_limit"),
    "tpm": ("tokens", "tokens per minute", "tpm_limit"),
    "budget": ("budget", "budget", "max_budget"),
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
#: Maximum number of tokens of a message beside its text.
MESSAGE_TOKENS = 10
#: Dollars to reserve at least, so that no call passes when a budget is spent.
MIN_COST = 2.0**-20
#: Parts of a dollar in which costs are counted. Floats add up such amounts exactly, up to eight million dollars, so the
#: allowance for a waiting call is never a rounding error too small.
COST_UNITS = 2.0**30
#: The longest Retry-After of a refusal. Capacity that others return may cover the call before a period ends.
MAX_RETRY_SECONDS = 60.0
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

    def __init__(self, scope: str, limit: str, handle: Union[Rate, Gauge, Budget]) -> None:
        self.scope, self.limit, self.handle = scope, limit, handle
        self.last_used = 0.0
        self._probes = True

    async def is_unlimited(self, deadline: float) -> bool:
        """Whether the resource has no template. Waits for the first lease."""
        if isinstance(self.handle, Budget):
            if self._probes and self.handle.lease is None and not self.handle.unlimited:
                await self.handle.ready_async(_left(deadline))
            self._probes = False
            return self.handle.unlimited
        if not self._probes:
            return False
        if self.handle.lease is None and math.isfinite(self.handle.capacity):
            await self.handle.ready_async(_left(deadline))
        if self.handle.capacity >= PROBE_WANTS / 2:
            return True
        self._probes = False
        self.handle.estimate_wants()
        return False

    def retry_after(self, n: float) -> float:
        """Seconds until this worker probably has n permits."""
        if isinstance(self.handle, Gauge):
            return 1.0
        if isinstance(self.handle, Budget):
            return min(MAX_RETRY_SECONDS, _seconds_left(self.handle))
        standing = self.handle.standing
        ready = standing.ready_in(min(int(n), max(1, int(standing.burst))))
        return MAX_RETRY_SECONDS if ready is None else ready

    def headers(self) -> dict[str, str]:
        """The lease of this worker, and what is left of it."""
        if isinstance(self.handle, Budget):
            if self.handle.lease is None or self.handle.unlimited:
                return {}
            headers = {f"x-ratelimit-{self.scope}-remaining-budget": f"{self.handle.left:.6f}"}
            if self.handle.period is not None:
                headers[f"x-ratelimit-{self.scope}-reset-budget"] = str(math.ceil(_seconds_left(self.handle)))
            return headers
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


class Price(NamedTuple):
    """What a model costs, in dollars per token, and the maximum number of output tokens of one choice."""

    input: float
    output: float
    max_output_tokens: float


class Hold:
    """What one call has taken."""

    def __init__(self, limits: list[Limit], data: Mapping[str, Any], call_type: str, outer: Optional[Hold]) -> None:
        self.limits, self.outer = limits, outer
        self.call_id: Optional[str] = data.get("litellm_call_id")
        self.taken: list[tuple[Limit, Union[Reservation, BudgetReservation, Permit]]] = []
        self.prompt_tokens = 0
        self.max_prompt_tokens = 0
        self.output_tokens = 0
        #: Whether a stream is in charge of the end.
        self.streaming = False
        self._asked = {name: data.get(name) for name in ("model", "fallbacks", "n")}
        self._call_type = call_type
        #: Budgets that are settled, and the cost that was counted.
        self._settled_budgets: list[Budget] = []
        self._counted = 0.0
        self._timer: Optional[asyncio.TimerHandle] = None

    @property
    def estimate(self) -> int:
        return max(1, min(MAX_PERMITS, self.prompt_tokens + self.output_tokens))

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended yet."""
        return bool(self.taken) and self._timer is None

    @functools.cached_property
    def _models(self) -> list[str]:
        return _models(self._asked)

    @functools.cached_property
    def _prices(self) -> list[Price]:
        return [_price(model) for model in self._models]

    @functools.cached_property
    def is_free(self) -> bool:
        """Whether the proxy's configuration prices the model and its fallbacks at 0. Reranking has prices per query."""
        # Not at the top: this module imports the proxy's server.
        from litellm.proxy.auth.auth_checks import is_model_cost_zero

        is_priced_by_token = bool(self._models) and "rerank" not in self._call_type
        return is_priced_by_token and is_model_cost_zero(model=self._models, llm_router=_router())

    def amount(self, limit: str) -> float:
        """What to take of a limit of this name."""
        if limit == "budget":
            return max(MIN_COST, self._cost(self.max_prompt_tokens, self.output_tokens))
        return self.estimate if limit == "tpm" else 1

    def cost(self, tokens: int) -> float:
        """The price of so many tokens in dollars, with the prompt as estimated."""
        prompt = min(tokens, self.prompt_tokens)
        return self._cost(prompt, tokens - prompt)

    def _cost(self, prompt: int, output: int) -> float:
        """The price by the dearest model that may answer."""
        choices = _choices(self._asked)
        costs = (
            prompt * price.input + min(output, price.max_output_tokens * choices) * price.output
            for price in self._prices
        )
        return _round_up(max(costs, default=0.0))

    def release_slots(self) -> None:
        slots = [what for _, what in self.taken if isinstance(what, Permit)]
        self.taken = [pair for pair in self.taken if not isinstance(pair[1], Permit)]
        for slot in slots:
            slot.release()

    def settle(self, tokens: int, requests: int = 1, cost: Optional[float] = None) -> None:
        """Ends the hold: returns slots, and settles rates for what was used. Budgets without a `cost` wait until
        LiteLLM reports it."""
        self.release_slots()
        self._settle({"tpm": tokens, "rpm": requests, **({} if cost is None else {"budget": cost})})
        self.settle_later(tokens)

    def settle_cost(self, cost: float) -> None:
        """Settles budgets for what LiteLLM bills. If they were settled before for less, charges the difference: LiteLLM
        may bill a call that has failed."""
        excess = cost - self._counted
        for budget in self._settled_budgets if excess > 0 else ():
            try:
                budget.charge(excess)
            except LeasewayError as error:
                log.debug("%s: %s", budget.id, error)
        self._counted = max(cost, self._counted)
        self._settle({"budget": cost})

    def settle_later(self, tokens: int) -> None:
        """Returns slots now. Settles rates and budgets when LiteLLM reports usage and cost, or for `tokens` and their
        price if it does not."""
        self.release_slots()
        if self.is_open:
            self._timer = asyncio.get_running_loop().call_later(USAGE_SECONDS, self._settle_unreported, tokens)

    def _settle_unreported(self, tokens: int) -> None:
        self.settle(tokens, cost=self.cost(tokens))

    def _settle(self, used: Mapping[str, float]) -> None:
        """Settles the limits of these names."""
        settled = [pair for pair in self.taken if pair[0].limit in used]
        self.taken = [pair for pair in self.taken if pair[0].limit not in used]
        if not self.taken and self._timer is not None:
            self._timer.cancel()
        for limit, what in settled:
            if isinstance(limit.handle, Budget):
                self._settled_budgets.append(limit.handle)
                self._counted = max(used[limit.limit], self._counted)
            try:
                what.settle(used[limit.limit])  # type: ignore[union-attr,arg-type]
            except DebtExceeded as exceeded:
                log.warning("%s: %s", limit.handle.id, exceeded)
            except LeasewayError as error:
                log.debug("%s: %s", limit.handle.id, error)

    def task_done(self, task: asyncio.Task[Any]) -> None:
        """Ends a call whose request has ended and that no hook has ended: it was cancelled, its stream never began, or
        its endpoint runs no hook."""
        if self.streaming or not self.is_open:
            return
        if not task.cancelled() and task.exception() is not None:
            self.settle(0, 0, 0.0)
        else:
            self.settle_later(self.estimate)


#: The innermost call of this context. Hooks and log events of a request run in the context of its task.
_hold: ContextVar[Optional[Hold]] = ContextVar("leaseway_litellm_hold", default=None)


def _open_hold() -> Optional[Hold]:
    hold = _hold.get()
    while hold is not None and not hold.is_open:
        hold = hold.outer
    return hold


def _hold_of(call_id: Optional[str]) -> Optional[Hold]:
    """The hold of the call with this id, if possible one that is not settled. Callbacks make calls of their own, with
    ids of their own."""
    hold, ended = _hold.get(), None
    while hold is not None:
        if hold.taken and hold.call_id in (None, call_id):
            return hold
        if ended is None and call_id is not None and hold.call_id == call_id:
            ended = hold
        hold = hold.outer
    return ended


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
        hold = Hold(limits, data, call_type, _open_hold())
        hold.prompt_tokens = _tokens(_prompt(data))
        hold.max_prompt_tokens = _prompt(data, _bytes) + MESSAGE_TOKENS * _messages(data)
        hold.output_tokens = _output_tokens(data, call_type, self.settings.output_tokens if hold.prompt_tokens else 0)
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
        cost = _failed_cost(request_data)
        hold = _open_hold()
        if hold is not None:
            hold.settle(0, 0, cost)
        elif cost > 0 and (hold := _hold_of(request_data.get("litellm_call_id"))) is not None:
            # A stream that has failed after its first chunks.
            hold.settle_cost(cost)

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
                hold.settle(0, 0, 0.0)
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
        hold = _hold_of(kwargs.get("litellm_call_id"))
        if hold is None:
            return
        cost = billed_cost(kwargs)
        if cost is not None:
            hold.settle_cost(cost)
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
        if name == "budget":
            return Limit(scope, name, self._client.budget(resource))
        return Limit(scope, name, self._client.rate(resource, wants=PROBE_WANTS, window=self.settings.window))

    # Reservations.

    async def _take(self, hold: Hold) -> None:
        """Takes all limits, or none."""
        deadline = time.monotonic() + self.settings.wait
        complete = False
        try:
            for limit in hold.limits:
                n = 1.0
                try:
                    if await limit.is_unlimited(deadline) or (limit.limit == "budget" and hold.is_free):
                        continue
                    n = hold.amount(limit.limit)
                    hold.taken.append((limit, await self._take_one(limit.handle, n, deadline)))
                except NotReady as error:
                    if self.settings.unready == "refuse":
                        raise _refusal(503, limit, f"no lease yet: {error.why}", 1.0) from None
                except Timeout:
                    # The first lease of a budget may arrive before the client learns that there is no template.
                    if not limit.handle.unlimited:
                        raise _limit_reached(limit, n) from None
            complete = True
        finally:
            if not complete:
                hold.settle(0, 0, 0.0)

    async def _take_one(
        self, handle: Union[Rate, Gauge, Budget], amount: float, deadline: float
    ) -> Union[Reservation, BudgetReservation, Permit]:
        if isinstance(handle, Budget):
            return await handle.reserve_async(amount, _left(deadline))
        n = int(amount)
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


def _seconds_left(budget: Budget) -> float:
    """Seconds until the period of a budget ends; infinite if it is spent once."""
    return math.inf if budget.period is None else max(0.0, budget.period[1] - time.time())


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
    if isinstance(tier, dict):
        # LiteLLM's budgets by model.
        tier = None
    return "default" if tier is None else f"{tier:.15g}" if isinstance(tier, float) else str(tier)


def _is_served(model: str) -> bool:
    """Whether the proxy serves this model. Callers can ask for any name, and each limit costs memory."""
    router = _router()
    return router is None or bool(router.get_model_list(model_name=model))


def _router() -> Any:
    """The router of the proxy."""
    return getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)


def _refusal(status: int, limit: Limit, why: str, retry_after: float, more: str = "") -> HTTPException:
    seconds = max(1, math.ceil(retry_after))
    unit = LIMITS[limit.limit][1]
    detail = f"{why}: {unit} of this {limit.scope} (resource {limit.handle.id}){more}; retry after {seconds} s"
    headers = {
        "retry-after": str(seconds),
        "x-ratelimit-scope": limit.scope,
        "x-ratelimit-resource": limit.handle.id,
        **limit.headers(),
    }
    if status != 503 and limit.scope == "model":
        # LiteLLM then tries the fallbacks of the model.
        refusal: HTTPException = ProxyRateLimitError(detail=detail, headers=headers)
        refusal.status_code = status
        return refusal
    return HTTPException(status_code=status, detail=detail, headers=headers)


def _limit_reached(limit: Limit, n: float) -> HTTPException:
    budget = limit.handle
    if not isinstance(budget, Budget):
        return _refusal(429, limit, "limit reached", limit.retry_after(n))
    if budget.lease is None:
        return _refusal(503, limit, "no lease", 1.0)
    if budget.lease[0] > 0 and budget.left == budget.spent == budget.owed == 0:
        return _refusal(503, limit, "its template must have the kind BUDGET", MAX_RETRY_SECONDS)
    more = f" for a call of up to {n:.6f} dollars"
    if budget.period is not None:
        end = datetime.fromtimestamp(budget.period[1], timezone.utc)
        more += f", period until {end:%Y-%m-%dT%H:%M:%SZ}"
    # Status and type of LiteLLM's own budgets.
    status = litellm.budget_exceeded_status_code
    refusal = _refusal(status, limit, "limit reached", limit.retry_after(n), more)
    refusal.type = ProxyErrorTypes.budget_exceeded.value  # type: ignore[attr-defined]
    return refusal


# Costs.


def billed_cost(kwargs: Mapping[str, Any]) -> Optional[float]:
    """Dollars that LiteLLM bills for a call, by its log event; None if it says nothing."""
    if kwargs.get("cache_hit") is True:
        return 0.0
    payload = kwargs.get("standard_logging_object")
    cost = _number(_get(kwargs if payload is None else payload, "response_cost"))
    return None if cost is None else _round_up(cost)


def _failed_cost(request: Mapping[str, Any]) -> float:
    """Dollars that LiteLLM bills for a failed call: chunks of a stream, and attempts for which the provider bills."""
    attempts = request.get("billed_failed_attempts")
    costs = [_get(attempt, "response_cost") for attempt in attempts] if isinstance(attempts, tuple) else []
    # LiteLLM sets this type; a client cannot.
    if isinstance(request.get("combined_usage_object"), Usage):
        costs.append(request.get("response_cost"))
    return _round_up(sum(_number(cost) or 0.0 for cost in costs))


def _round_up(cost: float) -> float:
    return math.ceil(cost * COST_UNITS) / COST_UNITS


def _number(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and 0 <= value < math.inf else None


def _models(data: Mapping[str, Any]) -> list[str]:
    """The model that a call asks for, and all its fallbacks."""
    router = _router()
    kinds = ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks")
    tables = [table for table in (getattr(router, kind, None) for kind in kinds) if isinstance(table, list)]
    asked = data.get("fallbacks")
    found: list[str] = []
    pending = [data.get("model"), *(asked if isinstance(asked, list) else ())]
    while pending:
        model = _get(pending[0], "model") if isinstance(pending[0], dict) else pending[0]
        del pending[0]
        if isinstance(model, str) and model not in found:
            found.append(model)
            for table in tables:
                pending += get_fallback_model_group(table, model)[0] or ()
    return found


def _price(model: str) -> Price:
    """LiteLLM's maximum price over the deployments of a model; 0 for a model without a price, as LiteLLM bills it."""
    router = _router()
    info: Any = None
    try:
        if router is not None:
            info = router.cached_model_group_info(model) or router.get_model_group_info(model, include_hidden=True)
        if info is None:
            info = litellm.get_model_info(model)
    except Exception as unknown:
        log.debug("%s", unknown)
    return Price(
        input=_number(_get(info, "input_cost_per_token")) or 0.0,
        output=_number(_get(info, "output_cost_per_token")) or 0.0,
        max_output_tokens=_number(_get(info, "max_output_tokens")) or math.inf,
    )


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
    return next((one for one in maxima if isinstance(one, int) and one >= 0), default) * _choices(data)


def _choices(data: Mapping[str, Any]) -> int:
    choices = data.get("n")
    return choices if isinstance(choices, int) and choices > 1 else 1


def _prompt(data: Mapping[str, Any], measure: Callable[[str], int] = len) -> int:
    """Characters of a request's prompt, without images and audio."""
    names = ("messages", "system", "prompt", "input", "contents", "tools")
    return sum(_length(data.get(name), measure) for name in names)


def _length(of: Any, measure: Callable[[str], int]) -> int:
    if isinstance(of, str):
        return 0 if of.startswith("data:") else measure(of)
    if isinstance(of, dict):
        hidden = ("role", "type", "data", "file_data")
        return sum(_length(value, measure) for name, value in of.items() if name not in hidden)
    if isinstance(of, list):
        return sum(4 if isinstance(part, int) else _length(part, measure) for part in of)
    return 0


def _bytes(text: str) -> int:
    """The maximum number of tokens of a text: each is at least a byte."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _messages(data: Mapping[str, Any]) -> int:
    lists = [data.get(name) for name in ("messages", "input", "contents", "tools")]
    return 1 + sum(len(of) for of in lists if isinstance(of, list))


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
