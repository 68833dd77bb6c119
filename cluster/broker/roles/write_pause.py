"""Write pause of a master during a switchover: nothing is written until it has resigned for the candidate, or the pause ends.

Also the digest by which master and candidate compare the last bytes of their logs; it is piggybacked on the pause reply. What
lies before these was compared by digests when the candidate began to follow, and verified record by record as it came.
"""

import structlog
import trio
from attrs import define, evolve, field, frozen

from twinlog.cluster.broker.peers.role_messages import PausedMaster, RoleRefusedError, WritePauseRequest
from twinlog.cluster.broker.roles.member import Member
from twinlog.store.integrity.digest import digest
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

TAIL_MAX = 4 << 20  # Bytes: some milliseconds to read and digest, while producers wait.


async def digest_of(store: MessageStore, start: int, end: int) -> str:
    """Digest in hex of the bytes that the log has of this range. Raises OSError."""
    with LogRange.open(store.commit_log, start, end) as bytes_:
        return (await trio.to_thread.run_sync(lambda: digest(bytes_.read(start, end - start)))).hex()


@frozen
class _Granted:
    """A pause that was granted to `candidate`, until `deadline` in trio's time; the log ended at `end_offset`."""

    candidate: str
    deadline: float
    end_offset: int


@define(eq=False)
class WritePause:
    """Grants one candidate at a time a pause. It is over as soon as the member's phase is another one."""

    member: Member
    _last: _Granted | None = field(default=None, init=False)
    _begun: Wakeup = field(factory=Wakeup, init=False)

    @property
    def _granted(self) -> _Granted | None:
        return self._last if self.member.phase == "holding" else None

    @property
    def end_offset(self) -> int | None:
        """End of the log of a master that may resign now; None: it writes, or its log has grown."""
        granted, end = self._granted, self.member.store.max_offset
        is_in_force = granted is not None and trio.current_time() < granted.deadline and granted.end_offset == end
        return end if is_in_force else None

    async def run(self) -> None:
        """End pauses at their deadlines, until cancelled."""
        while True:
            with trio.move_on_at(await self._end_in_time()):
                await self._begun.wait()

    async def begin(self, ask: WritePauseRequest) -> PausedMaster:
        """Stop writes until the candidate asks to resign, or releases, or the time is over. Raises RoleRefusedError."""
        member = self.member
        async with member.lock:
            if member.phase != "serving" or not member.is_serving:
                raise RoleRefusedError(
                    f"{member.address} is no master that serves: {member.phase} {member.why}".strip()
                )
            if member.group is None or ask.candidate not in member.group.voters:
                raise RoleRefusedError(f"{member.address_of(ask.candidate)} is no member of this group that votes")
            if paused := member.paused():
                raise RoleRefusedError(paused)
            self._last = None
            deadline = trio.current_time() + min(ask.ms, member.config.switchover_pause_max_ms) / 1000
            member.become(
                "holding", f"writes wait for {member.address_of(ask.candidate)} to become master of epoch {ask.epoch}"
            )
            try:
                held = await member.effects.hold(deadline)
                start = max(member.store.commit_log.min_offset, held.end_offset - TAIL_MAX)
                tail = await digest_of(member.store, start, held.end_offset)
            except BaseException as error:
                self._end()
                if isinstance(error, TimeoutError):
                    raise RoleRefusedError(f"{member.address} could not hold in time: {error}") from error
                raise
            self._last = _Granted(ask.candidate, deadline, held.end_offset)
            self._begun.set()
            return evolve(held, tail_start=start, tail_digest=tail)

    async def release(self, candidate: str) -> None:
        """Resume writes, unless this member has resigned, or pauses for another candidate."""
        async with self.member.lock:
            if self._granted is not None and self._granted.candidate == candidate:
                self._end()

    async def _end_in_time(self) -> float:
        """Resume writes if the time is over. Returns when to call again, in trio's time."""
        async with self.member.lock:
            granted = self._granted
            if granted is None:
                return float("inf")
            if trio.current_time() >= granted.deadline:
                candidate = self.member.address_of(granted.candidate)
                log.warning("switchover not finished in time: writes resume here", candidate=candidate)
                self._end()
                return float("inf")
            return granted.deadline

    def _end(self) -> None:
        self._last = None
        self.member.effects.release()
        self.member.become("serving")
