"""What a store does when the disk refuses bytes: it stops for good where something may be lost, else it asks again.

A write that was refused whole, for want of room, say, passes: producers are refused with the reason, reads go on, and the disk is
asked again until it takes what it refused. RocketMQ's broker stops taking messages until a restart.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio
from attrs import define, field

from twinlog.store.errors import LogFileError
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import Condition, RunningFlags
from twinlog.store.util.sync import is_no_space, is_passing
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

_TRY_AGAIN_SECONDS = 1.0


@define(eq=False, kw_only=True)
class DiskRefusal:
    """Holds the conditions of the disk in `flags`.

    `ask_again(lacks_file)` writes what was refused and says whether that was all; it raises OSError when the disk refuses again.
    `make_room` is told when there was no space.
    """

    flags: RunningFlags
    ask_again: Callable[[bool], Awaitable[bool]]
    make_room: Callable[[], None]
    _lacks_file: bool = field(default=False, init=False)  # The disk refused the log's next file.
    _refused: Wakeup = field(factory=Wakeup, init=False)

    def fail(self, reason: str) -> None:
        """Take no more bytes: the disk refused some, and what it holds now is not known."""
        if self.flags.set(Condition.FAILED, reason):
            log.error("the store takes no more messages; restart the broker once the disk is well", reason=reason)

    def refused(self, what: str, error: OSError) -> PutStatus:
        """Take no bytes for now, or no more at all where something may be lost; what a producer is told."""
        reason = f"{what} failed: {error}"
        lacks_file = isinstance(error, LogFileError)
        if not is_passing(error):
            self.fail(reason)
        elif self.flags.set(Condition.DISK_REFUSES, reason):
            log.error("the store takes no messages until the disk takes bytes again", reason=reason)
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
            while Condition.DISK_REFUSES in self.flags and Condition.FAILED not in self.flags:
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
            if self.flags.clear(Condition.DISK_REFUSES) and not self.flags.why_not_appendable:
                log.info("the disk takes bytes again, and so does the store")
