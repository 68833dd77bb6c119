"""Candidate side of a role change: the candidate survey, the old master's write pause, and becoming master.

The survey finds out who belongs to the group, who was master, and what all hold; before and while votes are collected.

The write pause is measured here and reported once: from when the old master was asked to pause until the first message of the new
epoch is as safe as producers are promised, or could be if nobody sends. A producer waits that long for its SEND_OK, plus the way.
"""

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import ChangeRequest, PausedMaster, RoleRefusedError, WritePauseRequest
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.cluster.broker.roles.write_pause import digest_of
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.group_record import with_ids_swapped, won_at
from twinlog.ha.election.role_change import next_epoch
from twinlog.ha.election.voter import VoteReply, VoteRequest
from twinlog.ha.election.votes import Judgement, SwitchoverFacts, group_of, judge_failover, judge_switchover
from twinlog.ha.errors import HAPeerError
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.role_file import GroupRecord
from twinlog.store.util.plain import from_plain, to_plain

log = structlog.get_logger(__name__)

LAG_MAX = 16 << 20  # Bytes: a switchover's write pause is over before clients notice.
POLL_SECONDS = 0.002
CATCH_UP_SECONDS = 30.0


@define(eq=False)
class CandidateSurvey:
    """`answers` are to a dry run at first, then to what promises were asked for."""

    member: Member
    voter: Voter
    group: GroupRecord | None = field(default=None, init=False)
    answers: dict[str, VoteReply] = field(factory=dict, init=False)
    heard: set[str] = field(factory=set, init=False)  # Who gave an answer, ever.
    silent: frozenset[str] = field(default=frozenset(), init=False)  # Who was asked and gave none.
    old_master: str = field(default="", init=False)  # "": nobody knows.

    async def run(self) -> int:
        """Ask all; nothing is changed. Returns the number of the epoch to ask for."""
        member = self.member
        self.group = member.group
        epoch = member.promised().epoch + 1
        for _ in range(2):  # The second time with a number that nobody has promised, and with all that the first named.
            ask = VoteRequest(epoch=epoch, candidate=member.address, dry_run=True)
            self.answers = await self.ask_all(ask, but=self.silent)
            epoch = next_epoch(member.state_or_first(), member.durable.entries, self.answers, member.address)
        self.old_master = self._find_master()
        return epoch

    async def ask_all(self, ask: VoteRequest, *, but: frozenset[str] = frozenset()) -> dict[str, VoteReply]:
        """Ask every voter, all at once; who gives no answer is left out."""
        answers: dict[str, VoteReply] = {}

        async def put(address: str) -> None:
            try:
                answers[address] = await self.ask(address, ask)
                self.heard.add(address)
            except HAPeerError as error:
                log.info("a member gives no answer", peer=address, why=str(error))

        voters = self.group.voters if self.group is not None else frozenset()
        asked = (voters | {self.member.address}) - but
        async with trio.open_nursery() as nursery:
            for address in asked:
                nursery.start_soon(put, address)
        self.silent = (self.silent | asked) - self.heard
        self.group = group_of(self.group, answers)
        return answers

    async def ask(self, address: str, ask: VoteRequest) -> VoteReply:
        """Ask one. Raises HAPeerError, RoleFileError."""
        if address == self.member.address:
            return await self.voter.vote(ask)
        return await self.member.calls.promise(address, ask)

    def _find_master(self) -> str:
        """Who is, or was, master: by the newest epoch, of all that was said."""
        living = [answer for answer in self.answers.values() if answer.is_master]
        if living:
            return max(living, key=lambda answer: answer.entries[-1].id).address
        if self.member.master is not None:
            return self.member.master.address
        zero = [each.address for each in self.group.members if each.broker_id == 0] if self.group is not None else []
        return zero[0] if zero else ""

    @property
    def has_resigned(self) -> bool:
        """Whether the old master gave its word to somebody who has not taken it."""
        answer = self.answers.get(self.old_master)
        return answer is not None and not answer.is_master and answer.promised.epoch > answer.entries[-1].epoch

    async def judge(self, asked: ChangeRequest) -> Judgement:
        """Whether this member may become master, as far as anybody can tell before promises are given."""
        member = self.member
        if asked.verb == "switchover":
            return judge_switchover(self.group, member.address, self.answers, self._facts())
        if not member.is_serving and self.old_master != member.address and await self._is_serving(self.old_master):
            fix = f"twinlog switchover --candidate {member.address}"
            return Judgement(member.address, False, "the master is gone", "no master", f"{self.old_master} serves", fix)
        return judge_failover(self.group, member.address, self.answers, asked.accept_data_loss)

    async def _is_serving(self, address: str) -> bool:
        if address not in self.answers:
            return False
        try:
            found = await self.member.calls.history(address)
        except HAPeerError:
            return False
        return found is not None and found.role is not BrokerRole.SLAVE

    def _facts(self) -> SwitchoverFacts:
        member, master = self.member, self.answers.get(self.old_master)
        client, known = member.ha.client, member.master
        finding = client.finding
        return SwitchoverFacts(
            master=self.old_master,
            master_answers=master is not None,
            following=known is not None
            and known.address == self.old_master
            and client.state == "streaming"
            and client.master_address == known.ha_address,
            lag_bytes=max(master.max_offset - member.store.max_offset, 0) if master is not None else 0,
            lag_max=LAG_MAX,
            differs_at=finding.offset if finding is not None and finding.kind == "damaged" else None,
            no_room=member.store.flags.why_not_appendable or "",
        )


