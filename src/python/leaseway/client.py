"""The client."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Optional, TypedDict, Union
from weakref import WeakSet

from leaseway import _native
from leaseway.coming import finish
from leaseway.errors import BuildError, LeasewayError
from leaseway.limiters import Gauge, Rate

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class Options(TypedDict, total=False):
    """How a client is to be; see `Client`."""

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
    book: bool


#: How long the end of a program waits until leases are given back. Those that are not end by themselves.
PARTING_SECONDS = 1.0


class Client(_native.Client):
    """A client of a Leaseway (or Doorman) node: keeps the leases of what is open, in a thread of its own.

    It connects by itself and goes on trying: a server that is away is no error, `health` says what is going on. Servers
    are named as HOST:PORT, one or several; `https://` before one means TLS.

        with Client("127.0.0.1:5100") as client:
            searches = client.rate("searches")
            searches.wait()

    id               what it calls itself. No two clients that run at the same time may share one; {pid} in it stands for
                     the number of the process. By default unique.
    mode             what to use when leases have ended unrenewed: "safe" (what the server has sent for that),
                     "pessimistic" (nothing), "optimistic" (what was wanted)
    tls              connects over TLS and trusts the CAs of the system; any of the others of the kind means TLS, too
    tls_ca           the CA that the servers' certificates must be signed by, a file (PEM)
    tls_cert, tls_key   what is shown to servers that ask for a certificate, files (PEM)
    tls_server_name  what the servers' certificates are for, if not for the host that is asked
    token            says with every request who asks; sent over TLS, or to this machine
    token_file       a file with it, which is read again when it changes
    deadline         seconds that an answer may take (3)
    backoff_max      the longest pause between attempts while no server answers, in seconds (15); every server is
                     tried once in a refresh interval all the same
    refresh_min      refreshes come no sooner than that, in seconds (1)
    book             keeps what could be used because of leases, for audits: see `take_book`

    After a fork the child has a client of its own, as soon as it uses this one; if it has an `id` without {pid}, using
    it raises Forked. Its thread is not Python's: leases are kept also while the interpreter is busy.
    """

    def __new__(cls, servers: Union[str, Iterable[str]], **options: Unpack[Options]) -> Self:
        return super().__new__(cls, [servers] if isinstance(servers, str) else list(servers), **options)

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
        """A client as LEASEWAY_SERVER (several with commas), LEASEWAY_TLS, LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT,
        LEASEWAY_TLS_KEY, LEASEWAY_TLS_SERVER_NAME and LEASEWAY_TOKEN_FILE have it, as for `leaseway get`; what is
        said besides goes before. Without `environ` they are those of this process."""
        if environ is None:
            environ = os.environ
        if servers is None:
            servers = environ.get("LEASEWAY_SERVER", "127.0.0.1:5100").split(",")
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
        priority: int = 0,
        mode: Optional[str] = None,
        burst: Optional[float] = None,
        window: Optional[float] = None,
        max_debt: Optional[int] = None,
    ) -> Rate:
        """Opens a resource as a rate: so many per second. All handles of one resource share lease and line.

        wants      how much to ask for; without it, it is estimated from what passes and what waits
        priority   how important this client claims to be
        mode       what to use when the lease has ended unrenewed; by default as the client says
        burst      so many permits may be saved up and pass at once, instead of what 20 ms bring
        window     what so many seconds bring may be saved up: for budgets of so much per minute or day
        max_debt   how much may be owed because of `charge` (1,000,000)
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
        self, resource: str, *, wants: Optional[float] = None, priority: int = 0, mode: Optional[str] = None
    ) -> Gauge:
        """Opens a resource as a gauge: so many at the same time. The rest is as for `rate`."""
        return Gauge(self, resource, wants=wants, priority=priority, mode=mode)

    async def ready_async(self, timeout: float = 5.0) -> None:
        """As `ready`, in an event loop."""
        await finish(self._ready(timeout), None, "")

    async def close_async(self) -> None:
        """As `close`, in an event loop."""
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
def _part() -> None:
    for client in list(_clients):
        try:
            client.close(PARTING_SECONDS)
        except LeasewayError:
            pass
