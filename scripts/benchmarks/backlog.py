"""A store directory with a large backlog of equal messages, made at the speed of the disk: whole pieces of the log at once.

Message n lies in queue n % QUEUES with queue offset n // QUEUES, has a unique id that ends with n, and the same body as all
others, so each file can be computed without the ones before. A directory whose making was interrupted is completed.
"""

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import trio
from attrs import asdict, frozen

from scripts.benchmarks.report import say
from scripts.benchmarks.systems import QUEUES
from twinlog.store.config import StoreConfig
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import (
    END_OF_FILE_RESERVE,
    MAGIC_BLANK,
    SIZE_AND_MAGIC,
    Message,
    body_crc,
    encode_message,
    host_bytes,
)

NOTE = "backlog.json"  # In the directory: what it holds.
UNIT_SIZE = 20
_UNIT = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _UNIT.itemsize == UNIT_SIZE
_AT_ONCE = 1 << 16  # Messages.
_HOST = host_bytes("127.0.0.1:10911")


@frozen(kw_only=True)
class Backlog:
    """What a directory holds. Sizes in bytes; `log_file_bytes` and `queue_file_bytes` are also the broker's settings."""

    topic: str
    messages: int
    body_bytes: int
    log_file_bytes: int = 1 << 30
    queue_file_bytes: int = 6_000_000

    @property
    def settings(self) -> dict[str, str]:
        """Keys of broker.conf, for both systems."""
        return {
            "mappedFileSizeCommitLog": str(self.log_file_bytes),
            "mappedFileSizeConsumeQueue": str(self.queue_file_bytes),
            "messageIndexEnable": "false",
            "diskMaxUsedSpaceRatio": "95",
        }

    @property
    def record_bytes(self) -> int:
        """One message with all that belongs to it."""
        return len(self._record(0))

    @property
    def per_file(self) -> int:
        """Messages of a whole file."""
        return (self.log_file_bytes - END_OF_FILE_RESERVE) // self.record_bytes

    def make(self, root: Path) -> None:
        """Make the directory, or what it lacks. Raises ValueError for one that holds something else."""
        note = root / NOTE
        known = json.loads(note.read_text()) if note.exists() else {}
        if known.pop("is_whole", None):
            self._check(root, known)
            return
        if root.exists() and any(root.iterdir()):
            self._check(root, known)
        root.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({**asdict(self), "is_whole": False}))
        stored_ms = time.time_ns() // 1_000_000
        for number, first in enumerate(range(0, self.messages, self.per_file)):
            path = root / "commitlog" / f"{number * self.log_file_bytes:020d}"
            if not path.exists():
                last = min(first + self.per_file, self.messages)
                _write(path, self.log_file_bytes, self._log_pieces(first, last, path, stored_ms))
                say(f"{last:,} of {self.messages:,} messages written")
        for queue in range(QUEUES):
            self._make_queue(root / "consumequeue" / self.topic / str(queue), queue)
        digest(self.config(root))
        note.write_text(json.dumps({**asdict(self), "is_whole": True}))

    def _check(self, root: Path, known: dict[str, Any]) -> None:
        if known != asdict(self):
            raise ValueError(f"{root} holds {known or 'something else'}, not {asdict(self)}: name another directory")

    def link(self, root: Path, target: Path) -> None:
        """Another directory with the same content. Full files are never written again: both have those."""
        for directory, _, names in os.walk(root):
            made = target / Path(directory).relative_to(root)
            made.mkdir(parents=True)
            for name in names:
                source = Path(directory, name)
                is_full = source.parent.name == "commitlog" or source.parent.parent.name == self.topic
                if is_full and name != max(names):
                    os.link(source, made / name)
                elif name not in ("lock", NOTE):
                    _copy_sparse(source, made / name)

    def _record(self, stored_ms: int) -> bytes:
        body = random.Random(self.body_bytes).randbytes(self.body_bytes)
        return encode_message(
            Message(
                topic=self.topic,
                queue_id=0,
                body=body,
                properties_raw=f"UNIQ_KEY\x017F000001{0:024X}".encode(),
                born_timestamp=stored_ms,
                store_timestamp=stored_ms,
                born_host=_HOST,
                store_host=_HOST,
                body_crc=body_crc(body),
            )
        )

    def _log_pieces(self, first: int, last: int, path: Path, stored_ms: int) -> Iterator[bytes]:
        """The file with messages `first` to `last`."""
        record = self._record(stored_ms)
        kind = np.dtype(
            {
                "names": ["queue_id", "queue_offset", "phy_offset", "id"],
                "formats": [">i4", ">i8", ">i8", "S24"],
                "offsets": [12, 20, 28, len(record) - 24],
                "itemsize": len(record),
            }
        )
        for start in range(first, last, _AT_ONCE):
            numbers = np.arange(start, min(start + _AT_ONCE, last))
            records = np.frombuffer(bytearray(record * len(numbers)), kind)
            records["queue_id"], records["queue_offset"] = numbers % QUEUES, numbers // QUEUES
            records["phy_offset"] = int(path.name) + (numbers - first) * len(record)
            records["id"] = _hex(numbers)
            yield records.tobytes()
        if last - first == self.per_file and (rest := self.log_file_bytes - self.per_file * len(record)):
            yield SIZE_AND_MAGIC.pack(rest, MAGIC_BLANK)

    def _make_queue(self, directory: Path, queue: int) -> None:
        count = len(range(queue, self.messages, QUEUES))
        per_file = self.queue_file_bytes // UNIT_SIZE
        for first in range(0, count, per_file):
            path = directory / f"{first * UNIT_SIZE:020d}"
            if not path.exists():
                numbers = np.arange(first, min(first + per_file, count)) * QUEUES + queue
                units = np.zeros(len(numbers), _UNIT)
                files, places = np.divmod(numbers, self.per_file)
                units["phy_offset"] = files * self.log_file_bytes + places * self.record_bytes
                units["size"] = self.record_bytes
                _write(path, self.queue_file_bytes, [units.tobytes()])

    def config(self, root: Path) -> StoreConfig:
        """Of our store without a broker."""
        return StoreConfig(
            root=root,
            mapped_file_size_commit_log=self.log_file_bytes,
            mapped_file_size_consume_queue=self.queue_file_bytes,
            message_index_enable=False,
            scrub_bytes_per_second=1 << 30,  # Nobody else reads the disk meanwhile.
        )