def refusal_line(judged: Judgement) -> str:
    """Why somebody may not be chosen, for people."""
    fix = f"; fix: {judged.fix}" if judged.fix else ""
    return f"{judged.candidate}: may not be chosen: {judged.rule}; needed {judged.needed}; actual {judged.actual}{fix}"


class RoleStepError(Exception):
    """A step came to nothing; what was done before it stays."""


@define(eq=False)
class SwitchoverPause:
    """Nothing happens to the old master before begin(). Failovers have none that began: their level() is about the own queues."""

    member: Member
    survey: CandidateSurvey
    held: PausedMaster | None = field(default=None, init=False)
    has_caught_up: bool = field(default=False, init=False)
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
        ask = WritePauseRequest(epoch=epoch, candidate=self.member.address, ms=ms)
        self._begun_at = trio.current_time()
        try:
            answer = await self.member.calls.role_change(self.survey.old_master, "hold", to_plain(ask), timeout_ms=ms)
            self.held = from_plain(PausedMaster, answer)
        except ValueError as error:
            raise RoleStepError(f"{self.survey.old_master} gave no usable answer: {error}") from error

    async def release(self) -> None:
        """The master that was asked to hold goes on, unless it has resigned."""
        if self._begun_at is None or self.resigned:
            return
        try:
            ask = {"candidate": self.member.address}
            await self.member.calls.role_change(self.survey.old_master, "release", ask, timeout_ms=1_000)
        except (HAPeerError, RoleRefusedError) as error:
            log.warning("the master could not be told to go on, and does so by itself", why=str(error))

    async def catch_up(self) -> None:
        """Have all that the master has, byte for byte and in the queues, and its tables. Raises RoleStepError."""
        store, held = self.member.store, self.held
        end = held.end_offset if held is not None else store.max_offset
        deadline = trio.current_time() + (CATCH_UP_SECONDS if held is None else self.seconds_left)
        while store.max_offset < end or store.dispatched_offset < store.max_offset:
            if trio.current_time() < deadline:
                await trio.sleep(POLL_SECONDS)
                continue
            raise RoleStepError(
                f"this log ends at {store.max_offset}, its queues at {store.dispatched_offset}, not at {end}"
            )
        if held is None:
            return
        if store.max_offset > end:
            raise RoleStepError(f"this log ends at {store.max_offset}, behind the master's, {end}")
        await self._require_equal(held)
        await self.member.effects.take_tables(held)
        self.has_caught_up = True

    async def _require_equal(self, held: PausedMaster) -> None:
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
        assert self.has_caught_up, "asks the master to resign before it has caught up"
        if self.seconds_left <= 0:
            raise RoleStepError(
                f"it took longer than {self.member.config.switchover_pause_max_ms} ms: run the command again"
            )
        ask = VoteRequest(epoch=epoch, candidate=self.member.address, expects_end=self.held.end_offset)
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
            await trio.sleep(POLL_SECONDS)
        self.pause_ms = (trio.current_time() - self._begun_at) * 1000

    def _is_over(self, start: int) -> bool:
        ha, end = self.member.ha, self.member.store.max_offset
        confirmed = ha.group_transfer.confirmed_offset
        return ha.group_transfer.gate(trio.current_time()) is None and (confirmed > start or confirmed >= end)


async def become_master(member: Member, survey: CandidateSurvey, entry: EpochEntry) -> None:
    """Holding `lock`, and with the promise of this very epoch. Again, after a crash in between, too. Raises RoleFileError."""
    state = member.state_or_first()
    assert state.promised == entry.id
    if member.durable.last.id != entry.id:
        await member.durable.save_entries(with_entry(member.durable.entries, entry))
    assert member.durable.last.start_offset <= member.store.max_offset, "an epoch begins behind the log's end"
    group = group_of(state.group, survey.answers)
    assert group is not None
    member.durable.lacks_tail = False  # What it writes from now on nobody else has written.
    record = won_at(with_ids_swapped(group, member.address, entry.epoch), member.durable.last.start_offset)
    await member.durable.save(
        evolve(state, role=group.master_role, broker_id=0, group=record, before=group, whole=True)
    )
    member.store.accept_end()


def entry_of(
    member: Member, ask: ChangeRequest, epoch: int, old_master: str, judgement: Judgement | None
) -> EpochEntry:
    """What begins where the log ends now; a loss that somebody accepted is named in it."""
    forced = judgement is not None and judgement.forced
    lost = judgement.lost if judgement is not None and forced else None
    lost_bytes: int | None = 0
    if lost is not None:
        lost_bytes = lost.end - lost.first if lost.end is not None else None
    return EpochEntry(
        epoch=epoch,
        winner=member.address,
        start_offset=member.store.max_offset,
        at_ms=member.now_ms(),
        kind="forced" if forced else ask.verb,
        reason=ask.reason,
        old=old_master,
        lost_bytes=lost_bytes,
    )
