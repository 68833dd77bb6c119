"""Cores of `twinlog up --pin`: one for each broker. A core is one by the kernel's count: a hardware thread.

A broker is one event loop, which uses one core at most, and threads with little to do. Bound to a core each, brokers do not move
onto each other's. The name server, etcd and the dashboard are bound to none.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import evolve

from twinlog.cluster.cli.run.up_plan import UpPlan

TOPOLOGY = Path("/sys/devices/system/cpu")


def pinned(plan: UpPlan, cores: Sequence[int]) -> UpPlan:
    """Return the plan with a core for each broker, or as it is where there are not two cores.

    Masters first, then slaves; each takes the core that the fewest have, the first of these: no two masters have one core while
    another one is free. A slave never takes that of its own master. Roles change later, cores do not.
    """
    if len(cores) < 2:
        return plan
    taken: Counter[int] = Counter()
    of_master: dict[str, int] = {}
    found: dict[str, int] = {}
    for broker in sorted(plan.brokers, key=lambda each: each.broker_id > 0):
        core = min((core for core in cores if core != of_master.get(broker.group)), key=taken.__getitem__)
        of_master.setdefault(broker.group, core)  # Its master is the first of a group here.
        found[broker.name] = core
        taken[core] += 1
    return evolve(plan, brokers=tuple(evolve(broker, core=found[broker.name]) for broker in plan.brokers))


def spread(siblings: Mapping[int, Sequence[int]]) -> list[int]:
    """Order cores so that the first ones share no physical core; `siblings`: of each core, those of its physical core."""
    return sorted(siblings, key=lambda core: (sum(other < core for other in siblings[core] if other in siblings), core))


def own_cores(topology: Path = TOPOLOGY) -> list[int]:
    """Return the cores that this process may use, in the order in which `pinned` takes them."""
    return spread({core: _siblings(topology, core) for core in os.sched_getaffinity(0)})


def _siblings(topology: Path, core: int) -> list[int]:
    """Cores of the same physical core, from text like 0,4 or 0-1; only itself where the kernel does not say."""
    with suppress(OSError, ValueError):
        text = (topology / f"cpu{core}/topology/thread_siblings_list").read_text()
        ranges = [[int(number) for number in part.split("-")] for part in text.split(",")]
        return [number for each in ranges for number in range(each[0], each[-1] + 1)]
    return [core]


@contextmanager
def bound(core: int | None) -> Iterator[None]:
    """Bind processes that are started in this block, by this thread, to the core with all their threads; None: not at all."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    with suppress(OSError):  # A core that was taken away since: a member that runs anywhere is better than none.
        os.sched_setaffinity(0, {core})  # Of this thread only; a child inherits it.
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