def digest(config: StoreConfig) -> None:
    """Let our store open the directory, digest all of its log, and close it: the marks of a clean stop."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.digest.run)
            while store.max_offset - store.digest.digests.end >= BLOCK_SIZE:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        await store.close()

    say("digests ...")
    store = MessageStore(config)
    store.load()
    trio.run(run)


def forget(root: Path) -> None:
    """Let the kernel drop what it cached of a directory's files, as far as no process has them mapped."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _hex(numbers: "np.typing.NDArray[np.int64]") -> "np.typing.NDArray[np.bytes_]":
    """24 digits each."""
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    shifts = np.arange(15, -1, -1) * 4
    text = np.full((len(numbers), 24), ord("0"), np.uint8)
    text[:, 8:] = digits[(numbers[:, None] >> shifts) & 15]
    return text.view("S24").ravel()


def _write(path: Path, size: int, pieces: Iterator[bytes] | list[bytes]) -> None:
    """A file of this size, whose rest is a hole. It has its name when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.truncate(size)
    unfinished.rename(path)


def _copy_sparse(source: Path, target: Path) -> None:
    """A copy in which holes stay holes."""
    with source.open("rb") as read, target.open("wb") as write:
        while piece := read.read(1 << 20):
            if any(piece):
                write.write(piece)
            else:
                write.seek(len(piece), os.SEEK_CUR)
        write.truncate(source.stat().st_size)
