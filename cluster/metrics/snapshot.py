"""Snapshot of a process at one moment: frozen plain values, made in its event loop and read in the HTTP thread.

Offsets and sizes in bytes, times in seconds unless the name says otherwise. What is not known is None, or left out.
"""

from attrs import frozen

from twinlog.store.util.histogram import HistogramCounts


@frozen(kw_only=True)
class GroupLag:
    """Lag of a consumer group in a topic, over all queues; in messages."""

    topic: str
    group: str
    is_system: bool
    lag: int
    inflight: int  # Fetched, and not reported as consumed.
    latency_ms: int | None  # Age of the oldest message that was not consumed; 0: there is none.


@frozen(kw_only=True)
class ReplicaNumbers:
    """One slave, as this member sees it. An offset that it never reported is None, and so are the values derived from it."""

    name: str
    connected: bool
    tls: bool | None  # None: it is not connected.
    in_sync: bool
    lag_bytes: int | None
    lag_seconds: float | None
    lag_messages: int | None


@frozen(kw_only=True)
class StoreNumbers:
    """The store directory of one member."""

    size: int  # Of all files that are open: log, queues.
    min_offset: int
    max_offset: int
    flushed_offset: int
    dispatched_offset: int
    reserve_ms: int | None  # Age of the oldest message.
    fsync: HistogramCounts
    sync_errors: int
    readonly: bool
    disk_used_ratio: float
    damaged: int
    unscrubbed: int


@frozen(kw_only=True)
class HANumbers:
    """Replication, both sides."""

    member_id: str  # "": it has none yet.
    secret_ids: tuple[str, ...]  # Of group secrets, the one that signs first.
    address: str
    role: str  # master, slave, none
    state: str
    epoch: int
    paused: bool
    confirmed_offset: int
    synchronous: bool
    acks_configured: int
    acks_needed: int
    in_sync: int
    waiting: int
    ack_waits: tuple[tuple[int, str, HistogramCounts], ...]  # Members that had to hold it, outcome.
    replicas: tuple[ReplicaNumbers, ...]
    rejected: tuple[tuple[str, int], ...]
    received: int | None  # Log bytes from masters; None: it follows nobody.
    reconnects: tuple[tuple[str, int], ...]  # By what ended the connection.
    divergences: int
    divergent: int  # Bytes here that the master's log does not have.
    auto_failover: bool | None  # By the record that this member has; None: it has none.
    could_elect: bool | None  # By a serving master: if it died now; None: this member cannot tell.
    suspected: bool
    heard_seconds: float | None  # Since it heard its master last; None: it serves itself, or has no record.
    elections: tuple[tuple[str, int], ...]  # Automatic ones that it began, by outcome.
    held_off_seconds: float
    in_sync_set: int | None  # Size, by a serving master's record in force; None: etcd does not keep it, or a slave.
    in_sync_version: int | None  # Version of the record, likewise.
    in_sync_changed_seconds: float | None  # Since the set was seen to change last; None also: not since the start.
    etcd_usable: bool | None  # As this member sees it; None: it has no etcdEndpoints.


@frozen(kw_only=True)
class BrokerSnapshot:
    """One broker."""

    cluster: str
    group: str  # brokerName
    member: str
    permission: int
    topics: int
    groups: int
    puts: tuple[tuple[str, bool, int, int], ...]  # Topic, is it the system's, messages, bytes.
    gets: tuple[tuple[str, str, bool, int, int], ...]  # Topic, group, is one the system's, messages, bytes.
    dead: tuple[tuple[str, str, bool, int], ...]  # Likewise, messages.
    lags: tuple[GroupLag, ...]
    producers: tuple[tuple[str, str, int], ...]  # Language, version, connections.
    consumers: tuple[tuple[str, str, str, str, int], ...]  # Group, language, version, push or pull, connections.
    held_pulls: int
    requests: int  # That are being worked on.
    store: StoreNumbers
    ha: HANumbers
    stalls: int
    longest_stall: float
    cpu_waits: int
    cpu_wait_seconds: float
    now_ms: int
    audit_file: str | None
    seconds: float  # How long it took to put this together.
    stalled_seconds: float = 0.0  # For these two see below.
    age_seconds: float = 0.0


@frozen(kw_only=True)
class RegisteredGroup:
    """A broker group as a name server knows it."""

    cluster: str
    group: str
    masters: int
    slaves: int
    silent_seconds: float  # Since the member registered that has been silent for longest.


@frozen(kw_only=True)
class NamesrvSnapshot:
    """One name server."""

    groups: tuple[RegisteredGroup, ...]
    topics: int
    now_ms: int
    seconds: float
    stalled_seconds: float = 0.0  # How long the loop has stood still; only the thread of HTTP knows, which fills it in.
    age_seconds: float = 0.0  # Of this snapshot, likewise.


Snapshot = BrokerSnapshot | NamesrvSnapshot
