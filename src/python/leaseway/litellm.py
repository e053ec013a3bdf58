"""Limits for the LiteLLM proxy: tokens per minute, requests per minute and parallel calls, shared by all workers.

    litellm_settings:
      callbacks: ["leaseway.litellm.limiter"]

Before a call the limiter reserves an estimate of its tokens, one request and one slot; afterwards it settles what the
call used. All limits of a call are taken, or none. Limits are resources of the cluster, so the capacities are in its
configuration. The environment variables are listed in `Settings.from_env`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union
from urllib.parse import quote

import litellm
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from leaseway import Client, DebtExceeded, Gauge, LeasewayError, NotReady, Permit, Rate, Reservation, Timeout

log = logging.getLogger("leaseway.litellm")

#: Scopes from the narrowest to the broadest. A call that waits for a limit holds only narrower ones.
SCOPES = ("key", "user", "team", "organization", "model")
#: Limits in the order in which a call takes them, with their names in headers.
LIMITS = {"parallel": "parallel", "rpm": "requests", "tpm": "tokens"}

#: Handles of limits that no call used for this long are closed.
IDLE_SECONDS = 600.0
SWEEP_INTERVAL_SECONDS = 30.0
#: Maximum number of permits in one reservation.
MAX_PERMITS = 2**31 - 1


class SettingsError(LeasewayError, ValueError):
    """A LEASEWAY_LITELLM_* variable has an invalid value."""


@dataclass(frozen=True)
class Settings:
    """Settings of a limiter."""

    #: Enforced limits as (scope, limit).
    limits: tuple[tuple[str, str], ...] = (("key", "tpm"), ("key", "rpm"), ("team", "tpm"), ("team", "rpm"))
    #: Pattern of the names of resources.
    resource: str = "litellm/{scope}/{id}/{limit}"
    #: Maximum time that a call waits for its limits, in seconds.
    wait: float = 2.0
    #: What a worker may save up of a rate, in seconds of its lease.
    window: float = 60.0
    #: Output tokens to reserve for a call that sets no maximum.
    output_tokens: int = 1000
    #: Maximum time that a call keeps its reservation, in seconds.
    hold: float = 3600.0
    #: Whether calls pass while no server has answered yet.
    allow_unready: bool = False

    @classmethod
    def from_env(cls, environ: Optional[Mapping[str, str]] = None) -> Settings:
        """Reads

        LEASEWAY_LITELLM_LIMITS         enforced limits as SCOPE/LIMIT, separated by commas or spaces
        LEASEWAY_LITELLM_RESOURCE       pattern of resource names, with {scope}, {id} and {limit}
        LEASEWAY_LITELLM_WAIT           maximum wait of a call for its limits, in seconds (2)
        LEASEWAY_LITELLM_WINDOW         what a worker may save up of a rate, in seconds of its lease (60)
        LEASEWAY_LITELLM_OUTPUT_TOKENS  output tokens to reserve for a call that sets no maximum (1000)
        LEASEWAY_LITELLM_HOLD           maximum time that a call keeps its reservation, in seconds (3600)
        LEASEWAY_LITELLM_UNREADY        "refuse" (default) or "allow" calls while no server has answered yet
        """
        environ = os.environ if environ is None else environ
        prefix = "LEASEWAY_LITELLM_"
        read: dict[str, Any] = {}
        listed = environ.get(prefix + "LIMITS")
        if listed is not None:
            read["limits"] = tuple(sorted(_limits(prefix + "LIMITS", listed), key=_order))
        resource = environ.get(prefix + "RESOURCE")
        if resource is not None:
            if any(part not in resource for part in ("{scope}", "{id}", "{limit}")):
                raise SettingsError(f"{prefix}RESOURCE={resource!r}: it must contain {{scope}}, {{id}} and {{limit}}")
            read["resource"] = resource
        for name in ("wait", "window", "hold", "output_tokens"):
            text = environ.get(prefix + name.upper())
            if text is None:
                continue
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not 0 <= number < math.inf:
                raise SettingsError(f"{prefix}{name.upper()}={text!r}: expected a number, 0 or more")
            read[name] = int(number) if name == "output_tokens" else number
        unready = environ.get(prefix + "UNREADY", "refuse")
        if unready not in ("refuse", "allow"):
            raise SettingsError(f"{prefix}UNREADY={unready!r}: expected refuse or allow")
        return cls(allow_unready=unready == "allow", **read)


def _limits(variable: str, text: str) -> Iterable[tuple[str, str]]:
    for pair in text.replace(",", " ").split():
        scope, _, limit = pair.partition("/")
        if scope not in SCOPES or limit not in LIMITS:
            raise SettingsError(
                f"{variable}: {pair!r} is not SCOPE/LIMIT with a scope of {', '.join(SCOPES)}"
                f" and a limit of {', '.join(LIMITS)}"
            )
        yield scope, limit


def _order(pair: tuple[str, str]) -> tuple[int, int]:
    return SCOPES.index(pair[0]), list(LIMITS).index(pair[1])


class Limit:
    """An open limit: a resource of the cluster."""

    __slots__ = ("scope", "limit", "handle", "in_flight", "last_used")

    def __init__(self, scope: str, limit: str, handle: Union[Rate, Gauge]) -> None:
        self.scope, self.limit, self.handle = scope, limit, handle
        self.in_flight = 0
        self.last_used = 0.0

    def retry_after(self, n: int) -> float:
        """Seconds until this worker probably has n permits."""
        if isinstance(self.handle, Rate):
            standing = self.handle.standing
            ready = standing.ready_in(min(n, max(1, int(standing.burst))))
            return 60.0 if ready is None else ready
        return 1.0

    def headers(self) -> dict[str, str]:
        """The lease of this worker, and what is left of it."""
        unit = LIMITS[self.limit]
        if isinstance(self.handle, Rate):
            standing = self.handle.standing
            total, remaining = standing.capacity * 60, standing.available
        else:
            total = self.handle.capacity
            remaining = total - self.handle.in_use
        if not math.isfinite(total):
            return {}
        return {
            f"x-ratelimit-{self.scope}-limit-{unit}": str(int(total)),
            f"x-ratelimit-{self.scope}-remaining-{unit}": str(max(0, int(remaining))),
        }


class Hold:
    """What one call has taken. It ends once."""

    def __init__(self) -> None:
        self.taken: list[tuple[Limit, Union[Reservation, Permit]]] = []
        self.prompt_tokens = 0
        self.timer: Optional[asyncio.TimerHandle] = None

    def end(self, tokens: int, requests: int) -> None:
        """Settles rates for what was used and returns slots."""
        if self.timer is not None:
            self.timer.cancel()
        taken, self.taken = self.taken, []
        for limit, what in taken:
            self._end(limit, what, tokens if limit.limit == "tpm" else requests)

    def end_slots(self) -> None:
        """Returns slots; rates stay reserved until `end`."""
        slots = [pair for pair in self.taken if isinstance(pair[1], Permit)]
        self.taken = [pair for pair in self.taken if not isinstance(pair[1], Permit)]
        for limit, what in slots:
            self._end(limit, what, 0)

    @staticmethod
    def _end(limit: Limit, what: Union[Reservation, Permit], used: int) -> None:
        limit.in_flight -= 1
        if isinstance(what, Permit):
            what.release()
            return
        try:
            what.settle(used)
        except DebtExceeded as exceeded:
            log.warning("%s: %s", limit.handle.id, exceeded)
        except LeasewayError as error:
            log.debug("%s: %s", limit.handle.id, error)


class Limiter(CustomLogger):  # type: ignore[misc]
    """Enforces the limits of a cluster in a LiteLLM proxy. Each worker process has a client of its own.

    Add an instance to `litellm_settings.callbacks`: `limiter` of this module, which reads the environment."""

    def __init__(self, settings: Optional[Settings] = None, client: Optional[Client] = None) -> None:
        super().__init__()
        self.settings = Settings.from_env() if settings is None else settings
        self._client = client
        self._pid = os.getpid()
        self._limits: dict[tuple[str, str, str], Limit] = {}
        self._holds: dict[str, list[Hold]] = {}
        self._next_sweep = 0.0

    # Hooks of the proxy.

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> Optional[dict[str, Any]]:
        limits = self._limits_of(user_api_key_dict, data)
        if not limits:
            return None
        hold = Hold()
        estimate = 0
        if any(limit.limit == "tpm" for limit in limits):
            hold.prompt_tokens = prompt_tokens(data)
            estimate = min(MAX_PERMITS, hold.prompt_tokens + self._output_tokens(data))
        await self._take(hold, limits, estimate)
        hold.timer = asyncio.get_running_loop().call_later(self.settings.hold, self._expire, data, hold, estimate)
        self._holds.setdefault(_call_id(data), []).append(hold)
        return None

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        hold = self._take_hold(data)
        if hold is not None:
            used = used_tokens(response)
            hold.end(_estimate(hold) if used is None else used, 1)
        return response

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: Optional[str] = None,
    ) -> None:
        hold = self._take_hold(request_data)
        if hold is not None:
            hold.end(0, 0)

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        used: Optional[int] = None
        texts: list[str] = []
        opaque = failed = False
        try:
            async for chunk in response:
                found = used_tokens(chunk)
                if found is not None:
                    used = found
                text = _delta(chunk)
                if text is None:
                    opaque = opaque or found is None
                elif text:
                    texts.append(text)
                yield chunk
        except Exception:
            failed = not texts
            raise
        finally:
            # Also runs when the client disconnects.
            self._end_stream(request_data, used, texts, opaque, failed)

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: Optional[dict[str, str]] = None,
    ) -> dict[str, str]:
        headers: dict[str, str] = {}
        for limit in self._limits_of(user_api_key_dict, data):
            headers.update(limit.headers())
        return headers

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        # Calls that no hook above ended: pass-through endpoints, and streams of bytes.
        used = 0 if kwargs.get("cache_hit") is True else used_tokens(response_obj)
        if used is None:
            return
        hold = self._take_hold(kwargs)
        if hold is not None:
            hold.end(used, 1)

    # Limits.

    def _limits_of(self, auth: Any, data: Mapping[str, Any]) -> list[Limit]:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._client, self._limits, self._holds = None, {}, {}
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_INTERVAL_SECONDS
            self._limits = {
                key: limit
                for key, limit in self._limits.items()
                if limit.in_flight or now - limit.last_used < IDLE_SECONDS
            }
        ids = {
            "key": getattr(auth, "api_key", None),
            "user": getattr(auth, "user_id", None),
            "team": getattr(auth, "team_id", None),
            "organization": getattr(auth, "org_id", None),
            "model": data.get("model"),
        }
        found = []
        for scope, name in self.settings.limits:
            id = ids[scope]
            if not id:
                continue
            key = (scope, str(id), name)
            limit = self._limits.get(key)
            if limit is None:
                limit = self._limits[key] = self._open(*key)
            limit.last_used = now
            found.append(limit)
        return found

    def _open(self, scope: str, id: str, name: str) -> Limit:
        if self._client is None:
            self._client = Client.from_env()
        resource = self.settings.resource.format(scope=scope, id=quote(id, safe="@:+"), limit=name)
        if name == "parallel":
            return Limit(scope, name, self._client.gauge(resource))
        # Capacities of rates are per second.
        return Limit(scope, name, self._client.rate(resource, window=self.settings.window))

    # Reservations.

    async def _take(self, hold: Hold, limits: list[Limit], estimate: int) -> None:
        """Takes all limits, or none."""
        deadline = time.monotonic() + self.settings.wait
        complete = False
        try:
            for limit in limits:
                n = estimate if limit.limit == "tpm" else 1
                try:
                    taken = await self._take_one(limit, n, deadline)
                except NotReady as error:
                    if self.settings.allow_unready:
                        continue
                    raise _refusal(503, limit, f"no lease yet: {error.why}", 1.0) from None
                except Timeout:
                    raise _refusal(429, limit, "limit reached", limit.retry_after(n)) from None
                limit.in_flight += 1
                hold.taken.append((limit, taken))
            complete = True
        finally:
            if not complete:
                hold.end(0, 0)

    async def _take_one(self, limit: Limit, n: int, deadline: float) -> Union[Reservation, Permit]:
        handle = limit.handle
        if isinstance(handle, Gauge):
            permit = handle.try_acquire()
            if permit is not None:
                return permit
        else:
            reservation = handle.try_reserve(n)
            if reservation is not None:
                return reservation
        if handle.basis == "unknown":
            await handle.ready_async(max(0.001, deadline - time.monotonic()))
        left = max(0.001, deadline - time.monotonic())
        if isinstance(handle, Gauge):
            return await handle.acquire_async(1, left)
        try:
            return await handle.reserve_async(n, left)
        except Timeout:
            # A call larger than the bucket of this worker takes the whole bucket, and owes the rest when it ends.
            standing = handle.standing
            bucket = int(standing.burst)
            if n > bucket >= 1 and standing.available >= bucket * 0.9:
                reservation = handle.try_reserve(min(bucket, int(standing.available)))
                if reservation is not None:
                    return reservation
            raise

    def _output_tokens(self, data: Mapping[str, Any]) -> int:
        if "input" in data and "max_output_tokens" not in data and "messages" not in data:
            return 0  # embeddings
        for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
            maximum = data.get(name)
            if isinstance(maximum, int) and maximum >= 0:
                break
        else:
            maximum = self.settings.output_tokens
        choices = data.get("n")
        return maximum * (choices if isinstance(choices, int) and choices > 1 else 1)

    def _take_hold(self, data: Mapping[str, Any]) -> Optional[Hold]:
        call_id = _call_id(data)
        holds = self._holds.get(call_id)
        if not holds:
            return None
        hold = holds.pop()
        if not holds:
            del self._holds[call_id]
        return hold

    def _end_stream(
        self, data: Mapping[str, Any], used: Optional[int], texts: list[str], opaque: bool, failed: bool
    ) -> None:
        if used is None and opaque and not failed:
            # The log event knows the usage; until then only slots are returned.
            for hold in self._holds.get(_call_id(data), [])[-1:]:
                hold.end_slots()
            return
        hold = self._take_hold(data)
        if hold is None:
            return
        if failed:
            hold.end(0, 0)
        else:
            hold.end(hold.prompt_tokens + _count(data, "".join(texts)) if used is None else used, 1)

    def _expire(self, data: Mapping[str, Any], hold: Hold, estimate: int) -> None:
        call_id = _call_id(data)
        holds = self._holds.get(call_id, [])
        if hold in holds:
            holds.remove(hold)
            if not holds:
                del self._holds[call_id]
            log.warning("call %s did not end within %g s: its slots are returned", call_id, self.settings.hold)
            hold.end(_estimate(hold), 1)


def _estimate(hold: Hold) -> int:
    return max((what.reserved for limit, what in hold.taken if isinstance(what, Reservation)), default=0)


def _call_id(data: Mapping[str, Any]) -> str:
    return str(data.get("litellm_call_id"))


def _refusal(status: int, limit: Limit, why: str, retry_after: float) -> HTTPException:
    unit = {"tpm": "tokens per minute", "rpm": "requests per minute", "parallel": "parallel calls"}[limit.limit]
    seconds = max(1, math.ceil(retry_after))
    return HTTPException(
        status_code=status,
        detail=f"{why}: {unit} of this {limit.scope} (resource {limit.handle.id}); retry after {seconds} s",
        headers={
            "retry-after": str(seconds),
            "x-ratelimit-scope": limit.scope,
            "x-ratelimit-resource": limit.handle.id,
            **limit.headers(),
        },
    )


# Tokens.


def prompt_tokens(data: Mapping[str, Any]) -> int:
    """Tokens of a request's prompt, by LiteLLM's counter."""
    messages = data.get("messages")
    if isinstance(messages, list):
        try:
            return int(litellm.token_counter(model=str(data.get("model", "")), messages=messages))
        except Exception:  # content that the counter does not know
            return len(str(messages)) // 4
    text = data.get("prompt", data.get("input"))
    if isinstance(text, list):
        if all(isinstance(token, int) for token in text):
            return len(text)
        text = "\n".join(str(part) for part in text)
    return _count(data, text) if isinstance(text, str) else 0


def _count(data: Mapping[str, Any], text: str) -> int:
    if not text:
        return 0
    try:
        return int(litellm.token_counter(model=str(data.get("model", "")), text=text))
    except Exception:
        return len(text) // 4


def used_tokens(response: Any) -> Optional[int]:
    """Tokens that a response or its last chunk says it used; None if it says nothing."""
    hidden = getattr(response, "_hidden_params", None)
    if isinstance(hidden, dict) and hidden.get("cache_hit") is True:
        return 0
    usage = _get(response, "usage")
    if usage is None:
        usage = _get(_get(response, "response"), "usage")
    if usage is None:
        return None
    total = _get(usage, "total_tokens")
    if isinstance(total, int):
        return total
    parts = [_get(usage, name) for name in ("input_tokens", "output_tokens")]
    counts = [part for part in parts if isinstance(part, int)]
    return sum(counts) if counts else None


def _get(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, dict) else getattr(of, name, None)


def _delta(chunk: Any) -> Optional[str]:
    """The text that a chunk adds; None if its format is unknown."""
    choices = _get(chunk, "choices")
    if not isinstance(choices, list):
        return None
    texts = []
    for choice in choices:
        delta = _get(choice, "delta")
        for text in (_get(delta, "content"), _get(delta, "reasoning_content"), _get(choice, "text")):
            if isinstance(text, str):
                texts.append(text)
        for call in _get(delta, "tool_calls") or ():
            arguments = _get(_get(call, "function"), "arguments")
            if isinstance(arguments, str):
                texts.append(arguments)
    return "".join(texts)


limiter = Limiter()
