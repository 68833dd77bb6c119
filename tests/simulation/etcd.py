"""An etcd in the simulation, and each member's way to it. It guarantees what tests/support/group/kept.py says, and no more.

What a member asks travels over the simulated network, and is on its way whatever becomes of the member: a packet that a cut holds
back arrives when the cut ends, after other reads, even after its asker has died and was started again. An answer may be lost on
its way back, after the swap. All of etcd may be away, which refuses or keeps what arrives; slow; or restarted, which may drop
what lies there. What was written stays.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import trio
from attrs import define, evolve, field

from tests.simulation import operators
from tests.simulation.determinism import machine_of_task
from tests.simulation.plan import Event
from tests.support.group.kept import EtcdModel
from twinlog.ha.election.commit import KeeperSilentError, KeptRecord, ResultUnknownError
from twinlog.store.role_file import GroupRecord

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember

IP = "10.0.0.200"
UNTIL_SECONDS = 12.0  # So long an event waits for what it needs.
TIMEOUT = 5.0  # etcdRequestTimeoutMs.
KINDS = {
    "etcd away",
    "etcd slow",
    "etcd restarts",
    "etcd loses",
    "etcd cut",
    "member dies",
    "the last dies",
    "leaves",
    "comes back",
    "alone by force",
}
Fate = Literal["under way", "answered", "refused", "dropped"]


@define(eq=False)
class Call:
    """One question. `swap`: the version to be written; None: it changes nothing that counts."""

    ip: str
    effect: Callable[[], KeptRecord]
    before: KeptRecord | None = None
    swap: GroupRecord | None = None
    fate: Fate = "under way"
    answer: KeptRecord = field(factory=KeptRecord)
    ended: trio.Event = field(factory=trio.Event)


@define(eq=False)
class SimEtcd:
    """All of it. `loses`: the share of answers that are lost; `delays`: the share of questions that arrive much later."""

    world: "RoleWorld"
    rng: random.Random
    model: EtcdModel = field(factory=EtcdModel)
    up: bool = True
    slow: float = 0.0  # Seconds for which each question lies there.
    loses: float = 0.0
    delays: float = 0.0
    up_since: float = 0.0
    under_way: list[Call] = field(factory=list)  # Swaps that may happen yet.
    _changed: trio.Event = field(factory=trio.Event)
    _lives: int = 0

    def send(self, call: Call) -> None:
        """From now on it is on its way."""
        if call.swap is not None:
            self.under_way.append(call)
        self.world.network.nursery.start_soon(self._carry, call)

    async def _carry(self, call: Call) -> None:
        machine_of_task.set(None)
        network = self.world.network
        await self._travel(call.ip, IP)
        if self.rng.random() < self.delays:
            await trio.sleep(self.rng.uniform(1, 40))
        await self._lie_there(call)
        if call in self.under_way:
            self.under_way.remove(call)
        if call.fate == "under way":
            call.answer = self._happen(call)
            call.fate = "answered"
            if self.rng.random() < self.loses:
                return
        if call.fate == "dropped" and self.rng.random() < 0.5:
            return  # Nobody hears of it.
        await self._travel(IP, call.ip)
        if not network.link(IP, call.ip).cut:
            call.ended.set()

    def _happen(self, call: Call) -> KeptRecord:
        before = self.model.revision
        answer = call.effect()
        if self.model.revision != before:
            self.world.in_etcd.written(self.model.versions[-1])
        return answer

    async def _lie_there(self, call: Call) -> None:
        lives = self._lives
        if self.slow:
            await trio.sleep(self.slow * self.rng.uniform(0.5, 1.0))
        if not self.up and self.rng.random() < 0.5:
            call.fate = "refused"
            return
        while not self.up:
            await self._changed.wait()
        if lives != self._lives and self.rng.random() < 0.5:
            call.fate = "dropped"

    async def _travel(self, source: str, target: str) -> None:
        link = self.world.network.link(source, target)
        while link.cut:
            await link.changed.wait()
        await trio.sleep(self.rng.random() * link.delay_max)

    def change(self, *, up: bool) -> None:
        """Go away, or come back: another life."""
        if up != self.up:
            self.up, self.up_since = up, trio.current_time()
            self._lives += 1
            self._changed.set()
            self._changed = trio.Event()

    def heal(self) -> None:
        """Be well."""
        self.slow = self.loses = self.delays = 0.0
        self.change(up=True)

    def is_clear(self, member: "RoleMember", seconds: float) -> bool:
        """Whether for so long nothing was the matter with it, nor with this member's way to it."""
        now, network = trio.current_time(), self.world.network
        is_well = self.up and not (self.slow or self.loses or self.delays) and self.up_since < now - seconds
        return is_well and network.clear_since(member.ip, IP) < now - seconds


