"""Exceptions. An unreachable server raises no exception: see `Client.health`."""

from __future__ import annotations


class LeasewayError(Exception):
    """Base class of all exceptions of this package."""


class BuildError(LeasewayError, ValueError):
    """The client could not be created. Nothing was started."""


class OpenError(LeasewayError, ValueError):
    """A resource could not be opened, or its wants are invalid. Resources that are open stay open."""


class Closed(LeasewayError):
    """The client was closed; nothing was taken."""


class Forked(LeasewayError):
    """The object belongs to the process that this one was forked from."""


class Timeout(LeasewayError, TimeoutError):
    """The timeout expired; nothing was taken."""


class NotReady(LeasewayError):
    """Some resources have no lease yet. The client keeps trying."""

    def __init__(self, message: str, resources: list[str], why: str) -> None:
        super().__init__(message, resources, why)
        #: The resources without a lease.
        self.resources = resources
        #: The error of the last failed request, or a note that no request has failed.
        self.why = why

    def __str__(self) -> str:
        return str(self.args[0])


class DebtExceeded(LeasewayError):
    """A charge exceeded the maximum debt. The part up to the maximum was charged."""

    def __init__(self, message: str, uncharged: int, max_debt: int) -> None:
        super().__init__(message, uncharged, max_debt)
        #: The number of permits that were not charged.
        self.uncharged = uncharged
        #: The maximum debt.
        self.max_debt = max_debt

    def __str__(self) -> str:
        return str(self.args[0])
