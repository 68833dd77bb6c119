"""A master, real or ours, with a slave of RocketMQ 4.9.7 and one of ours, through accidents in which contents part."""

import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

from attrs import define, field

from tests.pairs.group import FILE_SIZE, LEVEL_S, max_offset
from tests.pairs.proxy import CuttingProxy
from tests.support.clients.remoting import create_topic, is_registered
from tests.support.disk.compare import end_offset, start_offset
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from tests.support.process_group.ports import free_broker_port
from tests.support.process_group.status import commit_offset, committed_offset, send, status
from tests.support.waiting import at_once, wait_for

TOPIC, READERS = "parted", "readers"
SETTINGS = {
    **TEST_SETTINGS,
    "haSendHeartbeatInterval": "300",  # A slave of RocketMQ's waits as long before its first report.
    "haReconnectWaitMax": "200",  # Ours.
    "flushConsumerOffsetInterval": "300",
}
HISTORY_FILES = 3
LOST_MESSAGES, LATER_MESSAGES, OWN_MESSAGES = 50, 120, 30
EARLY_OFFSET, LATE_OFFSET = 5, 12
# Of the stream from the master: in the first header, at its end, in a record, at frames' ends, and anywhere.
CUTS = (1, 11, 12, 13, 500, 12 + 32768, 12 + 32768 + 1, 70_001, 100_003, 200_017, 123_457, 300_007)


@define(eq=False)
class Stage:
    """Its acts build on each other; each is played once, when a test first asks for it."""

    root: Path
    masters: ModuleType  # rocketmq or twinlog.
    namesrv: str = field(init=False)
    master: BrokerProcess = field(init=False)
    real: rocketmq.Broker = field(init=False)
    ours: twinlog.Broker = field(init=False)
    proxy: CuttingProxy = field(init=False)
    starts: dict[str, int] = field(factory=dict, init=False)  # Where the logs of the slaves began when they had joined.
    copied_end: int = field(default=0, init=False)  # Where the master's log ended when its directory was copied.
    held_end: int = field(
        default=0, init=False
    )  # Where its slaves' logs ended when it lost what it had got since then.
    codes: list[int] = field(factory=list, init=False)  # Of the answers to messages after that.
    parted_end: int = field(default=0, init=False)  # Where the log ends that has a tail of its own.
    _stack: ExitStack = field(factory=ExitStack, init=False)
    _played: list[Callable[["Stage"], None]] = field(factory=list, init=False)

    def __enter__(self) -> Self:
        self.namesrv = self._stack.enter_context(twinlog.NameServer(self.root / "namesrv")).address
        port = free_broker_port()
        self.proxy = self._stack.enter_context(CuttingProxy(port + 1, CUTS))
        self.master = self.masters.Broker(
            self.root / "master", self.namesrv, role="SYNC_MASTER", port=port, settings=SETTINGS
        )
        cut = {**SETTINGS, "haMasterAddress": self.proxy.address}
        ours, real = (SETTINGS, cut) if self.masters is twinlog else (cut, SETTINGS)
        self.real = rocketmq.Broker(self.root / "real", self.namesrv, role="SLAVE", broker_id=1, settings=real)
        self.ours = twinlog.Broker(self.root / "ours", self.namesrv, role="SLAVE", broker_id=2, settings=ours)
        for member in (self.master, self.real, self.ours):
            self._stack.callback(member.__exit__, None, None, None)
        return self

    @property
    def copied_store(self) -> Path:
        """Of the master's disk."""
        return self.root / "copy"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def played(self, *acts: Callable[["Stage"], None]) -> Self:
        """Play those of the acts that were not played yet."""
        for act in acts:
            if act not in self._played:
                self._played.append(act)
                act(self)
        return self

    def wait_level(self, *slaves: BrokerProcess) -> None:
        """Wait until they hold as many bytes as the master, whichever these are."""
        for slave in slaves:
            wait_for(lambda: max_offset(slave) == max_offset(self.master), f"{slave.root} is level", timeout_s=LEVEL_S)  # noqa: B023


