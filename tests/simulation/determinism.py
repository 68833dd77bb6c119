"""Makes a run of the product's own code repeat itself: one seed, one order of events, in whatever process.

What is left to chance in an ordinary run comes from the seed here:
- trio shuffles the tasks that are ready; its private switch `_ALLOW_DETERMINISTIC_SCHEDULING` sorts them first, and its
  private generator `_r` does the shuffling (both are what trio's own hook for hypothesis uses);
- time is trio's virtual clock, for `time` too; each machine's wall clock may be off by something of its own;
- what the product runs in a thread runs on the loop, somewhere within a virtual delay, so that everything else can happen
  before and after it;
- tenacity and others take their jitter from `random`.

Strings hash as PYTHONHASHSEED says, which a process gets when it starts: `scripts/simulate` sees to that.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol
from unittest.mock import patch

import trio
from trio._core import _run
from trio.testing import MockClock

WALL_START = 1_767_225_600.0  # 2026-01-01T00:00:00Z: where everybody's wall clock begins.


class Machine(Protocol):
    """What this module needs to know of the machine that the running task belongs to."""

    wall_offset: float  # Seconds that its wall clock is off.
    held: list[Callable[[], None]] | None  # While its process stands still: what goes on once it runs again.

    async def run_in_thread(self, function: Callable[[], Any], *, abandon_on_cancel: bool) -> Any:
        """Call it, some time."""


machine_of_task: ContextVar[Machine | None] = ContextVar("machine_of_task", default=None)


def now() -> float:
    """Virtual seconds since the run began; 0 outside of one."""
    try:
        return trio.current_time()
    except RuntimeError:
        return 0.0


def wall() -> float:
    """What the wall clock of the running task's machine shows."""
    machine = machine_of_task.get()
    return WALL_START + now() + (machine.wall_offset if machine is not None else 0.0)


async def run_sync(
    function: Callable[..., Any], *arguments: Any, abandon_on_cancel: bool = False, limiter: object = None, **_: Any
) -> Any:
    """trio.to_thread.run_sync() without a thread."""
    machine = machine_of_task.get()
    if machine is None:
        return function(*arguments)
    return await machine.run_in_thread(lambda: function(*arguments), abandon_on_cancel=abandon_on_cancel)


_reschedule = _run.Runner.reschedule


def _reschedule_if_running(self: Any, task: Any, *value: Any) -> None:
    """trio's own; a task of a process that stands still runs on when that one does."""
    machine = task.context.get(machine_of_task)
    _reschedule(self, task, *value)
    if machine is not None and machine.held is not None:
        assert self.runq.pop() is task
        machine.held.append(lambda: self.runq.append(task))


async def enter(machine: Machine) -> None:
    """The task belongs to this machine from now on."""
    machine_of_task.set(machine)
    if machine.held is not None:
        await trio.lowlevel.cancel_shielded_checkpoint()


@contextmanager
def _seeded(generator: Any, seed: object) -> Iterator[None]:
    state = generator.getstate()
    generator.seed(f"{seed}")
    try:
        yield
    finally:
        generator.setstate(state)


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Everything that trio, `time` and `random` do inside is decided by the seed."""
    with ExitStack() as stack:
        stack.enter_context(_seeded(random, f"random {seed}"))
        stack.enter_context(_seeded(_run._r, f"trio {seed}"))
        for target, name, value in (
            (_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
            (_run.Runner, "reschedule", _reschedule_if_running),
            (trio.to_thread, "run_sync", run_sync),
            (time, "time", wall),
            (time, "time_ns", lambda: int(wall() * 1_000_000_000)),
            (time, "monotonic", now),
            (time, "sleep", lambda _seconds: None),
            (secrets, "randbits", random.getrandbits),
            (secrets, "token_hex", lambda size: f"{random.getrandbits(8 * size):0{2 * size}x}"),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


def run(main: Callable[[], Any], seed: int) -> Any:
    """trio.run() in virtual time, by the seed."""
    clock = MockClock(rate=0.0, autojump_threshold=0.0)
    with deterministic(seed):
        return trio.run(main, clock=clock)
