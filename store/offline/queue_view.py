"""What the files of one consume queue say at a glance: where its units end, which messages the log still has.

Units stand in the order of their records and the rest of the last file is zero, so each question takes a few reads.
"""

from attrs import frozen

from twinlog.store.offline.file_series import FileSeries, StoreFile
from twinlog.store.queue.consume_queue import UNIT, Unit

BLANK_SIZE = 0x7FFFFFFF  # Of a unit that only keeps the numbering of those that are gone.


@frozen
class QueueView:
    """Queue offsets count messages: `min_offset` is the first one that the log has, `max_offset` the next one's."""

    series: FileSeries
    min_offset: int
    max_offset: int
    last: Unit | None  # The unit of the last message; None when there is none.

    @property
    def messages(self) -> int:
        """How many the log has."""
        return self.max_offset - self.min_offset


def view_queue(series: FileSeries, min_phy_offset: int) -> QueueView:
    """Look at a queue of a log that begins at `min_phy_offset`. Raises OSError."""
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
    low, high = 1, min(file.size, series.file_size) // UNIT.size
    while low < high:
        middle = (low + high) // 2
        if unit_at(series, file.start + middle * UNIT.size) is not None:
            low = middle + 1
        else:
            high = middle
    return low


def _first_in_log(series: FileSeries, end: int, min_phy_offset: int) -> int:
    """The byte of the first unit whose record the log has. As ConsumeQueue.correctMinOffset of 5.3.3."""
    low, high = series.min_offset // UNIT.size, end // UNIT.size
    while low < high:
        middle = (low + high) // 2
        unit = unit_at(series, middle * UNIT.size)
        if unit is not None and (unit.phy_offset < min_phy_offset or unit.size == BLANK_SIZE):
            low = middle + 1
        else:
            high = middle
    return low * UNIT.size
