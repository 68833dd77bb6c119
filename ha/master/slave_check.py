"""Compares a slave's log with the master's, on the master: a RocketMQ slave appends whatever comes, behind whatever it has.

The model: a slave that asks for what comes at an offset claims that all bytes below it are there, and are ours. A twinlog slave
has compared them; of a RocketMQ slave single records are asked for (request 33), the last one first, as in
ha/compare/preflight.py, with our log up to that offset in the place of the slave's own.
"""

from collections.abc import Awaitable, Callable, Collection

from twinlog.ha.compare.comparison import LogComparison
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.compare.preflight import Verdict
from twinlog.ha.errors import HAConnectionLostError, HALogError, HAPeerError, HARefusedError
from twinlog.ha.peer import Peer
from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore

# Whom to ask about the log of the slave at the other end, IP:PORT, of a connection, which holds so many bytes at least: all that
# it may be, none when it is unknown, None when it compares by itself.
FindSlave = Callable[[str, int], Awaitable[Collection[Peer] | None]]


async def trust(_address: str, _requested: int) -> None:
    """A FindSlave for slaves that all compare their logs by themselves."""


async def slave_fits(store: MessageStore, address: str, requested: int, find: FindSlave) -> bool | None:
    """Compare our log with that of a slave, up to the offset that it asked for; None: unknown.

    Raises HARefusedError for one that differs, HALogError when our own log cannot be read.
    """
    peers = await find(address, requested)
    if peers is None:
        return True
    verdicts = [await _compare(store, peer, requested) for peer in peers]
    if any(verdict is not None and verdict.kind == "follow" for verdict in verdicts):
        return True
    for verdict in verdicts:
        if verdict is not None and verdict.kind == "diverged" and verdict.finding is not None:
            raise HARefusedError(
                "diverged",
                f"that slave's log differs from this master's from byte {verdict.finding.offset} on or before, "
                f"{requested - verdict.finding.offset} bytes before its end: it holds messages of another history. "
                "Keep its directory if they matter, and let it begin anew with an empty one",
            )
    return None


async def _compare(store: MessageStore, peer: Peer, requested: int) -> Verdict | None:
    held = OwnReader(store, end=requested)
    try:
        last = await held.last_record(store.commit_log.min_offset, requested)
        if last is not None:  # A RocketMQ slave's log may end within a record.
            record = await held.record(last)
            if record is not None and last + len(record) > requested:
                held.end = last
    except (OSError, StoreError) as error:
        raise HALogError(f"this log cannot be compared with a slave's: {error}") from error
    try:
        return await LogComparison(held, peer).run(None)
    except (HAPeerError, HAConnectionLostError):
        return None
