"""Memory that was freed is given back, though blocks that are in use lie between."""

import subprocess
import sys

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
