"""Digests of any range of an open log, to compare it with another member's.

Ranges covered by the side file cost no read of the log. The rest, and blocks cut by a bound of the range, are read in a thread,
one request after another, at a limited rate: whoever asks for more waits.

A digest is of the bytes as they were *written*. Damage that a disk does later does not change it where the side file has it:
two logs with one history stay equal, and the scrub reports the damage. Blocks that a crash may have changed are read.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import (
    BLOCK_SIZE,
    DIGEST_SIZE,
    RangeDigests,
    ceil_block,
    digests_of_range,
    floor_block,
    grouped,
)
from twinlog.store.integrity.digest_service import DigestService
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.range import LogRange

READ_BYTES_PER_SECOND = 64 << 20
READ_MAX = 16 << 20  # Bytes read for one trip to a thread.
_KNOWN_MAX = 1 << 31  # Bytes of the log whose digests are copied at once: 512 KiB of them, a fraction of a millisecond.
_ATTEMPTS = 3


class LogRangeError(StoreError):
    """The log does not hold these bytes, or no longer."""


@define(eq=False)
class RangeDigester:
    """Computes range digests. Everything runs on the event loop's thread, except reads of the log."""

    log: CommitLog
    service: DigestService
    bytes_per_second: int = READ_BYTES_PER_SECOND
    _turn: trio.Lock = field(factory=trio.Lock, init=False)  # One request reads at a time, the others wait in order.
    _free_at: float = field(default=0.0, init=False)

    @property
    def waiting(self) -> int:
        """The number of requests that wait to read."""
        return self._turn.statistics().tasks_waiting

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests:
        """The digests of all bytes `start` to `end`, however long that takes.

        Raises LogRangeError when the log does not hold them all, or is cut meanwhile; OSError when the disk does not read them.
        """
        self._check(start, end)
        _, found = await self._collect(start, end, read_max=None)
        return grouped(found, start, end, blocks_per_digest)

    async def answer(self, start: int, end: int, *, blocks_per_digest: int, digests_max: int) -> RangeDigests:
        """Digests of bytes from `start` on: at most `digests_max`, and so many that at most READ_MAX bytes are read.

        Raises as digests() does.
        """
        self._check(start, end)
        size = blocks_per_digest * BLOCK_SIZE
        end = min(end, start - start % size + digests_max * size, floor_block(start) + _KNOWN_MAX)
        reached, found = await self._collect(start, end, read_max=READ_MAX)
        whole = reached - reached % size
        if whole > start and reached < end:  # A part of a group is useless to a caller that continues from there.
            found, reached = found[: DIGEST_SIZE * (whole // BLOCK_SIZE - start // BLOCK_SIZE)], whole
        return grouped(found, start, reached, blocks_per_digest)

    async def _collect(self, start: int, end: int, *, read_max: int | None) -> tuple[int, bytes]:
        """The digests of the blocks, or parts of blocks, of a range, and how far they go."""
        for _ in range(_ATTEMPTS):
            cuts, at, left, pieces = self.service.cuts, start, read_max, [b""]
            while at < end and left != 0:
                self._check(start, end)
                stop, is_known = self._next_span(at, end)
                if is_known:
                    stop = min(stop, at + _KNOWN_MAX)
                    pieces.append(self.service.digests.entries_of(at, stop))
                    await trio.lowlevel.checkpoint()
                else:
                    stop = min(stop, floor_block(at) + (READ_MAX if left is None else left))
                    pieces.append(await self._read(at, stop))
                    left = left and max(0, floor_block(left - (stop - at)))
                at = stop
            # Digests from before a cut may be of bytes that have changed.
            if cuts == self.service.cuts and at <= self.log.max_offset:
                return at, b"".join(pieces)
        raise LogRangeError(f"the log was cut while bytes {start} to {end} were looked at")

    def _check(self, start: int, end: int) -> None:
        low, high = self.log.min_offset, self.log.max_offset
        if not low <= start < end <= high:
            raise LogRangeError(f"bytes {start} to {end} are not all in this log, which holds {low} to {high}")

    def _next_span(self, at: int, end: int) -> tuple[int, bool]:
        """The end of the next part of the log from `at` on that has known digests, or has none; True for known."""
        for low, high in self._known():
            low, high = max(low, ceil_block(at)), min(high, floor_block(end))
            if low < high:
                return (high, True) if low == at else (low, False)
        return end, False

    def _known(self) -> Iterator[tuple[int, int]]:
        """Ranges of whole blocks with reliable digests."""
        service = self.service
        low, high = ceil_block(service.digests.start), service.digests.whole_end
        if service.doubtful_from < service.doubtful_end:
            yield low, min(high, floor_block(service.doubtful_from))
            low = max(low, ceil_block(service.doubtful_end))
        yield low, high

    async def _read(self, start: int, end: int) -> bytes:
        async with self.reading(end - start):
            self._check(start, end)
            with LogRange.open(self.log, start, end) as bytes_:
                return await trio.to_thread.run_sync(digests_of_range, bytes_.read, start, end)

    @asynccontextmanager
    async def reading(self, size: int) -> AsyncIterator[None]:
        """Wait for a turn to read `size` bytes for another member, within the rate limit."""
        async with self._turn:
            await trio.sleep_until(self._free_at)
            self._free_at = trio.current_time() + size / self.bytes_per_second
            yield
