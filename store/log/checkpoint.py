"""The checkpoint file: up to which store time log and queues are known to be on disk.

4096 bytes: i64 physicMsgTimestamp | i64 logicsMsgTimestamp | i64 indexMsgTimestamp | 5.x: i64 masterFlushedOffset |
i64 confirmPhyOffset; the rest is zero. Times in ms. Source: StoreCheckpoint, RocketMQ 4.9.8 and 5.3.3.
"""

import os
from pathlib import Path
from struct import Struct

import structlog
from attrs import define

from twinlog.store.util.sync import sync_data

log = structlog.get_logger()

_LAYOUT = Struct(">qqqqq")
FILE_SIZE = 4096
_SAFETY_MS = 3000  # Recovery starts this much earlier, as RocketMQ's.


@define
class Checkpoint:
    """The five numbers; those of 5.x are kept as they were found."""

    path: Path
    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    def load(self) -> None:
        """Read the file; all zero when it is missing, short, or the disk does not read it."""
        try:
            raw = self.path.read_bytes()[: _LAYOUT.size]
        except FileNotFoundError:
            raw = b""
        except OSError as error:
            log.warning("checkpoint unreadable; after a crash the whole log is walked", error=str(error))
            raw = b""
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        ) = _LAYOUT.unpack(raw.ljust(_LAYOUT.size, b"\0"))

    def save(self) -> None:
        """Write and fdatasync the file in place, as RocketMQ does. Raises OSError, SyncError where it may be broken now."""
        raw = _LAYOUT.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(fd).st_size < FILE_SIZE:
                os.ftruncate(fd, FILE_SIZE)
            os.pwrite(fd, raw, 0)
            sync_data(fd)
        finally:
            os.close(fd)

    @property
    def recover_from_ms(self) -> int:
        """Messages stored before this time are on disk, in the log and in the queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS)
