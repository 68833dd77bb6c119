"""Builds consume queues and the index of keys from the records of a log, as a broker does that finds a log without them."""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from attrs import define, field

from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_file import IndexFile
from twinlog.store.index.layout import IndexHeader, IndexLayout, next_name
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.queue_view import view_queue
from twinlog.store.offline.walk import stored_ms
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.keys import Keyed, keys_of
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.util.sync import sync_data, sync_directory


@define(eq=False)
class QueueBuilder:
    """Builds in `directory`, which holds nothing yet; `log` is where the entries come from."""

    directory: Path
    file_size: int
    log: FileSeries
    messages: int = field(default=0, init=False)
    _table: ConsumeQueueTable = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self._table = ConsumeQueueTable(self.directory, self.file_size)

    def keep(self, kept: Iterable["KeptQueue"]) -> None:
        """Begin with these queues, to keep their numbering. Before any feed(). Raises OSError."""
        for queue in kept:
            directory = self.directory / queue.topic / str(queue.queue_id)
            directory.mkdir(parents=True)
            path = directory / queue.name
            with path.open("wb") as file:
                file.write(queue.units)
                file.truncate(self.file_size)
        self._table.load()

    def feed(self, entries: Iterable[DispatchEntry]) -> None:
        """Take the next records of the log. Raises OSError."""
        self.messages += sum(map(len, self._table.put(entries).values()))

    def finish(self) -> int:
        """Bring everything to the disk and close it; how many queues there are. Raises OSError.

        A file's time becomes that of its last message: RocketMQ 4.9 finds messages by time with it.
        """
        queues = 0
        for queue in self._table:
            queues += bool(queue.files.files)
            for file in queue.files.files:
                self._set_time(file)
                sync_data(file.fd)
        self._table.close()
        for directory, _, _ in os.walk(self.directory):
            sync_directory(Path(directory))
        return queues

    def _set_time(self, file: MappedFile) -> None:
        raw = file.read(file.wrote - UNIT.size, UNIT.size) if file.wrote else b""
        timestamp = stored_ms(self.log, UNIT.unpack(raw)[0]) if raw else None
        if timestamp is not None:
            os.utime(file.fd, ns=(timestamp * 1_000_000, timestamp * 1_000_000))


@define
class KeptQueue:
    """A queue whose messages are all gone from the log: its last file, `units` of it, says which number the next one has."""

    topic: str
    queue_id: int
    name: str
    file_size: int
    units: bytes
    mtime_ns: int


def queues_to_keep(queues: dict[tuple[str, int], FileSeries], min_phy_offset: int) -> Iterable[KeptQueue]:
    """The queues without messages of a store whose log begins at `min_phy_offset`. Raises OSError."""
    for (topic, queue_id), series in sorted(queues.items()):
        view = view_queue(series, min_phy_offset)
        end = view.max_offset * UNIT.size
        if view.messages or not end:
            continue
        file = series.file_at(end - UNIT.size)
        if file is not None:
            units = series.read(file.start, end - file.start)
            mtime_ns = file.path.stat().st_mtime_ns
            yield KeptQueue(topic, queue_id, file.path.name, series.file_size, units, mtime_ns)


_UNWRITTEN_MAX = 16 << 20  # Bytes of items in memory: each write takes many pages of slots, too.


@define(eq=False)
class IndexBuilder:
    """Builds in `directory`, which holds nothing yet.

    A file is called after the time of its first message, where a broker takes the time of day: the order is the same.
    """

    directory: Path
    layout: IndexLayout
    keys: int = field(default=0, init=False)
    files: int = field(default=0, init=False)
    last_header: IndexHeader | None = field(default=None, init=False)  # Of the newest file that is written.
    _file: IndexFile | None = field(default=None, init=False)
    _last_name: str | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.directory.mkdir(parents=True)

    def feed(self, entries: Sequence[DispatchEntry]) -> None:
        """Take the next records of the log. Raises OSError."""
        keyed = keys_of(entries)
        self.keys += len(keyed.hashes)
        at = 0
        while at < len(keyed.hashes):
            image = self._image(keyed.timestamps[at])
            end = at + image.room
            part = Keyed(*(values[at:end] for values in keyed))
            image.put(*part)
            at = end
            if not image.room:
                self._finish_file()
            elif image.unwritten_bytes >= _UNWRITTEN_MAX:
                self._write()

    def finish(self) -> None:
        """Bring everything to the disk. Raises OSError."""
        self._finish_file()
        sync_directory(self.directory)

    def _image(self, first_ms: int) -> IndexImage:
        if self._file is None:
            self._last_name = next_name(datetime.fromtimestamp(first_ms / 1000), self._last_name)
            image = IndexImage.after(self.layout, self.last_header)
            self._file = IndexFile(self.directory / self._last_name, self.layout, image)
            self.files += 1
        assert self._file.image is not None
        return self._file.image

    def _write(self) -> None:
        assert self._file is not None
        assert self._file.image is not None
        if (unwritten := self._file.image.take_unwritten()) is not None:
            self._file.write(unwritten)
            self._file.image.wrote(unwritten)

    def _finish_file(self) -> None:
        if self._file is not None:
            self._write()
            self._file.sync()
            self.last_header = self._file.header
            self._file = None
