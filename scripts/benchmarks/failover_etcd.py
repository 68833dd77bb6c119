"""scripts/bench failover-etcd: from a fault to the next acknowledged write, with the group's state on etcd.

One writer for each group, which writes numbers one after the other; faults of the master's machine, and outages of etcd; in the
end of each run all numbers are read back. Most of the time is waiting, so some systems are measured beside each other.
"""

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from attrs import define, field, frozen

from scripts.benchmarks import failover_etcd_patroni as patroni
from scripts.benchmarks.failover_etcd_client import EVERY_MS, TRY_MS, Answer, Writer, writing
from scripts.benchmarks.failover_etcd_systems import (
    Brokers,
    Fault,
    Machine,
    Patroni,
    RocketMq,
    System,
    Twinlog,
    three_etcds,
)
from scripts.benchmarks.report import Row, say, scratch
from scripts.fault_matrix.places import Namespaces, Place, enter_namespace, namespaces
from tests.support.process_group import jars
from tests.support.process_group.process import ProcessFailedError
from tests.support.waiting import wait_for

FAULTS = ("kill", "server", "stop", "cut")
PARTS = ("outage", "faults")
GIVE_UP_SECONDS = 60.0  # Of one run, which counts as longer than that.
SETTLE_SECONDS = 1.0
STARTS_MAX = 3  # Groups that begin at the same time.
# Sooner than by default a silent master is suspected, and a silent slave leaves the set.
TUNED = {"autoFailoverAfterMs": "3000", "haLeaseMs": "1500", "haMaxTimeSlaveNotCatchup": "3000"}
FAILURES = (TimeoutError, ProcessFailedError, LookupError, OSError)


@frozen
class Kind:
    """A system that is measured: its name, how many members, and how it is set up."""

    name: str
    family: str
    members: int
    timing: patroni.Timing = patroni.DEFAULTS
    settings: Mapping[str, str] = field(factory=dict)
    lane: str = ""  # Those of a lane are measured one after the other. "": it has one of its own.
    outage_only: bool = False


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("twinlog-pair", "twinlog", 2, lane="twinlog"),
        Kind("twinlog-tuned", "twinlog", 2, settings=TUNED, lane="twinlog"),
        Kind("twinlog-three", "twinlog", 3, lane="twinlog"),
        Kind("rocketmq-pair", "rocketmq", 2),
        Kind("rocketmq-three", "rocketmq", 3),
        Kind("patroni-pair", "patroni", 2),
        Kind("patroni-tuned", "patroni", 2, patroni.TUNED),
        Kind("patroni-three", "patroni", 3),
        Kind("patroni-failsafe", "patroni", 2, patroni.Timing(failsafe_mode=True), outage_only=True),
    )
}
SETUP = {
    "every_ms": EVERY_MS,
    "try_ms": TRY_MS,
    "give_up": GIVE_UP_SECONDS,
    "controlled": jars.VERSION_5,
    "patroni": patroni.PATRONI,
    "our_tuned": TUNED,
    "tuned": {"ttl": patroni.TUNED.ttl, "loop_wait": patroni.TUNED.loop_wait, "retry": patroni.TUNED.retry_timeout},
}


@define(eq=False)
class Session:
    """A group that runs, with its writer; what was already read back of it is not counted again."""

    system: System
    stack: ExitStack
    writer: Writer
    runs: int = 0
    _told: set[int] = field(factory=set, init=False)  # Acknowledged, and looked for.
    _lost: set[int] = field(factory=set, init=False)

    @classmethod
    def begin(cls, system: System) -> "Session":
        with ExitStack() as stack:
            system.begin(stack)
            system.wait_whole()
            writer = stack.enter_context(writing(system.writer()))
            session = cls(system, stack.pop_all(), writer)
        try:
            writer.wait_flowing()
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        self.stack.close()

    def read_back(self) -> Row:
        """Acknowledged and lost numbers since the last time. What is under way now is looked for the next time."""
        acked, found = self.writer.numbers(), set[int]()

        def is_read() -> bool:
            try:
                found.update(self.system.numbers())
            except (OSError, LookupError, ValueError):
                time.sleep(0.5)
                return False
            return True

        wait_for(is_read, "all is read", timeout_s=30)
        missing = acked - found
        row = {"acked": len(acked - self._told), "lost": len(missing - self._lost)}
        self._told |= acked
        self._lost |= missing
        return row


