"""Client of Leaseway: leases on shared capacity, and limiters that enforce them.

    from leaseway import Client

    client = Client("127.0.0.1:5100")
    searches = client.rate("searches")
    searches.wait()                 # or: await searches.wait_async()

The capacity comes from a Leaseway node as a lease, which a background thread keeps alive: no call waits for a server.
"""

import os

from leaseway import _native
from leaseway._native import VERSION as __version__
from leaseway._native import (
    BudgetReservation,
    Cost,
    Health,
    Permit,
    Prices,
    Refusal,
    Reservation,
    Reservations,
    Resource,
    Standing,
)
from leaseway.balancer import Balanced, Balancer, Pick
from leaseway.client import Client, Options
from leaseway.errors import BuildError, Closed, DebtExceeded, Forked, LeasewayError, NotReady, OpenError, Timeout
from leaseway.limiters import Budget, Gauge, Limits, Rate

os.register_at_fork(after_in_child=_native._forked)

__all__ = [
    "Balanced",
    "Balancer",
    "Budget",
    "BudgetReservation",
    "BuildError",
    "Client",
    "Closed",
    "Cost",
    "DebtExceeded",
    "Forked",
    "Gauge",
    "Health",
    "LeasewayError",
    "Limits",
    "NotReady",
    "OpenError",
    "Options",
    "Permit",
    "Pick",
    "Prices",
    "Rate",
    "Refusal",
    "Reservation",
    "Reservations",
    "Resource",
    "Standing",
    "Timeout",
    "__version__",
]
