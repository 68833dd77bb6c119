"""Memory that was freed is given back, though blocks that are in use lie between."""

import gc
import subprocess
import sys
import weakref

import pytest
import trio

from twinlog.cluster.cli.run.service import LOOK_S, collect_when_quiet

PROGRAM = """
import random
from twinlog.cluster.cli.run.service import trimmer

def mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) // 1024

random.seed(1)
blocks = [bytes(random.randrange(20_000, 100_000)) for _ in range(1000)]
random.shuffle(blocks)
del blocks[100:]
kept = mib()
trimmer()()
print(kept, mib())
"""


def test_pages_between_blocks_in_use_go_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before - after >= 15, done.stdout


THREADS = """
import sys, threading
from twinlog.cluster.cli.run.service import share_one_heap
if sys.argv[1] == "shared":
    share_one_heap()
begun = threading.Barrier(5)
kept = []
def allocate():
    kept.append([bytes(10_000) for _ in range(50)])
    begun.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
begun.wait()
starts = [int(line.partition("-")[0], 16) for line in open("/proc/self/maps") if " rw-p " in line]
print(sum(start % (64 << 20) == 0 for start in starts))
"""


def test_threads_share_one_heap():
    """glibc gives each its own, at a multiple of 64 MiB."""

    def heaps(how: str) -> int:
        command = [sys.executable, "-c", THREADS, how]
        return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    assert heaps("own") - heaps("shared") >= 2


async def test_what_imports_left_is_collected_in_the_first_quiet_moment(autojump_clock):
    """Not before: the loop stands still meanwhile."""
    garbage = Ring()
    gone, cpu = weakref.ref(garbage), iter([0.0, 0.018, 0.03, 0.031])
    del garbage
    await collect_when_quiet(lambda: next(cpu))
    assert gone() is None
    assert trio.current_time() == pytest.approx((1 + 2 + 4) * LOOK_S)
    assert next(cpu, None) is None
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


class Ring:
    """Refers to itself, so that only the collector frees it, also where it was frozen before."""

    def __init__(self) -> None:
        self.own = self
        gc.freeze()
