"""One member of the group: the product's own store and replication on a machine that can die, and what they are wired to."""

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from tests.simulation.determinism import enter, machine_of_task
from tests.simulation.disk import Disk, Image, MachineDied
from tests.simulation.ledger import Holder, common
from tests.simulation.parts import make_ha, make_store
from tests.simulation.peer import SimPeer
from tests.simulation.plan import Config
from tests.simulation.producer import Producer
from twinlog.cluster.broker.group.registration import RegisteredSlaves
from twinlog.ha.peer import Peer
from twinlog.ha.service import HAService
from twinlog.store.message_store import MessageStore

if TYPE_CHECKING:
    from tests.simulation.world import World

HA_PORT = 10_912


@define(eq=False)
class Member:
    """`name` is its directory, too."""

    world: "World"
    name: str
    ip: str
    is_master: bool
    config: Config
    disk: Disk
    rng: random.Random
    port: int = HA_PORT
    wall_offset: float = 0.0
    held: list[Callable[[], None]] | None = None  # While its process stands still; see determinism.Machine.
    goes_on: trio.Event = field(factory=trio.Event)
    stood_still: float = 0.0  # Seconds in all, and since when now.
    stands_since: float = 0.0
    store: MessageStore | None = None
    ha: HAService | None = None
    up: bool = False
    starts: int = 0
    down_for: float = 0.0
    changed_at: float = 0.0  # When it went up or down last.
    power_is_cut: bool = False
    wipe: bool = False
    older: Image | None = None  # With this its disk comes back.
    slow_until: float = 0.0
    slow_delay: float = 0.0
    holder: Holder | None = None  # A slave's.
    written_claim: int = 0  # What the next start must find, as an offset,
    flushed_claim: int = 0  # and what it must find after a power cut.
    cuts: bool = False  # It died while its log was being cut: the next start finishes that.
    known_damage: set[tuple[int, int]] = field(factory=set)
    durable_end: int = 0  # Proven by the disk itself.
    _scope: trio.CancelScope = field(factory=trio.CancelScope)
    _threads: dict[trio.CancelScope, None] = field(factory=dict)
    _stop: trio.Event = field(factory=trio.Event)
    ask: trio.Event = field(factory=trio.Event)
    revive: trio.Event = field(factory=trio.Event)
    slaves: RegisteredSlaves = field(factory=RegisteredSlaves)
    _noted: int = 0  # The log's end, as the ledger has it.
    _failed_syncs: int = 0  # Before this life.

    def __attrs_post_init__(self) -> None:
        self.disk.on_death = self._on_death

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.port}"

    # What happens to it

    def kill(self, *, power: bool, down: float) -> None:
        """Now."""
        if not self.disk.dead and self.up:
            self.power_is_cut, self.down_for = power, down
            self.disk.die()

    def kill_in_call(self, calls: int, *, power: bool, down: float) -> None:
        """At one of the next calls that change something on its disk."""
        if self.disk.dies_at is None and not self.disk.dead:
            self.power_is_cut, self.down_for = power, down
            self.disk.dies_at = self.disk.calls + calls

    def stand_still(self) -> None:
        """As a SIGSTOP does, or a CPU that is taken away."""
        if self.held is None and self.up:
            self.held, self.stands_since, self.goes_on = [], trio.current_time(), trio.Event()
            self.world.trace(f"{self.name} stands still")

    def go_on(self) -> None:
        """As a SIGCONT does."""
        if self.held is not None:
            held, self.held = self.held, None
            self.stood_still += trio.current_time() - self.stands_since
            self.world.trace(f"{self.name} goes on")
            for each in held:
                each()
            self.goes_on.set()

    def stop(self, down: float) -> None:
        """As a SIGTERM does."""
        self.down_for = down
        self._stop.set()

    def _on_death(self) -> None:
        self.world.trace(f"{self.name} dies{', power cut' if self.power_is_cut else ''}")
        if self.power_is_cut:
            self.world.network.mute(self.ip)
        self._note_claim()
        self.go_on()
        for scope in self._threads:
            scope.cancel()
        self._scope.cancel()

    def _note_claim(self) -> None:
        """What must be there again."""
        if self.store is not None and self.up:
            flushed = self.store.flushed_offset
            if self._is_cutting():
                flushed = min(flushed, self._noted)  # Nobody can look before the cut is over.
            self.written_claim, self.flushed_claim = self._noted, max(self.flushed_claim, flushed)
            if self.disk.failed_syncs > self._failed_syncs:
                self._doubt()
            else:
                self.prove_durable(self.store)
                if flushed > self.durable_end:
                    self.world.violated(
                        f"{self.name} says that {flushed} is flushed; on its disk is {self.durable_end}"
                    )
        if self.power_is_cut:
            self.written_claim = min(self.written_claim, self.flushed_claim)

    def _is_cutting(self) -> bool:
        """Whether a cut was begun and is not over."""
        return os.path.exists(f"{self.name}/twinlog/truncate")

    def _doubt(self) -> None:
        """After a sync that failed what was written since the last good one may be gone."""
        self.written_claim = min(self.written_claim, self.flushed_claim)

    async def run_in_thread(self, function: Callable[[], Any], *, abandon_on_cancel: bool) -> Any:
        """See determinism.Machine."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=not abandon_on_cancel) as scope:
            self._threads[scope] = None
            try:
                await trio.sleep(self._delay())
                result = function()
                await trio.sleep(self._delay())
            finally:
                del self._threads[scope]
            return result
        raise MachineDied  # Not a cancellation: the product shields some of its threads from those.

    def _delay(self) -> float:
        slow = self.slow_delay if trio.current_time() < self.slow_until else 0.0
        return self.rng.choice((0.0, self.rng.random() * 0.001, self.rng.random() * 0.02)) + self.rng.random() * slow

    # Its lives

    async def run(self) -> None:
        """Live, die, live again."""
        machine_of_task.set(self)
        while True:
            await self._live()
            await self._lie_dead()

    async def _live(self) -> None:
        self._stop, self.ask = trio.Event(), trio.Event()
        self._threads.clear()
        self._failed_syncs = self.disk.failed_syncs
        self.starts += 1
        with trio.CancelScope() as self._scope:
            try:
                await self._serve()
            except* MachineDied:
                pass
            except* OSError as group:
                if self.disk.failed_syncs == self._failed_syncs:
                    raise
                self.world.trace(f"{self.name} could not go on: {group.exceptions[0]!r}")
                self._doubt()

    async def _lie_dead(self) -> None:
        self.up, self.changed_at = False, trio.current_time()
        self.world.network.listeners.pop(self.address, None)
        self.world.name_server.lost(self)
        self.store = self.ha = None
        if not self.disk.dead:
            self.disk.die()
        if self.power_is_cut:
            self.disk.cut_power()
            self.world.trace(f"{self.name} lost what was not flushed")
        self.disk.reboot()
        if self.wipe or self.older is not None:
            if self.older is not None:
                self.disk.put_back(self.older)
            else:
                self.disk.wipe()
            self.written_claim = self.flushed_claim = self.durable_end = 0
            self.wipe, self.older = False, None
        with trio.move_on_after(self.down_for):
            await self.revive.wait()
        self.revive = trio.Event()
        if self.power_is_cut:
            self.world.network.reset(self.ip)
        self.power_is_cut, self.down_for = False, 0.05

    async def _serve(self) -> None:
        self.store = store = make_store(self)
        self._load(store)
        self._came_back(store)
        self.ha = ha = make_ha(self, store)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await nursery.start(ha.run)
            self.world.network.listen(self.address, nursery, self._serve_connection)
            self.up, self.changed_at = True, trio.current_time()
            self.world.trace(f"{self.name} is up: {store.min_offset}..{store.max_offset}")
            nursery.start_soon(self._keep_registered)
            if self.is_master:
                nursery.start_soon(self._watch_members)
                nursery.start_soon(Producer(self.world, self, store, ha).run)
            await self._stop.wait()
            self.world.network.listeners.pop(self.address, None)
            nursery.cancel_scope.cancel()
        self.up = False
        self.written_claim = store.max_offset
        await store.close()
        if self.disk.failed_syncs > self._failed_syncs:
            self._doubt()
        self.world.trace(f"{self.name} stopped")

    def _load(self, store: MessageStore) -> None:
        self.cuts = self._is_cutting()
        store.load()

    async def _serve_connection(self, transport: Any, address: str, ip: str) -> None:
        await enter(self)
        assert self.ha is not None
        await self.ha.serve(transport, address, ip)

    def peer(self, address: str) -> Peer:
        """Whom to ask about the log of the member at an HA address."""
        return SimPeer(self.world, self.ip, address)

    async def connect(self, address: str) -> Any:
        return await self.world.network.connect(self.ip, address)

    # What the ledger is told

    def _came_back(self, store: MessageStore) -> None:
        start, data = store.min_offset, self.read_log(store, store.min_offset, store.max_offset)
        self._noted = store.max_offset
        self.world.came_back(self, start, data)
        last = store.commit_log.files.files[-1:]
        if last and not last[0].is_clear_from(last[0].wrote):
            self.world.violated(
                f"{self.name}: behind the end of its log, {store.max_offset}, lie bytes that could come back"
            )
        if store.max_offset < self.written_claim and not self.cuts:
            self.world.violated(
                f"{self.name} came back with a log that ends at {store.max_offset}; {self.written_claim} had to be there"
            )
        self.written_claim = store.max_offset
        self._cap(store.max_offset)
        store.appended.insert(0, lambda: self._appended(store))
        store.on_truncate.insert(0, lambda offset: self._truncated(store, offset))
        store.flusher.on_flushed.insert(0, lambda: self._flushed(store))

    def _appended(self, store: MessageStore) -> None:
        if self.disk.dead or store.max_offset <= self._noted:
            return
        start = self._noted if self._noted else store.min_offset
        data = self.read_log(store, start, store.max_offset)
        self._noted = store.max_offset
        self.world.appended(self, start, data)

    def _truncated(self, store: MessageStore, offset: int) -> None:
        if not self.disk.dead:
            self.world.trace(f"{self.name} cuts its log at {offset}")
            self._noted = min(self._noted, offset)
            self._cap(offset)
            self.world.truncated(self, offset)

    def _cap(self, offset: int) -> None:
        self.durable_end = min(self.durable_end, offset)
        self.written_claim = min(self.written_claim, offset)
        self.flushed_claim = min(self.flushed_claim, offset)

    def _flushed(self, store: MessageStore) -> None:
        self.flushed_claim = max(self.flushed_claim, store.flushed_offset)
        self.prove_durable(store)
        if self.holder is not None:
            self.holder.flushed(self.durable_end)

    def prove_durable(self, store: MessageStore) -> None:
        """Look at the disk itself: up to where the log is what a power cut would leave."""
        at = max(self.durable_end, store.min_offset)
        for file in store.commit_log.files.files:
            position, end = at - file.start, file.wrote
            if position >= end:
                continue
            durable = self.disk.durable_content(str(file.path))
            live = os.pread(file.fd, end - position, position)
            same = common(live, durable or b"", position)
            at += same
            if same < len(live):
                break
        self.durable_end = max(self.durable_end, at)

    @staticmethod
    def read_log(store: MessageStore, start: int, end: int) -> bytes:
        """Bytes of the log, across files."""
        pieces, files = [], store.commit_log.files
        while start < end:
            file = files.file_at(start)
            assert file is not None, start
            size = min(end, file.start + file.size) - start
            pieces.append(os.pread(file.fd, size, start - file.start))
            start += size
        return b"".join(pieces)

    # The name server

    async def _keep_registered(self) -> None:
        while True:
            registered = False
            with trio.move_on_after(3):
                answer = await self.world.name_server.register(self)
                registered = True
            if registered and not self.is_master and self.ha is not None and answer is not None:
                if answer != self.ha.client.master_address:
                    self.world.trace(f"{self.name} is told to follow {answer}")
                self.ha.set_master(answer)
            waits = self.config.period if registered and (self.is_master or answer) else 1.0
            await trio.sleep(waits)

    async def _watch_members(self) -> None:
        while True:
            slaves = None
            with trio.move_on_after(3):
                slaves = await self.world.name_server.slaves(self)
            if slaves is not None and self.ha is not None:
                self.ha.members_changed(self.slaves.answered(slaves, trio.current_time()))
            with trio.move_on_after(5):
                await self.ask.wait()
                await trio.sleep(0.05)
            self.ask = trio.Event()
