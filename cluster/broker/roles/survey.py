"""What a candidate finds out before, and while, it collects promises: who belongs to the group, who was master, what all hold."""

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.peers.role_messages import ChangeAsk
from twinlog.cluster.broker.roles.member import RoleMember
from twinlog.ha.election.role_change import next_epoch
from twinlog.ha.election.voter import PromiseAnswer, PromiseAsk
from twinlog.ha.election.votes import Judgement, SwitchoverFacts, group_of, judge_failover, judge_switchover
from twinlog.ha.errors import HAPeerError
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupRecord

log = structlog.get_logger(__name__)

LAG_MAX = 16 << 20  # Bytes: a switchover's hold is over before clients notice.


@define(eq=False)
class Survey:
    """`answers` are to a dry run at first, then to what promises were asked for."""

    member: RoleMember
    group: GroupRecord | None = field(default=None, init=False)
    answers: dict[str, PromiseAnswer] = field(factory=dict, init=False)
    heard: set[str] = field(factory=set, init=False)  # Who gave an answer, ever.
    silent: frozenset[str] = field(default=frozenset(), init=False)  # Who was asked and gave none.
    old_master: str = field(default="", init=False)  # "": nobody knows.

    async def look(self) -> int:
        """Ask all; nothing is changed. Returns the number of the epoch to ask for."""
        member = self.member
        self.group = member.group
        epoch = member.promised().epoch + 1
        for _ in range(2):  # The second time with a number that nobody has promised, and with all that the first named.
            ask = PromiseAsk(epoch=epoch, candidate=member.address, dry_run=True)
            self.answers = await self.ask_all(ask, but=self.silent)
            epoch = next_epoch(member.state_or_first(), member.book.entries, self.answers, member.address)
        self.old_master = self._find_master()
        return epoch

    async def ask_all(self, ask: PromiseAsk, *, but: frozenset[str] = frozenset()) -> dict[str, PromiseAnswer]:
        """Ask every voter, all at once; who gives no answer is left out."""
        answers: dict[str, PromiseAnswer] = {}

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

    async def ask(self, address: str, ask: PromiseAsk) -> PromiseAnswer:
        """Ask one. Raises HAPeerError, RoleFileError."""
        if address == self.member.address:
            return await self.member.promise(ask)
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

    async def judge(self, asked: ChangeAsk) -> Judgement:
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
