"""A group in a box whose roles change: what members tell, who is who, and how it is made whole in the end."""

import random
from typing import Any, cast

import trio
from attrs import define, field

from tests.simulation import etcd, operators, role_checks, role_events, role_final
from tests.simulation.disk import Disk, Image
from tests.simulation.election_checks import ElectionBook
from tests.simulation.etcd import SimEtcd
from tests.simulation.etcd_checks import InEtcd
from tests.simulation.ledger import Message
from tests.simulation.member import HA_PORT, Member
from tests.simulation.name_server import NameServer
from tests.simulation.plan import Event
from tests.simulation.role_ledger import Line, Log, RoleLedger, RoleMessage
from tests.simulation.role_name_server import RoleNameServer
from tests.simulation.role_offsets import Offsets
from tests.simulation.roles import Copy, RoleMember
from tests.simulation.world import World
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.log.commit_log import PutMessage, PutResult
from twinlog.store.role_file import GroupRecord

COPY_IP = "10.0.0.9"
FOR_EVER = 1e6  # Seconds.


@define(eq=False)
class RoleWorld(World):
    """One seed with operators."""

    book: RoleLedger = field(factory=RoleLedger)
    promises: dict[str, EpochId] = field(factory=dict)  # The highest that each member had on its disk.
    consumer_rng: random.Random = field(init=False)
    positions: dict[int, int] = field(factory=dict)  # Of consumers, by queue.
    copies: list[Copy] = field(factory=list)  # One at a time is up.
    copy_codes: set[str] = field(factory=set)  # Register codes of their starts.
    displacing: dict[str, Copy] = field(
        factory=dict
    )  # By such a code, those that a master may have taken for the member.
    copying: bool = False  # Whoever copies disks, or swaps addresses, does nothing else meanwhile.
    elections: ElectionBook = field(init=False)
    etcd: SimEtcd | None = None
    in_etcd: InEtcd = field(init=False)
    quiet_until: float = 0.0  # Nobody sends before.
    lost_before_record: bool = False  # Slaves may hold what their master lost, and no history tells them apart.

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.elections, self.in_etcd = ElectionBook(self), InEtcd(self)
        if self.plan.config.etcd:
            self.etcd = SimEtcd(self, random.Random(f"etcd's ways {self.plan.seed}"))
        self.consumer_rng = random.Random(f"consumers {self.plan.seed}")

    @property
    def role_members(self) -> tuple[RoleMember, ...]:
        """The members, by their type."""
        return tuple(cast(RoleMember, member) for member in self.members.values())

    @property
    def processes(self) -> tuple[RoleMember, ...]:
        """The members, and copies of them."""
        return (*self.role_members, *self.copies)

    @property
    def names(self) -> RoleNameServer:
        """The name server, by its type."""
        return cast(RoleNameServer, self.name_server)

    def member(self, name: str) -> RoleMember:
        """One of them."""
        return cast(RoleMember, self.members[name])

    @property
    def master(self) -> Member:
        """Who takes messages, the one of the newest epoch; the configured one when nobody does."""
        serving = [member for member in self.role_members if member.up and member.writable]
        return max(serving, key=lambda member: member.durable_epochs()[-1].id, default=self.members["m"])

    def taken_for(self, group: GroupRecord | None) -> dict[str, Copy]:
        """Copies that a record names in place of the member, by the member's name."""
        found = (self.displacing.get(each.code) for each in (group.members if group is not None else ()))
        return {copy.of.name: copy for copy in found if copy is not None}

    def counts(self) -> tuple[int, int, int]:
        return self.book.acked, self.book.refused, len(self.book.messages)

    def automatic_elections(self) -> int:
        return len(self.elections.won)

    def heard(self, event: dict[str, Any]) -> None:
        """Who is silent, and who is called so, is for seeds without role changes."""

    # What members tell

    def came_back(self, member: Member, start: int, data: bytes) -> None:
        assert isinstance(member, RoleMember)
        assert member.store is not None
        damaged = list(member.store.damaged)
        if isinstance(member, Copy):
            code = member.service.member.me().code
            if member.follows:
                self.displacing[code] = member
            else:
                self.copy_codes.add(code)
            self.guard(lambda: member.log.came_back(start, data, damaged))
            return
        role_checks.finish_line(member, start, data)
        self.lost_before_record |= role_checks.lost_before_record(member, start + len(data))
        self.guard(lambda: member.log.came_back(start, data, damaged))
        self.saw_entry(member)
        self.guard(lambda: role_checks.fits_list(member))

    def appended(self, member: Member, offset: int, data: bytes) -> None:
        assert isinstance(member, RoleMember)
        assert member.store is not None
        if isinstance(member, Copy):
            if not member.follows:
                self.violated(f"I8: {member.name}, a copy of {member.of.name}, takes bytes at {offset}")
            self.guard(lambda: member.log.appended(offset, data))
            return
        is_slave = member.store.config.broker_role is BrokerRole.SLAVE
        if not is_slave:
            self.guard(lambda: role_checks.wrote(member, offset, data))
        self.guard(lambda: member.log.appended(offset, data))
        if is_slave:
            self.guard(lambda: role_checks.took(member))

    def truncated(self, member: Member, offset: int) -> None:
        assert isinstance(member, RoleMember)
        store = member.store
        assert store is not None
        if not isinstance(member, Copy):
            self.guard(lambda: role_checks.cut(member, offset))
        start = store.min_offset
        data = member.read_log(store, start, offset) if offset > start else b""
        self.guard(lambda: member.log.came_back(start, data, list(store.damaged)))
        member.log.flushed(member.durable_end)  # Of another line, too.

    def took_over(self, member: RoleMember) -> None:
        """It is about to serve as a master."""
        self.guard(lambda: role_checks.no_copy_takes_part(member))
        self.saw_entry(member)
        self.guard(lambda: role_checks.takes_over(member))

    def saw_entry(self, member: RoleMember) -> None:
        """Its history may end in an epoch of its own that is new: a line begins."""
        entries = member.durable_epochs()
        if entries[-1].winner == member.identity and self.book.lines.of(entries[-1].id) is None:
            last = entries[-1]
            before = entries[-2].id if len(entries) > 1 else None
            fitting = [line for line in member.log.fits if len(line.data) >= last.start_offset]
            if not fitting:
                self.violated(
                    f"I1: {member.name} begins an epoch at {last.start_offset}, its log ends at {member.log.end}"
                )
                return
            base = next((line for line in reversed(fitting) if line.id == before), fitting[-1])
            waiting = list(self.book.waiting)
            self.begin_line(last.id, base, last.start_offset, may_lose=role_checks.may_lose(member, last.kind))
            lost = [each for each in waiting if each.given_up]
            self.guard(lambda: self.elections.began(member, last, lost))
            self.guard(lambda: self.in_etcd.won(member, last))
            self.trace(f"{member.name} has won epoch {last.epoch} ({last.kind}) at {last.start_offset}")

    def begin_line(self, epoch_id: EpochId, base: Line, start: int, *, may_lose: str) -> Line:
        """Raises Violation when it is without what it must have."""
        line = self.book.lines.begin(epoch_id, base, start)
        for member in self.processes:
            member.log.line_began(line, base)
        self.guard(lambda: self._began(line, may_lose))
        return line

    def _began(self, line: Line, may_lose: str) -> None:
        lost = self.book.began(line, may_lose=may_lose)
        if lost:
            self.trace(f"{line} lacks {len(lost)} acknowledged messages: {may_lose}")
            # Who has no record by then keeps no history, either: nobody knows that its bytes were given up.
            states = [member.durable_role() for member in self.role_members if member.log.end > line.start]
            self.lost_before_record |= any(state is None or state.group is None for state in states)

    # What producers tell

    def put(self, member: Member, put: PutMessage, result: PutResult) -> Message:
        assert isinstance(member, RoleMember)
        queue = (put.topic, put.queue_id, result.queue_offset)
        body = bytes(put.body)
        line = self.book.lines.of(member.durable_epochs()[-1].id) or self.book.lines.lines[0]
        number = int(body.partition(b":")[0])
        message = RoleMessage(number, body, result.phy_offset, result.end_offset, queue, 0, line=line, by=member.name)
        self.book.messages.append(message)
        return message

    def answered(self, message: Message, word: str) -> None:
        assert isinstance(message, RoleMessage)
        self._hash.update(f"{trio.current_time()} {message.number} {word}".encode())
        self.guard(lambda: self.book.answer(message, word))
        if word == "ok":
            by = self.members[message.by]
            assert isinstance(by, RoleMember)
            self.guard(lambda: role_checks.acknowledged(by, message))

    # The run

    def _make_name_server(self) -> NameServer:
        return RoleNameServer(self)

    def _member(self, name: str, ip: str, port: int) -> Member:
        rng = random.Random(f"{name} {self.plan.seed}")
        member = RoleMember(self, name, ip, name == "m", self.plan.config, self.disks[name], rng, port=port)
        member.log = Log(name, self.book.lines)
        member.offsets = Offsets(name)
        return member

    async def run_copy(
        self, of: RoleMember, image: Image, *, elsewhere: bool, seconds: float, follows: bool = False
    ) -> None:
        """Start a copy of a member's disk, and end it."""
        name = f"x{len(self.copies) + 1}"
        rng = random.Random(f"{name} {self.plan.seed}")
        self.disks[name] = disk = Disk(name, rng, self.plan.config.sector)
        disk.put_back(image)
        ip, port = (COPY_IP, HA_PORT) if elsewhere else (of.ip, of.port)
        copy = Copy(self, name, ip, False, self.plan.config, disk, rng, port=port, of=of, follows=follows)
        copy.log, copy.offsets, copy.boots = Log(name, self.book.lines), Offsets(name), of.boots
        self.copies.append(copy)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._member_task, copy)
            with trio.move_on_after(seconds):
                await copy.revive.wait()
            copy.kill(power=False, down=FOR_EVER)
            nursery.cancel_scope.cancel()
        copy.up, copy.calls_nursery = False, None
        self.network.listeners.pop(copy.address, None)
        self.name_server.lost(copy)

    async def _heal(self) -> None:
        if self.copying:
            for each in self.copies:
                each.revive.set()
            await trio.sleep(0.2)  # Before its member comes back to the same address.
        for each in self.processes:
            each.go_on()
        if self.etcd is not None:
            self.etcd.heal()
        await super()._heal()

    def _happen(self, event: Event, nursery: trio.Nursery) -> None:
        if event.kind in etcd.KINDS:
            nursery.start_soon(etcd.act, self, event)
        elif event.kind in role_events.KINDS:
            nursery.start_soon(role_events.act, self, event)
        elif event.kind in operators.KINDS:
            nursery.start_soon(operators.act, self, event)
        else:
            super()._happen(event, nursery)

    def _make_watch(self) -> Any:
        return self._look

    def _look(self) -> None:
        role_checks.look(self)
        self.elections.look()
        if self.etcd is not None:
            self.in_etcd.look()

    async def _settle(self) -> None:
        await role_final.settle(self)
        self.guard(lambda: role_final.final(self))
