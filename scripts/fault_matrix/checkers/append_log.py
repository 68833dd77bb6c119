"""Is each queue one log that was appended to, one message after the other? Exactly, and fast, because offsets give the order.

The model: a queue is a list. An append puts its value at the end, at one moment between its begin and its end, and answers with
its place; one whose end is unknown does so at any moment after its begin, or never. A read of place k answers with the value
there, at one moment between its begin and its end. A history is right when such moments exist (Herlihy and Wing; porcupine
decides the same for any model by search).

Here every place has one value, whoever tells it, so the order of the appends is known; what is left to find are moments
t[0] <= t[1] <= ... with lo[k] <= t[k] <= hi[k], where lo is the begin of the append and hi the earliest of its end and the ends
of all reads of place k. With S[k], the smallest hi from k on, they exist just when lo[k] <= S[k] for every k. Places that nobody
names are filled by appends of unknown outcome that nobody has seen: S never falls, so the i-th such place takes the i-th of them
by begin.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

from attrs import define, field

from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.history import Append, History, Seen


@define
class _Place:
    """What is known of one place of a queue."""

    value: str | None = None
    latest: float = inf  # Its append's moment is not later.


@define
class _Queue:
    appends: list[Append] = field(factory=list)
    reads: list[Seen] = field(factory=list)


def wrong_in_queue(appends: Sequence[Append], reads: Iterable[Seen]) -> list[str]:
    """Why this cannot be one list that was appended to; empty: it can. Values are sent once each."""
    places: defaultdict[int, _Place] = defaultdict(_Place)
    wrong: list[str] = []

    def note(offset: int, value: str | None, latest: float, who: str) -> None:
        place = places[offset]
        if place.value is not None and place.value != value:
            wrong.append(f"at {offset}: {place.value}, and {value} by {who}")
        place.value, place.latest = value, min(place.latest, latest)

    for append in appends:
        if append.outcome == "ok":
            assert append.offset is not None
            note(append.offset, append.value, inf if append.end_ns is None else append.end_ns, "its acknowledgement")
    for read in reads:
        note(read.offset, read.value, read.end_ns, "a read")
    if wrong:
        return wrong
    return _wrong_places(places, appends)


def _wrong_places(places: dict[int, _Place], appends: Sequence[Append]) -> list[str]:
    """Whether the named places can be filled, in their order, in time."""
    by_value = {append.value: append for append in appends if append.outcome != "fail"}
    at = {place.value: offset for offset, place in places.items()}
    if len(at) < len(places):
        twice = [offset for offset, place in places.items() if at[place.value] != offset]
        return [f"at {offset}: {places[offset].value}, which is also at {at[places[offset].value]}" for offset in twice]
    unknown = [each for each in places.values() if each.value not in by_value]
    if unknown:
        return [f"{each.value}: nobody appended it" for each in unknown]
    free = sorted(
        (append for append in by_value.values() if append.outcome == "unknown" and append.value not in at),
        key=lambda append: append.begin_ns,
        reverse=True,
    )
    return _wrong_moments(places, by_value, free)


def _wrong_moments(places: dict[int, _Place], by_value: dict[str, Append], free: list[Append]) -> list[str]:
    """`free`: appends for the places that nobody names, the earliest last."""
    end = max(places, default=-1) + 1
    limits, limit = [inf] * end, inf
    for offset in reversed(range(end)):
        limit = min(limit, places[offset].latest) if offset in places else limit
        limits[offset] = limit
    wrong = []
    for offset in range(end):
        if offset in places:
            append = by_value[str(places[offset].value)]
        elif free:
            append = free.pop()
        else:
            wrong.append(f"at {offset}: nothing that could be there")
            continue
        if append.begin_ns > limits[offset]:
            wrong.append(f"at {offset}: {append.value} began when {offset} or a later place was already answered for")
    return wrong


def one_log_per_queue(history: History) -> Verdict:
    """Oracle D, with a look at density: after the last read every place below the end is known."""
    queues: defaultdict[str, _Queue] = defaultdict(_Queue)
    for append in history.appends:
        queues[append.queue].appends.append(append)
    for read in history.reads:
        queues[read.queue].reads.append(read)
    wrong = []
    for name, queue in sorted(queues.items()):
        wrong += [f"{name} {each}" for each in wrong_in_queue(queue.appends, queue.reads)]
        ends = {read.offset for read in queue.reads if read.final}
        if ends and ends != set(range(max(ends) + 1)):
            wrong.append(f"{name} has gaps below {max(ends) + 1}")
    return verdict("D", wrong, f"{len(queues)} queues, {len(history.appends)} appends, {len(history.reads)} reads")
