"""Errors of replication."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from twinlog.ha.compare.finding import Finding

Cause = Literal[
    "stranger", "over_max", "below_min", "bad_request", "bad_ack", "too_many", "diverged", "unproven", "fenced", "tls"
]


class HAError(Exception):
    """Parent of everything replication raises. Ends the connection that it happened on, never the service."""


class HAProtocolError(HAError):
    """The peer broke the protocol. Nothing that it said on this connection counts any more."""


class HARefusedError(HAProtocolError):
    """The peer's request or acknowledgement is impossible. The connection was closed before it counted."""

    def __init__(self, cause: Cause, why: str) -> None:
        super().__init__(why)
        self.cause = cause


class HABadRecordError(HAProtocolError):
    """The bytes that arrived for `phy_offset` are no valid record; `what` says why. All before them is in the log."""

    def __init__(self, phy_offset: int, what: str) -> None:
        super().__init__(f"a bad record at offset {phy_offset}: {what}")
        self.phy_offset = phy_offset
        self.what = what


class HADivergedError(HAProtocolError):
    """The master sent other bytes for a place that this slave has already; the first one that differs is at `phy_offset`."""

    def __init__(self, phy_offset: int) -> None:
        super().__init__(f"byte {phy_offset} of the log is another one here")
        self.phy_offset = phy_offset


class HAUnfitError(HAError):
    """Something was found for which haste is no cure: `finding` is for people, and nothing more is asked of the master now."""

    def __init__(self, finding: "Finding") -> None:
        super().__init__(finding.text)
        self.finding = finding


class HAConnectionLostError(HAError):
    """The peer closed the connection, or fell silent."""


class HATlsError(HAConnectionLostError):
    """No TLS connection: the peer does not speak it, or is not trusted, or our own files cannot be used."""


class HAPeerError(HAError):
    """Another member gave no answer on its remoting port, or none that can be used."""


class HAIdentityError(HAPeerError):
    """Another process takes part under this member's id: one of the two directories is a copy."""


class HALogError(HAError):
    """Our own log cannot give, or take, the bytes that the stream needs next."""
