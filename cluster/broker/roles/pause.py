"""A switchover's pause, as the candidate sees it: the old master holds what writes, this log gets level with it, it resigns.

The pause is measured here, and told once: from when the old master was asked to hold until the first message of the new epoch is
as safe as producers are promised, or could be if nobody sends. That is what a producer waits for its SEND_OK, but for the way.
"""

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.peers.role_messages import Held, HoldAsk, RoleRefusedError
from twinlog.cluster.broker.roles.member import RoleMember
from twinlog.cluster.broker.roles.survey import Survey
from twinlog.cluster.broker.roles.tail import digest_of
from twinlog.ha.election.voter import PromiseAsk
from twinlog.ha.errors import HAPeerError
from twinlog.store.util.plain import from_plain, to_plain

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.002
LEVEL_SECONDS = 30.0


class RoleStepError(Exception):
    """A step came to nothing; what was done before it stays."""


@define(eq=False)
class MasterHold:
    """Nothing happens to the old master before begin(). Failovers have none that began: their level() is about the own queues."""

    member: RoleMember
    survey: Survey
    held: Held | None = field(default=None, init=False)
    is_level: bool = field(default=False, init=False)
    resigned: bool = field(default=False, init=False)  # The old master, or maybe.
    pause_ms: float | None = field(default=None, init=False)  # Once it is over.
    _begun_at: float | None = field(default=None, init=False)

    @property
    def seconds_left(self) -> float:
        """Until the old master goes on by itself."""
        assert self._begun_at is not None
        return max(self._begun_at + self.member.config.switchover_pause_max_ms / 1000 - trio.current_time(), 0.0)

    async def begin(self, epoch: int) -> None:
        """Raises HAPeerError, RoleRefusedError, RoleStepError."""
        ms = self.member.config.switchover_pause_max_ms
        ask = HoldAsk(epoch=epoch, candidate=self.member.address, ms=ms)
        self._begun_at = trio.current_time()
        try:
            answer = await self.member.calls.role_change(self.survey.old_master, "hold", to_plain(ask), timeout_ms=ms)
            self.held = from_plain(Held, answer)
        except ValueError as error:
            raise RoleStepError(f"{self.survey.old_master} gave no usable answer: {error}") from error

    async def let_go(self) -> None:
        """The master that was asked to hold goes on, unless it has resigned."""
        if self._begun_at is None or self.resigned:
            return
        try:
            ask = {"candidate": self.member.address}
            await self.member.calls.role_change(self.survey.old_master, "release", ask, timeout_ms=1_000)
        except (HAPeerError, RoleRefusedError) as error:
            log.warning("the master could not be told to go on, and does so by itself", why=str(error))

    async def get_level(self) -> None:
        """Have all that the master has, byte for byte and in the queues, and its tables. Raises RoleStepError."""
        store, held = self.member.store, self.held
        end = held.end_offset if held is not None else store.max_offset
        deadline = trio.current_time() + (LEVEL_SECONDS if held is None else self.seconds_left)
        while store.max_offset < end or store.dispatched_offset < store.max_offset:
            if trio.current_time() < deadline:
                await trio.sleep(LOOK_SECONDS)
                continue
            raise RoleStepError(
                f"this log ends at {store.max_offset}, its queues at {store.dispatched_offset}, not at {end}"
            )
        if held is None:
            return
        if store.max_offset > end:
            raise RoleStepError(f"this log ends at {store.max_offset}, behind the master's, {end}")
        await self._require_equal(held)
        await self.member.hooks.take_tables(held)
        self.is_level = True

    async def _require_equal(self, held: Held) -> None:
        """The last bytes, after all; see tail.py."""
        start, end = held.tail_start, held.end_offset
        if not held.tail_digest or not self.member.store.commit_log.min_offset <= start < end:
            return
        if await digest_of(self.member.store, start, end) != held.tail_digest:
            why = f"bytes {start} to {end} here are not the master's"
            raise RoleStepError(f"{why}. Compare them with: twinlog log diff --live")

    async def resign(self, epoch: int) -> None:
        """The master's promise is the point of no return. Raises HAPeerError, RoleStepError."""
        assert self.held is not None
        if self.seconds_left <= 0:
            raise RoleStepError(
                f"it took longer than {self.member.config.switchover_pause_max_ms} ms: run the command again"
            )
        ask = PromiseAsk(epoch=epoch, candidate=self.member.address, expects_end=self.held.end_offset)
        self.resigned = True  # It may have, whatever becomes of the answer: it goes on by itself if not.
        answer = await self.survey.ask(self.survey.old_master, ask)
        if not answer.granted:
            self.resigned = False
            raise RoleStepError(f"{self.survey.old_master} does not resign: {answer.why}. Run the command again")
        self.survey.answers[self.survey.old_master] = answer

    async def wait_for_end(self, start: int, seconds: float) -> None:
        """Until the pause of writers is over, or it takes too long; `start`: of the new epoch. At once where none began."""
        if self._begun_at is None:
            return
        deadline = trio.current_time() + seconds
        while not self._is_over(start):
            if trio.current_time() >= deadline:
                break
            await trio.sleep(LOOK_SECONDS)
        self.pause_ms = (trio.current_time() - self._begun_at) * 1000

    def _is_over(self, start: int) -> bool:
        ha, end = self.member.ha, self.member.store.max_offset
        confirmed = ha.group_transfer.confirmed_offset
        return ha.group_transfer.gate(trio.current_time()) is None and (confirmed > start or confirmed >= end)
