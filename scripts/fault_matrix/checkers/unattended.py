"""A group that elects by itself: who decided, whether anybody had to, and how long it took."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import frozen

from scripts.fault_matrix.checkers.recovery import NS
from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.history import Event, History
from twinlog.store.epoch_file import EpochEntry

# Notes with the number of a fault, and a number of their own.
ELECTIONS_BEFORE = "elections before it:"
ELECTIONS = "elections that there may be:"
GOES_ON = "acknowledged again, without the node, within seconds:"
NEVER_PAUSED = "from here on no acknowledgement later than after seconds:"
NEVER_PAUSED_ENDS = "until here:"
ANYBODY = ""  # In the place of a node.
FREE, HOLD_OFF_S, HOLD_OFF_S_MAX, SLACK_S = 3, 5.0, 120.0, 0.5  # As docs/operating/automatic-failover.md has it.


def elected(tables: Mapping[str, Sequence[EpochEntry]]) -> tuple[EpochEntry, ...]:
    """What the longest history of any member has of the group's own decisions."""
    table = max(tables.values(), key=lambda entries: entries[-1].epoch if entries else -1, default=())
    return tuple(entry for entry in table if entry.decided_by == "group")


def nobody_typed(tables: Mapping[str, Sequence[EpochEntry]]) -> Verdict:
    """Oracle I: every change of the master in any member's history was decided by the group, and none was forced."""
    wrong, seen = [], set()
    for member, entries in sorted(tables.items()):
        for entry in entries:
            if entry.kind in ("first", "restart"):
                continue
            seen.add(entry.epoch)
            if entry.decided_by != "group" or entry.kind == "forced":
                by = entry.decided_by or "nobody knows who"
                wrong.append(f"{member}: epoch {entry.epoch} is a {entry.kind}, decided by {by}: {entry.reason}")
    if not tables:
        wrong.append("no history was looked at")
    return verdict("I", wrong, f"{len(seen)} changes of the master in {len(tables)} histories")


def no_needless_election(history: History, tables: Mapping[str, Sequence[EpochEntry]]) -> Verdict:
    """Oracle J: none but those that a fault allows, from its begin to the next one."""
    faults = {event.id: event for event in history.of_kind("fault")}
    before = [(event.id, round(number)) for event, number in _notes(history, ELECTIONS_BEFORE)]
    allowed = {event.id: round(number) for event, number in _notes(history, ELECTIONS)}
    counts = [*(count for _, count in before), len(elected(tables))]
    wrong = [f"{counts[0]} elections before anything was broken"] if before and counts[0] else []
    for (number, _), (low, high) in zip(before, pairwise(counts), strict=True):
        if high - low > allowed[number]:
            what = f"{faults[number].text} (fault {number})"
            wrong.append(f"{what}: {high - low} elections, there may be {allowed[number]}")
    if not before:
        wrong.append("nothing was promised, so nothing was shown")
    needless = sum(not allowed[number] for number, _ in before)
    return verdict("J", wrong, f"{counts[-1]} elections; {needless} of {len(before)} faults may have none")


def too_soon(entries: Sequence[EpochEntry]) -> list[str]:
    """After several within minutes each waits longer than the last."""
    wrong = []
    for at, (earlier, later) in enumerate(pairwise(entries), 1):
        least = min(HOLD_OFF_S * 2 ** (at - FREE), HOLD_OFF_S_MAX) if at >= FREE else 0.0
        gap = (later.at_ms - earlier.at_ms) / 1000
        if gap < least - SLACK_S:
            wrong.append(f"epoch {later.epoch} was elected {gap:.1f} s after {at} others, not {least:g} s")
    return wrong


@frozen
class Takeover:
    """Seconds from a moment to the first acknowledgement of a message that was sent after it; None: there was none."""

    fault: Event
    seconds: float | None
    seconds_max: float


def takeovers(history: History) -> list[Takeover]:
    """One for each promise that it goes on before anything has healed."""
    faults = {event.id: event for event in history.of_kind("fault")}
    found = []
    for note, seconds_max in _notes(history, GOES_ON):
        ends = [
            append.end_ns
            for append in history.acknowledged
            if append.begin_ns >= note.ns and append.node != note.node and append.end_ns is not None
        ]
        found.append(Takeover(faults[note.id], (min(ends) - note.ns) / NS if ends else None, seconds_max))
    return found


def goes_on_in_time(history: History) -> Verdict:
    """Oracle K."""
    found, wrong = takeovers(history), []
    for each in found:
        if each.seconds is None or each.seconds > each.seconds_max:
            took = (
                "nothing was acknowledged" if each.seconds is None else f"{each.seconds:.1f} s until an acknowledgement"
            )
            wrong.append(f"{each.fault.text} (fault {each.fault.id}): {took}, {each.seconds_max:g} s are promised")
    slowest = max((each.seconds or 0 for each in found), default=0.0)
    return verdict("K", wrong, f"{len(found)} times, slowest {slowest:.2f} s")


@frozen
class Pause:
    """The longest time without an acknowledgement between two moments, in seconds."""

    fault: Event
    seconds: float
    seconds_max: float


def pauses(history: History) -> list[Pause]:
    """One for each span in which none is promised."""
    faults = {event.id: event for event in history.of_kind("fault")}
    ends = sorted(append.end_ns for append in history.acknowledged if append.end_ns is not None)
    spans = zip(_notes(history, NEVER_PAUSED), _notes(history, NEVER_PAUSED_ENDS), strict=True)
    found = []
    for (begin, seconds_max), (end, _) in spans:
        inside = ends[bisect_left(ends, begin.ns) : bisect_right(ends, end.ns)]
        longest = max(later - earlier for earlier, later in pairwise((begin.ns, *inside, end.ns)))
        found.append(Pause(faults[begin.id], longest / NS, seconds_max))
    return found


def never_paused(history: History) -> Verdict:
    """Oracle L."""
    found = pauses(history)
    wrong = [
        f"{each.fault.text} (fault {each.fault.id}): {each.seconds:.1f} s without an acknowledgement, "
        f"{each.seconds_max:g} s at most are promised"
        for each in found
        if each.seconds > each.seconds_max
    ]
    longest = max((each.seconds for each in found), default=0.0)
    return verdict("L", wrong, f"{len(found)} spans, longest pause {longest:.2f} s")


def _notes(history: History, kind: str) -> Iterator[tuple[Event, float]]:
    for event in history.of_kind("note"):
        if event.text.startswith(kind):
            yield event, float(event.text.removeprefix(kind))
