"""What can go wrong between a master and its slaves, for callers to tell apart."""

from typing import Literal

Cause = Literal["stranger", "over_max", "below_min", "bad_request", "bad_ack", "too_many"]


class HAError(Exception):
    """Parent of everything replication raises. Ends the connection that it happened on, never the service."""


class HAProtocolError(HAError):
    """The peer broke the protocol. Nothing that it said on this connection counts any more."""


class HARefusedError(HAProtocolError):
    """What the peer asked for, or acknowledged, cannot be. The connection was closed before anything of it counted."""

    def __init__(self, cause: Cause, why: str) -> None:
        super().__init__(why)
        self.cause = cause


class HAConnectionLostError(HAError):
    """The peer left, or fell silent."""


class HAPeerError(HAError):
    """Another member gave no answer on its remoting port, or none that can be used."""


class HALogError(HAError):
    """Our own log cannot give, or take, the bytes that the stream needs next."""


def first_error(group: BaseExceptionGroup[HAError]) -> HAError:
    """The first of what the tasks of a connection raised: the others are what followed from it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HAError)
    return error
