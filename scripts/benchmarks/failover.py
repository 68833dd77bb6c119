"""scripts/bench failover: from the loss of a master to the next SEND_OK, with nobody at the keyboard, ours and RocketMQ 5.

A run: producers send at an even rate, each send on a free thread, so that one that hangs hides nothing; the master is lost; what
is measured is the time until a SEND_OK comes for a message that another member than the old master has stored, of a send that
was begun before the fault or after it. Then the fault is healed, and the next run begins when the group is whole.
"""

import signal
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import takewhile

import trio
from attrs import define, field, frozen

from scripts.benchmarks.failover_client import DEFAULT, EVERY_MS, OURS, QUICK, SPREAD_SECONDS, Answer, Watch, watching
from scripts.benchmarks.failover_groups import WHOLE_SECONDS_MAX, Group, Installation, disk_of, installed
from scripts.benchmarks.report import Row, in_turn, say, scratch
from tests.support.process_group import jars
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.process import ProcessFailedError
from tests.support.waiting import wait_for
from twinlog.client import RemotingError, open_admin

FAULTS = ("kill", "stop", "freeze")
GIVE_UP_SECONDS = 60.0  # Of one run, which counts as longer than that.
GIVE_UP_RUNS = 3  # None of the first ones came back: the others are left out.
FEW_RUNS = 3  # Of the second way to set RocketMQ up.
# After a third election within 10 minutes ours wait. Three new brokers of RocketMQ's are in sync sooner than an old one again.
RUNS_OF_GROUP = {"twinlog": 2}
FAILED_GROUPS_MAX, TURNS_MAX = 10, 1000
ROUND = 2  # Runs of each fault, before the other system's turn.
SETTLE_SECONDS = 1.0
READ_SECONDS_MAX = 60.0
SETUP = {
    "every_ms": EVERY_MS,
    "controlled": jars.VERSION_5,
    "give_up": GIVE_UP_SECONDS,
    "enough": GIVE_UP_RUNS,
    "few": FEW_RUNS,
    "turn": ROUND,
}


@frozen
class Run:
    """A run: what is lost, and who watches: producers that find a new master at once, or many with RocketMQ's defaults."""

    system: str
    fault: str
    is_patient: bool = False


def planned(
    systems: Sequence[str], faults: Sequence[str], runs: int, their_runs: int | None = None, *, patient: bool
) -> list[Run]:
    """All runs, in the order of each system; `their_runs` of RocketMQ's."""
    counts = {
        "twinlog": runs,
        "rocketmq": their_runs if their_runs is not None else runs,
        "rocketmq-2": min(runs, FEW_RUNS),
    }
    found = []
    for system in systems:
        few = system == "rocketmq-2"
        own = [fault for fault in faults if not (few and fault == "freeze")]
        found += [Run(system, fault) for _ in range(counts[system]) for fault in own]
        found += [Run(system, fault, is_patient=True) for fault in own if patient and not few]
    return found


def left_over(plan: Sequence[Run], done: Sequence[Row]) -> list[Run]:
    """Runs that were not measured yet, without what three runs say is not worth while."""
    told = Counter(_run_of(row) for row in done)
    left = []
    for run in plan:
        if told[run] > 0:
            told[run] -= 1
        else:
            left.append(run)
    return [run for run in left if not is_hopeless(run, done)]


def is_hopeless(run: Run, done: Sequence[Row]) -> bool:
    """Whether none of the runs of this fault so far, and these were enough, came to an end."""
    own = [row for row in done if (row["system"], row["fault"]) == (run.system, run.fault) and not row["patient"]]
    return len(own) >= GIVE_UP_RUNS and all(value is None for row in own for value in times(row))


def times(row: Row) -> list[float | None]:
    return [value for values in row["seconds"].values() for value in values]


def _run_of(row: Row) -> Run:
    return Run(row["system"], row["fault"], row["patient"])


@define(kw_only=True)
class FailoverBench:
    """Measures what is left of a plan. Rows come out as they are measured; whoever takes them adds them to `done`."""

    plan: Sequence[Run]
    done: list[Row]

    _failed: int = field(default=0, init=False)  # Groups that did not come up.

    def rows(self) -> Iterator[Row]:
        """Some runs of each system in turn."""
        for _, system in in_turn(TURNS_MAX, list(dict.fromkeys(run.system for run in self.plan))):
            left = left_over(self.plan, self.done)
            if not left:
                return
            if own := [run for run in left if run.system == system]:
                yield from self._turn(system, deque(own[: ROUND * len({run.fault for run in own})]))

    def _turn(self, system: str, runs: "deque[Run]") -> Iterator[Row]:
        """A run whose group did not come up comes again with a later turn."""
        with scratch("bench-failover-") as root, installed(system, root) as installation:
            while runs:
                try:
                    rows = _on_one_group(installation, runs)
                except (TimeoutError, ProcessFailedError, LookupError, OSError) as error:
                    self._failed += 1
                    say(f"{system}: a group is given up: {error}")
                    if self._failed > FAILED_GROUPS_MAX:
                        raise
                    return
                yield from rows


