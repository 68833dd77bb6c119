"""Locks of queues, given by a master so that the next one knows them: the order of messages holds across a change of the master.

the client's own   renewed at once, if enough members know that it holds the queue
new holder         told once enough members know, by the next round of leases, which begins at once
without a lease    in a group that elects by itself nothing is given: another member may be master by now. Elsewhere a person
                   has to choose another master, and locks are given as RocketMQ gives them
new master         goes on from the newest table of those who elected it. If a lock might be missing there, nothing is given until
                   no client believes in it any more
restarted          takes the newest table that voters answer with; without one it begins anew, as RocketMQ does
"""

from collections.abc import Callable, Mapping

import structlog
import trio
from attrs import define, field, frozen

from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.tables.queue_locks import ANSWER_SECONDS_MAX, BELIEF_SECONDS, RebalanceLockManager
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.ha.election.election import AUTOMATIC, mode_of
from twinlog.ha.election.group_record import needed
from twinlog.ha.election.queue_locks import last_table
from twinlog.ha.election.voter import VoteReply
from twinlog.store.epoch_file import EpochId
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

CONFIRM_SECONDS_MAX = 0.5  # Clients wait for a second.

Tell = Callable[[list[MessageQueue]], None]


@frozen(eq=False)
class _Waiting:
    """A request for locks that too few members know yet."""

    group: str
    granted: Mapping[MessageQueue, int]
    epoch: EpochId
    deadline: float
    tell: Tell


@define(eq=False)
class QueueLocks:
    """Gives the locks of `member`, which `leases` tell other members."""

    member: Member
    leases: LeaseRounds
    _waiting: list[_Waiting] = field(factory=list, init=False)
    _asked: Wakeup = field(factory=Wakeup, init=False)

    @property
    def table(self) -> RebalanceLockManager:
        """The locks that were given, or a slave's copy of them."""
        return self.member.locks

    async def run(self) -> None:
        """Answer those that wait, until cancelled."""
        while True:
            if not self._waiting:
                await self._asked.wait()
            with trio.move_on_at(min((each.deadline for each in self._waiting), default=0)):
                await self.leases.locks_heard.wait()
            self._answer()

    def lock(self, group: str, client_id: str, queues: list[MessageQueue], tell: Tell) -> list[MessageQueue] | None:
        """Lock queues for a client. Returns those that are its now; None: they are told soon. Raises RequestError."""
        why = self._why_not()
        if why:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, f"queues are not locked here now: {why}")
        granted = self.table.lock(group, client_id, queues)
        if not self._waits_for_others or max(granted.values(), default=0) <= self.leases.locks_confirmed():
            return list(granted)
        deadline = trio.current_time() + CONFIRM_SECONDS_MAX
        self._waiting.append(_Waiting(group, granted, self.table.epoch, deadline, tell))
        self._asked.set()
        self.leases.ask_soon()
        return None

    def unlock(self, group: str, client_id: str, queues: list[MessageQueue]) -> None:
        """Release locks of a client; other members hear it soon."""
        self.table.unlock(group, client_id, queues)
        self.leases.ask_soon()

    def _why_not(self) -> str:
        if self.member.store.config.is_slave:
            return f"{self.member.address} is a slave"
        if self.is_strict and not self._has_lease:
            return "it has no lease, so another member may be master"
        return self.table.why_closed

    @property
    def is_strict(self) -> bool:
        """True in a group that elects by itself: only what other members know is told."""
        return mode_of(self.member.group) in AUTOMATIC and self.leases.need > 1

    @property
    def _has_lease(self) -> bool:
        return self.member.ha.lease.held(trio.current_time())

    @property
    def _waits_for_others(self) -> bool:
        return self.is_strict or (self.leases.leads and self._has_lease)

    def _answer(self) -> None:
        """Tell those that enough members know of, or whose time is up."""
        now, confirmed, left = trio.current_time(), self.leases.locks_confirmed(), list[_Waiting]()
        for each in self._waiting:
            is_master = self.member.is_serving and self.table.epoch == each.epoch
            in_time = max(each.granted.values()) > confirmed and now < each.deadline
            if is_master and in_time:
                left.append(each)
                continue
            up_to = confirmed if self.is_strict else self.table.version
            each.tell(self.table.still(each.group, each.granted, up_to) if is_master else [])
        self._waiting = left


def hand_on(member: Member, answers: Mapping[str, VoteReply]) -> None:
    """Go on with the locks of the last master, as the new one: `answers` are the votes that elected this member."""
    locks, record = member.locks, member.group
    assert record is not None
    told = [answer.locks for answer in answers.values() if answer.granted and answer.locks is not None]
    masters = [
        answer.locks
        for answer in answers.values()
        if answer.granted
        and answer.locks is not None
        and answer.is_master
        and answer.locks.epoch == answer.entries[-1].id
    ]
    before = member.state_or_first().before
    votes = max(needed(each) for each in (record, before or record))
    table, is_whole = last_table(masters[0] if masters else None, told, votes)
    closed = 0.0 if is_whole else BELIEF_SECONDS + ANSWER_SECONDS_MAX + member.config.lease_ms / 1000
    locks.take_over(member.id, table, closed)
    if closed:
        log.warning(
            "queues are locked for no consumer for a while: locks of the last master may be unknown", seconds=closed
        )
