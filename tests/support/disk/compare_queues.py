"""Do the consume queues of two stores hold the same? Only their files are read, so it holds for any broker, real or ours."""

import struct
import time
from pathlib import Path

UNIT = struct.Struct(">qiq")  # Where the record lies in the log, its size, its tag's code.
FILLER_SIZE = 0x7FFFFFFF  # Of units that only fill a queue which begins late.

Unit = tuple[int, int, int]
Queues = dict[tuple[str, int], dict[int, Unit]]  # By topic and queue id, then by queue offset.


class ConsumeQueuesDifferError(AssertionError):
    """Two stores lead consumers to different records, or one of them not as far."""


def queue_units(store: Path, *, start: int = 0) -> Queues:
    """Read all units of a store that point to the log at `start` or behind it."""
    return {
        (queue.parent.name, int(queue.name)): units
        for queue in sorted((store / "consumequeue").glob("*/*"))
        if (units := _units(queue, start))
    }


def assert_same_queues(store_a: Path, store_b: Path, *, start: int = 0) -> int:
    """Compare all that points to the log at `start` or behind it; returns the number of units of each.

    Raises ConsumeQueuesDifferError.
    """
    a, b = queue_units(store_a, start=start), queue_units(store_b, start=start)
    if a.keys() != b.keys():
        raise ConsumeQueuesDifferError(f"only one of them has the queues {sorted(a.keys() ^ b.keys())}")
    for name, units in a.items():
        if units != b[name]:
            at = min(offset for offset in units.keys() | b[name].keys() if units.get(offset) != b[name].get(offset))
            what = f"{units.get(at)} in {store_a}, {b[name].get(at)} in {store_b}"
            raise ConsumeQueuesDifferError(f"queue {name} differs at queue offset {at}: {what}")
    return sum(map(len, a.values()))


def wait_for_same_queues(store_a: Path, store_b: Path, *, start: int = 0, timeout_s: float = 20) -> int:
    """Give dispatch some time, then say what assert_same_queues says."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return assert_same_queues(store_a, store_b, start=start)
        except ConsumeQueuesDifferError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def _units(queue: Path, start: int) -> dict[int, Unit]:
    units = {}
    for file in queue.iterdir():
        first = int(file.name) // UNIT.size
        content = file.read_bytes()
        for place, unit in enumerate(UNIT.iter_unpack(content[: len(content) // UNIT.size * UNIT.size])):
            if unit[0] >= start and 0 < unit[1] < FILLER_SIZE:
                units[first + place] = unit
    return units