def join(stage: Stage) -> None:
    """Two empty slaves join a master with a history, one of them over a link that dies time and again."""
    stage.master.start()
    create_topic(stage.master.address, TOPIC)
    send(stage.master.port, TOPIC, HISTORY_FILES * FILE_SIZE // 60_000 + 1, size=60_000)
    commit_offset(stage.master, READERS, TOPIC, EARLY_OFFSET)
    at_once((stage.real.start, stage.ours.start))
    wait_for(lambda: not stage.proxy.cuts, "the last cut", timeout_s=60)
    stage.wait_level(stage.real, stage.ours)
    stage.starts = {slave.root.name: start_offset(slave.commit_log) for slave in (stage.real, stage.ours)}
    for slave in (stage.real, stage.ours):
        wait_for(lambda: committed_offset(slave, READERS, TOPIC) == EARLY_OFFSET, "the offset at the slave")  # noqa: B023


def copy(stage: Stage) -> None:
    """The master's disk is copied."""
    shutil.copytree(stage.master.store, stage.copied_store)
    stage.copied_end = end_offset(stage.copied_store / "commitlog")


def lose(stage: Stage) -> None:
    """The master dies and comes back from the copy of its disk, which lacks the last messages; meanwhile slaves serve."""
    assert set(send(stage.master.port, TOPIC, LOST_MESSAGES, size=1000)) == {0}
    stage.wait_level(stage.real, stage.ours)
    stage.held_end = max_offset(stage.master)
    stage.master.kill()
    for slave in (stage.real, stage.ours):
        commit_offset(slave, READERS, TOPIC, LATE_OFFSET)
    shutil.rmtree(stage.master.store)
    shutil.copytree(stage.copied_store, stage.master.store)
    if stage.masters is rocketmq:
        stage.master.start()
    else:  # It hears from our slave what it lacks.
        stage.master.start_unregistered()
        wait_for(lambda: status(stage.master).get("roleState") == "fenced", "the master is fenced")
    wait_for(lambda: max_offset(stage.master) == stage.copied_end, "the end of the copy")


def give_up(stage: Stage) -> None:
    """A person lets our fenced master go on without what it lost."""
    command = [twinlog.PROGRAM, "failover", "-n", stage.namesrv, "--candidate", stage.master.address]
    command += ["--accept-data-loss", "unknown", "--yes"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    wait_for(lambda: is_registered(stage.namesrv, stage.master.address), "the master is back")


def go_on(stage: Stage) -> None:
    """The master takes messages, more than it has lost, if it has."""
    if stage.masters is rocketmq:
        wait_for(lambda: send(stage.master.port, TOPIC, 1, size=10) == [0], "the slave is back", timeout_s=20)
    stage.codes = send(stage.master.port, TOPIC, LATER_MESSAGES, size=1000, pause_s=0.02)
    assert max_offset(stage.master) > stage.held_end


def copy_for_another(store: Path, to: Path) -> None:
    """Copy a directory for another member: who it was stays behind."""
    shutil.copytree(store, to)
    for name in ("member", "role"):
        (to / "twinlog" / name).unlink(missing_ok=True)


def part(stage: Stage) -> None:
    """Both slaves get a log that was the master's up to the copy, with a tail of its own; the master's log is longer."""
    stage.real.kill()
    stage.ours.stop()
    aside = twinlog.Broker(stage.root / "aside", stage.namesrv, broker_name="aside", settings=SETTINGS)
    copy_for_another(stage.copied_store, aside.store)
    with aside:
        send(aside.port, TOPIC, OWN_MESSAGES, size=1000)
    stage.parted_end = end_offset(aside.commit_log)
    assert stage.copied_end < stage.parted_end < max_offset(stage.master)
    for slave in (stage.real, stage.ours):
        shutil.rmtree(slave.store)
        copy_for_another(aside.store, slave.store)
    at_once((stage.real.start, stage.ours.start))
