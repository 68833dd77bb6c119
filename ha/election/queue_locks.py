"""Locks of queues that are consumed in order, as members tell them each other; and who knows all of them. Pure.

A client believes in its lock for 30 s after it was told so. So a lock that its client did not have before is told only once as
many members know it as must hold a message, and whoever is elected learns it: its votes are of so many members that one of them
knows.
"""

import math
from collections.abc import Collection, Iterable, Sequence

from attrs import frozen

from twinlog.store.epoch_file import EpochId


@frozen
class QueueLock:
    """A queue, and the client that holds it in a consumer group; "": nobody does any more."""

    group: str
    topic: str
    broker_name: str
    queue_id: int
    client: str


@frozen(kw_only=True)
class LockTable:
    """Locks that the master of an epoch has given, up to its change `version`: those changed after `since`; 0: all there are."""

    epoch: EpochId
    version: int
    since: int = 0
    locks: tuple[QueueLock, ...] = ()


def confirmed_version(held: Iterable[int], need: int, *, others: int = 0) -> float:
    """The version that `need` members know, the master itself among them.

    `held`: versions of the voters that follow; `others`: members that count where messages do, and do not vote.
    """
    if need <= 1:
        return math.inf
    known = sorted([*held, *[math.inf] * others], reverse=True)
    return known[need - 2] if len(known) >= need - 1 else -math.inf


def last_table(masters: LockTable | None, tables: Collection[LockTable], needed: int) -> tuple[LockTable | None, bool]:
    """The newest of the tables that those have who elect a master, and whether every lock that a client was told is in it.

    `masters`: that of the last master, if it has promised; `needed`: number of votes that elect.
    """
    by_age: Sequence[LockTable] = sorted(tables, key=lambda table: (table.epoch, table.version))
    newest = by_age[-1] if by_age else None
    if masters is not None and (newest is None or newest.epoch <= masters.epoch):
        return masters, True
    return newest, len(tables) >= needed
