"""Compares a slave's log with its master's before anything is received. Pure: it yields questions and gets answers.

The model: two members have one history when one log is a prefix of the other, as far as both still have it. RocketMQ
compares the lengths, at most; two logs of one length can hold different messages.

- A twinlog master reports digests: groups of blocks are compared, then the blocks of the first group that differs, then
  stretches of the first block that differs, up to one of its records each. That proves every byte.
  Where one of them has no valid record at this place, and both have the same ones at the end, a disk was damaged: a slave that
  lost a record follows; one whose master lost it keeps what it has.
- A RocketMQ master gives single records (request 33): records at growing distances from the end are compared, and where
  one differs, others between it and the one before. These are samples; ha/compare/tail_overlap.py compares the last bytes
  one by one.

The master may append, delete its oldest file, restart or be cut meanwhile: the ends are asked for again at the end, and
findings made while they moved are discarded.
"""

from collections.abc import Generator
from functools import partial
from typing import Any, Literal, TypeVar

from attrs import frozen

from twinlog.ha.compare import finding
from twinlog.ha.compare.digests import Digests
from twinlog.ha.compare.finding import Finding
from twinlog.ha.errors import HAConnectionLostError, HAPeerError
from twinlog.ha.peer import PeerHistory, PeerLog

GROUP_BLOCKS = 4096  # 256 MiB of log for a digest of 16 bytes.
STEP = 64 * 1024  # How far before the last record the next sample is; then twice as far, and so on.
NO_DIGESTS = (0, 0)
ATTEMPTS = 5  # As long as the master moves.


@frozen
class OwnLog:
    """The slave's log holds bytes `min_offset` up to `max_offset`."""

    min_offset: int
    max_offset: int
    file_size: int


@frozen
class Ends:
    """Asks for start and end of both logs: (OwnLog, PeerLog)."""


@frozen
class Record:
    """Asks for the records at this offset, own and peer's, as stored; None where none begins."""

    phy_offset: int


@frozen
class LastRecord:
    """Asks for the offset of the last own record that begins in bytes `start` to `end`, or None."""

    start: int
    end: int


@frozen
class FirstRecord:
    """Asks for the offset of the first own record that begins in bytes `start` to `end`, or None."""

    start: int
    end: int


@frozen
class Bounds:
    """Asks for bounds of own records, sorted: the last one up to `start`, or `start` when there is none, and all between `start`
    and `end`.
    """

    start: int
    end: int


# Digests: two RangeDigests of one range, own and peer's; the latter None when it has none.
Question = Ends | Digests | Record | LastRecord | FirstRecord | Bounds
Compared = Literal["digests", "records", "handover", "nothing"]
T = TypeVar("T")
Asking = Generator[Question, Any, T]


@frozen(kw_only=True)
class Verdict:
    """`follow`: take what comes from the end of our log on. All others name what is found instead.

    `common_offset` is where our log could be cut to fit, a record's start; None when nothing is known to be common.
    `compared`: how, from where both logs have bytes up to there; after a handover no byte has to be looked at.
    """

    kind: Literal["follow", "diverged", "ahead", "below min", "damaged", "file size"]
    own: OwnLog
    peer: PeerLog
    finding: Finding | None = None
    common_offset: int | None = None
    compared: Compared = "nothing"

    @property
    def proven_offset(self) -> int | None:
        """All bytes that both have below it are equal, by their digests; None: not known."""
        return self.common_offset if self.compared == "digests" else None


def equal_by_handover(master: PeerHistory, own: OwnLog) -> Verdict:
    """Of a log that ends where its new master's epoch begins, of a member that was master before and resigned there."""
    peer = PeerLog(
        is_twinlog=True,
        min_offset=master.min_offset,
        max_offset=master.max_offset,
        boot_ms=master.boot_ms,
        is_master=True,
    )
    return Verdict(kind="follow", own=own, peer=peer, common_offset=own.max_offset, compared="handover")


@frozen
class Proven:
    """An earlier verdict on the same master, which runs since: bytes below `offset` are equal."""

    boot_ms: int
    offset: int


def preflight(proven: Proven | None = None) -> Asking[Verdict]:
    """Compare the two logs. Raises HAPeerError when the peer stops to answer, HAConnectionLostError when it does not stop to
    move; the asker throws HAPeerError in where an answer is not to be had.
    """
    for attempt in range(ATTEMPTS):
        own, peer = yield Ends()
        lost: HAPeerError | None = None
        try:
            verdict = yield from _compare(own, peer, proven)
        except HAPeerError as error:
            lost = error
        own_now, peer_now = yield Ends()
        has_grown = peer.max_offset < own.max_offset and peer_now.max_offset > peer.max_offset
        if _moved(own, peer, own_now, peer_now) or (has_grown and attempt < ATTEMPTS - 1):
            continue  # A master that keeps growing past different bytes must not be missed.
        if lost is not None:
            raise lost
        return verdict
    raise HAConnectionLostError("the master's log, or this one, kept moving while they were compared")


def _moved(own: OwnLog, peer: PeerLog, own_now: OwnLog, peer_now: PeerLog) -> bool:
    """True if findings about the earlier ends may no longer hold."""
    return (
        own_now != own
        or peer_now.max_offset < peer.max_offset
        or (peer_now.min_offset, peer_now.boot_ms, peer_now.is_twinlog)
        != (peer.min_offset, peer.boot_ms, peer.is_twinlog)
    )


