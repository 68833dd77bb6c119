"""Puts messages into the log: checks, append, and write buffers. Nothing here waits.

Sources: DefaultMessageStore.checkStoreStatus and checkMessage, CommitLog.putMessage; RocketMQ 4.9.8.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat

import structlog
from attrs import define, field

from twinlog.store.config import StoreConfig
from twinlog.store.errors import NoBufferError
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.commit_log import CommitLog, PutMessage, PutResult
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import RunningFlags, StoreCondition
from twinlog.store.log.transient_store_pool import CommitService, TransientStorePool, UncommittedEnd
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.util.histogram import percentile

# Upper bounds in ms: steps of 1 to 20 ms, of 2 to 50, of 5 to 100, of 10 to 200, of 50 to 500, of 100 to 1 s, of 1 s to 10 s.
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
_BOUNDS = tuple(accumulate(step for step, count in _STEPS for step in repeat(step, count)))
assert (_BOUNDS[0], _BOUNDS[-1]) == (1, 10_000)

_COARSE = (10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_NAMES = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
QUICK_SECONDS, MINUTE_SECONDS = 0.001, 60.0


def _empty() -> list[int]:
    return [0] * (len(_BOUNDS) + 1)


@define(eq=False)
class PutTimes:
    """Durations of producers' writes in the last whole minute, in the buckets of StoreStatsService.java (RocketMQ 4.9.7).

    The caller adds writes of less than a millisecond to `quick`, and calls note() for others.
    """

    quick: int = 0  # Messages of this minute.
    longest_ms: int = 0  # Since the start.
    _slow: list[int] = field(factory=_empty, init=False)
    _turn_at: float = field(default=-math.inf, init=False)
    _last_quick: int = field(default=0, init=False)
    _last_slow: list[int] = field(factory=_empty, init=False)

    def note(self, seconds: float, messages: int) -> None:
        """Count messages whose write took a millisecond or more."""
        ms = int(seconds * 1000)
        self.longest_ms = max(self.longest_ms, ms)
        self._slow[bisect_left(_BOUNDS, ms)] += messages

    def rotate(self, now: float) -> None:
        """Start a new minute when one is over; `now` in seconds of a monotonic clock."""
        if now < self._turn_at:
            return
        self._turn_at = now + MINUTE_SECONDS
        self._last_quick, self._last_slow = self.quick, self._slow
        self.quick, self._slow = 0, _empty()

    def distribution(self) -> str:
        """RocketMQ's putMessageDistributeTime."""
        counts = [self._last_quick, *repeat(0, len(_COARSE) + 1)]
        for bound, count in zip((*_BOUNDS, _COARSE[-1] + 1), self._last_slow, strict=True):
            counts[1 + bisect_left(_COARSE, bound)] += count
        return "".join(f"{name}:{count} " for name, count in zip(_NAMES, counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """The duration that this share of the messages did not exceed; 0 without messages."""
        counts = [self._last_quick + self._last_slow[0], *self._last_slow[1:]]
        return percentile(counts, share, (*_BOUNDS, math.inf)) or 0.0


log = structlog.get_logger()

TOPIC_LENGTH_MAX, PROPERTIES_SIZE_MAX = 127, 32767
RECORD_OVERHEAD_MAX = 115 + TOPIC_LENGTH_MAX * 3 + PROPERTIES_SIZE_MAX + 8  # With IPv6 hosts and the room for a blank.


@define(eq=False, kw_only=True)
class PutService:
    """Calls `written(entries, store timestamp)` with records that readers may see, `refused` with errors of the disk."""

    log: CommitLog
    config: StoreConfig
    flags: RunningFlags
    hooks: StoreHooks
    written: Callable[[list[DispatchEntry], int], None]
    refused: Callable[[str, OSError], PutStatus]
    messages: int = field(default=0, init=False)  # Put, or replicated, since the start.
    bytes: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)  # Messages that were refused.
    times: PutTimes = field(factory=PutTimes, init=False)
    committer: CommitService | None = field(default=None, init=False)  # With buffers only.
    busy_until: float = field(default=0.0, init=False)  # By hooks.clock().
    _busy_after: float = field(init=False)  # Seconds that a write may take.
    _body_size_unchecked: int = field(init=False)  # A record with a body up to this size fits any file.
    _uncommitted: deque[DispatchEntry] = field(factory=deque, init=False)  # Still in a buffer.

    def __attrs_post_init__(self) -> None:
        self.take_config(self.config)

    def take_config(self, config: StoreConfig) -> None:
        """Go by this configuration from now on."""
        self.config = config
        self._body_size_unchecked = min(config.max_message_size, self.log.file_size - RECORD_OVERHEAD_MAX)
        self._busy_after = config.os_page_cache_busy_timeout_ms / 1000 or math.inf

    def count(self, messages: int, size: int) -> None:
        """Count messages and bytes added to the log by producers or, on a slave, by replication. RocketMQ counts both."""
        self.messages += messages
        self.bytes += size

    @property
    def writable(self) -> bool:
        """True when producers may write here."""
        return not self.flags.why_not_writable and not self.config.is_slave

    def put(self, messages: Sequence[PutMessage], *, together: bool = False) -> list[PutResult]:
        """Append messages with one system call; each has its own status. Never waits: flush and replicas come after.

        `together`: these are one batch request and go into one file.
        """
        if not self.writable:
            return self._refuse(PutStatus.SERVICE_NOT_AVAILABLE, messages)
        if not messages:
            return []
        if self.busy_until and self._is_busy():
            return self._refuse(PutStatus.OS_PAGECACHE_BUSY, messages)
        body_max = self._body_size_unchecked
        for topic, _, body, properties, *_ in messages:
            if len(body) > body_max or len(properties) > PROPERTIES_SIZE_MAX or len(topic) > TOPIC_LENGTH_MAX:
                return self._put_some(messages, together=together)
        return self._append(messages, together=together)

    def _put_some(self, messages: Sequence[PutMessage], *, together: bool) -> list[PutResult]:
        """Like put(), when some messages may be too large."""
        statuses = [self._check(message) for message in messages]
        refused = [status for status in statuses if status is not PutStatus.PUT_OK]
        if together and refused:  # All or none.
            return self._refuse(refused[0], messages)
        fitting = [m for m, status in zip(messages, statuses, strict=True) if status is PutStatus.PUT_OK]
        self.failed += len(refused)
        good = iter(self._append(fitting, together=together))
        return [next(good) if status is PutStatus.PUT_OK else PutResult(status) for status in statuses]

    def _refuse(self, status: PutStatus, messages: Sequence[PutMessage]) -> list[PutResult]:
        self.failed += len(messages)
        return [PutResult(status)] * len(messages)

    def _append(self, messages: Sequence[PutMessage], *, together: bool = False) -> list[PutResult]:
        if not messages:
            return []
        now_ms, began = self.hooks.now_ms(), self.hooks.clock()
        try:
            results, entries = self.log.append(messages, now_ms, together=together)
        except OSError as error:
            return self._refuse(self.refused("writing the commit log", error), messages)
        except NoBufferError:
            return self._refuse(PutStatus.CREATE_MAPPED_FILE_FAILED, messages)
        if (took := self.hooks.clock() - began) < QUICK_SECONDS:
            self.times.quick += len(results)
        else:
            self.times.note(took, len(results))
        if took > self._busy_after:
            self.busy_until = began + took + min(took - self._busy_after, self._busy_after)
        self.count(len(results), results[-1].end_offset - results[0].phy_offset)
        if self.committer is None:
            self.written(entries, now_ms)
        else:
            self._uncommitted += entries
            self.committed()
            self.committer.appended()
        return results

    def committed(self) -> None:
        """Pass on records that are written from the buffer now."""
        end, entries = self.log.max_offset, []
        while self._uncommitted and self._uncommitted[0].phy_offset < end:
            entries.append(self._uncommitted.popleft())
        if entries:
            self.written(entries, entries[-1].store_timestamp)

    def commit_pending(self) -> None:
        """Write buffered messages that producers were answered for; nothing without buffers."""
        if self.log.pending is not None:
            try:
                self.log.pending.commit()
            except OSError as error:
                self._commit_refused(error)
            self.committed()

    def become_slave(self, config: StoreConfig) -> None:
        """Write buffered messages and refuse new ones: the log takes a master's bytes from now on."""
        self.commit_pending()
        self.config = config
        if self.log.pending is not None:
            if self.log.pending.size:
                log.error("buffered messages are lost", bytes=self.log.pending.size)
            self._uncommitted.clear()
            self.log.pending = None

    def become_master(self, config: StoreConfig) -> None:
        """Take messages at the log's present end, with buffers if there were any at the start."""
        self.config = config
        if self.committer is not None:
            self.committer.pending.begin_anew()
            self.log.pending = self.committer.pending

    async def settle(self) -> None:
        """Wait until no thread writes from a buffer: a late write would come back behind a cut."""
        if self.committer is not None:
            async with self.committer.writing:
                pass

    def _commit_refused(self, error: OSError) -> None:
        self.refused("writing the commit log", error)
        if StoreCondition.FAILED in self.flags and self.log.pending is not None:
            log.error("buffered messages are lost", bytes=self.log.pending.size)

    def _is_busy(self) -> bool:
        """True shortly after a slow write.

        RocketMQ refuses a put while another one has been writing for more than osPageCacheBusyTimeOutMills. Here puts run one
        after another on one thread, so refusals follow the slow write, for as long as RocketMQ's would have lasted, at most
        that time: a disk that takes seconds for every write leaves time for readers and replicas.
        """
        if self.hooks.clock() < self.busy_until:
            return True
        self.busy_until = 0.0
        return False

    def _check(self, message: PutMessage) -> PutStatus:
        """The limits of one message. Source: DefaultMessageStore.checkMessage, MessageExtEncoder."""
        if java_length(message.topic) > TOPIC_LENGTH_MAX or len(message.topic.encode()) > TOPIC_LENGTH_MAX:
            return PutStatus.MESSAGE_ILLEGAL
        if len(message.properties) > PROPERTIES_SIZE_MAX:
            length = java_length(message.properties.decode(errors="replace"))
            return PutStatus.MESSAGE_ILLEGAL if length > PROPERTIES_SIZE_MAX else PutStatus.PROPERTIES_SIZE_EXCEEDED
        if len(message.body) > self.config.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        return PutStatus.PUT_OK if self.log.fits(message) else PutStatus.MESSAGE_ILLEGAL

    def use_buffers(self) -> None:
        """Append to buffers from now on, see twinlog.store.log.transient_store_pool."""
        config = self.config
        pool = TransientStorePool(config.transient_store_pool_size, self.log.file_size)
        pending = UncommittedEnd(self.log, pool, config.fast_fail_if_no_buffer_in_store_pool)
        self.log.pending = pending
        self.committer = CommitService(
            pending=pending,
            interval_ms=config.commit_interval_commit_log_ms,
            least_pages=config.commit_commit_log_least_pages,
            thorough_interval_ms=config.commit_commit_log_thorough_interval_ms,
            committed=self.committed,
            refused=self._commit_refused,
            flags=self.flags,
        )


def java_length(text: str) -> int:
    """Characters as Java counts them: those beyond 16 bits are two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
