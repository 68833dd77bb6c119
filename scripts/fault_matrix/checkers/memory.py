"""Does a process that goes on for long take more and more memory?"""

from collections.abc import Mapping, Sequence
from statistics import mean

from scripts.fault_matrix.checkers.verdict import Verdict, verdict

WARM_UP = 0.25  # Of a life: what a start makes, and buffers that have not met their largest message, are no leak.
GROWTH_MAX, GROWTH_MAX_MIB = 0.10, 8.0
LIFE_MIN_S = 600.0

# Seconds since the run began, MiB of anonymous memory: files that are mapped do not count.
Sample = tuple[float, float]


def growth(samples: Sequence[Sample]) -> tuple[float, float]:
    """MiB in the second and in the last quarter of a life."""
    began, ended = samples[0][0], samples[-1][0]
    length = ended - began

    def in_part(low: float, high: float) -> float:
        return mean(mib for at, mib in samples if began + low * length <= at <= began + high * length)

    return in_part(WARM_UP, 0.5), in_part(0.75, 1.0)


def memory_flat(lives: Mapping[str, Sequence[Sample]]) -> Verdict:
    """Oracle M, over the lives of processes, from a start to a death: those of LIFE_MIN_S and more are judged."""
    wrong, told = [], []
    for name, samples in sorted(lives.items()):
        if len(samples) < 8 or samples[-1][0] - samples[0][0] < LIFE_MIN_S:
            continue
        before, after = growth(samples)
        told.append(f"{name} {before:.0f} to {after:.0f} MiB")
        if after - before > max(GROWTH_MAX * before, GROWTH_MAX_MIB):
            wrong.append(f"{name}: {before:.1f} MiB in the second quarter of its life, {after:.1f} MiB in the last")
    if not told:
        wrong.append(f"no process lived for {LIFE_MIN_S:g} s, so nothing was shown")
    return verdict("M", wrong, ", ".join(told))
