"""Limiters: what callers wait at."""

from __future__ import annotations

import functools
import inspect
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast, overload

from leaseway import _native
from leaseway.coming import Coming, finish

Function = TypeVar("Function", bound=Callable[..., Any])


class Limiter:
    """What rates and gauges have in common besides what the native `Resource` has."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def id(self) -> str: ...

        def _ready(self, timeout: float) -> Optional[_native.Waiting]: ...

    async def ready_async(self, timeout: float = 5.0) -> None:
        """As `ready`, in an event loop."""
        await finish(self._ready(timeout), None, self.id)

    @overload
    def limit(self, function: Function) -> Function: ...

    @overload
    def limit(self, *, n: int = 1, timeout: Optional[float] = None) -> Callable[[Function], Function]: ...

    def limit(
        self, function: Optional[Function] = None, *, n: int = 1, timeout: Optional[float] = None
    ) -> Union[Function, Callable[[Function], Function]]:
        """Decorates a function, or a coroutine function: each call waits for n first, and has permits of a gauge until
        it ends."""

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

    def _hold_async(self, n: int, timeout: Optional[float]) -> Coming[Any]:
        raise NotImplementedError


class Rate(Limiter, _native.Rate):
    """So many per second, or per window: made by `Client.rate`.

    Over any time T it lets pass at most capacity * T and the burst. Callers that wait are served first come, first
    served, threads and tasks in one line; a wait that is given up takes nothing with it.

        searches = client.rate("searches")
        searches.wait()                     # one, in a thread
        await searches.wait_async(20)       # a batch, in an event loop
        if searches.try_acquire(): ...      # only if it is free now
        with searches: ...                  # waits for one; so does `async with`

        @searches.limit                     # each call waits for one
        def search(query): ...
    """

    async def wait_async(self, n: int = 1, timeout: Optional[float] = None) -> None:
        """As `wait`, in an event loop, which goes on meanwhile."""
        await finish(self._wait(n), timeout, self.id)

    def reserve_async(self, n: int, timeout: Optional[float] = None) -> Coming[_native.Reservation]:
        """As `reserve`, in an event loop: to be awaited, or entered with `async with`."""
        return Coming(self._reserved(n, timeout))

    async def _reserved(self, n: int, timeout: Optional[float]) -> _native.Reservation:
        return await finish(self._reserve(n), timeout, self.id)

    def _hold(self, n: int, timeout: Optional[float]) -> AbstractContextManager[None]:
        self.wait(n, timeout)
        return nullcontext()

    def _hold_async(self, n: int, timeout: Optional[float]) -> Coming[nullcontext[None]]:
        async def passed() -> nullcontext[None]:
            await self.wait_async(n, timeout)
            return nullcontext()

        return Coming(passed())

    def __enter__(self) -> Rate:
        self.wait()
        return self

    async def __aenter__(self) -> Rate:
        await self.wait_async()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """What has passed has passed."""

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """What has passed has passed."""


class Gauge(Limiter, _native.Gauge):
    """So many at the same time: made by `Client.gauge`.

    No more permits are out than the capacity allows, whole ones. When the capacity is cut, those that are out stay
    valid: nothing new is let in until enough came back, and the server is told what is still in use.

        transactions = client.gauge("transactions")
        with transactions: ...                              # one permit; so does `async with`
        with transactions.acquire(3, timeout=2): ...
        async with transactions.acquire_async(3): ...
        permit = transactions.try_acquire()                 # None, if none is free now

        @transactions.limit                                 # each call has one permit
        def transact(): ...
    """

    #: Of those that were entered by `with gauge:`. One permit is as good as another.
    _entered: list[_native.Permit]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._entered = []

    def acquire_async(self, n: int = 1, timeout: Optional[float] = None) -> Coming[_native.Permit]:
        """As `acquire`, in an event loop: to be awaited, or entered with `async with`."""
        return Coming(self._acquired(n, timeout))

    async def _acquired(self, n: int, timeout: Optional[float]) -> _native.Permit:
        return await finish(self._acquire(n), timeout, self.id)

    def _hold(self, n: int, timeout: Optional[float]) -> _native.Permit:
        return self.acquire(n, timeout)

    def _hold_async(self, n: int, timeout: Optional[float]) -> Coming[_native.Permit]:
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
