"""Consume queues on disk: where the units of a queue end, which messages the log still has, and units by number.

Units stand in the order of their records and the rest of the last file is zero, so each question takes a few reads."""

from bisect import bisect_left

from attrs import frozen

from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileSeries, StoreFile
from twinlog.store.queue.consume_queue_ext import EXT_ADDRESS_MIN, EXT_HEAD, is_ext_address
from twinlog.store.queue.layout import BLANK_SIZE, UNIT, Unit


@frozen
class QueueView:
    """Queue offsets count messages: `min_offset` is the first one that the log has, `max_offset` the next one's."""

    series: FileSeries
    min_offset: int
    max_offset: int
    last: Unit | None  # The unit of the last message; None when there is none.

    @property
    def messages(self) -> int:
        """The number of messages that the log has."""
        return self.max_offset - self.min_offset


def view_queue(series: FileSeries, min_phy_offset: int) -> QueueView:
    """Find the ends of a queue of a log that begins at `min_phy_offset`. Raises OSError."""
    end = units_end(series)
    last = unit_at(series, end - UNIT.size) if end > series.min_offset else None
    if last is not None and last.size == BLANK_SIZE:
        last = None
    return QueueView(series, _first_in_log(series, end, min_phy_offset) // UNIT.size, end // UNIT.size, last)


def unit_at(series: FileSeries, at: int) -> Unit | None:
    """The unit at a byte of the queue; None where none is."""
    raw = series.read(at, UNIT.size)
    unit = Unit(*UNIT.unpack(raw)) if len(raw) == UNIT.size else None
    return unit if unit is not None and unit.phy_offset >= 0 and unit.size > 0 else None


def units_end(series: FileSeries) -> int:
    """The byte of the queue behind the last unit: in the last file that begins with one."""
    for file in reversed(series.files):
        if unit_at(series, file.start) is not None:
            return file.start + _units_in(series, file) * UNIT.size
    return series.min_offset


def _units_in(series: FileSeries, file: StoreFile) -> int:
    """The number of units at the start of a file that begins with one."""

    def is_none(number: int) -> bool:
        return unit_at(series, file.start + number * UNIT.size) is None

    return bisect_left(range(min(file.size, series.file_size) // UNIT.size), True, lo=1, key=is_none)


def _first_in_log(series: FileSeries, end: int, min_phy_offset: int) -> int:
    """The byte of the first unit whose record the log has. As ConsumeQueue.correctMinOffset of 5.3.3."""

    def is_there(number: int) -> bool:
        unit = unit_at(series, number * UNIT.size)
        return unit is None or (unit.phy_offset >= min_phy_offset and unit.size != BLANK_SIZE)

    first = series.min_offset // UNIT.size
    return bisect_left(range(end // UNIT.size), True, lo=first, key=is_there) * UNIT.size


QueueKey = tuple[str, int]


def read_units(directory: StoreDirectory, key: QueueKey, queue_offset: int, size: int) -> bytes:
    """Units of a queue, with the tags codes themselves where addresses of ext units stand for them; fewer where it ends."""
    series = directory.queues.get(key)
    if series is None or queue_offset < 0:
        return b""
    try:
        raw = series.read_across(queue_offset * UNIT.size, size)
    except FileNotFoundError:  # Expired meanwhile.
        return b""
    ext = directory.ext_queues.get(key)
    if ext is None:
        return raw
    units = []  # An address without a unit stays. Source: ConsumeQueueExt.
    for unit in UNIT.iter_unpack(raw[: len(raw) - len(raw) % UNIT.size]):
        phy_offset, size, code = unit
        found = ext_code(ext, code) if is_ext_address(code) else None
        units.append(UNIT.pack(phy_offset, size, code if found is None else found))
    return b"".join(units)


def ext_code(ext: FileSeries, address: int) -> int | None:
    """The tags code in the ext unit at an address; None where there is no unit. Source: ConsumeQueueExt."""
    head = ext.read(address - EXT_ADDRESS_MIN, EXT_HEAD.size)
    if len(head) < EXT_HEAD.size:
        return None
    size, code, _, bits = EXT_HEAD.unpack(head)
    return int(code) if size == EXT_HEAD.size + bits else None
