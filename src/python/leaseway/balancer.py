"""Load balancing across backends by request counting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Callable, Generic, Optional, TypeVar

from leaseway import _native
from leaseway.awaitable import finish
from leaseway.limiters import Rate

if TYPE_CHECKING:
    from typing_extensions import Self

Backend = TypeVar("Backend")

#: The back-off of failed backends, as in httpd.
RETRY_SECONDS = 60.0


class Pick(Generic[Backend]):
    """The backend of an operation, which has been charged for it."""

    __slots__ = ("_backends", "index")

    #: The index of the backend, for `pick_sticky`.
    index: int

    def __init__(self, backends: Backends[Backend], index: int) -> None:
        self._backends = backends
        self.index = index

    @property
    def backend(self) -> Backend:
        """The backend."""
        return self._backends.backends[self.index]

    def failed(self) -> None:
        """The operation failed because of the backend: skips it for the back-off."""
        self._backends.failed(self.index)

    def __repr__(self) -> str:
        return f"Pick(index={self.index}, backend={self.backend!r})"


class Backends(Generic[Backend]):
    """Picks that `Balancer` and `Balanced` share, in addition to the methods of the native `Backends`."""

    #: All backends by index.
    backends: tuple[Backend, ...]

    if TYPE_CHECKING:

        def _pick(self) -> Optional[int]: ...

        def _peek(self, rejected: list[int]) -> Optional[int]: ...

        def _pick_only(self, index: int) -> bool: ...

        def _pick_sticky(self, index: int) -> bool: ...

        def failed(self, index: int) -> None: ...

    def pick(self) -> Optional[Pick[Backend]]:
        """Picks the next backend. None if no backend is enabled."""
        index = self._pick()
        return None if index is None else Pick(self, index)

    def pick_where(self, usable: Callable[[Backend], object]) -> Optional[Pick[Backend]]:
        """Picks the next backend among those that are usable now, such as those with a permit left at their limiter.

        Calls `usable` for the next backend only. If that is not usable, it counts as disabled for this pick, and the one
        after it is tried. Pause backends that stay unusable, because each pick tries them again.
        """
        rejected: list[int] = []
        while (index := self._peek(rejected)) is not None:
            # `usable` may have taken a permit, so its backend is picked even if another one is next meanwhile.
            if usable(self.backends[index]) and self._pick_only(index):
                return Pick(self, index)
            rejected.append(index)
        return None

    def pick_sticky(self, index: int) -> Optional[Pick[Backend]]:
        """Picks a certain backend, for sticky sessions. The backend is charged as if it were next, and the others catch
        up afterwards. None, without any charge, if it is not enabled."""
        return Pick(self, index) if self._pick_sticky(index) else None


class Balancer(Backends[Backend], _native.Balancer):
    """Picks backends by request counting: each gets its share of picks, spread out evenly.

        balancer = Balancer(["a", "b"], weights=[7, 3])
        pick = balancer.pick()          # a, b, a, a, a, b, a, a, b, a
        if not search(pick.backend):
            pick.failed()               # skips it for a minute

    weights   the shares; a backend with weight 0 is never picked. By default a backend is not picked before
              `set_capacity` gives it the capacity of a lease
    retry     the back-off of failed backends in seconds (60)

    A backend is enabled while it has a share, is not paused, and is not in back-off after a failure. A disabled backend
    accrues nothing, and continues where it was. Backends are identified by their index, whose order also breaks ties.
    All threads may share a balancer. A forked process has its own, which continues from a copy.
    """

    def __new__(
        cls, backends: Iterable[Backend], *, weights: Optional[Iterable[int]] = None, retry: float = RETRY_SECONDS
    ) -> Self:
        every = tuple(backends)
        shares = [0] * len(every) if weights is None else list(weights)
        if len(shares) != len(every):
            raise ValueError(f"{len(shares)} weights for {len(every)} backends: pass one for each, in order")
        self = super().__new__(cls, shares, retry)
        self.backends = every
        return self


class Balanced(Backends[Rate], _native.Balanced):
    """Balances load across rates, each with a lease of its own.

        search = Balanced(client.rate(name, wants=500) for name in ("search/eu", "search/us"))
        pick = search.wait()                            # or: await search.wait_async()
        if not find(pick.backend.id):
            pick.failed()                               # skips it for a minute
        pick = search.pick_where(Rate.try_acquire)      # a backend with a permit, without waiting

    Each operation is assigned to a backend, in proportion to the leases, and then waits at the rate of that backend. So
    no lease is exceeded, and every lease is used under load. The wants of every rate must be set, because a backend
    without a lease gets no operations. Other picks than `wait` have no permit yet.

    retry     the back-off of failed backends in seconds (60)

    A forked process opens its own leases, and begins without pauses and back-offs.
    """

    def __new__(cls, rates: Iterable[Rate], *, retry: float = RETRY_SECONDS) -> Self:
        every = tuple(rates)
        self = super().__new__(cls, list(every), retry)
        self.backends = every
        return self

    def wait(self, timeout: Optional[float] = None) -> Pick[Rate]:
        """Picks a backend and waits for a permit there. If the backend loses its lease meanwhile, picks another one.
        Raises Timeout, and takes no permit, after `timeout` seconds."""
        return Pick(self, self._wait_blocking(timeout))

    async def wait_async(self, timeout: Optional[float] = None) -> Pick[Rate]:
        """`wait` for event loops."""
        return Pick(self, await finish(self._wait(), timeout, ", ".join(self.resources)))
