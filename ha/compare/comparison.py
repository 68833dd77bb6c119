"""Answers the questions of ha/compare/preflight.py from both logs."""

from collections.abc import Awaitable
from typing import TypeVar

import trio
from attrs import define

from twinlog.ha.compare.digests import Digests
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.compare.preflight import (
    Bounds,
    Ends,
    FirstRecord,
    LastRecord,
    Proven,
    Question,
    Record,
    Verdict,
    preflight,
)
from twinlog.ha.errors import HALogError, HAPeerError
from twinlog.ha.peer import Peer, PeerLog
from twinlog.store.errors import StoreError

ANSWER_SECONDS = 30.0  # A master may have to read 16 MiB for an answer, and others may come first.

T = TypeVar("T")


async def answer_of(call: Awaitable[T], seconds: float = ANSWER_SECONDS) -> T:
    """A peer's answer. Raises HAPeerError, also when it takes too long."""
    with trio.move_on_after(seconds):
        return await call
    raise HAPeerError(f"no answer within {seconds:g} s")


@define(eq=False)
class LogComparison:
    """Compares a slave's log, which does not grow meanwhile, with its master's. `peer_log`: as last reported."""

    own: OwnReader
    peer: Peer
    peer_log: PeerLog | None = None

    async def run(self, proven: Proven | None) -> Verdict:
        """Compare. Raises HAPeerError when the peer stops answering, HAConnectionLostError when its log keeps moving,
        HALogError when our own log cannot be read.
        """
        asking = preflight(proven)
        question = next(asking)
        while True:
            try:
                try:
                    answer = await self._answer(question)
                except HAPeerError as error:
                    question = asking.throw(error)
                else:
                    question = asking.send(answer)
            except StopIteration as end:
                verdict: Verdict = end.value
                return verdict
            except (OSError, StoreError) as error:
                raise HALogError(f"this log cannot be compared with the master's: {error}") from error

    async def _answer(self, question: Question) -> object:
        own = self.own
        match question:
            case Ends():
                self.peer_log = await answer_of(self.peer.log())
                return own.ends(), self.peer_log
            case Digests(start, end, blocks_per_digest):
                peers = await answer_of(self.peer.digests(start, end, blocks_per_digest=blocks_per_digest))
                if peers is None:
                    return None, None
                if peers.start != start or not start < peers.end <= end or peers.blocks_per_digest != blocks_per_digest:
                    raise HAPeerError(
                        f"asked for digests of bytes {start} to {end}, it gave {peers.start} to {peers.end}"
                    )
                mine = await own.digests(start, peers.end, blocks_per_digest)
                if len(mine.digests) != len(peers.digests):
                    raise HAPeerError(f"{len(peers.digests)} digests of bytes {start} to {peers.end}")
                return mine, peers
            case Record(phy_offset):
                return await own.record(phy_offset), await answer_of(self.peer.record(phy_offset))
            case LastRecord(start, end):
                return await own.last_record(start, end)
            case FirstRecord(start, end):
                return await own.first_record(start, end)
            case Bounds(start, end):
                return await own.bounds(start, end)