def _compare(own: OwnLog, peer: PeerLog, proven: Proven | None) -> Asking[Verdict]:
    verdict = partial(Verdict, own=own, peer=peer)
    if peer.file_size not in (None, own.file_size):
        assert peer.file_size is not None
        return verdict(kind="file size", finding=finding.other_file_size(own.file_size, peer.file_size))
    if own.max_offset == 0:
        return verdict(kind="follow")
    if own.max_offset < peer.min_offset:
        return verdict(kind="below min", finding=finding.below_min(own.max_offset, peer.min_offset))
    start, end = max(own.min_offset, peer.min_offset), min(own.max_offset, peer.max_offset)
    is_ahead = own.max_offset > peer.max_offset
    if is_ahead and start >= end:
        return verdict(kind="ahead", finding=finding.ahead(None, own.max_offset, peer.max_offset))
    known = min(proven.offset, end) if proven is not None and 0 < proven.boot_ms == peer.boot_ms else 0
    differs, compared = yield from _first_difference(peer, max(start, known), end)
    found = finding.history(own.min_offset, peer.min_offset) if own.min_offset > peer.min_offset else None
    if differs is not None:
        records = yield Record(differs)
        if not (yield from _is_damage(differs, start, end, *records)):
            has_common = differs > start
            return verdict(
                kind="diverged",
                finding=finding.diverged(differs, own.max_offset, *records, has_common=has_common),
                common_offset=differs if has_common else None,
                compared=compared,
            )
        compared, found = "records", finding.damaged(differs, records[0])
        if records[0] is not None:
            # Bytes that only this log has are safer here: the master may have reused their numbers.
            return verdict(kind="damaged", finding=found)
    if is_ahead:
        found = finding.ahead(end, own.max_offset, peer.max_offset)
    return verdict(
        kind="ahead" if is_ahead else "follow",
        finding=found,
        common_offset=end,
        compared=compared,
    )


def _is_damage(differs: int, start: int, end: int, own_record: bytes | None, peer_record: bytes | None) -> Asking[bool]:
    """True if one of the two lost a record on its disk, and both are equal behind it: that is one history.

    Where neither has one, junk between records differs, and a cut there makes the copies equal again.
    """
    if (own_record is None) == (peer_record is None):
        return False
    last = yield LastRecord(start, end)
    return last is not None and last > differs and (yield from _is_equal(last))


def _first_difference(peer: PeerLog, start: int, end: int) -> Asking[tuple[int | None, Compared]]:
    """Offset of the first own record that differs, None when none does; and the kind of comparison."""
    if peer.is_twinlog:
        group = yield from _first_group(start, end, GROUP_BLOCKS)
        if group is None:
            return None, "digests"
        if group != NO_DIGESTS:
            block = yield from _first_group(*group, 1)
            if block is None:
                raise HAPeerError(f"its digests of bytes {group[0]} to {group[1]} contradict each other")
            return (yield from _first_bound(*block)), "digests"
    return (yield from _first_sample(start, end)), "records"


def _first_group(start: int, end: int, blocks_per_digest: int) -> Asking[tuple[int, int] | None]:
    """The bounds of the first group that differs; NO_DIGESTS when the peer has none."""
    while start < end:
        own, peers = yield Digests(start, end, blocks_per_digest)
        if peers is None:
            return NO_DIGESTS
        for (low, high, mine), its in zip(own.groups(), peers.digests, strict=True):
            if mine != its:
                return low, high
        start = own.end
    return None


def _first_bound(start: int, end: int) -> Asking[int]:
    """The own record that has the first byte that differs, out of bytes `start` to `end`, of which one does."""
    bounds: list[int] = yield Bounds(start, end)
    low, high = 1, len(bounds)  # The first bound up to which they differ is in bounds[low:high], or is the end.
    while low < high:
        middle = (low + high) // 2
        if (yield from _first_group(start, bounds[middle], 1)) is None:
            low = middle + 1
        else:
            high = middle
    return bounds[low - 1]


def _first_sample(start: int, end: int) -> Asking[int | None]:
    """The first own record that differs, as far as samples show."""
    good = None
    for place in (yield from _places(start, end)):
        if not (yield from _is_equal(place)):
            return place if good is None else (yield from _first_between(good, place))
        good = place
    return None


def _places(start: int, end: int) -> Asking[list[int]]:
    """The first and the last record, and others at growing distances from the last one; in order."""
    last = yield LastRecord(start, end)
    first = yield FirstRecord(start, end)
    places, step = {first, last}, STEP
    while last is not None and last - step > start:
        places.add((yield LastRecord(start, last - step + 1)))
        step *= 2
    return sorted(place for place in places if place is not None)


def _first_between(good: int, bad: int) -> Asking[int]:
    """The first record that differs, where the one at `good` is equal and the one at `bad` is not."""
    while True:
        middle = yield LastRecord(good + 1, (good + bad) // 2 + 1)
        if middle is None:
            middle = yield FirstRecord(good + 1, bad)
        if middle is None:
            return bad
        if (yield from _is_equal(middle)):
            good = middle
        else:
            bad = middle


def _is_equal(offset: int) -> Asking[bool]:
    own, peers = yield Record(offset)
    return own is not None and own == peers
