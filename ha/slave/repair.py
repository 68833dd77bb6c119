"""Repair of damaged bytes of this log with those of other members, record by record; the store decides whether to accept them.

A slave asks its master, a master its slaves. The same bytes are requested again only after TRY_AGAIN_SECONDS.
"""

from collections.abc import Callable, Sequence

import structlog
import trio
from attrs import define, field

from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import Peer
from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import ceil_block, floor_block
from twinlog.store.integrity.repair import RepairError, RepairSpan
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC

log = structlog.get_logger()

CHECK_SECONDS = 30.0
TRY_AGAIN_SECONDS = 600.0


@define(eq=False)
class RepairService:
    """`peers` gives the members that may have what this log lost."""

    store: MessageStore
    peers: Callable[[], Sequence[Peer]]
    _not_before: dict[RepairSpan, float] = field(factory=dict, init=False)  # Next attempt, of spans that failed.
    _logged: dict[RepairSpan, str] = field(factory=dict, init=False)

    async def run(self) -> None:
        """Repair damage every CHECK_SECONDS, until cancelled."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            await self.check()

    async def check(self) -> None:
        """One round."""
        try:
            spans = await self.store.repairs.spans()
        except OSError as error:
            log.warning("listing damaged bytes failed; retrying in 30 s", error=str(error))
            return
        now = trio.current_time()
        self._not_before = {span: time for span, time in self._not_before.items() if span in spans}
        self._logged = {span: text for span, text in self._logged.items() if span in spans}
        for span in spans:
            if self._not_before.get(span, now) <= now:
                await self._repair(span)

    async def _repair(self, span: RepairSpan) -> None:
        reasons = []
        for peer in self.peers():
            try:
                data = await self._fetch(peer, span)
                await self.store.repairs.repair(span.start, data, await self._digests(peer, span))
            except (HAPeerError, StoreError, OSError) as error:
                reasons.append(str(error))
            else:
                return
        self._not_before[span] = trio.current_time() + TRY_AGAIN_SECONDS
        text = "; ".join(reasons)
        if reasons and self._logged.get(span) != text:
            self._logged[span] = text
            log.warning(
                "repairing damaged bytes failed; retrying in 600 s",
                offset=span.start,
                bytes=span.end - span.start,
                why=text,
            )

    async def _fetch(self, peer: Peer, span: RepairSpan) -> bytes:
        pieces, at = [], span.start
        while at < span.end:
            piece = await peer.record(at) or await self._blank(at)
            if not piece or at + len(piece) > span.end:
                raise RepairError(f"the other log has no record at {at} that ends at or before {span.end}")
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    async def _blank(self, at: int) -> bytes:
        """Our own filler behind the last record of a file, which no record covers; empty where it is damaged, too."""
        file_size = self.store.commit_log.file_size
        room = file_size - at % file_size
        blank = SIZE_AND_MAGIC.pack(room, MAGIC_BLANK)
        with LogRange.open(self.store.commit_log, at, at + room) as bytes_:
            if bytes_.end - bytes_.start < room or bytes_.read(at, len(blank)) != blank:
                return b""
            return await trio.to_thread.run_sync(bytes_.read, at, room)

    async def _digests(self, peer: Peer, span: RepairSpan) -> dict[tuple[int, int], bytes]:
        """Digests of the blocks that the span touches, as far as they lie in our log; none of a RocketMQ broker."""
        own = self.store.commit_log
        low, high = max(floor_block(span.start), own.min_offset), min(ceil_block(span.end), own.max_offset)
        try:
            found = await peer.digests(low, high)
        except HAPeerError:  # It may not have all of them.
            return {}
        return {(start, end): digest for start, end, digest in found.groups()} if found is not None else {}
