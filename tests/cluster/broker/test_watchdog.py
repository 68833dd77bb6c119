"""What the watchdog notices and says: its looks by hand with a clock of our own, then a real loop that stands still."""

import os
import sys
import threading
import time

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from twinlog.cluster.broker.watchdog import CpuWait, ThreadTimes, Watchdog, read_thread


class Time:
    """A clock that is set by hand, in seconds, and whatever the disk does."""

    def __init__(self):
        self.now, self.busy = 100.0, None

    def __call__(self):
        return self.now


@pytest.fixture
def at():
    return Time()


@pytest.fixture
def watchdog(at):
    made = Watchdog(lambda: at.busy, at)
    made.beat()
    made.check(None)
    return made


def live(watchdog, at, seconds, *, beating):
    """Let time pass, a look each quarter of a second."""
    for _ in range(round(seconds * 4)):
        at.now += 0.25
        if beating:
            watchdog.beat()
        watchdog.check(sys._getframe())


def test_a_loop_that_lives_is_nothing_to_talk_about(watchdog, at):
    with capture_logs() as lines:
        live(watchdog, at, 60, beating=True)
        live(watchdog, at, 1, beating=False)
        live(watchdog, at, 1, beating=True)
    assert lines == []
    assert watchdog.statistics().stalls == 0


def test_a_stall_is_two_lines_however_long(watchdog, at):
    with capture_logs() as lines:
        live(watchdog, at, 60, beating=False)
        assert watchdog.statistics().stalled_ms == watchdog.statistics().longest_ms == 60_000
        live(watchdog, at, 5, beating=True)
        live(watchdog, at, 2, beating=False)
        live(watchdog, at, 5, beating=True)
    assert [(line["event"], line["seconds"]) for line in lines] == [
        ("the event loop stalls", 1.2),
        ("the event loop runs again", 60.2),
        ("the event loop stalls", 1.2),
        ("the event loop runs again", 2.2),
    ]
    assert "live (test_watchdog.py:" in lines[0]["stack"]
    found = watchdog.statistics()
    assert (found.stalls, found.longest_ms, found.stalled_ms) == (2, 60_250, 0)


def test_a_process_that_was_stopped_is_no_stall(watchdog, at):
    """The watchdog slept with the loop."""
    with capture_logs() as lines:
        at.now += 30
        watchdog.check(None)
        live(watchdog, at, 10, beating=True)
    assert [(line["event"], line["seconds"]) for line in lines] == [("this process did not run", 30.0)]
    assert watchdog.statistics().stalls == 0


def test_a_sync_that_hangs_is_told_by_the_loop(watchdog, at):
    with capture_logs() as lines:
        at.busy = at.now
        live(watchdog, at, 1, beating=True)
        assert lines == []
        live(watchdog, at, 9, beating=True)
        at.busy = at.now + 0.1  # That one ended, and the next began at once.
        live(watchdog, at, 0.5, beating=True)
        at.busy = None
        live(watchdog, at, 5, beating=True)
    assert [line["event"] for line in lines] == [
        "a sync of the disk hangs: producers wait for it",
        "the sync of the disk finished",
    ]
    assert lines[1]["seconds"] == 10.2


# ---- A loop that has no CPU


def starve(watchdog, at, times, seconds, *, with_cpu=0.0):
    """The loop's thread is ready all the time, and gets `with_cpu` of each second."""
    for _ in range(round(seconds * 4)):
        at.now += 0.25
        times.append(evolve(times[-1], ran=times[-1].ran + with_cpu / 4, turns=times[-1].turns + bool(with_cpu)))
        if with_cpu:
            times[-1] = evolve(times[-1], waited=times[-1].waited + (1 - with_cpu) / 4)
        watchdog.check(sys._getframe())


@pytest.fixture
def times(watchdog, at):
    """What the kernel says of the loop's thread: the last of these."""
    found = [ThreadTimes(ran=5.0, waited=1.0, turns=7, ready=True)]
    watchdog._loop = lambda: found[-1]
    watchdog.beat()
    watchdog.check(None)
    return found


@pytest.mark.parametrize("with_cpu", [0.0, 0.2])
def test_a_loop_without_a_cpu_does_not_stand_still(watchdog, at, times, with_cpu):
    """Whether it gets none at all, which the kernel counts only afterwards, or too little."""
    with capture_logs() as lines:
        starve(watchdog, at, times, 3, with_cpu=with_cpu)
        watchdog.beat()
        watchdog.check(None)
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("the event loop has no CPU: the machine is busy", "warning"),
        ("the event loop runs again", "warning"),
    ]
    assert lines[1]["without_cpu"] == pytest.approx(3 * (1 - with_cpu), abs=0.1)
    found = watchdog.statistics()
    assert (found.stalls, found.longest_ms, found.stalled_ms, found.cpu_waits) == (0, 0, 0, 1)
    assert found.cpu_wait_seconds == pytest.approx(3 * (1 - with_cpu), abs=0.1)