_Ready = tuple[System, Session, int]  # And the number of the master.


@define(kw_only=True)
class FailoverEtcdBench:
    """Measures these kinds, `rounds` of each fault and so many outages. Needs root."""

    kinds: Sequence[Kind]
    parts: Sequence[str]
    faults: Sequence[str]
    rounds: int
    outage_seconds: float
    _rows: "SimpleQueue[Row | None]" = field(factory=SimpleQueue, init=False)
    _sessions: dict[str, Session] = field(factory=dict, init=False)
    _stopped: threading.Event = field(factory=threading.Event, init=False)
    _random: random.Random = field(factory=lambda: random.Random(27), init=False)

    def rows(self) -> Iterator[Row]:
        with ExitStack() as stack:
            root = stack.enter_context(scratch("bench-failover-"))
            root.chmod(0o755)  # PostgreSQL is another user.
            net = stack.enter_context(namespaces(1 + sum(kind.members for kind in self.kinds)))
            systems = self._installed(root, net, stack)
            stack.callback(self._end)
            if "outage" in self.parts:
                yield from self._beside_each_other([partial(self._outages, systems)])
                self._end()
            if "faults" in self.parts:
                yield from self._beside_each_other(self._lanes(systems))

    def _installed(self, root: Path, net: Namespaces, stack: ExitStack) -> list[System]:
        own, *places = net.places
        enter_namespace(own)  # And so is every thread and process from here on.
        machine = Machine(own, stack.enter_context(three_etcds(root / "etcd", own)))
        environment = patroni.install(root) if any(kind.family == "patroni" for kind in self.kinds) else root
        made: list[System] = []
        for kind in self.kinds:
            taken, places = places[: kind.members], places[kind.members :]
            system = _system(kind, root / kind.name, machine, taken, environment)
            system.install(stack)
            made.append(system)
        return made

    def _lanes(self, systems: Sequence[System]) -> list[Callable[[], None]]:
        """The work that is done at the same time."""
        lanes: dict[str, list[System]] = {}
        for system in systems:
            kind = KINDS[system.kind]
            if not kind.outage_only:
                lanes.setdefault(kind.lane or kind.name, []).append(system)
        return [partial(self._lane, lane) for lane in lanes.values()]

    def _beside_each_other(self, lanes: Sequence[Callable[[], None]]) -> Iterator[Row]:
        """Rows as they come, until all lanes have ended."""

        def run(lane: Callable[[], None]) -> None:
            try:
                lane()
            except BaseException as error:
                say(f"a lane ends: {error!r}")
            finally:
                self._rows.put(None)

        threads = [threading.Thread(target=run, args=(lane,)) for lane in lanes]
        for thread in threads:
            thread.start()
        try:
            left = len(threads)
            while left:
                if (row := self._rows.get()) is None:
                    left -= 1
                else:
                    yield row
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()
            self._stopped.clear()

    def _lane(self, systems: Sequence[System]) -> None:
        """Each of these in each round, every second round backwards."""
        for number in range(1, self.rounds + 1):
            for system in systems if number % 2 else reversed(systems):
                for kind in self.faults:
                    if self._stopped.is_set():
                        return
                    if kind == "server" and not isinstance(system, Patroni):
                        continue
                    try:
                        self._run(system, kind, number)
                    except FAILURES as error:
                        say(f"{system.kind} {kind}: the group is given up: {error}")
                        self._drop(system)
                self._drop(system)

    def _drop(self, system: System) -> None:
        if session := self._sessions.pop(system.kind, None):
            session.close()

    def _end(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _session(self, system: System) -> Session:
        if system.kind not in self._sessions:
            self._sessions[system.kind] = Session.begin(system)
        return self._sessions[system.kind]

    def _run(self, system: System, kind: str, number: int) -> None:
        session = self._session(system)
        session.writer.wait_flowing()
        system.wait_whole()
        time.sleep(SETTLE_SECONDS + self._random.uniform(0, _period(system)))
        fault = Fault(system, kind, system.master())
        row: Row = {"system": system.kind, "fault": kind, "round": number, **_measured(session.writer, fault)}
        session.runs += 1
        is_last = kind == self.faults[-1] or session.runs >= system.runs_of_group
        try:
            if not is_last or row["seconds"] is None:
                began = time.monotonic()
                fault.heal()
                system.wait_whole()
                row["whole_seconds"] = round(time.monotonic() - began, 1)
            row |= session.read_back()
        finally:
            fault.release()
            self._rows.put(row)
            if is_last:
                self._drop(system)

    # ---- etcd is away

    def _outages(self, systems: Sequence[System]) -> None:
        machine = systems[0].machine
        for number in range(1, self.rounds + 1):
            if self._stopped.is_set():
                return
            with ThreadPoolExecutor(STARTS_MAX) as pool:
                ready = [found for found in pool.map(partial(self._ready, number), systems) if found]
            time.sleep(SETTLE_SECONDS)
            begin = time.monotonic_ns()
            machine.pause()
            for system, *_ in ready:
                system.pause_electors()
            self._stopped.wait(self.outage_seconds)
            end = time.monotonic_ns()
            machine.resume()
            for system, *_ in ready:
                system.resume_electors()
            with ThreadPoolExecutor(len(systems)) as pool:
                for row in pool.map(partial(self._outage_row, number, (begin, end)), ready):
                    self._rows.put(row)

    def _ready(self, number: int, system: System) -> _Ready | None:
        try:
            session = self._session(system)
            session.writer.wait_flowing()
            system.wait_whole()
            return system, session, system.master()
        except FAILURES as error:
            say(f"{system.kind}: not measured in outage {number}: {error}")
            self._drop(system)
            return None

    def _outage_row(self, number: int, times: tuple[int, int], ready: _Ready) -> Row:
        (begin, end), (system, session, master) = times, ready
        row: Row = {"system": system.kind, "fault": "outage", "round": number}
        try:
            wait_for(lambda: session.writer.first(end), "an acknowledgement", timeout_s=GIVE_UP_SECONDS)
            row["after_seconds"] = round((_first(session.writer, end).came - end) / 1e9, 3)
        except TimeoutError:
            row["after_seconds"] = None
        row["acked_meanwhile"] = session.writer.within(begin, end)
        gap = session.writer.longest_gap(begin, end)
        row["gap_seconds"] = round(gap, 3) if row["after_seconds"] is not None else None
        try:
            system.wait_whole()
            row["same_master"] = system.master() == master
            row |= session.read_back()
        except FAILURES as error:
            say(f"{system.kind}: after outage {number}: {error}")
            self._drop(system)
        return row


def setup(rounds: int, kinds: Sequence[Kind], outage_seconds: float, notes: str) -> Row:
    """The words of raw results on how they were measured."""
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    lanes = {kind.lane or kind.name for kind in kinds if not kind.outage_only}
    told = {"etcd": said.splitlines()[0].replace(" Version:", ""), "lanes": len(lanes), "notes": notes}
    return {"rounds": rounds, "outage_seconds": outage_seconds, **told, **SETUP}


def _first(writer: Writer, since: int) -> Answer:
    found = writer.first(since)
    assert found is not None
    return found


def _measured(writer: Writer, fault: Fault) -> Row:
    """Inject it, and wait for the first acknowledgement of a number that was begun later; the fault stays."""
    begin = time.monotonic_ns()
    fault.inject()
    injected = time.monotonic_ns()
    try:
        wait_for(lambda: writer.first(injected), "an acknowledgement", timeout_s=GIVE_UP_SECONDS)
    except TimeoutError:
        return {"seconds": None}
    return {"seconds": round((_first(writer, injected).came - begin) / 1e9, 3)}


def _period(system: System) -> float:
    """The longest time between two looks at whether all is well: a fault comes at any point of it."""
    return float(system.timing.loop_wait) if isinstance(system, Patroni) else system.round_seconds


def _system(kind: Kind, root: Path, machine: Machine, places: Sequence[Place], environment: Path) -> System:
    root.mkdir()
    if kind.family == "patroni":
        return Patroni(
            kind=kind.name, root=root, machine=machine, places=places, environment=environment, timing=kind.timing
        )
    cls: type[Brokers] = Twinlog if kind.family == "twinlog" else RocketMq
    return cls(kind=kind.name, root=root, machine=machine, places=places, settings=kind.settings)
