"""Bytes of a log by their offset, across files and unreadable sectors, and the splits that tasks read."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from attrs import define, field, frozen

from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import Bytes, UnreadableError, open_file

SPLIT_SIZE = 64 << 20


@frozen
class Split:
    """Bytes `start` to `end` of the log, at any offsets: stands for the records, and the blocks, that begin in it."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


def splits(log: Sequence[LogFile], size: int = SPLIT_SIZE, start: int = 0, end: int | None = None) -> list[Split]:
    """Cut bytes `start` to `end` of the log at multiples of `size`, as far as its files go; missing files are included."""
    if size <= 0:
        raise ValueError(f"a split of {size} bytes: at least 1")
    if not log:
        return []
    start = max(start, log[0].start)
    last = log[-1].start + log[-1].size
    end = last if end is None else min(end, last)
    bounds = [start, *range(start - start % size + size, end, size), end] if start < end else []
    return [Split(low, high) for low, high in pairwise(bounds)]


PIECE = 64 << 10  # Bytes given up for a bad sector.
RECORD_MAX = 64 << 20  # Bounds memory. RocketMQ's own limit, maxMessageSize, is 4 MiB unless it is raised.
_OPEN_FILES = 8


class Hole(NamedTuple):
    """Bytes `start` to `end` of the log could not be read because of `refusal`; None: the file is missing or short."""

    start: int
    end: int
    refusal: UnreadableError | None


@define(eq=False)
class LogBytes:
    """Reads bytes of a log, never across the end of a file. It keeps files open until it is closed."""

    log: tuple[LogFile, ...]
    file_size: int
    _by_start: dict[int, LogFile] = field(init=False)
    _open: dict[int, Bytes] = field(factory=dict, init=False)
    _refused: dict[int, UnreadableError] = field(factory=dict, init=False)  # By start of the file.

    def __attrs_post_init__(self) -> None:
        self._by_start = {file.start: file for file in self.log}

    def file_end(self, offset: int) -> int:
        """End of the file of a byte, if it is whole."""
        return offset - offset % self.file_size + self.file_size

    def has_file(self, offset: int) -> bool:
        """True if the file of a byte exists."""
        return offset - offset % self.file_size in self._by_start

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file, none where there is no file. Raises UnreadableError."""
        position = offset % self.file_size
        file = self._file(offset - position)
        return file.read(position, min(size, self.file_size - position)) if file is not None else b""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read into a buffer; returns the number of bytes. Raises UnreadableError."""
        position = offset % self.file_size
        file = self._file(offset - position)
        return file.read_into(position, buffer[: self.file_size - position]) if file is not None else 0

    def read_patiently(self, offset: int, size: int) -> bytes:
        """Read with zeros in place of unreadable pieces; at most RECORD_MAX bytes, whatever a damaged size says."""
        size = min(size, RECORD_MAX)
        try:
            return self.read(offset, size)
        except UnreadableError:
            pieces = _pieces(offset, min(offset + size, self.file_end(offset)))
            return b"".join(self._piece_or_zeros(*bounds) for bounds in pieces)

    def _piece_or_zeros(self, low: int, high: int) -> bytes:
        try:
            return self.read(low, high - low)
        except UnreadableError:
            return bytes(high - low)

    def fill(self, offset: int, buffer: memoryview) -> list[Hole]:
        """Read into a buffer across files; returns the parts that could not be read, which become zeros."""
        holes: list[Hole] = []
        done = 0
        while done < len(buffer):
            at = offset + done
            room = min(len(buffer) - done, self.file_end(at) - at)
            part = buffer[done : done + room]
            try:
                count = self.read_into(at, part)
            except UnreadableError:
                holes += self._fill_patiently(at, part)
            else:
                if count < room:
                    part[count:] = bytes(room - count)
                    holes.append(Hole(at + count, at + room, None))
            done += room
        return holes

    def _fill_patiently(self, offset: int, buffer: memoryview) -> Iterator[Hole]:
        for low, high in _pieces(offset, offset + len(buffer)):
            part, count, refusal = buffer[low - offset : high - offset], 0, None
            try:
                count = self.read_into(low, part)
            except UnreadableError as error:
                refusal = error
            if count < high - low:
                part[count:] = bytes(high - low - count)
                yield Hole(low + count, high, refusal)

    def readable_end(self, offset: int, end: int) -> tuple[int, UnreadableError | None]:
        """End of the readable bytes from `offset` on, at most `end` in the same file, and the error behind."""
        for hole in self._fill_patiently(offset, memoryview(bytearray(end - offset))):
            if hole.refusal is not None:
                return hole.start, hole.refusal
        return end, None

    def _file(self, start: int) -> Bytes | None:
        file = self._open.get(start)
        if file is not None:
            return file
        if start in self._refused:
            raise self._refused[start]
        found = self._by_start.get(start)
        if found is None:
            return None
        if len(self._open) >= _OPEN_FILES:
            self._open.pop(next(iter(self._open))).close()
        try:
            file = self._open[start] = open_file(found.uri)
        except UnreadableError as error:
            self._refused[start] = error
            raise
        return file

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    bounds = chain(range(start - start % PIECE + PIECE, end, PIECE), [end])
    for high in bounds if start < end else ():
        yield start, high
        start = high
