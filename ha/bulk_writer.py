"""Writes long stretches of verified log in a thread, so that the next one can be received and verified meanwhile."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from attrs import define, field

from ha.errors import HALogError
from ha.log import ReplicatedStore
from store.errors import StoreError
from store.wakeup import Wakeup

if TYPE_CHECKING:
    from store.columns import Columns


class _Stretch(NamedTuple):
    phy_offset: int
    buffer: bytearray
    size: int  # Bytes of `buffer` that are the stretch.
    entries: "Columns"


@define(eq=False)
class BulkWriter:
    """One stretch at a time, for one task that brings them. `written` is told how many bytes were appended."""

    store: ReplicatedStore
    written: Callable[[int], Awaitable[None]]
    spare: bytearray | None = field(default=None, init=False)  # The buffer of the stretch that was written last.
    _stretch: _Stretch | None = field(default=None, init=False)
    _begun: Wakeup = field(factory=Wakeup, init=False)
    _done: Wakeup = field(factory=Wakeup, init=False)

    @property
    def is_busy(self) -> bool:
        """Whether a stretch is not yet in the log."""
        return self._stretch is not None

    def begin(self, phy_offset: int, buffer: bytearray, size: int, entries: "Columns") -> None:
        """Have the first `size` bytes of a buffer, whole and verified records, written at `phy_offset`; not while it is busy."""
        assert not self.is_busy
        self._stretch = _Stretch(phy_offset, buffer, size, entries)
        self._begun.set()

    async def idle(self) -> None:
        """Return once all is in the log."""
        while self.is_busy:
            await self._done.wait()

    async def run(self) -> None:
        """Write until cancelled. Raises HALogError."""
        while True:
            await self._begun.wait()
            if (stretch := self._stretch) is None:
                continue
            offset, buffer, size, entries = stretch
            try:
                if self.store.max_offset != offset:
                    self.store.start_at(offset)
                await self.store.append_replicated_in_thread(memoryview(buffer)[:size], entries)
            except (OSError, StoreError) as error:
                raise HALogError(f"appending {size} bytes at offset {offset} failed: {error}") from error
            self.spare, self._stretch = buffer, None
            self._done.set()
            await self.written(size)
