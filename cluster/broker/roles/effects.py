"""Effects of a role change on the parts of a running broker.

    master    the gate is open, delayed messages are delivered, transactions checked; registered as id 0
    holding   master in a write pause: its gate holds requests back, its own tasks have ended; ends by its deadline
    fenced    accepts nothing, confirms nothing, follows no master, is not registered as id 0, until it gets a role
    slave     copies its master's tables and follows its log; registered under its own id. If it was master before, requests
              that still arrive are forwarded for a while

A member that was master when it stopped starts fenced: another one may have been elected meanwhile.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.group_view import GroupView
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.group.registration import Master, RegistrationService
from twinlog.cluster.broker.group.slave_sync import SlaveSynchronize, ask_object
from twinlog.cluster.broker.peers.role_messages import PausedMaster
from twinlog.cluster.broker.peers.slave_peers import SlaveKinds
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.tables.offsets import read_offsets
from twinlog.cluster.broker.tables.tables import GROUPS, TOPICS, BrokerTables
from twinlog.cluster.broker.transactions.service import TransactionCheckService
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.headers.broker_admin import GetAllConsumerOffset
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import RoleState

log = structlog.get_logger(__name__)

FORWARD_SECONDS = 60.0  # Clients ask a name server for routes each 30 s.
POLL_SECONDS = 0.001
STREAM_SECONDS_MAX = 0.3  # How long requests wait for the stream to the new master.
PULL_OFFSETS_MS = 1_000
STARTS = "this member starts, and does not know yet whether it is still the master"
Phase = Literal["master", "holding", "fenced", "slave"]
Role = Literal["master", "slave"]
Task = Callable[[], Awaitable[None]]


@define(eq=False)
class RoleTasks:
    """The tasks of each role; those of one role run, or none. `run` supervises them."""

    tasks: dict[Role, tuple[Task, ...]]
    role: Role | None = field(default=None, init=False)  # Whose tasks run.
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _ended: trio.Event = field(factory=trio.Event, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise the tasks until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def begin(self, role: Role) -> None:
        """Run the tasks of this role, after those of another one have ended. No effect when they run already."""
        if role != self.role:
            await self.end()
            self.begin_now(role)

    def begin_now(self, role: Role) -> None:
        """The same while none run."""
        assert self._nursery is not None
        assert self.role is None
        self.role, self._scope, self._ended = role, trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._carry, self.tasks[role], self._scope, self._ended)

    async def end(self) -> None:
        """Return once none run any more."""
        if self.role is None:
            return
        self._scope.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
        self.role = None

    @staticmethod
    async def _carry(tasks: tuple[Task, ...], scope: trio.CancelScope, ended: trio.Event) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    for task in tasks:
                        nursery.start_soon(task)
        finally:
            ended.set()


@define(eq=False, kw_only=True, repr=False)
class BrokerRoleEffects:
    """The broker runs `tasks`."""

    store: MessageStore
    tables: BrokerTables
    queues: Queues
    schedule: ScheduleMessageService
    transactions: TransactionCheckService
    ha: HAService
    group: GroupView
    registration: RegistrationService
    slave_sync: SlaveSynchronize
    slave_kinds: SlaveKinds
    lost_tables: LostTables
    gate: Gate
    client: RemotingClient
    tasks: RoleTasks = field(init=False)
    phase: Phase = field(default="slave", init=False)
    _handed_over: Mapping[int, int] = field(factory=dict, init=False)  # The last master's positions, by delay level.

    def __attrs_post_init__(self) -> None:
        self.tasks = RoleTasks(
            {
                "master": (self.schedule.run, self.transactions.run, self.slave_kinds.run),
                "slave": (self.slave_sync.run, self._forward_held),
            }
        )

    async def begin(self, state: RoleState | None) -> None:
        """Take the role of the start. None: the configured one, until there is a state."""
        if state is not None:
            self._follow(Master(None, None))  # The one in broker.conf may be another one by now.
        if state is not None and (state.role is not BrokerRole.SLAVE or state.broker_id == MASTER_ID):
            await self.fence(STARTS)
        elif self.store.config.is_slave:
            if state is not None:
                self.registration.wait_for_group()
            await self.tasks.begin("slave")
        else:
            self.phase = "master"
            self.schedule.correct()
            await self.tasks.begin("master")

    # Each may be repeated for a role that is in effect already.

    async def hold(self, deadline: float) -> PausedMaster:
        """Hold writes back, end the master's own tasks, wait until no producer waits for slaves. After `deadline`, in
        trio's time, writes resume unless the member resigned. Raises TimeoutError.
        """
        self.gate.close_for(deadline)
        self.phase = "holding"
        with trio.move_on_at(deadline):
            await self.tasks.end()
            while True:
                if self._is_settled():
                    return self._held()
                await trio.sleep(POLL_SECONDS)
        raise TimeoutError("slaves did not acknowledge in time")

    def _held(self) -> PausedMaster:
        store = self.store
        return PausedMaster(
            end_offset=store.max_offset,
            min_offset=store.min_offset,
            offsets=self.tables.offsets.to_json(),
            delay_offsets=dict(self.schedule.positions),
            topics=self.lost_tables.marked(TOPICS, self.tables.topics.to_json()),
            groups=self.lost_tables.marked(GROUPS, self.tables.groups.to_json()),
        )

    def _is_settled(self) -> bool:
        """True if all messages are in the log and its queues, as safe as producers are promised, and no producer waits."""
        store = self.store
        store.commit_pending()
        store.dispatch_pending()
        end, pending = store.max_offset, store.commit_log.pending
        return (
            (pending is None or not pending.size)
            and (not store.flusher.is_synchronous or store.flushed_offset >= end)
            and self.group.confirmed_offset() >= end
            and not self.ha.group_transfer.waiting
        )

    def release(self) -> None:
        """Resume writes here; no effect on a member that has resigned. hold() has returned before."""
        if self.phase != "holding":
            return
        self.phase = "master"
        if self.tasks.role is None:
            self.tasks.begin_now("master")
        self.gate.open()

    async def take_tables(self, held: PausedMaster) -> None:
        """Save the tables that the old master handed over."""
        await self.slave_sync.take(held.offsets, held.topics, held.groups)
        self._handed_over = dict(held.delay_offsets)

    async def fence(self, why: str) -> None:
        """Return once nothing is served any more: no writes, no acknowledgement, no registration as id 0. Requests that the gate
        holds stay there: another member is about to become master.
        """
        held, self.phase = self.phase == "holding", "fenced"
        if not held and not self.store.config.is_slave:
            self.gate.shut(why)
        self.ha.fence(why)
        self.group.role_master = Master(None, None)
        self.slave_sync.set_master(None)
        await self.ha.leave_master()
        if self.tasks.role == "master":
            await self.tasks.end()
        if self.registration.settings.config.broker_id == MASTER_ID:
            await self.registration.hold()
        self.store.become_slave()

    def stand_aside(self, why: str) -> None:
        """Serve nobody, at once and without the disk. The master's tasks and its registration go on, until serve_again() takes it
        back, or it gets another role.
        """
        self.gate.shut(why)
        self.ha.fence(why)

    def serve_again(self) -> None:
        """Take stand_aside() back, in the same epoch."""
        self.ha.unfence(synchronous=self.store.config.broker_role is BrokerRole.SYNC_MASTER)
        self.gate.open()

    async def withdraw(self) -> None:
        """Let no client find this member, which its group takes for a copy of another one."""
        await self.registration.withdraw()

    async def serve_as_master(self, state: RoleState) -> None:
        """Accept messages, run a master's tasks, register as id 0."""
        role = state.group.master_role if state.group is not None else state.role
        await self.ha.leave_master()
        await self.store.become_master(role)
        if self.phase != "master":
            await self.tasks.end()
            self._take_over()
            self._watch_topics(wanted=False)
        self.phase, self.group.role_master = "master", None
        await self.tasks.begin("master")
        self.ha.group_transfer.require(self.group.acks_required())
        self.ha.members_changed(self.group.counted_slaves())
        self.ha.unfence(synchronous=role is BrokerRole.SYNC_MASTER)
        self.gate.open()
        self.registration.set_role(MASTER_ID, is_slave=False)

    def _take_over(self) -> None:
        """Continue where the master before stopped, as far as that is known."""
        table = dict(self.schedule.table)
        for level, position in self._handed_over.items():
            table[level] = max(position, table.get(level, 0))
        self.schedule.take_over(table)
        self.schedule.correct()
        self.transactions.begin_anew()
        self.tables.topics.renew_version()
        self._handed_over = {}

    async def serve_as_slave(self, state: RoleState, master: PeerHistory | None) -> None:
        """Accept no messages, follow `master` (None: unknown yet), register under the state's id."""
        if self.tasks.role == "master":
            await self.tasks.end()
        self.store.become_slave()
        self.phase = "slave"
        self._watch_topics(wanted=True)
        await self.tasks.begin("slave")
        self.ha.members_changed(self.group.counted_slaves())
        self.ha.unfence(synchronous=False)
        self._follow(Master(master.address, master.ha_address) if master is not None else Master(None, None))
        if state.broker_id != MASTER_ID:  # Else it was master, and its new id is not known yet.
            self.registration.set_role(state.broker_id, is_slave=True)

    def _watch_topics(self, *, wanted: bool) -> None:
        """Let a slave notice messages of unknown topics, as it does not create topics itself."""
        listeners, listener = self.store.on_arrival, self.slave_sync.on_arrival
        if listener in listeners:
            listeners.remove(listener)
        if wanted:
            listeners.append(listener)

    def _follow(self, master: Master) -> None:
        if master.address is not None and master != self.group.role_master:
            log.info("master changed", peer=master.address, ha_address=master.ha_address)
        self.group.role_master = master
        self.slave_sync.set_master(master.address)
        self.ha.set_master(master.ha_address)
        if master.address is not None and self.gate.state in ("closed", "forwarding"):  # Clients still send here.
            self.gate.forward_to(master.address, FORWARD_SECONDS)

    async def _forward_held(self) -> None:
        """Forward held requests once this log follows the new master: before that nothing can be confirmed."""
        gate, client, known_at = self.gate, self.ha.client, math.inf
        while gate.state == "holding":
            master, now = self.group.role_master, trio.current_time()
            address = master.address if master is not None else None
            known_at = min(known_at, now) if address is not None else math.inf
            if address is not None and (client.state == "streaming" or now >= known_at + STREAM_SECONDS_MAX):
                gate.forward_to(address, FORWARD_SECONDS)
            else:
                await trio.sleep(POLL_SECONDS)

    async def pull_offsets(self, addresses: tuple[str, ...]) -> None:
        """Raise consumer offsets to those of other members; silent ones are left out."""

        async def pull(address: str) -> None:
            try:
                offsets = await ask_object(self.client, address, GetAllConsumerOffset(), timeout_ms=PULL_OFFSETS_MS)
                reported = read_offsets(offsets)
            except (RemotingError, ValueError, TypeError, AttributeError) as error:
                log.warning("taking consumer offsets from a member failed", peer=address, error=str(error))
            else:
                self.tables.offsets.fill(reported, or_raise=True)

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(pull, address)
        self.store.dispatch_pending()
        self.tables.offsets.lower(self.queues.end)
        self.tables.offsets_writer.changed()
        await self.tables.offsets_writer.save()