@pytest.mark.parametrize("computes", [True, False])
def test_a_loop_that_computes_or_sleeps_stands_still_however_busy_the_machine_is(watchdog, at, times, computes):
    with capture_logs() as lines:
        for _ in range(12):
            at.now += 0.25
            more = 0.2 if computes else 0.0
            before = times[-1]
            times.append(ThreadTimes(before.ran + more, before.waited + 0.05, before.turns + 1, ready=computes))
            watchdog.check(sys._getframe())
    assert [line["event"] for line in lines] == ["the event loop stalls"]
    assert watchdog.statistics().stalls == 1
    assert watchdog.statistics().cpu_waits == 0


def test_a_loop_that_has_a_cpu_again_and_stands_still_then_stalls(watchdog, at, times):
    with capture_logs() as lines:
        starve(watchdog, at, times, 3)
        for _ in range(8):
            at.now += 0.25
            times.append(evolve(times[-1], turns=times[-1].turns + 1, ready=False))
            watchdog.check(sys._getframe())
    assert [line["event"] for line in lines] == [
        "the event loop has no CPU: the machine is busy",
        "the event loop stalls",
    ]
    assert lines[1]["seconds"] == pytest.approx(4.25, abs=0.3)


def test_where_the_kernel_says_nothing_it_stands_still(watchdog, at):
    """As before there was anything to tell them apart by."""
    watchdog._loop = lambda: None
    with capture_logs() as lines:
        live(watchdog, at, 3, beating=False)
    assert [line["event"] for line in lines] == ["the event loop stalls"]
    assert watchdog.statistics().cpu_wait_seconds == 0


async def test_a_real_loop_that_stands_still():
    """The line is written while it stands, and names the function that it stands in."""
    watchdog = Watchdog(lambda: None)
    said = threading.Event()

    def stand_still():
        deadline = time.monotonic() + 20
        while not lines and time.monotonic() < deadline:
            said.wait(0.05)

    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watchdog.run)
            await trio.sleep(0.1)
            stand_still()
            assert [line["event"] for line in lines] == ["the event loop stalls"]
            while len(lines) < 2:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    assert "stand_still" in lines[0]["stack"]
    assert lines[1]["event"] == "the event loop runs again"
    assert watchdog.statistics().stalls == 1
    assert "twinlog watchdog" not in [thread.name for thread in threading.enumerate()]


# ---- What the kernel says of threads: one that sleeps, one that works, and many that share a CPU


def waits(*readings: ThreadTimes | None) -> float:
    """One each second."""
    wait = CpuWait()
    for at, reading in enumerate(readings):
        wait.take(float(at), reading)
    return wait.total


def read(ran: float = 0.0, waited: float = 0.0, turns: int = 0, *, ready: bool = True) -> ThreadTimes:
    return ThreadTimes(ran, waited, turns, ready)


def test_a_wait_counts_when_it_has_ended():
    assert waits(read(turns=1, ready=False), read(0.2, 0.7, 9, ready=False)) == pytest.approx(0.7)


def test_a_wait_that_goes_on_counts_too():
    assert waits(read(), read(), read()) == pytest.approx(2)


def test_no_wait_counts_twice():
    """The kernel adds all three seconds at once, when it has a CPU again."""
    assert waits(read(), read(), read(), read(0.1, 2.9, 1)) == pytest.approx(2.9)


def test_a_thread_that_sleeps_waits_for_nothing():
    assert waits(read(ready=False), read(ready=False)) == 0


def test_what_is_not_known_is_not_counted():
    assert waits(None, read(), None, read(0.0, 5.0, 1)) == 0


def test_a_thread_that_is_not_there_has_no_times():
    assert read_thread(1 << 30) is None


def test_the_kernel_tells_a_thread_that_works_from_one_that_sleeps():
    mine = threading.get_native_id()
    before = read_thread(mine)
    assert before is not None
    assert before.ready
    ends = time.thread_time() + 0.2
    while time.thread_time() < ends:
        pass
    after = read_thread(mine)
    assert after is not None
    assert after.ran - before.ran >= 0.19
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        deadline = time.monotonic() + 20
        while (found := read_thread(thread.native_id)) is None or found.ready:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        ended.set()
        thread.join()


def test_processes_that_share_a_cpu_wait_for_it():
    """Three of them: each waits two thirds of the time, by what the kernel says."""
    read_end, write_end = os.pipe()
    cpu = {min(os.sched_getaffinity(0))}
    children = []
    for _ in range(3):
        if (child := os.fork()) == 0:
            os.sched_setaffinity(0, cpu)
            wait, mine, ends = CpuWait(), threading.get_native_id(), time.monotonic() + 1.0
            while time.monotonic() < ends:
                wait.take(time.monotonic(), read_thread(mine))
            os.write(write_end, f"{wait.total}\n".encode())
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        totals = [float(line) for line in told]
    assert len(totals) == 3
    assert sum(totals) >= 1.0
