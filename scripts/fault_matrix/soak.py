"""One group for an hour and more: a fault of any kind every 10 to 20 seconds, and what each process takes of the memory."""

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import click
import psutil
from attrs import define, field

from scripts.fault_matrix import fault, fault_disk, fault_link, fault_net, fault_stranger
from scripts.fault_matrix.checkers.memory import Sample
from scripts.fault_matrix.group import Group
from scripts.fault_matrix.rows import Row
from scripts.fault_matrix.schedule import WARM, one_fault
from scripts.fault_matrix.traffic import Traffic

EVERY_S = (10.0, 20.0)
SAMPLE_S, TELL_S = 10.0, 60.0
MIB = 1 << 20
# After these somebody has to choose a master: see WITHOUT_F.
NEED_SOMEBODY = (fault_disk.PowerCutMaster,)

SOAK = Row(
    number=0,
    name="an hour of everything",
    faults=(
        *(fault.KillMaster, fault.KillSlave, fault.KillNameServer, fault.EmptyNameServer, fault.Storm),
        *(fault.PauseMasterShort, fault.PauseMasterLong, fault.PauseSlaveLong, fault.PauseMasterAndFailOver),
        *(fault_disk.PowerCutMaster, fault_disk.PowerCutSlave, fault_disk.StuckDiskOfMaster),
        *(fault_disk.StuckDiskOfSlave, fault_disk.SyncFails, fault_disk.DiskFull),
        *(fault_link.Stalls, fault_link.SlowAndTiny, fault_link.HalfClose, fault_link.Flip),
        *(fault_net.MasterFromSlaves, fault_net.MasterFromAll, fault_net.MasterFromClients, fault_net.AcksLost),
        *(fault_net.DataLost, fault_net.MasterFromAllAndFailOver, fault_net.AcksLostAndFailOver),
        fault_stranger.ForgedAcks,
    ),
    level="L3",
    oracles="ABCDEFG",  # Porcupine keeps what it has tried: of so long a history that is more than there is memory.
    net="namespaces",
    namesrvs=2,
    disks=True,
    image_mb=4096,
    shim=True,
    proxied=True,
    # Many, each slow: so that a slow disk is no slow hour, and a quick one no history that fills the memory.
    producers=64,
    pace_s=0.06,
    # Files of a size that an hour of messages fills a hundred times, and not a thousand times.
    settings={
        "mappedFileSizeCommitLog": "16777216",
        "mappedFileSizeConsumeQueue": "600000",
        "maxHashSlotNum": "50000",
        "maxIndexNum": "200000",
        "registerNameServerPeriod": "10000",
    },
)


@define
class Soak:
    """A schedule. `lives`: the memory of each process from a start of it to its end."""

    seconds: float
    lives: dict[str, list[Sample]] = field(factory=dict)

    def __call__(self, row: Row, group: Group, traffic: Traffic, rng: random.Random) -> None:
        """The last member and the first name server are never killed, so that their memory tells of all the time."""
        traffic.more(WARM)
        began = time.monotonic()
        kinds: list[type[fault.Fault]] = []
        with self._watching(group, traffic):
            while (now := time.monotonic()) < began + self.seconds:
                kinds = kinds or rng.sample(row.faults, len(row.faults))
                chosen = kinds.pop()(group, rng)
                if not {group.members[-1], group.namesrvs[0]}.isdisjoint(chosen.killed):
                    continue
                one_fault(chosen, group, traffic, is_helped=isinstance(chosen, NEED_SOMEBODY))
                time.sleep(max(0.0, now + rng.uniform(*EVERY_S) - time.monotonic()))

    @contextmanager
    def _watching(self, group: Group, traffic: Traffic) -> Iterator[None]:
        """Look at all processes meanwhile, and tell how far it is."""
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(group, traffic, done), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()

    def _watch(self, group: Group, traffic: Traffic, done: threading.Event) -> None:
        began = told = time.monotonic()
        while not done.wait(SAMPLE_S):
            at = time.monotonic() - began
            now = memory_of(group)
            for name, mib in now.items():
                self.lives.setdefault(name, []).append((round(at, 1), round(mib, 1)))
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                sizes = ", ".join(f"{name.partition('#')[0]} {mib:.0f}" for name, mib in now.items())
                faults = group.faults
                click.echo(f"{at / 60:5.1f} min  {traffic.count:>9,} acknowledged  {faults:>4} faults  MiB: {sizes}")

    def thinned(self) -> Mapping[str, list[Sample]]:
        """For a file: at most one look a minute, and the last."""
        every = round(TELL_S / SAMPLE_S)
        return {name: [*samples[::every], samples[-1]] for name, samples in self.lives.items()}


def memory_of(group: Group) -> dict[str, float]:
    """MiB that are a process's own, by its name and number."""
    found = {}
    for process in (*group.namesrvs, *group.members):
        with suppress(psutil.Error, OSError, LookupError, AssertionError):
            found[f"{process.name}#{process.pid}"] = anonymous_bytes(process.pid) / MIB
    return found


def anonymous_bytes(pid: int) -> int:
    """Resident, and of no file. Raises OSError, LookupError where the process has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"process {pid} has ended")
