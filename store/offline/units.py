"""The units of consume queues as they lie: by their number, with ext units resolved, and the other queues of a message."""

from struct import Struct

from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.queue.consume_queue import UNIT
from twinlog.store.record.scan import DispatchEntry

QueueKey = tuple[str, int]
EXT_HEAD = Struct(">hqqh")  # Size of the unit, tags code, store time, bytes of the bit map that follows.
EXT_ADDRESS_MIN, EXT_ADDRESS_MAX = -(1 << 63), -(1 << 31) - 1  # What stands for a tags code that is in an ext unit.


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
    return raw if ext is None else with_ext_codes(raw, ext)


def with_ext_codes(raw: bytes, ext: FileSeries) -> bytes:
    """Put the tags codes of ext units in the place of their addresses; an address of no unit stays. Source: ConsumeQueueExt."""
    units = []
    for unit in UNIT.iter_unpack(raw[: len(raw) - len(raw) % UNIT.size]):
        phy_offset, size, code = unit
        if code <= EXT_ADDRESS_MAX:
            found = ext.read(code - EXT_ADDRESS_MIN, EXT_HEAD.size)
            if len(found) == EXT_HEAD.size:
                unit_size, ext_code, _, bits = EXT_HEAD.unpack(found)
                if unit_size == EXT_HEAD.size + bits:
                    code = ext_code
        units.append(UNIT.pack(phy_offset, size, code))
    return b"".join(units)


def multi_dispatch(entry: DispatchEntry) -> list[tuple[QueueKey, int]]:
    """The other queues that a record is in, and its offsets there. Source: MultiDispatch, RocketMQ 4.9.8."""
    properties = dict(pair.split(b"\x01", 1) for pair in entry.properties.split(b"\x02") if b"\x01" in pair)
    names = properties.get(b"INNER_MULTI_DISPATCH", b"").decode("utf-8", "replace").split(",")
    offsets = properties.get(b"INNER_MULTI_QUEUE_OFFSET", b"").decode("ascii", "replace").split(",")
    if len(names) != len(offsets) or not all(offset.isdecimal() for offset in offsets):
        return []
    return [
        ((name, 0 if name.startswith("%LMQ%") else entry.queue_id), int(offset))
        for name, offset in zip(names, offsets, strict=True)
    ]
