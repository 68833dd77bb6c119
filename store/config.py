"""The store's configuration: one frozen class, every option declared once.

Names and defaults are RocketMQ's (MessageStoreConfig, 4.9.8), so that a broker.conf means the same to both.
"""

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import field, frozen, validators

from twinlog.store.retention import parse_hours
from twinlog.store.role import BrokerRole as BrokerRole
from twinlog.store.util.disk_space import DiskLimits


def option(default: Any, *, key: str, doc: str, validator: Callable[..., Any] | None = None) -> Any:
    """A configuration field: `key` is its name in broker.conf, `doc` its line in the reference.

    Whole numbers must not be negative unless the caller brings a validator of its own.
    """
    if validator is None and isinstance(default, int) and not isinstance(default, bool):
        validator = validators.ge(0)
    return field(default=default, validator=validator, metadata={"key": key, "doc": doc})


class FlushDiskType(Enum):
    """The time at which a producer is answered: at once, or after fdatasync."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
CONSUME_QUEUE_UNIT = 20  # Bytes of one consume queue entry.


def _are_hours(_instance: object, _attribute: object, value: str) -> None:
    parse_hours(value)


def _paths(text: str) -> tuple[Path, ...]:
    """The different directories in a comma-separated list, in its order."""
    return tuple(dict.fromkeys(Path(part.strip()).expanduser() for part in text.split(",") if part.strip()))


def _record_fits(_instance: object, attribute: Any, value: int) -> None:
    if value < 4096:
        raise ValueError(f"'{attribute.name}' must be >= 4096: {value}")


@frozen(kw_only=True)
class StoreConfig:
    """Configuration of a store. Sizes in bytes, times in milliseconds, unless the name says otherwise."""

    root: Path = option(Path("~/store"), key="storePathRootDir", doc="the store's root directory")
    commit_log_dir: Path | None = option(
        None,
        key="storePathCommitLog",
        doc="commit log directory; none: ROOT/commitlog. Several, split by a comma, take turns, file by file",
    )
    read_only_commit_log_dirs: str = option(
        "",
        key="readOnlyCommitLogStorePaths",
        doc="more directories with files of the commit log, in which none is made; split by a comma",
    )
    mapped_file_size_commit_log: int = option(
        1 << 30, key="mappedFileSizeCommitLog", doc="bytes of one commit log file", validator=_record_fits
    )
    mapped_file_size_consume_queue: int = option(
        300_000 * CONSUME_QUEUE_UNIT,
        key="mappedFileSizeConsumeQueue",
        doc="bytes of one consume queue file, rounded up to a multiple of 20",
        validator=validators.ge(CONSUME_QUEUE_UNIT),
    )
    max_message_size: int = option(4 << 20, key="maxMessageSize", doc="largest body, bytes")
    check_crc_on_recover: bool = option(True, key="checkCRCOnRecover", doc="verify body CRCs while recovering")
    broker_role: BrokerRole = option(
        BrokerRole.ASYNC_MASTER, key="brokerRole", doc="ASYNC_MASTER, SYNC_MASTER or SLAVE"
    )
    flush_disk_type: FlushDiskType = option(
        FlushDiskType.ASYNC_FLUSH, key="flushDiskType", doc="ASYNC_FLUSH, or SYNC_FLUSH: answer after fdatasync"
    )
    sync_flush_timeout_ms: int = option(5_000, key="syncFlushTimeout", doc="longest wait for a synchronous flush")
    flush_interval_commit_log_ms: int = option(
        500, key="flushIntervalCommitLog", doc="pause between two flushes of the commit log", validator=validators.ge(1)
    )
    flush_commit_log_least_pages: int = option(
        4, key="flushCommitLogLeastPages", doc="4 KiB pages that must be dirty for a flush"
    )
    flush_commit_log_thorough_interval_ms: int = option(
        10_000, key="flushCommitLogThoroughInterval", doc="after this long anything dirty is flushed"
    )
    transient_store_pool_enable: bool = option(
        False,
        key="transientStorePoolEnable",
        doc="answer producers when their messages are in this process's memory, and write them a moment later; only with "
        "ASYNC_FLUSH, not on a SLAVE. kill -9 loses what was not written yet, up to commitCommitLogThoroughInterval of messages",
    )
    transient_store_pool_size: int = option(
        5, key="transientStorePoolSize", doc="buffers for that, each as large as a log file", validator=validators.ge(1)
    )
    fast_fail_if_no_buffer_in_store_pool: bool = option(
        False,
        key="fastFailIfNoBufferInStorePool",
        doc="refuse messages, rather than write at once, while no buffer is free",
    )
    commit_interval_commit_log_ms: int = option(
        200,
        key="commitIntervalCommitLog",
        doc="longest pause between two looks at the buffers",
        validator=validators.ge(1),
    )
    commit_commit_log_least_pages: int = option(
        4, key="commitCommitLogLeastPages", doc="4 KiB pages in a buffer that are written at once"
    )
    commit_commit_log_thorough_interval_ms: int = option(
        200, key="commitCommitLogThoroughInterval", doc="after this long anything in a buffer is written"
    )
    flush_interval_consume_queue_ms: int = option(
        1_000,
        key="flushIntervalConsumeQueue",
        doc="pause between two flushes of the consume queues",
        validator=validators.ge(1),
    )
    flush_consume_queue_thorough_interval_ms: int = option(
        60_000, key="flushConsumeQueueThoroughInterval", doc="how often all queues and the checkpoint are flushed"
    )
    recovery_point_bytes: int = option(
        256 << 20,
        key="recoveryPointBytes",
        doc="after this much of the log all is flushed, too: a start after a crash looks at little more than this, with 10,000 "
        "queues at three times as much",
        validator=validators.ge(1),
    )
    max_transfer_bytes_on_message_in_memory: int = option(
        262_144, key="maxTransferBytesOnMessageInMemory", doc="bytes in one pull answer"
    )
    max_transfer_count_on_message_in_memory: int = option(
        32, key="maxTransferCountOnMessageInMemory", doc="messages in one pull answer"
    )
    max_transfer_bytes_on_message_in_disk: int = option(
        65_536, key="maxTransferBytesOnMessageInDisk", doc="the same for messages that are not in memory"
    )
    max_transfer_count_on_message_in_disk: int = option(
        8, key="maxTransferCountOnMessageInDisk", doc="the same for messages that are not in memory"
    )
    access_message_in_memory_max_ratio: int = option(
        40,
        key="accessMessageInMemoryMaxRatio",
        doc="percent of RAM that counts as memory",
        validator=validators.le(100),
    )
    os_page_cache_busy_timeout_ms: int = option(
        1_000,
        key="osPageCacheBusyTimeOutMills",
        doc="after a write that took longer, producers are refused for as long as it took more than this, at most this long",
    )
    clean_resource_interval_ms: int = option(
        10_000, key="cleanResourceInterval", doc="how often old files are looked for", validator=validators.ge(1)
    )
    delete_when: str = option(
        "04",
        key="deleteWhen",
        doc="hours of the day in which files that are old enough go, split by ;",
        validator=_are_hours,
    )
    file_reserved_time_hours: int = option(
        72, key="fileReservedTime", doc="hours that a commit log file stays after it was last written"
    )
    delete_file_batch_max: int = option(
        10, key="deleteFileBatchMax", doc="most commit log files that go at a time", validator=validators.ge(1)
    )
    delete_commit_log_files_interval_ms: int = option(
        100, key="deleteCommitLogFilesInterval", doc="pause between two commit log files that go"
    )
    delete_consume_queue_files_interval_ms: int = option(
        100, key="deleteConsumeQueueFilesInterval", doc="the same between two queues whose files go"
    )
    destroy_mapped_file_interval_forcibly_ms: int = option(
        120_000,
        key="destroyMapedFileIntervalForcibly",
        doc="a deleted file is closed, which gives its room back, after 10 s or this long, whichever is less",
    )
    redelete_hanged_file_interval_ms: int = option(
        120_000, key="redeleteHangedFileInterval", doc="pause before a file that could not be deleted is tried again"
    )
    disk_max_used_space_ratio: int = option(
        75, key="diskMaxUsedSpaceRatio", doc="percent of the disk above which old files go at any hour; 10 to 95"
    )
    clean_file_forcibly_enable: bool = option(
        True, key="cleanFileForciblyEnable", doc="above diskSpaceCleanForciblyRatio files go whatever their age"
    )
    disk_space_clean_forcibly_ratio: int = option(
        85, key="diskSpaceCleanForciblyRatio", doc="percent of the disk, at least 30", validator=validators.le(100)
    )
    disk_space_warning_level_ratio: int = option(
        90,
        key="diskSpaceWarningLevelRatio",
        doc="percent of the disk above which producers are refused, at least 35; 100: never",
        validator=validators.le(100),
    )
    message_index_enable: bool = option(True, key="messageIndexEnable", doc="index messages by key")
    message_index_safe: bool = option(
        False, key="messageIndexSafe", doc="accepted; after a crash all of the index is made good in any case"
    )
    max_hash_slot_num: int = option(
        5_000_000, key="maxHashSlotNum", doc="hash slots of one index file", validator=validators.ge(1)
    )
    max_index_num: int = option(
        20_000_000, key="maxIndexNum", doc="keys of one index file, and one more", validator=validators.ge(2)
    )
    max_msgs_num_batch: int = option(64, key="maxMsgsNumBatch", doc="most messages that a query by key answers")
    default_query_max_num: int = option(
        32, key="defaultQueryMaxNum", doc="most messages that a query by unique key answers"
    )
    offset_check_in_slave: bool = option(False, key="offsetCheckInSlave", doc="correct bad pull offsets on a slave too")
    scrub_bytes_per_second: int = option(
        32 << 20, key="scrubBytesPerSecond", doc="how fast the log is read again from the disk to find damage; 0: never"
    )
    scrub_interval_hours: int = option(
        168, key="scrubIntervalHours", doc="pause between two scrubs of the log; 0: only one, after each start"
    )
    message_delay_level: str = option(
        DEFAULT_DELAY_LEVELS, key="messageDelayLevel", doc="delays of levels 1, 2, ...; units s m h d"
    )

    @property
    def is_slave(self) -> bool:
        """True if the log is a copy of a master's."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def disk_limits(self) -> DiskLimits:
        """The three limits of the disk, kept within bounds as RocketMQ does."""
        return DiskLimits(
            clean=min(max(self.disk_max_used_space_ratio, 10), 95),
            forced=max(self.disk_space_clean_forcibly_ratio, 30),
            full=max(self.disk_space_warning_level_ratio, 35),
        )

    @property
    def uses_transient_store_pool(self) -> bool:
        """True when producers are answered before their messages are written."""
        flushes_later = self.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        return self.transient_store_pool_enable and flushes_later and not self.is_slave

    @property
    def commit_log_paths(self) -> tuple[Path, ...]:
        """The directories in which commit log files are made."""
        paths = _paths(str(self.commit_log_dir)) if self.commit_log_dir is not None else ()
        return paths or (self.root.expanduser() / "commitlog",)

    @property
    def read_only_commit_log_paths(self) -> tuple[Path, ...]:
        """More directories with commit log files, in which none is made."""
        return tuple(path for path in _paths(self.read_only_commit_log_dirs) if path not in self.commit_log_paths)

    @property
    def consume_queue_file_size(self) -> int:
        """Bytes of one consume queue file: the configured size rounded up to whole units."""
        return -(-self.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT


_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 2h` -> delays of levels 1, 2, ... in ms. Raises ValueError, which names the part that is wrong."""
    delays = []
    for part in text.split():
        number, unit = part[:-1], part[-1]
        if not number.isdecimal() or unit not in _UNITS_MS:
            raise ValueError(f"'{part}' is no delay; write a whole number and s, m, h or d, as in 10s")
        delays.append(int(number) * _UNITS_MS[unit])
    return tuple(delays)
