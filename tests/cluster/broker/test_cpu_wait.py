"""What the kernel says of threads: one that sleeps, one that works, and many that share a CPU."""

import os
import threading
import time

import pytest

from twinlog.cluster.broker.watchdog import CpuWait, ThreadTimes, read_thread


def waits(*readings: ThreadTimes | None) -> float:
    """One each second."""
    wait = CpuWait()
    for at, reading in enumerate(readings):
        wait.take(float(at), reading)
    return wait.total


def times(ran: float = 0.0, waited: float = 0.0, turns: int = 0, *, ready: bool = True) -> ThreadTimes:
    return ThreadTimes(ran, waited, turns, ready)


def test_a_wait_counts_when_it_has_ended():
    assert waits(times(turns=1, ready=False), times(0.2, 0.7, 9, ready=False)) == pytest.approx(0.7)


def test_a_wait_that_goes_on_counts_too():
    assert waits(times(), times(), times()) == pytest.approx(2)


def test_no_wait_counts_twice():
    """The kernel adds all three seconds at once, when it has a CPU again."""
    assert waits(times(), times(), times(), times(0.1, 2.9, 1)) == pytest.approx(2.9)


def test_a_thread_that_sleeps_waits_for_nothing():
    assert waits(times(ready=False), times(ready=False)) == 0


def test_what_is_not_known_is_not_counted():
    assert waits(None, times(), None, times(0.0, 5.0, 1)) == 0


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
