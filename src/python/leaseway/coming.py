"""Waiting in an event loop, for what the client's thread brings about."""

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

Gain = TypeVar("Gain")


class Bell:
    """Wakes what waits in one event loop, as soon as the client's thread calls its number."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = _native.Bell()
        self.numbers = itertools.count()
        self.waiting: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.native.fileno(), self.answer)

    def answer(self) -> None:
        for number in self.native.answer():
            woken = self.waiting.pop(number, None)
            if woken is not None and not woken.done():
                woken.set_result(None)


_bells: WeakKeyDictionary[asyncio.AbstractEventLoop, Bell] = WeakKeyDictionary()
os.register_at_fork(after_in_child=_bells.clear)


async def finish(started: Gain | _native.Waiting, timeout: float | None, what: str) -> Gain:
    """What was had at once, or what comes of waiting. Cancelled, it takes nothing."""
    if not isinstance(started, _native.Waiting):
        return started
    loop = asyncio.get_running_loop()
    bell = _bells.get(loop)
    if bell is None:
        bell = _bells[loop] = Bell(loop)
    number, woken = next(bell.numbers), loop.create_future()
    bell.waiting[number] = woken
    timer = None if timeout is None else loop.call_later(timeout, _give_up, woken, timeout, what)
    try:
        started.ring(bell.native, number)
        await woken
        return cast(Gain, started.claim())
    finally:
        started.give_up()
        bell.waiting.pop(number, None)
        if timer is not None:
            timer.cancel()


def _give_up(woken: asyncio.Future[None], timeout: float, what: str) -> None:
    if not woken.done():
        woken.set_exception(Timeout(f"nothing of `{what}` within {timeout:g} s"))


class Ends(Protocol):
    """What ends with a `with`."""

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


Held = TypeVar("Held", bound=Ends)


class Coming(Coroutine[Any, Any, Held], Generic[Held]):
    """To be awaited, or entered: `permit = await gauge.acquire_async()`, `async with gauge.acquire_async() as permit:`"""

    def __init__(self, coming: Coroutine[Any, Any, Held]) -> None:
        self._coming = coming

    def __await__(self) -> Generator[Any, Any, Held]:
        return self._coming.__await__()

    def send(self, value: Any) -> Any:
        return self._coming.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._coming.throw(*raised)

    def close(self) -> None:
        self._coming.close()

    async def __aenter__(self) -> Held:
        self._held = await self._coming
        return self._held

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, raised, trace)
