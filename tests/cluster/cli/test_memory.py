"""Memory that was freed is given back, though blocks that are in use lie between."""

import subprocess
import sys

PROGRAM = """
import random
from cluster.cli.memory import trimmer

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
