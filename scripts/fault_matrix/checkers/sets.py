"""Sets and queues: what was lost, what was invented, what came twice, what changed its order. Each value is sent once.

The order within one producer and queue is that of its operations, as far as they were acknowledged: one that nobody knows the end
of may arrive behind later ones, over a connection that was given up.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Set

from attrs import frozen

from scripts.fault_matrix.checkers.recovery import NS
from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.history import Append, History

TAIL_S_MAX = 3.0  # flushIntervalCommitLog is half a second; a busy disk takes its time.


@frozen
class Sets:
    """Values, in the order in which they were sent, or found."""

    lost: tuple[Append, ...]
    invented: tuple[str, ...]
    duplicated: tuple[str, ...]
    refused: tuple[str, ...]  # There, though their producers were told that they are not.
    reordered: tuple[str, ...]


def compare_sets(history: History) -> Sets:
    """Everything that was sent against everything that is there in the end; what was seen before counts as delivered, too."""
    found = Counter(read.value for read in history.final)
    delivered = {read.value for read in history.reads} - {None}
    sent = {append.value: append for append in history.appends}
    places = Counter((read.queue, read.offset) for read in history.final)
    invented = [str(value) for value in sorted(delivered - sent.keys(), key=str)]
    corrupt = [f"{read.queue} at {read.offset}" for read in history.reads if read.value is None]
    return Sets(
        lost=tuple(append for append in history.acknowledged if append.value not in found),
        invented=tuple(invented + corrupt),
        duplicated=tuple(
            [str(value) for value, count in found.items() if count > 1 and value is not None]
            + [f"{queue} at {offset} was read twice" for (queue, offset), count in places.items() if count > 1]
        ),
        refused=tuple(
            append.value for append in history.appends if append.outcome == "fail" and append.value in delivered
        ),
        reordered=tuple(_reordered(history, sent)),
    )


def _reordered(history: History, sent: dict[str, Append]) -> Iterable[str]:
    """Acknowledged values of one producer that lie before an earlier one in the same queue."""
    latest: dict[tuple[str, str], Append] = {}
    for read in sorted(history.final, key=lambda read: (read.queue, read.offset)):
        append = sent.get(read.value or "")
        if append is None or append.outcome != "ok":
            continue
        before = latest.get((append.process, read.queue))
        if before is not None and append.begin_ns < before.begin_ns:
            yield f"{append.value} behind {before.value} in {read.queue}"
        latest[append.process, read.queue] = append


def nothing_lost(history: History) -> Verdict:
    """Oracle A for levels that survive what happened."""
    sets = compare_sets(history)
    wrong = [f"lost: {_told(append)}" for append in sets.lost]
    wrong += [f"there, though it was refused: {value}" for value in sets.refused]
    facts = f"{len(history.acknowledged)} acknowledged of {len(history.appends)}, {len(history.final)} found"
    if not history.acknowledged:
        wrong.append("nothing was acknowledged, so nothing was shown")
    return verdict("A", wrong, facts)


def only_a_tail_lost(history: History) -> Verdict:
    """Oracle A where a level does not survive what happened: what is lost is a suffix of what was acknowledged before each fault,
    and no longer than TAIL_S_MAX.

    Between two faults acknowledgements have rising places in the log; whoever is there keeps all before it.
    """
    found = {read.value for read in history.final}
    # What is answered between fault and heal was stored before it.
    heals = [event.ns for event in history.of_kind("heal")]
    spans: dict[int, list[Append]] = defaultdict(list)
    for append in history.acknowledged:
        spans[sum(at <= (append.end_ns or 0) for at in heals)].append(append)
    wrong, lost = [], 0
    for number in sorted(spans):
        span = sorted(spans[number], key=lambda append: append.phy if append.phy is not None else -1)
        kept = [append.value in found for append in span]
        lost += kept.count(False)
        if True in kept and False in kept and kept.index(False) < len(kept) - 1 - kept[::-1].index(True):
            wrong.append(f"lost, though later ones are there: {_told(span[kept.index(False)])}")
    wrong += [
        f"lost, though {TAIL_S_MAX:g} s old when the fault came: {_told(each)}" for each in _too_old(history, found)
    ]
    facts = f"{lost} lost of {len(history.acknowledged)} acknowledged, each a tail"
    if not history.acknowledged:
        wrong.append("nothing was acknowledged, so nothing was shown")
    return verdict("A", wrong, facts)


def _too_old(history: History, found: Set[str | None]) -> list[Append]:
    """What is lost, and had been acknowledged long before the fault."""
    began = {event.id: event.ns for event in history.of_kind("fault")}
    ends = sorted((event.ns, began[event.id]) for event in history.of_kind("heal"))
    old = []
    for append in history.acknowledged:
        answered = append.end_ns or 0
        fault_ns = next((fault for heal, fault in ends if heal >= answered), answered)
        if append.value not in found and fault_ns - answered > TAIL_S_MAX * NS:
            old.append(append)
    return old


def nothing_invented(history: History) -> Verdict:
    """Oracle C."""
    sets = compare_sets(history)
    wrong = [f"delivered, but never sent: {value}" for value in sets.invented]
    wrong += [f"sent once, there twice: {value}" for value in sets.duplicated]
    return verdict("C", wrong, f"{len(history.reads)} messages read, {len(history.final)} of them in the end")


def _told(append: Append) -> str:
    return f"{append.value} in {append.queue} at {append.offset}, log {append.phy}, told by {append.node}"
