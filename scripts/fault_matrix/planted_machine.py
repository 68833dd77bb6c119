"""Planted faults of what a machine is to a member: its clock, its disk, its load."""

from collections.abc import Iterator
from unittest.mock import patch

import trio

import twinlog.store.util.sync
from scripts.fault_matrix.planted import planted
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.master.connection import HAConnection
from twinlog.store.recovery.recovery import _Recovery as Recovery
from twinlog.store.retention import RetentionClock

LATE_S = 0.05


@planted("retention believes the wall clock")
def wall_clock_ages() -> Iterator[None]:
    """Files are as old as a clock says that anybody may set, as in RocketMQ."""

    def read(self: RetentionClock, *, wall_s: float, monotonic: float) -> float:
        self.now_s = wall_s
        return wall_s

    with patch.object(RetentionClock, "read", read):
        yield


@planted("what a crash tore is believed")
def torn_is_believed() -> Iterator[None]:
    """Recovery goes by lengths, and no checksum is looked at."""
    init = Recovery.__init__

    def careless(self: Recovery, *arguments: object, **named: object) -> None:
        init(self, *arguments, **named)  # type: ignore[arg-type]
        self.check_crc = False

    with patch.object(Recovery, "__init__", careless):
        yield


@planted("a disk that was full once is full for ever")
def full_for_ever() -> Iterator[None]:
    """A write that was refused for want of room ends all writing until a restart, as in RocketMQ."""
    with patch.object(twinlog.store.util.sync, "_PASSING", frozenset()):
        yield


@planted("who is a moment late is gone")
def late_is_gone() -> Iterator[None]:
    """A slave that reports nothing for 50 ms is given up, as if it had died."""
    read = HAConnection._read_task

    async def impatient(self: HAConnection) -> None:
        async def watch() -> None:
            while trio.current_time() < self._last_read + LATE_S or self.ack_offset == self.transport.sent_offset:
                await trio.sleep(LATE_S / 5)
            raise HAConnectionLostError("a slave is silent")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await read(self)
            nursery.cancel_scope.cancel()

    with patch.object(HAConnection, "_read_task", impatient):
        yield
