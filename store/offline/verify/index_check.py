"""Checks what an index file says of itself: its header, its slots, and the chain of each slot.

Every number in it but keys and places follows from the items put before, so putting them again in mind gives what is right.
"""

import sys
from array import array
from collections.abc import Iterator

import numpy as np

from twinlog.store.index.layout import HEADER, ITEM, SLOT
from twinlog.store.offline.finding import Finding, Kind
from twinlog.store.offline.index_view import IndexView

_ITEMS_AT_ONCE = 16_384
_LISTED_MAX = 100  # Of one kind and file; more of them are counted.


def check_index_file(view: IndexView, *, may_grow: bool) -> Iterator[Finding]:
    """Replay the puts. `may_grow`: a broker is putting more right now. Raises OSError."""
    name = f"index/{view.file.path.name}"
    slots = _read_slots(view)
    expected = array("i", bytes(SLOT.size * view.layout.slots))
    used, before, number, wrong = 0, 0, 1, 0
    while number < view.end:
        for key_hash, phy_offset, _, previous in ITEM.iter_unpack(view.items_at(number, _ITEMS_AT_ONCE)):
            slot = key_hash % view.layout.slots
            last = expected[slot]
            if previous != last or phy_offset < before or key_hash < 0:
                wrong += 1
                if wrong <= _LISTED_MAX:
                    yield _wrong_item(view, number, key_hash, phy_offset, before, previous, last)
            before = phy_offset
            used += not last
            expected[slot] = number
            number += 1
    if wrong > _LISTED_MAX:
        yield Finding(
            kind=Kind.INDEX_ITEM, file=name, message="more items that do not fit in", count=wrong - _LISTED_MAX
        )
    if slots != expected:
        yield from _wrong_slots(view, slots, expected, may_grow=may_grow)
    if not may_grow:
        yield from _wrong_header(view, used)


def _read_slots(view: IndexView) -> "array[int]":
    size = view.layout.slots * SLOT.size
    slots = array("i", view.reader.read(view.file.path, HEADER.size, size).ljust(size, b"\0"))
    if sys.byteorder == "little":
        slots.byteswap()
    return slots


def _wrong_item(
    view: IndexView, number: int, key_hash: int, phy_offset: int, before: int, previous: int, last: int
) -> Finding:
    expected: int | str
    if previous != last:
        message, expected, actual, at = "names another item as the one before it in its slot", last, previous, 16
    elif phy_offset < before:
        message, expected, actual, at = "lies before the item in front of it", f">= {before}", phy_offset, 4
    else:
        message, expected, actual, at = "has a negative hash", ">= 0", key_hash, 0
    return Finding(
        kind=Kind.INDEX_ITEM,
        file=f"index/{view.file.path.name}",
        position=view.layout.item_position(number) + at,
        phy_offset=phy_offset,
        message=f"item {number} {message}",
        expected=expected,
        actual=actual,
    )


def _wrong_slots(view: IndexView, slots: "array[int]", expected: "array[int]", *, may_grow: bool) -> Iterator[Finding]:
    there, should = np.frombuffer(slots, np.int32), np.frombuffer(expected, np.int32)
    differ = there != should
    if may_grow:
        differ &= there < view.end
    wrong: list[int] = np.flatnonzero(differ).tolist()
    for number in wrong[:_LISTED_MAX]:
        yield Finding(
            kind=Kind.INDEX_SLOT,
            file=f"index/{view.file.path.name}",
            position=HEADER.size + number * SLOT.size,
            message=f"slot {number} does not name its newest item: keys in it are not found",
            expected=expected[number],
            actual=slots[number],
        )
    if len(wrong) > _LISTED_MAX:
        yield Finding(
            kind=Kind.INDEX_SLOT,
            file=f"index/{view.file.path.name}",
            message="more slots that do not name their newest item",
            count=len(wrong) - _LISTED_MAX,
        )


def _wrong_header(view: IndexView, used: int) -> Iterator[Finding]:
    header = view.header
    if header.next_item > view.layout.items:
        yield _header_finding(view, "next item", 36, f"<= {view.layout.items}", header.next_item)
    if header.slots_used != used:
        yield _header_finding(view, "slots in use", 32, used, header.slots_used)
    if view.end > 1:
        first, last = view.phy_offset(1), view.phy_offset(view.end - 1)
        if header.begin_phy_offset != first:
            yield _header_finding(view, "begin offset", 16, first, header.begin_phy_offset)
        if header.end_phy_offset != last:
            yield _header_finding(view, "end offset", 24, last, header.end_phy_offset)


def check_times(view: IndexView, begin: int | None, end: int | None) -> Iterator[Finding]:
    """Compare the header's times with those of the first and the last item's records, where these are known."""
    if begin is not None and view.header.begin_timestamp != begin:
        yield _header_finding(view, "begin time", 0, begin, view.header.begin_timestamp)
    if end is not None and view.header.end_timestamp != end:
        yield _header_finding(view, "end time", 8, end, view.header.end_timestamp)


def _header_finding(view: IndexView, field: str, position: int, expected: int | str, actual: int) -> Finding:
    return Finding(
        kind=Kind.INDEX_HEADER,
        file=f"index/{view.file.path.name}",
        position=position,
        message=f"the header's {field} is not what the items say",
        expected=expected,
        actual=actual,
    )
