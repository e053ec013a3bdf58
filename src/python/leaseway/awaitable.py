"""Waiting in an event loop for results of the client's thread."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Callable, Generic, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from leaseway import _native
from leaseway.errors import Timeout

Result = TypeVar("Result")


class LoopWaker:
    """Wakes the waiters of one event loop when the client's thread names their numbers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.LoopWaker()
        self.numbers = itertools.count()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.native.fileno(), self.wake)

    def wake(self) -> None:
        for number in self.native.drain():
            woken = self.waiting.pop(number, None)
            if woken is not None and not woken.done():
                woken.set_result(None)


_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaker] = WeakKeyDictionary()
os.register_at_fork(after_in_child=_wakers.clear)


async def finish(started: Result | _native.Waiting, timeout: float | None, what: str) -> Result:
    """The result, immediately or after waiting. A cancelled call takes nothing."""
    if not isinstance(started, _native.Waiting):
        return started
    loop = asyncio.get_running_loop()
    waker = _wakers.get(loop)
    if waker is None:
        waker = _wakers[loop] = LoopWaker(loop)
    number, woken = next(waker.numbers), loop.create_future()
    waker.waiting[number] = woken
    timer = None if timeout is None else loop.call_later(timeout, _time_out, woken, timeout, what)
    try:
        started.notify(waker.native, number)
        await woken
        return cast(Result, started.result())
    finally:
        started.cancel()
        waker.waiting.pop(number, None)
        if timer is not None:
            timer.cancel()


def _time_out(woken: asyncio.Future[None], timeout: float, what: str) -> None:
    if not woken.done():
        woken.set_exception(Timeout(f"timed out: nothing of `{what}` within {timeout:g} s"))


class SupportsExit(Protocol):
    """Anything that can end a `with`."""

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


Held = TypeVar("Held", bound=SupportsExit)


class AwaitableContext(Coroutine[Any, Any, Held], Generic[Held]):
    """Can be awaited or entered: `permit = await gauge.acquire_async()`, `async with gauge.acquire_async() as permit:`"""

    def __init__(self, coroutine: Coroutine[Any, Any, Held]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Held]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._coroutine.throw(*raised)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> Held:
        self._held = await self._coroutine
        return self._held

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, raised, trace)
