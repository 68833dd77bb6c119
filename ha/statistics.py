"""Snapshots of replication, frozen: the only source of metrics, CLI and tests."""

from collections.abc import Mapping
from typing import Literal

from attrs import frozen

from twinlog.ha.compare.finding import Finding
from twinlog.ha.errors import Cause
from twinlog.ha.policy.ack_policy import AckDecision
from twinlog.ha.policy.admission import Refusal
from twinlog.ha.policy.disconnected import KnownSlave

ConnectionState = Literal["connected", "catchup", "streaming"]
ClientState = Literal[
    "idle",  # No master is known.
    "connecting",
    "preflight",  # The two logs are compared.
    "streaming",
    "retrying",  # See last_error.
    "stalled",  # There is more, but nothing comes, or nothing sound.
    "ahead",  # This log holds bytes behind the end of the master's, or seems to.
    "diverged",  # The two logs hold different bytes.
    "below min",  # The master has deleted what comes next.
    "resyncing",  # What does not fit is put aside.
    "paused",  # Our own disk takes no bytes for now.
    "fenced",  # The master is of an epoch older than what was promised here.
    "waiting",  # For the group to take this member in.
    "failed",  # It takes none any more, or the files' sizes differ.
]


@frozen(kw_only=True)
class HAConnectionStatistics:
    """Master side, one connection. Offsets and sizes in bytes; -1 before the request.

    `state`: connected (has made no request yet), catchup (has never had all), streaming.
    """

    address: str
    member: str  # Its id; "": it did not say who it is.
    tls: bool
    state: ConnectionState
    request_offset: int
    sent_offset: int
    ack_offset: int
    admitted: bool  # Its IP is that of a registered slave, or allowed by haAllowedSlaves.
    counted: bool  # Producers are answered on its word.
    in_sync: bool  # It counts, and is near enough to the log's end.
    suspended: bool  # It missed deadlines: producers do not wait for it until it holds the whole log.
    stalled: bool  # It lacks bytes, and has acknowledged none for haStalledAfter.
    reason: str  # Why it is not in sync, or else not as it should be; empty: all is well.
    transferred_bytes_per_second: float
    connected_since: float  # Seconds, monotonic.
    lag_bytes: int  # Log end minus ack_offset.
    lag_seconds: float | None  # Age of the oldest byte it lacks; None: from before this process started.


@frozen(kw_only=True)
class HAClientStatistics:
    """Slave side. Of what the master said last and what was proven, None: not known."""

    master_address: str | None
    tls: bool
    local_address: str | None  # Our end of the connection: what the master knows this slave by.
    state: ClientState
    max_offset: int
    transferred_bytes: int  # Of log, since start.
    transferred_bytes_per_second: float
    last_read_ms: int  # Wall clock, 0: never.
    last_write_ms: int
    connections: int  # How many were made since start.
    last_error: str | None
    finding: Finding | None  # How this log fits its master's; None: there is nothing to say.
    master_max_offset: int | None
    proven_offset: int | None  # Below it every byte was compared with the master's, by digests, and is equal.
    unverified_bytes: int  # Received, behind max_offset, and not verified yet: not part of the log.


@frozen(kw_only=True)
class HAStatistics:
    """Both sides. `role`: what this member does now; a slave serves slaves of its own, too."""

    role: Literal["master", "slave"]
    port: int
    max_offset: int
    push2_slave_max_offset: int
    confirmed_offset: int  # As many slaves hold what lies below as producers wait for.
    decision: AckDecision  # What becomes of a message that asks to wait.
    registered: tuple[str, ...]  # The IPs of the registered slaves, one for each slave.
    waiting_messages: int
    connections: tuple[HAConnectionStatistics, ...]
    refused: Mapping[Cause, int]  # Connections, since start.
    refusals: tuple[Refusal, ...]  # What was refused to whom, the newest last.
    client: HAClientStatistics | None
    retention_holder: KnownSlave | None  # Who needs the oldest bytes of the log.
    away: tuple[KnownSlave, ...]  # Slaves that were here.
