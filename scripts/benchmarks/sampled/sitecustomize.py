"""A sampler inside a Python process: with this folder on PYTHONPATH, its stacks are written to $BENCH_STACKS/PID.

The kernel sends SIGPROF after each few milliseconds of CPU time, to the thread that used them, and faulthandler writes that
thread's stack from within the signal. So a sample stands for CPU time, in Python or in a system call that Python made, and never
for waiting; the event loop is not woken, and nothing stops the process from outside.
"""

import atexit
import faulthandler
import os
import signal
from pathlib import Path

CPU_SECONDS = 0.004

if folder := os.environ.get("BENCH_STACKS"):
    stacks = Path(folder, str(os.getpid())).open("ab", buffering=0)  # noqa: SIM115
    faulthandler.register(signal.SIGPROF, stacks, all_threads=False)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS)
    atexit.register(
        signal.setitimer, signal.ITIMER_PROF, 0
    )  # Once faulthandler is gone, SIGPROF would end the process.
