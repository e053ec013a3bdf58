"""What can go wrong. The words are those of the client library; servers that are away are no error: see `Client.health`."""

from __future__ import annotations


class LeasewayError(Exception):
    """Whatever the client refuses, or cannot give."""


class BuildError(LeasewayError, ValueError):
    """A client could not be made. Nothing was started."""


class OpenError(LeasewayError, ValueError):
    """A resource could not be opened, or asked for so much. Everything that was open stays so."""


class Closed(LeasewayError):
    """The client was closed; nothing was taken."""


class Forked(LeasewayError):
    """It belongs to the process that this one was forked from."""


class Timeout(LeasewayError, TimeoutError):
    """It was not the caller's turn in time; nothing was taken."""


class NotReady(LeasewayError):
    """Some resources have no lease yet. They go on trying."""

    def __init__(self, message: str, resources: list[str], why: str) -> None:
        super().__init__(message, resources, why)
        #: Which.
        self.resources = resources
        #: Why the last request failed, or that none did.
        self.why = why

    def __str__(self) -> str:
        return str(self.args[0])


class DebtExceeded(LeasewayError):
    """More was charged than may be owed. As much as may be was charged."""

    def __init__(self, message: str, uncharged: int, max_debt: int) -> None:
        super().__init__(message, uncharged, max_debt)
        #: Permits that were used and are not paid for.
        self.uncharged = uncharged
        #: What may be owed.
        self.max_debt = max_debt

    def __str__(self) -> str:
        return str(self.args[0])
