"""A group in a box: members, network, name server, producers, what happens to them, and what is checked meanwhile."""

import hashlib
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog
import trio
from attrs import define, field

from tests.simulation import checks, final_checks
from tests.simulation.disk import Disk
from tests.simulation.events import happen
from tests.simulation.ledger import Holder, Ledger, Message, Violation
from tests.simulation.member import Member
from tests.simulation.name_server import NameServer
from tests.simulation.network import Network
from tests.simulation.plan import MEMBERS, SLAVES, Event, Plan
from twinlog.store.log.commit_log import PutMessage, PutResult

HEAL_SECONDS = 120.0  # Virtual, until all members must be the same, or say why not.
EXPLAINED_SECONDS = 25.0  # So long a slave sticks to why it is not.
LINES_KEPT = 400


@define(eq=False)
class World:
    """One seed."""

    plan: Plan
    disks: dict[str, Disk]
    ledger: Ledger = field(factory=Ledger)
    members: dict[str, Member] = field(factory=dict)
    network: Network = field(init=False)
    name_server: NameServer = field(init=False)
    producer_rng: random.Random = field(init=False)
    producing: bool = True
    burst: int = 0
    numbers: int = 0
    lines: deque[str] = field(factory=lambda: deque(maxlen=LINES_KEPT))
    violations: list[str] = field(factory=list)
    _hash: Any = field(factory=hashlib.sha256)
    _failed: trio.Event = field(factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self.producer_rng = random.Random(f"producers {self.plan.seed}")

    # The trace

    def trace(self, text: str) -> None:
        """Note what happens; the trace of a seed is always the same."""
        line = f"{trio.current_time():10.6f} {text}"
        self._hash.update(line.encode())
        self.lines.append(line)

    @property
    def trace_hash(self) -> str:
        return str(self._hash.hexdigest())

    def violated(self, text: str) -> None:
        """Something is wrong; the run ends."""
        self.trace(f"VIOLATION {text}")
        self.violations.append(text)
        self._failed.set()

    # What members tell

    def came_back(self, member: Member, start: int, data: bytes) -> None:
        """It opened its log."""
        if member.is_master:
            self._master_came_back(member, start, data)
        else:
            assert member.holder is not None
            self.guard(lambda: member.holder.came_back(start, data))  # type: ignore[union-attr]

    def _master_came_back(self, master: Member, start: int, data: bytes) -> None:
        history = self.ledger.history
        before, lives = len(history.now), len(history.lives)
        damaged = list(checks.damaged(master))
        self.guard(lambda: checks.damage(master, damaged))
        shared = history.came_back(start, data, damaged)
        if len(history.lives) > lives:
            lost = self.ledger.new_life(shared)
            self.trace(
                f"the master lost {before - shared} bytes from {shared} on, {len(lost)} messages were acknowledged"
            )
            for name in SLAVES:
                self.holder(name).new_life(shared)

    def appended(self, member: Member, offset: int, data: bytes) -> None:
        """Its log grew."""
        if member.is_master:
            self.guard(lambda: self.ledger.history.wrote(offset, data))
        else:
            flipped = self.network.flipped > 0
            self.guard(lambda: checks.beginning(self, self.holder(member.name), offset))
            self.guard(lambda: self.holder(member.name).appended(offset, data, flipped=flipped))

    def truncated(self, member: Member, offset: int) -> None:
        """It cut its log, or began anew."""
        if member.is_master:
            self.violated(f"the master cut its own log at {offset}")
            return
        store, holder = member.store, self.holder(member.name)
        assert store is not None
        self.guard(lambda: checks.truncation(self, member, offset))
        start = store.min_offset
        data = member.read_log(store, start, offset) if offset > start else b""
        self.guard(lambda: holder.came_back(start, data))

    def heard(self, event: dict[str, Any]) -> None:
        """A member logged something."""
        if "silent for" in str(event.get("why", "")):
            self.guard(lambda: checks.silence(self, event))

    @property
    def master(self) -> Member:
        """Who is the master now, as far as one knows."""
        return self.members["m"]

    def counts(self) -> tuple[int, int, int]:
        """How many messages were acknowledged, refused, and put."""
        return self.ledger.acked, self.ledger.refused, len(self.ledger.messages)

    def automatic_elections(self) -> int:
        """How many new masters a group has elected by itself."""
        return 0

    def guard(self, check: Any) -> None:
        """Let what it finds end the run."""
        try:
            check()
        except Violation as violation:
            self.violated(str(violation))

    def holder(self, name: str) -> Holder:
        """What a slave holds."""
        holder = self.members[name].holder
        assert holder is not None
        return holder

    def boot_ms(self, address: str) -> int:
        """A number for the present life of whoever listens there."""
        return next((each.starts for each in self.members.values() if each.address == address), 0)

    # What producers tell

    def put(self, member: Member, put: PutMessage, result: PutResult) -> Message:
        """A master took a message."""
        queue = (put.topic, put.queue_id, result.queue_offset)
        number = int(bytes(put.body).partition(b":")[0])
        life = len(self.ledger.history.lives) - 1
        message = Message(number, bytes(put.body), result.phy_offset, result.end_offset, queue, life)
        self.ledger.messages.append(message)
        return message

    def answered(self, message: Message, word: str) -> None:
        """A producer hears."""
        self._hash.update(f"{trio.current_time()} {message.number} {word}".encode())
        self.guard(lambda: self.ledger.answer(message, word))
        if word == "ok":
            self.guard(lambda: checks.acknowledgement(self, message))

    # The run

    async def run(self) -> None:
        """All of it. Raises Violation."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._play, nursery)
            await self._failed.wait()
            nursery.cancel_scope.cancel()
        if self.violations and self.violations != [""]:
            raise Violation(self.violations[0])

    async def _play(self, nursery: trio.Nursery) -> None:
        seed, config = self.plan.seed, self.plan.config
        self.network = Network(random.Random(f"network {seed}"), nursery)
        self.name_server = self._make_name_server()
        ips = ("10.0.0.1", "10.0.0.2", "10.0.0.2" if config.same_ip else "10.0.0.3")
        names = MEMBERS[:2] if config.pair else MEMBERS
        for number, (name, ip) in enumerate(zip(names, ips, strict=False)):
            self.members[name] = self._member(name, ip, 10_912 + 100 * number)
        for member in self.members.values():
            nursery.start_soon(self._member_task, member)
        nursery.start_soon(self._watch_task)
        for event in self.plan.events:
            await trio.sleep_until(event.at)
            self.trace(f"EVENT {event}")
            self._happen(event, nursery)
        await trio.sleep_until(config.seconds)
        await self._heal()
        self._failed.set()

    def _make_name_server(self) -> NameServer:
        return NameServer(self)

    def _member(self, name: str, ip: str, port: int) -> Member:
        rng = random.Random(f"{name} {self.plan.seed}")
        member = Member(self, name, ip, name == "m", self.plan.config, self.disks[name], rng, port=port)
        member.holder = None if member.is_master else Holder(name, self.ledger.history)
        return member

    def _happen(self, event: Event, nursery: trio.Nursery) -> None:
        happen(self, event, nursery)

    async def _member_task(self, member: Member) -> None:
        try:
            await member.run()
        except Exception as error:  # The product gave up, or the simulation did: both are to be looked at.
            self.violated(f"{member.name} ended: {_worded(error)}")

    async def _watch_task(self) -> None:
        look = self._make_watch()
        while True:
            await trio.sleep(0.5)
            self.guard(look)

    def _make_watch(self) -> Callable[[], None]:
        return checks.Watch(self).look

    async def _heal(self) -> None:
        """Make everything whole, then wait until all are the same."""
        self.trace("HEAL")
        self.producing = False
        self.name_server.up = True
        self.network.heal()
        for member in self.members.values():
            member.slow_until, member.disk.dies_at, member.disk.fails_at, member.wall_offset = 0, None, None, 0
            member.revive.set()
        await trio.sleep(1)
        for member in self.members.values():
            member.revive.set()
            self.network.reset(member.ip)
            if member.store is not None and member.store.why_not_writable:  # As its operator would.
                self.trace(f"{member.name} is restarted: {member.store.why_not_writable}")
                member.stop(0.1)
        await self._settle()

    async def _settle(self) -> None:
        """Wait until all members are the same, or say why not."""
        began = explained_since = trio.current_time()
        while trio.current_time() < began + HEAL_SECONDS:
            await trio.sleep(1)
            if not final_checks.settled(self) or not final_checks.explained(self):
                explained_since = trio.current_time()
            elif not final_checks.unequal(self) or trio.current_time() > explained_since + EXPLAINED_SECONDS:
                break
        self.guard(lambda: final_checks.final(self))


def _worded(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/main/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{error!r} at {' < '.join(reversed(frames[-6:]))}"


def collect_log(world: World) -> None:
    """What the product logs goes into the lines that are shown, not into the trace: its texts may change."""

    def keep(_logger: object, name: str, event: dict[str, Any]) -> str:
        world.heard(event)
        words = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        from tests.simulation.determinism import machine_of_task, now

        machine = getattr(machine_of_task.get(), "name", "-")
        world.lines.append(f"{now():10.6f}   {machine}: {name} {event.get('event')} {words}"[:400])
        raise structlog.DropEvent

    structlog.reset_defaults()
    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
