"""Protocols of the store, as replication uses it. MessageStore and CommitLog implement them; tests bring small ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from twinlog.store.config import StoreConfig
from twinlog.store.integrity.digest_service import DigestService
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.running_flags import RunningFlags
from twinlog.store.log.unverified_tail import LogTail
from twinlog.store.record.scan import DispatchEntry

if TYPE_CHECKING:
    from twinlog.store.record.columns import Columns  # numpy comes with it: only where there is much to do.


class Chunk(Protocol):
    """Bytes of the log that lie in one file: `size` of them from `position` of the file behind `fd`."""

    @property
    def fd(self) -> int:
        """An open file; it may be closed whenever the event loop runs on, so do not keep it over an await."""

    @property
    def position(self) -> int:
        """Position in the file."""

    @property
    def size(self) -> int:
        """Number of bytes, at least 1."""


class ReadableLog(Protocol):
    """The commit log, for the master's side."""

    @property
    def file_size(self) -> int:
        """Bytes of one file."""

    @property
    def min_offset(self) -> int:
        """The first byte that is still there."""

    @property
    def max_offset(self) -> int:
        """End of the log: the offset of the next byte."""

    def chunk(self, offset: int, size_max: int) -> Chunk | None:
        """Bytes of one file from `offset` on; None at the log's end and outside of it."""

    def read(self, offset: int, size: int) -> memoryview | None:
        """Bytes of one file without a copy; None unless all of them are there."""


class Flusher(Protocol):
    """Flushes the log to the disk."""

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the disk."""

    @property
    def on_flushed(self) -> list[Callable[[], None]]:
        """Each is called when flushed_offset has risen: it must be quick and must not raise."""

    def request(self) -> None:
        """Flush soon what is written by now."""

    async def flush(self) -> None:
        """Flush what is written by now; see flushed_offset whether that worked."""

    def refuse_all(self, why: str) -> None:
        """Refuse all that wait for the disk."""


class ReplicatedStore(Protocol):
    """The store, for both sides."""

    @property
    def config(self) -> StoreConfig:
        """Its configuration: the role says whether producers wait for slaves."""

    @property
    def commit_log(self) -> ReadableLog:
        """Its log."""

    @property
    def max_offset(self) -> int:
        """End of the log: the offset of the next byte; 0 for a log without files."""

    @property
    def flusher(self) -> Flusher:
        """Brings its log to the disk."""

    @property
    def flags(self) -> RunningFlags:
        """Why bytes cannot be appended, and whether that passes."""

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delays of levels 1, 2, ..., which the entries of delayed messages depend on."""

    @property
    def appended(self) -> list[Callable[[], None]]:
        """Each is called after bytes were appended, by whoever appended them: it must be quick and must not raise."""

    def append_replicated(self, data: memoryview, entries: "list[DispatchEntry] | Columns") -> None:
        """Append whole, verified records."""

    def begin_tail(self) -> LogTail:
        """Let bytes come to lie behind the log's end before they are verified. Raises StoreError."""

    @property
    def unverified_bytes(self) -> int:
        """Bytes of it."""

    def take_of_tail(self, size: int, entries: "list[DispatchEntry] | Columns") -> None:
        """Let whole, verified records that the tail begins with be part of the log."""

    async def close_tail(self, tail: LogTail, *, durably: bool) -> None:
        """Clear what is left of the tail."""

    def start_at(self, phy_offset: int) -> None:
        """Let an empty log begin at the start of another file than the first."""


class ComparableStore(ReplicatedStore, Protocol):
    """The store, for a slave that compares its log with its master's, and may have to repair it."""

    @property
    def commit_log(self) -> CommitLog:
        """Its log, files and all: threads read them."""

    @property
    def digest(self) -> DigestService:
        """The digests of its log."""

    @property
    def dispatched_offset(self) -> int:
        """All bytes below are in the queues."""

    @property
    def lost_bytes(self) -> int:
        """Number of bytes that were on its disk and are missing at the end of the log since a start."""

    def accept_end(self) -> None:
        """Count them no more. Raises OSError."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """The wall clock, ms."""

    @property
    def on_truncate(self) -> list[Callable[[int], None]]:
        """Each is called with the offset at which the log is cut, before anything is written there."""

    async def truncate(self, phy_offset: int, why: str) -> None:
        """Let the log end at a record's start, durably; what is cut is kept in twinlog/divergent/. Raises StoreError, OSError."""

    async def reset(self, why: str) -> None:
        """Let the log begin anew, empty; its files are kept in twinlog/divergent/. Raises StoreError, OSError."""
