"""The client."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Optional, TypedDict, Union
from weakref import WeakSet

from leaseway import _native
from leaseway.awaitable import finish
from leaseway.errors import BuildError, LeasewayError
from leaseway.limiters import Budget, Gauge, Limits, Rate

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Options(TypedDict, total=False):
    """Options of a client; see `Client`."""

    id: Optional[str]
    mode: str
    tls: bool
    tls_ca: Union[str, os.PathLike[str], None]
    tls_cert: Union[str, os.PathLike[str], None]
    tls_key: Union[str, os.PathLike[str], None]
    tls_server_name: Optional[str]
    token: Optional[str]
    token_file: Union[str, os.PathLike[str], None]
    deadline: Optional[float]
    backoff_max: Optional[float]
    refresh_min: Optional[float]
    lease_trace: bool


#: How long the exit of a program waits for the release of its leases. Unreleased leases expire.
EXIT_TIMEOUT_SECONDS = 1.0


class Client(_native.Client):
    """A client of a Leaseway (or Doorman) node. It keeps the leases of open resources alive in a thread of its own.

    It connects in the background and keeps trying: an unreachable server raises nothing, see `health`. Servers are given
    as HOST:PORT, several with commas or as a list; the prefix `https://` selects TLS.

        with Client("127.0.0.1:5100") as client:
            searches = client.rate("searches")
            searches.wait()

    id               the id of the client. Two clients that run at the same time must not share one; {pid} stands for the
                     process id. Unique by default.
    mode             capacity to use after a lease has expired without a refresh: "safe" (the safe capacity sent by the
                     server), "pessimistic" (none), "optimistic" (the wants)
    tls              connect over TLS and trust the CAs of the system; implied by the other TLS options
    tls_ca           file with the CA that has to sign the servers' certificates (PEM)
    tls_cert, tls_key   files with the client certificate and its key (PEM)
    tls_server_name  the name in the servers' certificates, if it differs from the host
    token            bearer token, sent over TLS or to this machine only
    token_file       file with the token, read again when it changes
    deadline         request timeout in seconds (3)
    backoff_max      maximum pause between attempts while no server answers, in seconds (15); every server is still tried
                     once per refresh interval
    refresh_min      minimum refresh interval in seconds (1)
    lease_trace      record changes of leased capacity for audits: see `take_lease_trace`

    After a fork, the child creates its own client when it first uses this one. If `id` is set without {pid}, this
    raises Forked. The thread is not a Python thread: leases stay alive while the interpreter is busy.
    """

    def __new__(cls, servers: Union[str, Iterable[str]], **options: Unpack[Options]) -> Self:
        return super().__new__(cls, servers.split(",") if isinstance(servers, str) else list(servers), **options)

    def __init__(self, servers: Union[str, Iterable[str]], **options: Unpack[Options]) -> None:
        _clients.add(self)

    @classmethod
    def from_env(
        cls,
        environ: Optional[Mapping[str, str]] = None,
        *,
        servers: Union[str, Iterable[str], None] = None,
        **options: Unpack[Options],
    ) -> Self:
        """Creates a client from LEASEWAY_SERVER (comma-separated), LEASEWAY_TLS, LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT,
        LEASEWAY_TLS_KEY, LEASEWAY_TLS_SERVER_NAME and LEASEWAY_TOKEN_FILE, as `leaseway get` does. Arguments take
        precedence. `environ` defaults to the environment of this process."""
        if environ is None:
            environ = os.environ
        if servers is None:
            servers = environ.get("LEASEWAY_SERVER", "127.0.0.1:5100")
        found: Options = {
            "tls": _flag("LEASEWAY_TLS", environ.get("LEASEWAY_TLS", "false")),
            "tls_ca": environ.get("LEASEWAY_TLS_CA"),
            "tls_cert": environ.get("LEASEWAY_TLS_CERT"),
            "tls_key": environ.get("LEASEWAY_TLS_KEY"),
            "tls_server_name": environ.get("LEASEWAY_TLS_SERVER_NAME"),
            "token_file": environ.get("LEASEWAY_TOKEN_FILE"),
        }
        found.update(options)
        return cls(servers, **found)

    def rate(
        self,
        resource: str,
        *,
        wants: Optional[float] = None,
        priority: Optional[int] = None,
        mode: Optional[str] = None,
        burst: Optional[float] = None,
        window: Optional[float] = None,
        max_debt: Optional[int] = None,
    ) -> Rate:
        """Opens a resource as a rate, in permits per second. All handles of a resource share one lease, one queue and
        these settings: another value than that of the first handle raises OpenError.

        wants      capacity to ask for; by default estimated from the permits that callers take or wait for
        priority   the priority that this client claims (0)
        mode       capacity to use after the lease has expired; by default the mode of the client
        burst      maximum number of permits that may be saved up, instead of 20 ms of capacity
        window     seconds of capacity that may be saved up, for budgets per minute or per day
        max_debt   maximum debt due to `charge` (1,000,000)
        """
        return Rate(
            self,
            resource,
            wants=wants,
            priority=priority,
            mode=mode,
            burst=burst,
            window=window,
            max_debt=max_debt,
        )

    def gauge(
        self,
        resource: str,
        *,
        wants: Optional[float] = None,
        priority: Optional[int] = None,
        mode: Optional[str] = None,
    ) -> Gauge:
        """Opens a resource as a gauge: permits in use at the same time. Other arguments are as for `rate`."""
        return Gauge(self, resource, wants=wants, priority=priority, mode=mode)

    def budget(self, resource: str) -> Budget:
        """Opens a resource of kind BUDGET: an amount that may be spent in each period. All handles share one allowance."""
        return Budget(self, resource)

    def limits(self, *costs: _native.Cost) -> Limits:
        """Several limits of which an operation needs permits at the same time: all of them, or none.

            limits = client.limits(tokens.of(900), requests.of(), connections.of())
        """
        return Limits(self, list(costs))

    async def ready_async(self, timeout: float = 5.0) -> None:
        """`ready` for event loops."""
        await finish(self._ready(timeout), None, "")

    async def close_async(self) -> None:
        """`close` for event loops."""
        await finish(self._close(), None, "closing")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], raised: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close_async()


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BuildError(f"{name}={text!r}: expected true or false")
    return text.lower() == "true"


_clients: WeakSet[Client] = WeakSet()


@atexit.register
def _close_all() -> None:
    _native._exiting()
    for client in list(_clients):
        try:
            client.close(EXIT_TIMEOUT_SECONDS)
        except LeasewayError:
            pass
