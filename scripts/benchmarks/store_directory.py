"""The store directory that is measured: made once, then copied for each measurement at the price of its last file."""

import os
import shutil
import subprocess
from pathlib import Path

from attrs import frozen

from twinlog.store.config import StoreConfig

BODY_SIZE = 1024
QUEUES_PER_TOPIC = 8
TOPIC = "bench-0"


@frozen(kw_only=True)
class Scale:
    """How large everything is. Sizes in bytes."""

    log_bytes: int
    log_file_bytes: int
    queue_file_bytes: int
    index_slots: int
    index_items: int
    queues: int
    append_seconds: float

    @property
    def settings(self) -> dict[str, str]:
        """Keys of broker.conf: both systems get the same file sizes."""
        return {
            "mappedFileSizeCommitLog": str(self.log_file_bytes),
            "mappedFileSizeConsumeQueue": str(self.queue_file_bytes),
            "maxHashSlotNum": str(self.index_slots),
            "maxIndexNum": str(self.index_items),
            "diskMaxUsedSpaceRatio": "95",
        }

    def config(self, root: Path) -> StoreConfig:
        """The same for our store without its broker."""
        return StoreConfig(
            root=root,
            mapped_file_size_commit_log=self.log_file_bytes,
            mapped_file_size_consume_queue=self.queue_file_bytes,
            max_hash_slot_num=self.index_slots,
            max_index_num=self.index_items,
        )


# RocketMQ's own file sizes.
FULL = Scale(
    log_bytes=4 << 30,
    log_file_bytes=1 << 30,
    queue_file_bytes=6_000_000,
    index_slots=5_000_000,
    index_items=20_000_000,
    queues=1000,
    append_seconds=4,
)
QUICK = Scale(
    log_bytes=40 << 20,
    log_file_bytes=16 << 20,
    queue_file_bytes=60_000,
    index_slots=5_000,
    index_items=20_000,
    queues=80,
    append_seconds=0.5,
)


def copy_store(source: Path, target: Path) -> None:
    """Copy a store that nobody has open. Full files of the log are never written again: both directories share those."""
    target.mkdir(parents=True)
    log = source / "commitlog"
    names = sorted(path.name for path in log.iterdir())
    (target / "commitlog").mkdir()
    for name in names[:-1]:
        os.link(log / name, target / "commitlog" / name)
    _copy(log / names[-1], target / "commitlog")
    for path in source.iterdir():
        if path.name not in ("commitlog", "lock"):
            _copy(path, target)


def _copy(path: Path, directory: Path) -> None:
    """Holes stay holes, and modification times stay: RocketMQ goes by them."""
    command = ["cp", "--archive", "--reflink=auto", "--sparse=always", str(path), str(directory)]
    subprocess.run(command, check=True)


def remove_queues_and_index(root: Path) -> None:
    """Leave the log alone, and what belongs to the broker."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name, ignore_errors=True)
