"""Comparison of two logs by their histories: up to where they are equal, and what was given up. No I/O.

The bytes of one epoch (number, winner) are one sequence: only the winner writes it, and it never writes there again once its log
may have lost a tail. A log whose history has an entry is a prefix of the winner's log, up to the start of the winner's own next
entry. So two logs whose histories begin alike are equal up to the lower end of their last common epoch: both ends are ends of
logs, and so of records.

Bytes of our log behind that were written in an epoch that the other history does not contain there. When the other has an epoch
newer than all of ours, its winner held everything that was acknowledged before, or the loss was named and accepted: our bytes are
given up, and may be cut. In every other case nothing is proven, and nothing is cut automatically.
"""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

from attrs import frozen

from twinlog.store.epoch_file import EpochEntry, EpochId

ComparisonKind = Literal["same", "behind", "given up", "ahead", "newer", "unrelated"]


@frozen
class HistoryComparison:
    """Relation of our log to a master's.

    same, behind: a prefix of it; follow, and adopt its history. given up: the same once it is cut at `cut_offset`.
    ahead: longer than the master's, for an unknown reason. newer: ours has an epoch that the master's lacks; do not follow.
    unrelated: no epoch in common.
    """

    kind: ComparisonKind
    cut_offset: int | None = None  # Where ours must end; "given up" only.
    common: EpochEntry | None = None  # The last epoch that both have.
    given_up_by: EpochEntry | None = None  # The first of the master's epochs that is newer than all of ours.


def compare_histories(
    own: Sequence[EpochEntry], own_max: int, peer: Sequence[EpochEntry], peer_max: int
) -> HistoryComparison:
    """Compare our log with a master's, by history and end of each."""
    master = effective(peer, peer_max)
    own, peer = _from_one_epoch(own, master)
    common = _common(own, peer)
    if not common:
        return HistoryComparison("unrelated")
    cut = min(_end(own, common - 1, own_max), _end(peer, common - 1, peer_max))
    last = own[common - 1]
    if len(own) > common and (len(peer) == common or peer[-1].epoch <= own[-1].epoch):
        return HistoryComparison("newer", common=last)
    if own_max <= cut:
        return HistoryComparison("same" if len(own) == len(peer) == common else "behind", common=last)
    if len(peer) == common:
        return HistoryComparison("ahead", common=last)
    winner = next(entry for entry in peer[common:] if entry.epoch > own[-1].epoch)
    assert 0 <= cut < own_max, "nothing is given up by a cut at the end"
    return HistoryComparison("given up", cut, last, winner)


def common_end(own: Sequence[EpochEntry], own_max: int, peer: Sequence[EpochEntry], peer_max: int) -> int:
    """Up to this offset both logs are equal, by their histories."""
    own, peer = _from_one_epoch(effective(own, own_max), effective(peer, peer_max))
    common = _common(own, peer)
    return min(_end(own, common - 1, own_max), _end(peer, common - 1, peer_max)) if common else 0


def key_of(entries: Sequence[EpochEntry], max_offset: int) -> tuple[int, bool, str, int]:
    """Sort key of logs: of those that voted, the log with the greatest key has everything that was acknowledged."""
    last = last_of(entries, max_offset)
    return last.epoch, last.kind != "forced", last.winner, max_offset


def in_memory_end(
    entries: Sequence[EpochEntry], own: str, promised: EpochId, *, is_slave: bool, as_master: bool, as_slave: bool
) -> float:
    """Log offset up to which a member may have acknowledged what its disk did not have; 0: nothing, inf: whatever it has.

    `is_slave`: its role now. `as_master`, `as_slave`: whether it flushes in that role before it acknowledges. The first epoch
    names no winner: the entry behind it names its master, as far as that was known.
    """
    end = 0.0
    for entry, after in zip_longest(entries, entries[1:]):
        if entry.winner:
            flushes = as_master if entry.winner == own else as_slave
        elif after is None and promised == entry.id:
            flushes = as_slave if is_slave else as_master
        elif after is not None and after.old:
            flushes = as_master if after.old == own else as_slave
        else:
            flushes = as_master and as_slave
        if not flushes:
            end = after.start_offset if after is not None else math.inf
    return end


def effective(entries: Sequence[EpochEntry], max_offset: int) -> tuple[EpochEntry, ...]:
    """Without the epochs that begin behind the log's end: their bytes are not here, not even the first."""
    return tuple(entry for entry in entries if entry.start_offset <= max_offset)


def last_of(entries: Sequence[EpochEntry], max_offset: int) -> EpochEntry:
    """The epoch that the log's end belongs to."""
    return (effective(entries, max_offset) or tuple(entries))[-1]


def epoch_at(entries: Sequence[EpochEntry], offset: int) -> EpochEntry:
    """The epoch in which the byte at `offset` was written; the oldest that is known, for what lies before it."""
    return next((entry for entry in reversed(entries) if entry.start_offset <= offset), entries[0])


def confirmed_in(entries: Sequence[EpochEntry], held: int, max_offset: int) -> int:
    """The confirmed offset of a master when enough members hold its log up to `held`: 0 before that reaches its own epoch.

    Only a log that holds the start of the epoch reports it in an election. One with less, even if this master sent it, ranks
    by an older epoch, and so below a log of an unacknowledged epoch in between.
    """
    held = min(held, max_offset)
    return held if held >= entries[-1].start_offset else 0


def with_entry(entries: Sequence[EpochEntry], entry: EpochEntry) -> tuple[EpochEntry, ...]:
    """A winner's history: its own log up to its end, and the epoch that begins there."""
    kept = effective(entries, entry.start_offset)
    assert all(before.epoch < entry.epoch for before in kept), (kept[-1].id, entry.id)
    return (*kept, entry)


def _from_one_epoch(
    own: Sequence[EpochEntry], peer: Sequence[EpochEntry]
) -> tuple[Sequence[EpochEntry], Sequence[EpochEntry]]:
    """Both lists from where the shorter memory begins: the oldest epochs of a long one are forgotten."""
    if not own or not peer:
        return (), ()
    oldest = max(own[0].epoch, peer[0].epoch)
    return [entry for entry in own if entry.epoch >= oldest], [entry for entry in peer if entry.epoch >= oldest]


def _common(own: Sequence[EpochEntry], peer: Sequence[EpochEntry]) -> int:
    """Number of common entries at the beginning."""
    count = 0
    for mine, theirs in zip(own, peer, strict=False):
        if (mine.id, mine.start_offset) != (theirs.id, theirs.start_offset):
            break
        count += 1
    return count


def _end(entries: Sequence[EpochEntry], number: int, max_offset: int) -> int:
    """End of an epoch in a log: the start of the next one, or the end of the log."""
    return min([entry.start_offset for entry in entries[number + 1 : number + 2]] + [max_offset])
