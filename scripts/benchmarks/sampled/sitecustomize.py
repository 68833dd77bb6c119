"""A sampler inside a Python process: with this folder on PYTHONPATH, its stacks are written to $BENCH_STACKS/PID.

The kernel sends SIGPROF after each few milliseconds of CPU time, and the main thread writes its stack, the innermost frame first,
on a line: MICROSECONDS FILE:FUNCTION;FILE:FUNCTION... These are of CPU time since the last sample, in Python or in a system call
that Python made, never of waiting, and nothing stops the process from outside. What other threads used meanwhile is a line of
OTHER_THREAD. What it costs: the handler, and one more turn of trio's loop, which every signal wakes.
faulthandler, which writes stacks within the signal, costs less, and crashes Python 3.11 once in some thousand samples.
"""

import atexit
import os
import signal
import time
from pathlib import Path
from types import FrameType

CPU_SECONDS = 0.004
OTHER_THREAD = "(another thread):run"


class Sampler:
    """Writes a stack for each signal."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._main, self._all = time.thread_time(), time.process_time()

    def __call__(self, _: int, frame: FrameType | None) -> None:
        """Note where the main thread is."""
        main, every = time.thread_time(), time.process_time()
        own, others = main - self._main, every - self._all - (main - self._main)
        self._main, self._all = main, every
        frames = []
        while frame is not None:
            frames.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
            frame = frame.f_back
        self._file.write(f"{own * 1e6:.0f} {';'.join(frames)}\n{max(others, 0) * 1e6:.0f} {OTHER_THREAD}\n".encode())


if folder := os.environ.get("BENCH_STACKS"):
    signal.signal(signal.SIGPROF, Sampler(Path(folder, str(os.getpid()))))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS, CPU_SECONDS)
    atexit.register(
        signal.setitimer, signal.ITIMER_PROF, 0
    )  # Once Python has let go of it, SIGPROF would end the process.
