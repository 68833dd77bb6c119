"""Conditions under which a store takes no bytes, and recovery from refused writes.

Each condition has a reason for people, and it is known whether it passes by itself. RocketMQ keeps bits (RunningFlags, 4.9.8:
not writeable, logics queue error, index error, disk full). Being a slave is none of these conditions: a slave's log takes its
master's bytes.

A write that the disk refused as a whole, for lack of space for example, is retried: producers are refused with the reason,
reads go on. RocketMQ's broker stops taking messages until a restart. Where bytes may be lost, the store fails for good."""

from collections.abc import Awaitable, Callable
from enum import Enum

import structlog
import trio
from attrs import define, field

from twinlog.store.errors import LogFileError
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.util.sync import is_no_space, is_passing
from twinlog.store.util.wakeup import Wakeup


class StoreCondition(Enum):
    """Conditions, worst first."""

    FAILED = "failed"  # The disk lost bytes, or may have: only a restart, which checks everything, ends this.
    CLOSED = "closed"
    NOT_OPEN = "not open"
    DISK_REFUSES = (
        "disk refuses"  # A write was refused whole: no space, quota, read-only. Tried again until it is taken.
    )
    CUTTING = "cutting"  # A slave's log is being cut or emptied.
    DISK_FULL = "disk full"  # Above diskSpaceWarningLevelRatio: producers are refused, replication goes on.


_WORST_FIRST = tuple(StoreCondition)
_PASSING = (StoreCondition.DISK_REFUSES, StoreCondition.CUTTING, StoreCondition.DISK_FULL)


@define(eq=False)
class RunningFlags:
    """The present conditions. `why_not_writable` and `why_not_appendable` are kept up to date, because every put reads them."""

    why_not_writable: str = field(default="", init=False)  # For producers; empty: they may write.
    why_not_appendable: str = field(default="", init=False)  # For replication, which a full disk does not stop.
    _reasons: dict[StoreCondition, str] = field(factory=dict, init=False)

    def set(self, condition: StoreCondition, reason: str) -> bool:
        """Set a condition; False when it was set before. FAILED and DISK_REFUSES keep their first reason."""
        held = condition in self._reasons
        if not held or condition is StoreCondition.DISK_FULL:
            self._reasons[condition] = reason
            self._say()
        return not held

    def clear(self, condition: StoreCondition) -> bool:
        """End a condition; True if it was set. FAILED never ends."""
        assert condition is not StoreCondition.FAILED
        held = self._reasons.pop(condition, None) is not None
        self._say()
        return held

    def __contains__(self, condition: StoreCondition) -> bool:
        return condition in self._reasons

    @property
    def is_passing(self) -> bool:
        """True when all present conditions end by themselves."""
        return all(condition in _PASSING for condition in self._reasons)

    def _say(self) -> None:
        texts = [(condition, self._reasons[condition]) for condition in _WORST_FIRST if condition in self._reasons]
        self.why_not_writable = texts[0][1] if texts else ""
        self.why_not_appendable = next(
            (text for condition, text in texts if condition is not StoreCondition.DISK_FULL), ""
        )


log = structlog.get_logger()

_TRY_AGAIN_SECONDS = 1.0


@define(eq=False, kw_only=True)
class DiskRefusal:
    """Sets the conditions of the disk in `flags`.

    `ask_again(lacks_file)` writes again what was refused; True when all is written. Raises OSError when the disk refuses again.
    `make_room` is called when there was no space.
    """

    flags: RunningFlags
    ask_again: Callable[[bool], Awaitable[bool]]
    make_room: Callable[[], None] = field(init=False)
    _lacks_file: bool = field(default=False, init=False)  # The disk refused the log's next file.
    _refused: Wakeup = field(factory=Wakeup, init=False)

    def fail(self, reason: str) -> None:
        """Take no more bytes: the disk refused some, and its present content is unknown."""
        if self.flags.set(StoreCondition.FAILED, reason):
            log.error(
                "the store failed and takes no more messages; repair the disk and restart the broker", reason=reason
            )

    def refused(self, what: str, error: OSError) -> PutStatus:
        """Take no bytes for now, or never again where bytes may be lost. Returns the status for producers."""
        reason = f"{what} failed: {error}"
        lacks_file = isinstance(error, LogFileError)
        if not is_passing(error):
            self.fail(reason)
        elif self.flags.set(StoreCondition.DISK_REFUSES, reason):
            log.error("the disk refuses writes; messages are refused until a retry succeeds", reason=reason)
            self._lacks_file = lacks_file
            self._refused.set()
        if is_no_space(error):
            self.make_room()
        stays = lacks_file or not is_passing(error)
        return PutStatus.CREATE_MAPPED_FILE_FAILED if stays else PutStatus.SERVICE_NOT_AVAILABLE

    async def run(self) -> None:
        """While the disk refuses, ask it again and again; producers go on once it takes all that it refused."""
        while True:
            await self._refused.wait()
            while StoreCondition.DISK_REFUSES in self.flags and StoreCondition.FAILED not in self.flags:
                await trio.sleep(_TRY_AGAIN_SECONDS)
                await self._try_again()

    async def _try_again(self) -> None:
        try:
            is_all = await self.ask_again(self._lacks_file)
        except OSError as error:
            self.refused("writing the commit log", error)
            return
        if is_all:
            self._lacks_file = False
            if self.flags.clear(StoreCondition.DISK_REFUSES) and not self.flags.why_not_appendable:
                log.info("the disk takes writes again; messages are accepted")
