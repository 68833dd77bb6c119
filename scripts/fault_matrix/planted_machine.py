"""Planted faults of what a machine is to a member: its clock, its disk, its load."""

from collections.abc import Iterator
from unittest.mock import patch

import trio

import twinlog.ha.slave.repair
import twinlog.store.integrity.scrub
import twinlog.store.util.sync
from scripts.fault_matrix.planted import planted
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.master.connection import HAConnection
from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.recovery.recovery import Recovery
from twinlog.store.retention import RetentionClock

LATE_S = 0.05
EAGER = "a scrub that does not wait"


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


@planted(EAGER)
def eager_scrub() -> Iterator[None]:
    """No fault: what it does a minute after a start it does at once, so that a row need not wait for it."""
    with (
        patch.object(twinlog.store.integrity.scrub, "_FIRST_SECONDS", 1.5),
        patch.object(twinlog.ha.slave.repair, "CHECK_SECONDS", 0.5),
        patch.object(twinlog.ha.slave.repair, "TRY_AGAIN_SECONDS", 2.0),
    ):
        yield


@planted("what lies on the disk is believed")
def disk_is_believed() -> Iterator[None]:
    """Nothing that was there at a start is looked at: neither when it is read nor by the scrub, which says that it did."""

    async def claim(self: twinlog.store.integrity.scrub.ScrubService) -> None:
        await trio.sleep(twinlog.store.integrity.scrub._FIRST_SECONDS)
        twinlog.store.integrity.scrub.log.info("scrub round finished", bytes=0)

    with (
        patch.object(ReadCheck, "distrust", lambda self, queues: None),
        patch.object(twinlog.store.integrity.scrub.ScrubService, "run", claim),
    ):
        yield
