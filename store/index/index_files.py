"""All index files, oldest first: keys are put into the newest, queries walk from there to the oldest.

put() only changes memory, without system calls; write() writes the changes to the files. One task at a time writes and deletes.
Source: IndexService, RocketMQ 4.9.8.

ROOT/twinlog/index-behind notes the log offset from which on keys may be missing, when the index ended before the log at a stop.
Should RocketMQ use the directory meanwhile, it adds its messages behind those of the index and leaves a gap that nothing else
would show; the note makes the next start rebuild the index from there.

    8 bytes `twlgindx` | i32 version, 1 | i64 log offset | u64 xxh3_64 of all before. Big endian."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from struct import Struct

import structlog
import trio
from attrs import define, field
from xxhash import xxh3_64_intdigest

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_file import IndexFile, KeyLookup
from twinlog.store.index.layout import NAME_LENGTH, IndexHeader, IndexLayout, next_name
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.record.keys import Keyed
from twinlog.store.record.scan import IndexKeyColumns
from twinlog.store.util.sync import SyncError, save_durably, sync_directory

_MAGIC, _VERSION = b"twlgindx", 1
_LAYOUT, _DIGEST = Struct(">8siq"), Struct(">Q")
assert (_LAYOUT.size, _DIGEST.size) == (20, 8)


def encode_note(phy_offset: int) -> bytes:
    """The note: messages at or behind an offset may be missing in the index."""
    data = _LAYOUT.pack(_MAGIC, _VERSION, phy_offset)
    return data + _DIGEST.pack(xxh3_64_intdigest(data))


def lower_note(path: Path, phy_offset: int) -> None:
    """Lower the offset of the note, which is created if need be, durably. Raises OSError."""
    noted = load_note(path)
    save_durably(path, encode_note(phy_offset if noted is None else min(phy_offset, noted)))


def load_note(path: Path) -> int | None:
    """The offset of the note; 0 when it cannot be read, because anything may be missing then. Raises OSError."""
    if not path.is_file():
        return None
    raw = path.read_bytes()
    data, digest = raw[: _LAYOUT.size], raw[_LAYOUT.size :]
    if len(data) < _LAYOUT.size or digest != _DIGEST.pack(xxh3_64_intdigest(data)):
        return 0
    magic, version, phy_offset = _LAYOUT.unpack(data)
    return int(phy_offset) if (magic, version) == (_MAGIC, _VERSION) else 0


log = structlog.get_logger()

_UNFINISHED_MAX = 1 << 20
_QUERIES_AT_ONCE = 2


@define(eq=False)
class IndexFiles:
    """The index files of a directory, those that exist only in memory included.

    A file is `unsure` when a crash may have torn it. A full file that the checkpoint covers is not.
    """

    directory: Path
    layout: IndexLayout
    checkpoint: Checkpoint
    now: Callable[[], datetime] = datetime.now  # Local time, for names.
    files: list[IndexFile] = field(factory=list, init=False)
    unsure: set[IndexFile] = field(factory=set, init=False)
    _disk: trio.Lock = field(factory=trio.Lock, init=False)
    _sync_failed: bool = field(default=False, init=False)
    _queries: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(_QUERIES_AT_ONCE), init=False)

    def load(self, *, after_crash: bool) -> None:
        """Open the existing files. Raises StoreDirectoryError for files made with another configuration, and OSError."""
        paths = []
        for path in sorted(self.directory.iterdir()) if self.directory.is_dir() else ():
            if path.is_file() and path.name.isdecimal() and len(path.name) == NAME_LENGTH:
                paths.append(path)
            else:
                log.warning("a foreign entry among the index files is ignored", path=str(path))
        if paths and self._is_unfinished(paths[-1]):
            log.warning("an unfinished last index file, left by a crash, is removed", path=str(paths[-1]))
            paths.pop().unlink()
        for path in paths:
            size, expected = path.stat().st_size, self.layout.file_size
            if size != expected:
                raise StoreDirectoryError(
                    f"{path} has {size} bytes, but maxHashSlotNum and maxIndexNum make {expected}. Set them to what this index "
                    f"was made with, or move {self.directory} away to have it rebuilt from the log."
                )
        self.files = [IndexFile.open(path, self.layout) for path in paths]
        durable_ms = self.checkpoint.index_msg_timestamp
        for file in self.files:
            file.is_durable = not after_crash or file.header.end_timestamp <= durable_ms
        self.unsure = {file for file in self.files if not file.is_durable}

    def _is_unfinished(self, path: Path) -> bool:
        size = path.stat().st_size
        return size < min(self.layout.file_size, _UNFINISHED_MAX) and not path.read_bytes().strip(b"\0")

    def close(self) -> None:
        """Close the files; queries under way finish."""
        self.files.clear()
        self.unsure.clear()

    # Putting

    def put(self, keyed: Keyed) -> None:
        """Add keys, in the order of the log."""
        hashes, phy_offsets, timestamps = keyed
        done, count = 0, len(hashes)
        while done < count:
            image = self.open_newest()
            end = min(count, done + image.room)
            image.put(hashes[done:end], phy_offsets[done:end], timestamps[done:end])
            done = end

    def put_columns(self, keys: IndexKeyColumns) -> None:
        """Like put(), for many keys at once."""
        from twinlog.store.index.columns import put_keys

        done, count = 0, len(keys)
        while done < count:
            image = self.open_newest()
            end = min(count, done + image.room)
            put_keys(image, keys.part(done, end))
            done = end

    def open_newest(self) -> IndexImage:
        """The image of the file that takes the next key; of a new one when the newest is full."""
        newest = self.files[-1] if self.files else None
        if newest is None or newest.is_full:
            image = IndexImage.after(self.layout, newest.header if newest is not None else None)
            name = next_name(self.now(), newest.path.name if newest is not None else None)
            newest = IndexFile(self.directory / name, self.layout, image)
            self.files.append(newest)
        assert newest.image is not None, "the newest file has its image before anything is put"
        return newest.image

    @property
    def last_header(self) -> IndexHeader:
        """The newest file's; all zero without files."""
        return self.files[-1].header if self.files else IndexHeader()

    @property
    def last_used(self) -> int:
        """The number of the newest file that has items; -1 for none."""
        return next((i for i in reversed(range(len(self.files))) if not self.files[i].header.is_empty), -1)

    @property
    def unwritten_bytes(self) -> int:
        """Items that are in memory only."""
        return sum(file.image.unwritten_bytes for file in self.files[-3:] if file.image is not None)

    # Writing

    async def write(self) -> None:
        """Bring the images to their files, oldest first, and full ones to the disk. Raises OSError; nothing is lost then."""
        async with self._disk:
            for file in list(self.files):
                if file.image is None:
                    continue
                is_followed = file is not self.files[-1]  # Before the write: meanwhile it may become full.
                await _write_image(file, file.image)
                if is_followed:
                    await self._finish(file)

    async def _finish(self, file: IndexFile) -> None:
        """Sync a full file, and let the checkpoint cover it."""
        await self._sync(file)
        file.settle()
        if file.is_durable and not self._sync_failed:
            end_timestamp = file.header.end_timestamp
            self.checkpoint.index_msg_timestamp = max(self.checkpoint.index_msg_timestamp, end_timestamp)
            await trio.to_thread.run_sync(self.checkpoint.save)

    async def _sync(self, file: IndexFile) -> None:
        try:
            await trio.to_thread.run_sync(file.sync)
            await trio.to_thread.run_sync(sync_directory, self.directory)
            file.is_durable = True
        except SyncError as error:  # No second sync: it may claim success for lost pages.
            if not self._sync_failed:
                log.error("index file sync failed; the file is checked after a crash", error=str(error))
            self._sync_failed = True

    async def flush(self) -> None:
        """Bring all of it to the disk. Raises OSError."""
        await self.write()
        async with self._disk:
            for file in [file for file in self.files if not file.is_durable and file.is_on_disk]:
                await self._sync(file)

    async def drop_image(self, file: IndexFile) -> None:
        """Drop the image of a file; all of it is written."""
        async with self._disk:
            file.settle()

    async def first_fault(self) -> tuple[int, str] | None:
        """The number of the first file that was removed, cut or replaced, and a description. Raises OSError."""
        async with self._disk:
            files = list(self.files)
            faults = await trio.to_thread.run_sync(lambda: [file.fault() for file in files])
        return next(((number, fault) for number, fault in enumerate(faults) if fault), None)

    async def drop(self, number: int, why: str) -> None:
        """Delete the files from a number on, because they are not right. Raises OSError."""
        names: list[str] = []
        async with self._disk:
            while len(self.files) > number:
                self.files[-1].delete()
                self.unsure.discard(self.files[-1])
                names.insert(0, self.files.pop().path.name)
        if names:
            log.warning("index files dropped; they are rebuilt from the log", files=names, reason=why)

    def delete_before(self, min_offset: int) -> None:
        """Delete the files with no message at or behind an offset of the log, but never the newest. Raises OSError."""
        while len(self.files) > 1 and self.files[0].header.end_phy_offset < min_offset:
            if self.files[0].image is not None:  # Not written yet.
                return
            self.files[0].delete()
            log.info("index file deleted", file=self.files.pop(0).path.name)

    # Asking

    async def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log offsets of messages with a key of this hash, stored in a time range, newest first. Raises OSError."""
        looks = [file.lookup(key_hash) for file in reversed(self.files)]
        return await trio.to_thread.run_sync(_walk, looks, begin_ms, end_ms, count_max, limiter=self._queries)

    def __iter__(self) -> Iterator[IndexFile]:
        return iter(list(self.files))


async def _write_image(file: IndexFile, image: IndexImage) -> None:
    unwritten = image.take_unwritten()
    if unwritten is None:
        return
    file.is_durable = False
    try:
        await trio.to_thread.run_sync(file.write, unwritten)
    except BaseException:
        image.not_written(unwritten)
        raise
    image.wrote(unwritten)


def _walk(looks: Sequence[KeyLookup], begin_ms: int, end_ms: int, count_max: int) -> list[int]:
    """Source: IndexService.queryOffset."""
    found: list[int] = []
    for look in looks:
        if look.is_within(begin_ms, end_ms):
            look.find(begin_ms, end_ms, count_max, found)
        if look.header.begin_timestamp < begin_ms or len(found) >= count_max:
            break
    return found
