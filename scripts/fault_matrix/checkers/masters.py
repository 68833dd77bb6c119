"""At most one master acknowledges in an epoch, and all members tell one history."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import frozen

from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.history import History


@frozen
class Epoch:
    """As a member's epoch file has it: `winner` wrote the log from `start` on."""

    number: int
    winner: str
    start: int


def one_acking_master(
    history: History, tables: Mapping[str, Sequence[Epoch]], names: Mapping[str, str] = {}
) -> Verdict:
    """Oracle E. `tables` are the epochs of each member after everything has healed; `names`: whose each address is, or was.

    A byte of the log belongs to one epoch, so whoever acknowledged a message at that byte must be the epoch's winner. Messages
    that are lost have no epoch: oracle A speaks of them. An epoch without a winner is the first one: it is the first node's that
    acknowledged in it.
    """
    wrong = _disagreements(tables)
    table = max(tables.values(), key=lambda epochs: epochs[-1].number if epochs else -1, default=())
    starts = [each.start for each in table]
    found = {(read.queue, read.offset): read.value for read in history.final}
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    count = 0
    for append in history.acknowledged:
        if append.phy is None or found.get((append.queue, append.offset or 0)) != append.value:
            continue
        epoch = table[at - 1] if (at := bisect_right(starts, append.phy)) else None
        if epoch is None:
            wrong.append(f"{append.value} at {append.phy} lies before every epoch")
            continue
        count += 1
        node = names.get(append.node, append.node)  # One that moves in its epoch is its master still.
        nodes[epoch.number].add(node)
        if epoch.winner and names.get(epoch.winner, epoch.winner) != node:
            wrong.append(
                f"{append.value} at {append.phy} is of epoch {epoch.number}, won by {epoch.winner}; {append.node} acknowledged it"
            )
    wrong += [
        f"in epoch {number} {' and '.join(sorted(who))} acknowledged" for number, who in nodes.items() if len(who) > 1
    ]
    return verdict("E", wrong, f"{count} acknowledgements in {len(nodes)} epochs of {len(tables)} members")


def _disagreements(tables: Mapping[str, Sequence[Epoch]]) -> list[str]:
    known: dict[int, tuple[str, Epoch]] = {}
    wrong = []
    for member, epochs in sorted(tables.items()):
        for earlier, later in pairwise(epochs):
            if later.number <= earlier.number or later.start < earlier.start:
                wrong.append(f"{member} has epoch {later.number} behind {earlier.number}")
        for epoch in epochs:
            other, same = known.setdefault(epoch.number, (member, epoch))
            if same != epoch:
                wrong.append(f"epoch {epoch.number} is {same} on {other} and {epoch} on {member}")
    return wrong