@define(eq=False)
class SimKeeper:
    """The way of one life of a member to it."""

    etcd: SimEtcd
    member: "RoleMember"
    cluster: str = ""
    lags: bool = False  # Never, but for a fault: a member of etcd answers that has not the last version yet.

    async def read(self) -> KeptRecord:
        return await self._ask(Call(self.member.ip, self._read))

    def _read(self) -> KeptRecord:
        model = self.etcd.model
        return evolve(model.read(), record=model.versions[-2:][0]) if self.lags and model.versions else model.read()

    async def swap(self, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        model = self.etcd.model
        return await self._ask(Call(self.member.ip, lambda: model.swap(before, record), before, record))

    async def announce(self, master: str, seconds: float) -> None:
        model = self.etcd.model

        def effect() -> KeptRecord:
            model.master, model.master_until = master, trio.current_time() + seconds
            return KeptRecord()

        await self._ask(Call(self.member.ip, effect))

    async def aclose(self) -> None:
        """Nothing: what is on its way goes on."""
        await trio.lowlevel.checkpoint()

    async def _ask(self, call: Call) -> KeptRecord:
        self.etcd.send(call)
        with trio.move_on_after(TIMEOUT):
            await call.ended.wait()
            if call.fate == "answered":
                self.cluster = self.etcd.model.cluster
                return call.answer
        if call.swap is None or call.fate == "refused":
            raise KeeperSilentError("etcd does not answer")
        raise ResultUnknownError("no answer of etcd came: the change may have happened")


# What happens to it


async def act(world: "RoleWorld", event: Event) -> None:
    """Let it happen now."""
    etcd, values = world.etcd, event.values
    assert etcd is not None
    match event.kind:
        case "etcd away":
            etcd.change(up=False)
            await trio.sleep(values["lasts"])
            etcd.change(up=True)
        case "etcd restarts":
            etcd.change(up=False)
            await trio.sleep(values["down"])
            etcd.change(up=True)
        case "etcd slow":
            etcd.slow = values["seconds"]
            await trio.sleep(values["lasts"])
            etcd.slow = 0.0
        case "etcd loses":
            etcd.loses, etcd.delays = values["answers"], values["delays"]
            await trio.sleep(values["lasts"])
            etcd.loses = etcd.delays = 0.0
        case "etcd cut":
            member = _meant(world, event.target)
            there, back = world.network.link(member.ip, IP), world.network.link(IP, member.ip)
            links = {"both": [there, back], "there": [there], "back": [back]}[values["way"]]
            for link in links:
                link.change(cut=True)
            await trio.sleep(values["lasts"])
            for link in links:
                link.change(cut=False)
        case "member dies":
            _meant(world, event.target).kill(power=values["power"], down=values["down"])
        case "the last dies":
            await _last_dies(world, values["after"], values["power"], values["down"])
        case "leaves":
            await _leave(world)
        case "comes back":
            await _come_back(world, etcd, values["unheard"], values["delay"], values["down"])
        case "alone by force":
            await _go_on_alone(world, etcd, values["after"])


async def _last_dies(world: "RoleWorld", after: float, power: bool, down: float) -> None:
    """All slaves are gone, the master may go on alone, and dies when they are about to come back."""
    master = world.master
    for each in world.role_members:
        if each is not master:
            each.kill(power=False, down=after + world.plan.config.leave_seconds)
    await trio.sleep(after + world.plan.config.leave_seconds - 0.3)
    if world.producing:
        master.kill(power=power, down=down)


async def _leave(world: "RoleWorld") -> None:
    """A slave is gone, and its master does not reach etcd to say so."""
    slave, master, leave = _meant(world, "slave 1"), world.member(world.master.name), world.plan.config.leave_seconds
    link = world.network.link(master.ip, IP)
    link.change(cut=True)
    slave.kill(power=False, down=leave + TIMEOUT + 8)
    await trio.sleep(leave + TIMEOUT + 6)
    link.change(cut=False)


async def _come_back(world: "RoleWorld", etcd: SimEtcd, unheard: bool, delay: float, down: float) -> None:
    """A slave leaves the in-sync set, and comes back over a slow link; or its master does not hear that etcd has it in the set
    again, and it dies.
    """
    slave, master = _meant(world, "slave 1"), world.member(world.master.name)
    slave.kill(power=False, down=world.plan.config.leave_seconds + 3)
    await _until(lambda: world.in_etcd.record is not None and slave.identity not in world.in_etcd.record.in_sync)
    answers, bytes_of = world.network.link(IP, master.ip), world.network.link(master.ip, slave.ip)
    await _until(lambda: slave.up)
    if not world.producing:
        return
    answers.change(cut=unheard)
    bytes_of.change(delay_max=delay)
    await _until(lambda: world.in_etcd.record is not None and slave.identity in world.in_etcd.record.in_sync)
    if unheard and world.producing:
        slave.kill(power=False, down=down)
        await trio.sleep(4)
    answers.change(cut=False)
    bytes_of.change(delay_max=0.002)


async def _go_on_alone(world: "RoleWorld", etcd: SimEtcd, after: float) -> None:
    """Somebody accepts a loss, so that one member goes on alone. Others follow it, and etcd does not hear of that; it dies."""
    member = _meant(world, "slave 1")
    links = operators.links_of(world, member, "both")
    for link in links:
        link.change(cut=True)
    await trio.sleep(4)
    await operators.start(world, member, "forced failover")
    await _until(lambda: member.writable)
    etcd.change(up=not world.producing)
    for link in links:
        link.change(cut=False)
    await trio.sleep(after)
    if world.producing:
        member.kill(power=True, down=0.5)
        await trio.sleep(3)
    etcd.change(up=True)


async def _until(condition: Callable[[], bool]) -> None:
    with trio.move_on_after(UNTIL_SECONDS):
        while not condition():
            await trio.sleep(0.01)


def _meant(world: "RoleWorld", target: str) -> "RoleMember":
    if target == "master":
        return world.member(world.master.name)
    member: RoleMember = operators.meant(world, target)
    return member
