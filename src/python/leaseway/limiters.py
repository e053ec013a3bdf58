"""Limiters: rates, gauges, several of them at once, and budgets."""

from __future__ import annotations

import functools
import inspect
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast, overload

from leaseway import _native
from leaseway.awaitable import AwaitableContext, finish

Function = TypeVar("Function", bound=Callable[..., Any])


class Limiter:
    """Methods that rates, gauges and budgets share, in addition to those of the native `Resource`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def id(self) -> str: ...

        def _ready(self, timeout: float) -> Optional[_native.Waiting]: ...

    async def ready_async(self, timeout: float = 5.0) -> None:
        """`ready` for event loops."""
        await finish(self._ready(timeout), None, self.id)

    @overload
    def limit(self, function: Function) -> Function: ...

    @overload
    def limit(self, *, n: int = 1, timeout: Optional[float] = None) -> Callable[[Function], Function]: ...

    def limit(
        self, function: Optional[Function] = None, *, n: int = 1, timeout: Optional[float] = None
    ) -> Union[Function, Callable[[Function], Function]]:
        """Decorates a function or coroutine function. Each call waits for n permits first; those of a gauge are held
        until it returns."""

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def within(*arguments: Any, **named: Any) -> Any:
                with self._hold(n, timeout):
                    return function(*arguments, **named)

            @functools.wraps(function)
            async def within_loop(*arguments: Any, **named: Any) -> Any:
                async with self._hold_async(n, timeout):
                    return await function(*arguments, **named)

            return cast(Function, within_loop if inspect.iscoroutinefunction(function) else within)

        return decorate if function is None else decorate(function)

    def _hold(self, n: int, timeout: Optional[float]) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def _hold_async(self, n: int, timeout: Optional[float]) -> AwaitableContext[Any]:
        raise NotImplementedError


class Rate(Limiter, _native.Rate):
    """Permits per second, or per window: see `Client.rate`.

    In any period T at most capacity * T plus the burst are admitted. Threads and tasks wait in one queue, first come,
    first served. A wait that is cancelled or times out takes nothing.

        searches = client.rate("searches")
        searches.wait()                     # one, in a thread
        await searches.wait_async(20)       # a batch, in an event loop
        if searches.try_acquire(): ...      # only if one is available now
        with searches: ...                  # waits for one; so does `async with`

        @searches.limit                     # each call waits for one
        def search(query): ...
    """

    async def wait_async(self, n: int = 1, timeout: Optional[float] = None) -> None:
        """`wait` for event loops."""
        await finish(self._wait(n), timeout, self.id)

    def reserve_async(self, n: int, timeout: Optional[float] = None) -> AwaitableContext[_native.Reservation]:
        """`reserve` for event loops. Await it, or enter it with `async with`."""
        return AwaitableContext(self._reserved(n, timeout))

    async def _reserved(self, n: int, timeout: Optional[float]) -> _native.Reservation:
        return await finish(self._reserve(n), timeout, self.id)

    def _hold(self, n: int, timeout: Optional[float]) -> AbstractContextManager[None]:
        self.wait(n, timeout)
        return nullcontext()

    def _hold_async(self, n: int, timeout: Optional[float]) -> AwaitableContext[nullcontext[None]]:
        async def passed() -> nullcontext[None]:
            await self.wait_async(n, timeout)
            return nullcontext()

        return AwaitableContext(passed())

    def __enter__(self) -> Rate:
        self.wait()
        return self

    async def __aenter__(self) -> Rate:
        await self.wait_async()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Permits of a rate are not returned."""

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Permits of a rate are not returned."""


class Gauge(Limiter, _native.Gauge):
    """A number of permits in use at the same time: see `Client.gauge`.

    The number of permits in use is at most the capacity, rounded down. When the capacity is cut, permits in use stay
    valid: no new ones are granted until enough were returned, and the client reports the permits still in use.

        transactions = client.gauge("transactions")
        with transactions: ...                              # one permit; so does `async with`
        with transactions.acquire(3, timeout=2): ...
        async with transactions.acquire_async(3): ...
        permit = transactions.try_acquire()                 # None if none is free now

        @transactions.limit                                 # each call holds one permit
        def transact(): ...
    """

    #: The permits taken by `with gauge:`. Any of them may be returned first.
    _entered: list[_native.Permit]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._entered = []

    def acquire_async(self, n: int = 1, timeout: Optional[float] = None) -> AwaitableContext[_native.Permit]:
        """`acquire` for event loops. Await it, or enter it with `async with`."""
        return AwaitableContext(self._acquired(n, timeout))

    async def _acquired(self, n: int, timeout: Optional[float]) -> _native.Permit:
        return await finish(self._acquire(n), timeout, self.id)

    def _hold(self, n: int, timeout: Optional[float]) -> _native.Permit:
        return self.acquire(n, timeout)

    def _hold_async(self, n: int, timeout: Optional[float]) -> AwaitableContext[_native.Permit]:
        return self.acquire_async(n, timeout)

    def __enter__(self) -> Gauge:
        self._entered.append(self.acquire())
        return self

    async def __aenter__(self) -> Gauge:
        self._entered.append(await self.acquire_async())
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Returns a permit."""
        self._entered.pop().release()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Returns a permit."""
        self._entered.pop().release()


class Budget(Limiter, _native.Budget):
    """An amount that may be spent in each period, and never more: see `Client.budget`.

    The client gets allowances in advance, so most calls do not wait. What was spent cannot be returned; if a cost is known
    only at its end, reserve the most that it may be. A spend that times out spends nothing; one that an event loop cancels
    may have spent its amount.

        tokens = client.budget("team-a/tokens")
        tokens.spend(1200)                          # waits for an allowance, if need be until the next period
        await tokens.spend_async(1200, timeout=5)
        if tokens.try_spend(1200): ...              # only if the allowance covers it now
        with tokens.reserve(2000) as reservation:   # so does `async with tokens.reserve_async(2000)`
            reservation.settle(use())               # takes back the rest
        tokens.charge(700)                          # used without asking; what is not covered is owed

        @tokens.limit(n=1200)                       # each call spends 1200 first
        def ask(question): ...
    """

    async def spend_async(self, amount: float, timeout: Optional[float] = None) -> None:
        """`spend` for event loops."""
        await finish(self._spend(amount), timeout, self.id)

    def reserve_async(
        self, amount: float, timeout: Optional[float] = None
    ) -> AwaitableContext[_native.BudgetReservation]:
        """`reserve` for event loops. Await it, or enter it with `async with`."""
        return AwaitableContext(self._reserved(amount, timeout))

    async def _reserved(self, amount: float, timeout: Optional[float]) -> _native.BudgetReservation:
        return await finish(self._reserve(amount), timeout, self.id)

    def _hold(self, n: int, timeout: Optional[float]) -> AbstractContextManager[None]:
        self.spend(n, timeout)
        return nullcontext()

    def _hold_async(self, n: int, timeout: Optional[float]) -> AwaitableContext[nullcontext[None]]:
        async def spent() -> nullcontext[None]:
            await self.spend_async(n, timeout)
            return nullcontext()

        return AwaitableContext(spent())


class Limits(_native.Limits):
    """Several limits that an operation needs permits of: see `Client.limits`.

    All permits are taken at the same moment, or none. A caller that waits holds none. At each limit it is served first
    come, first served, together with callers that need that limit alone. Amounts of budgets are reserved before it waits
    for rates and gauges, and given back if that wait ends early.

        limits = client.limits(tokens.of(900), requests.of(), connections.of())
        with limits.acquire(timeout=5): ...         # returns the connection at the end
        async with limits.acquire_async(): ...
        permit = limits.try_acquire()               # a false Refusal if a limit refuses
        if not permit: sleep(permit.retry_after or 1)
        with limits.with_permits(2000, 1, 1).reserve() as reservation:
            reservation.settle(use(), 1, 1)         # one number for each limit
        paid = client.limits(tokens.of(900), dollars.of(0.25))      # a rate and a budget
    """

    def with_permits(self, *permits: float) -> Limits:
        """The same limits with other numbers of permits, one for each; whole numbers except for budgets."""
        return Limits(self.client, self._costs(list(permits)))

    def acquire_async(self, timeout: Optional[float] = None) -> AwaitableContext[_native.Permit]:
        """`acquire` for event loops. Await it, or enter it with `async with`."""

        async def acquired() -> _native.Permit:
            return await finish(self._acquire(), timeout, ", ".join(self.resources))

        return AwaitableContext(acquired())

    def reserve_async(self, timeout: Optional[float] = None) -> AwaitableContext[_native.Reservations]:
        """`reserve` for event loops. Await it, or enter it with `async with`."""

        async def reserved() -> _native.Reservations:
            return await finish(self._reserve(), timeout, ", ".join(self.resources))

        return AwaitableContext(reserved())
