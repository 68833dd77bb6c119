"""Runs seeds. `python -m tests.simulation.simulate` is what scripts/simulate calls."""

import contextlib
import os
import random
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from unittest.mock import patch

import trio
from attrs import define, field, frozen

import twinlog.ha.service
import twinlog.store.record.column_scan
from tests.conftest import task_stacks
from tests.simulation import determinism, disk
from tests.simulation.ledger import Violation
from tests.simulation.os_calls import bounds
from tests.simulation.plan import MEMBERS, Plan
from tests.simulation.role_plan import draw
from tests.simulation.role_world import RoleWorld
from tests.simulation.world import World, collect_log
from twinlog.ha.policy import deferred_plan as deferred_plan
from twinlog.ha.slave import deferred_verification

deferred_verification.columns_loaded = True  # For all seeds alike: it is imported above.

CPU_SECONDS_MAX, SECONDS_MAX = 20.0, 120.0  # A seed takes half a second.


@frozen(kw_only=True)
class Outcome:
    """What a seed came to."""

    seed: int
    violation: str
    trace_hash: str
    events: int
    acked: int
    refused: int
    messages: int
    elections: int  # That nobody began but the group.
    virtual_seconds: float
    lines: tuple[str, ...] = field(repr=False)


@define(eq=False)
class _NoListener:
    """In place of twinlog.ha.master.accept's listening socket: connections come over the simulated network."""

    host: str
    port: int
    take: Callable[..., None]

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started(self.port)
        await trio.sleep_forever()


@contextmanager
def _scratch_directory() -> Iterator[None]:
    """Work in a directory of memory; members' directories are relative to it, so that no path depends on the process."""
    before = os.getcwd()
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    directory = tempfile.mkdtemp(prefix="twinlog-simulation-", dir=base)
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(directory)


class _StuckError(BaseException):
    pass


@contextmanager
def _limited() -> Iterator[list[str]]:
    """End what takes CPU_SECONDS_MAX, or SECONDS_MAX although it has nothing to do; the list gets where it was."""
    stuck: list[str] = []

    def give_up(_signal: int, frame: FrameType | None) -> None:
        stack = "".join(traceback.format_stack(frame)[-12:])
        tasks = "".join(task_stacks(trio.lowlevel.current_root_task()))
        stuck.append(f"{stack}\n{tasks}")
        raise _StuckError

    timers = {
        signal.SIGVTALRM: (signal.ITIMER_VIRTUAL, CPU_SECONDS_MAX),
        signal.SIGALRM: (signal.ITIMER_REAL, SECONDS_MAX),
    }
    before = {number: signal.signal(number, give_up) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield stuck
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def run_seed(seed: int, *, plan: Plan | None = None, hole: AbstractContextManager[object] | None = None) -> Outcome:
    """Run one seed; `hole` is a fault that is put into the product for it."""
    plan = plan or draw(seed)
    ends: list[float] = []
    with _scratch_directory(), contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(twinlog.ha.service, "AcceptSocketService", _NoListener))
        for name, value in (("FULL_BYTES", 1), ("FULL_TIMES", 2), ("STRETCH_BYTES", 700)):
            stack.enter_context(patch.object(deferred_plan, name, value))  # See Config.trail_max.
        stack.enter_context(hole or nullcontext())
        rngs = {name: random.Random(f"disk {name} {seed}") for name in MEMBERS}
        disks = {name: disk.Disk(name, rngs[name], plan.config.sector) for name in MEMBERS}
        world = (RoleWorld if plan.config.roles else World)(plan, disks)
        collect_log(world)
        violation = ""

        async def main() -> None:
            try:
                await world.run()
            finally:
                ends.append(trio.current_time())

        try:
            with bounds(disks), _limited() as stuck:
                determinism.run(main, seed)
        except Violation as found:
            violation = str(found)
        except (trio.TrioInternalError, _StuckError):
            violation = f"it spins, or waits for ever, in\n{stuck[0]}"
        except BaseExceptionGroup as group:
            violation = "the simulation itself failed: " + "".join(traceback.format_exception(group))
    acked, refused, messages = world.counts()
    return Outcome(
        seed=seed,
        violation=violation,
        trace_hash=world.trace_hash,
        events=len(plan.events),
        acked=acked,
        refused=refused,
        messages=messages,
        elections=world.automatic_elections(),
        virtual_seconds=ends[0] if ends else 0.0,
        lines=tuple(world.lines),
    )