@frozen
class Fault:
    """Fate of a master: kill -9, SIGSTOP, or a disk that takes nothing more."""

    kind: str
    victim: BrokerProcess

    def inject(self) -> None:
        if self.kind == "kill":
            self.victim.kill()
        elif self.kind == "stop":
            self.victim.send_signal(signal.SIGSTOP)
        else:
            disk_of(self.victim).freeze()

    def release(self) -> None:
        """As far as it holds a process that lives."""
        if self.kind == "freeze":
            disk_of(self.victim).thaw()
        elif self.victim.running:
            self.victim.send_signal(signal.SIGCONT)

    def heal(self) -> None:
        self.release()
        if not self.victim.running:
            self.victim.start_unregistered()


def _on_one_group(installation: Installation, runs: "deque[Run]") -> list[Row]:
    """As many runs as one group takes. What was lost is known in the end, when all is read back."""
    rows: list[Row] = []
    faults: list[Fault] = []
    is_patient = runs[0].is_patient
    same = list(takewhile(lambda run: run.is_patient == is_patient, runs))
    with installation.group() as group, ExitStack() as stack:
        kinds, home = ([DEFAULT] if is_patient else [OURS, QUICK]), group.members[0].root / "client"
        began = time.monotonic()
        watch = stack.enter_context(watching(group.namesrv, group.topic, kinds, home))
        watch.wait_flowing()
        if is_patient:
            time.sleep(max(0.0, began + SPREAD_SECONDS - time.monotonic()))
        for run in same[: RUNS_OF_GROUP.get(installation.kind, 1)]:
            if rows and not _healed(group, watch, faults[-1], rows[-1]):
                break
            wait_for(partial(_is_settled, group, watch), "producers and what elects agree on who is master")
            faults.append(Fault(run.fault, group.master()))
            stack.callback(faults[-1].release)
            runs.popleft()
            rows.append(
                {"system": run.system, "fault": run.fault, "patient": is_patient, **_measured(watch, faults[-1])}
            )
        if None in times(rows[-1]):
            _healed(group, watch, faults[-1], rows[-1])
        acked = watch.acked()
        found = trio.run(_read_all, group)
        lost = None if found is None else len(acked - found)
        rows[-1] |= {"acked": len(acked), "lost": lost}  # In all runs of the group.
    return rows


def _is_settled(group: Group, watch: Watch) -> bool:
    """Whether for a second all messages were stored by the member that is master to what elects."""
    since = len(watch.answers)
    time.sleep(SETTLE_SECONDS)
    return {answer.port for answer in watch.answers[since:]} == {group.master().port}


def _measured(watch: Watch, fault: Fault) -> Row:
    """Lose the master, and wait until each producer has found another one; the fault stays."""
    since, begin = len(watch.answers), time.monotonic_ns()
    fault.inject()

    def firsts() -> dict[str, Answer]:
        return watch.firsts(since, begin=begin, old_port=fault.victim.port)

    with suppress(TimeoutError):
        wait_for(lambda: len(firsts()) == len(watch.producers), "SEND_OK", timeout_s=GIVE_UP_SECONDS)
    found = firsts()
    seconds: dict[str, list[float | None]] = {}
    for producer in watch.producers:
        took = round((found[producer].came - begin) / 1e9, 3) if producer in found else None
        seconds.setdefault(producer.rpartition("-")[0], []).append(took)
    return {"seconds": seconds, "told": watch.outcomes(since, begin=begin)}


def _healed(group: Group, watch: Watch, fault: Fault, row: Row) -> bool:
    """Heal it, and wait until the group is whole and takes messages; False when that takes too long."""
    began = time.monotonic()
    fault.heal()
    try:
        group.wait_whole()
        row["whole_seconds"] = round(time.monotonic() - began, 1)
        watch.wait_flowing()
    except TimeoutError:
        say(f"{row['system']}: not whole {WHOLE_SECONDS_MAX:.0f} s after {fault.kind} was healed")
        return False
    return True


async def _read_all(group: Group) -> set[str] | None:
    """The ids of all messages that are there, by the name server's route; None when they could not be read."""
    found: set[str] = set()
    with trio.move_on_after(READ_SECONDS_MAX):
        async with open_admin((group.namesrv,)) as admin:
            while True:
                try:
                    await admin.consume(group.topic, lambda message: found.add(message.body.decode()) or True)
                except RemotingError:
                    await trio.sleep(1)  # The master is not at it yet.
                else:
                    return found
    return None
