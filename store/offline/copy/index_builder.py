"""Makes the index of keys from the records of a log, as a broker would that finds the log and no index."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from attrs import define, field

from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_file import IndexFile
from twinlog.store.index.layout import IndexHeader, IndexLayout, next_name
from twinlog.store.record.keys import Keyed, keys_of
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.util.sync import sync_directory

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
