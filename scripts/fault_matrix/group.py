"""A group of members under test: started, broken, mended, looked at, and always ended."""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from scripts.fault_matrix import history as histories
from scripts.fault_matrix.checkers.masters import Epoch
from scripts.fault_matrix.checkers.unattended import elected
from scripts.fault_matrix.disks import mounted_all
from scripts.fault_matrix.etcd import PlacedCluster, version_of
from scripts.fault_matrix.failpoints import FAIL_POINTS, POINTS_FILE
from scripts.fault_matrix.history import Event, encode
from scripts.fault_matrix.places import Net, Place
from scripts.fault_matrix.planted import BOOT_ID, FAKETIME, OWN_BOOTS, OWN_CLOCK
from scripts.fault_matrix.proxy import Proxy
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.process import PROGRAM, Process
from tests.support.waiting import SECONDS_MAX, wait_for
from twinlog.store.epoch_file import EpochEntry, load_epochs
from twinlog.store.role_file import GroupRecord, load_role

if TYPE_CHECKING:
    from scripts.fault_matrix.rows import Row

PYTHON = sys.executable
MEMBER_DIRECTORY = "MEMBER_DIRECTORY"  # In the environment of a member: where its log lies.
SETTINGS = {
    **TEST_SETTINGS,
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    # Nothing here depends on how full this machine's disk is.
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
    "autoCreateTopicEnable": "true",
    "httpEnable": "false",
}
LEVELS = {
    "L0": {},
    "L1": {"flushDiskType": "SYNC_FLUSH"},
    "L2": {"visibility": "confirmed"},
    "L3": {"visibility": "confirmed", "flushDiskType": "SYNC_FLUSH", "haAckMode": "flushed"},
}


def master_role(level: str) -> str:
    """The brokerRole of a master that makes this promise."""
    return "SYNC_MASTER" if level in ("L2", "L3") else "ASYNC_MASTER"


class NameServer(Process):
    """`twinlog namesrv`."""

    def __init__(self, root: Path, place: Place, settings: Mapping[str, str]) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.root = root
        self.port = 9876 if place.prefix else place.port(0, 2)
        self.address = f"{place.address}:{self.port}"
        self.conf = root / "namesrv.conf"
        self.conf.write_text(
            f"listenPort={self.port}\nbindAddress={place.address}\nkvConfigPath={root}/kv.json\nhttpEnable=false\n"
            + "".join(f"{key}={value}\n" for key, value in settings.items())
        )
        command = [*place.prefix, PROGRAM, "namesrv", "-c", str(self.conf)]
        super().__init__("namesrv", command, log=root / "log", environment={"TWINLOG_LOG": "json"})

    def start(self) -> None:
        super().start()
        self.wait_ready()


class Member(Process):
    """A broker. Its store lies in `home`, which may be a disk of its own; its log and its configuration on a good one."""

    def __init__(
        self,
        root: Path,
        place: Place,
        namesrv: str,
        number: int,
        settings: Mapping[str, str],
        hole: str = "",
        environment: Mapping[str, str] | None = None,
        own_boots: bool = False,
        has_points: bool = False,
    ) -> None:
        self._lie_in(root, place, number)
        self.settings = {
            "brokerName": "broker-a",
            "brokerId": str(number),
            "brokerIP1": place.address,
            "brokerIP2": place.address,
            "bindAddress": place.address,
            "listenPort": str(self.port),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(self.store),
            **SETTINGS,
            **settings,
        }
        self.configure()
        changes = [OWN_BOOTS] * own_boots + [FAIL_POINTS] * has_points + [hole] * bool(hole)
        changes += [OWN_CLOCK] * (FAKETIME in (environment or {}))
        program = [PYTHON, "-m", "scripts.fault_matrix.planted", *changes] if changes else [PROGRAM]
        self.points = root / "points"  # Where it is to kill itself; see failpoints.py.
        self.note_boot()
        command = [*place.prefix, *program, "broker", "-c", str(self.conf)]
        told = {"TWINLOG_LOG": "json", "PYTHONFAULTHANDLER": "1", BOOT_ID: str(self.boot_id), **(environment or {})}
        told = {key: value.replace(MEMBER_DIRECTORY, str(root)) for key, value in told.items()}
        told[POINTS_FILE] = str(self.points)
        super().__init__(self.label, command, log=root / "log", environment=told)

    def _lie_in(self, root: Path, place: Place, number: int) -> None:
        """What is where, whoever's member it is."""
        self.label = f"broker-a-{number}"
        self.place = place
        self.home = root / "home"
        self.store = self.home / self.label
        self.commit_log = self.store / "commitlog"
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = place.port()
        self.address = f"{place.address}:{self.port}"
        self.addresses = [self.address]  # All that it ever had.
        self.conf = root / "broker.conf"
        self.own_log = root / "log"  # Where it tells of what it does.
        self.boot_id = root / "boot_id"

    def configure(self) -> None:
        """Write its broker.conf, for its next start."""
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def move(self, host: str, port: int) -> None:
        """Another address, from its next start on."""
        self.port, self.address = port, f"{host}:{port}"
        self.addresses.append(self.address)
        self.settings |= {"brokerIP1": host, "brokerIP2": host, "bindAddress": host, "listenPort": str(port)}
        self.configure()

    def note_boot(self) -> None:
        """Its machine was started. A member takes what a crash left in memory for safe, unless its machine died."""
        self.boot_id.write_text(f"{uuid.uuid4()}\n")

    def start(self) -> None:
        super().start()
        self.wait_ready()

    def lines_from(self, position: int) -> list[str]:
        """What it wrote since its log was so long."""
        if not self.own_log.exists():
            return []
        with self.own_log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace").splitlines()

    @property
    def log_size(self) -> int:
        return self.own_log.stat().st_size if self.own_log.exists() else 0


@define
class Group:
    """What runs, where, and what was written down of it. Places of the net are the members', the name servers', etcd's, and last
    the client's.
    """

    root: Path
    net: Net
    namesrvs: tuple[NameServer, ...]
    members: tuple[Member, ...]
    client: Place
    etcd: PlacedCluster | None = None  # Where the group's record is kept.
    disks: dict[str, Path] = field(factory=dict)  # Images, by a member's label.
    proxies: dict[str, Proxy] = field(factory=dict)  # Between a member, by its label, and its master.
    seen: set[int] = field(factory=set)  # Faults that left a trace.
    seed: int = 0
    points_taken: dict[str, int] = field(factory=dict)  # By stage: the next of the fail-points.
    faults: int = 0  # So far.
    complaints: dict[str, list[str]] = field(factory=dict)  # By the oracle that they are for.
    _log_sizes: dict[int, dict[str, int]] = field(factory=dict)

    # ---- The history

    @property
    def namesrv(self) -> str:
        return ";".join(each.address for each in self.namesrvs)

    @property
    def own_lines(self) -> Path:
        return self.root / "history.faults"

    @property
    def client_lines(self) -> Path:
        return self.root / "history.clients"

    @property
    def final_lines(self) -> Path:
        return self.root / "history.final"

    def write(self, kind: str, number: int = -1, text: str = "", node: str = "") -> None:
        """One line of its own."""
        if kind == "seen":
            self.seen.add(number)
        event = Event(ns=time.monotonic_ns(), kind=kind, process="nemesis", id=number, text=text, node=node)  # type: ignore[arg-type]
        with self.own_lines.open("ab") as file:
            file.write(encode(event))

    def complain(self, oracle: str, text: str) -> None:
        """A fault saw what may not be. The run goes on, and this is part of what the oracle says in the end."""
        self.complaints.setdefault(oracle, []).append(text)
        self.write("note", text=f"{oracle}: {text}")

    def write_invoke(self, value: str, queue: str, number: int) -> None:
        """A message that somebody sent whose end nobody will know."""
        event = Event(
            ns=time.monotonic_ns(), kind="invoke", op="append", process="nemesis", id=number, value=value, queue=queue
        )
        with self.own_lines.open("ab") as file:
            file.write(encode(event))

    def fault_begins(self, text: str) -> int:
        """Its number."""
        number, self.faults = self.faults, self.faults + 1
        self._log_sizes[number] = {each.name: each.log_size for each in self.members}
        self._log_sizes[number][""] = self.client_lines.stat().st_size if self.client_lines.exists() else 0
        self.write("fault", number, text)
        return number

    def traces(self, number: int, pattern: str) -> bool:
        """Write down the first trace of a fault in any member's log, in what producers were told other than OK, or in what
        `twinlog check` says now.
        """
        if not pattern:
            self.write("seen", number, "shorter than what anybody waits for: no trace is asked for")
            return True
        for member in self.members:
            for line in member.lines_from(self._log_sizes[number][member.name]):
                if re.search(pattern, line):
                    self.write("seen", number, line[:300], member.label)
                    return True
        for event in histories.from_position(self.client_lines, self._log_sizes[number][""]):
            if event.kind in ("unknown", "fail") and self.is_told(event.text, pattern):
                self.write("seen", number, event.text[:300], "a producer")
                return True
        for finding in self.check():
            if re.search(pattern, finding):
                self.write("seen", number, finding, "twinlog check")
                return True
        return False

    def is_told(self, text: str, pattern: str) -> bool:
        """Whether what a producer was told is a trace."""
        return bool(re.search(pattern, text))

    def check(self) -> list[str]:
        """What `twinlog check` complains of."""
        done = self.twinlog("check", "-o", "json", status=None)
        if done.returncode == 3:
            return [f"no name server: {done.stdout}{done.stderr}"]
        found = json.loads(done.stdout)
        return [f"{each['level']}: {each['cause']}: {each['subject']}: {each['what']}" for each in found["findings"]]

    # ---- Commands

    def twinlog(
        self, *arguments: str, status: int | None = 0, place: Place | None = None
    ) -> subprocess.CompletedProcess[str]:
        """To its end, from the clients' place; `status` None: whatever it ends with."""
        env = {**os.environ, "NAMESRV_ADDR": self.namesrv}
        command = [*(place or self.client).prefix, PROGRAM, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=SECONDS_MAX)
        if status is not None and done.returncode != status:
            tails = "\n".join(each.tail(30) for each in self.members)
            raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}{tails}")
        return done

    def read_all(self, out: Path) -> subprocess.CompletedProcess[str]:
        """Everything that is there, from the masters, written to a history."""
        command = [*self.client.prefix, PYTHON, "-m", "scripts.fault_matrix.workload", "final"]
        command += ["--namesrv", self.namesrv, "--out", str(out)]
        return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False)

    def listed(self) -> dict[str, dict]:
        """Every member as `twinlog list` has it."""
        members = json.loads(self.twinlog("list", "-o", "json", status=None).stdout)["members"]
        return {member["name"]: member for member in members}

    def master(self) -> Member:
        """Who serves now. Raises LookupError when nobody does."""
        listed = self.listed()
        for each in self.members:
            told = listed.get(each.label)
            if told and told["role"] == "master" and told["state"] == "serving":
                return each
        raise LookupError("there is no master that serves")

    def slaves(self) -> list[Member]:
        master = self.master()
        return [each for each in self.members if each is not master]

    def wait_healthy(self, seconds: float = SECONDS_MAX - 5) -> None:
        """One serves, all others follow it."""
        self.twinlog("wait", "healthy", f"members={len(self.members)}", "--timeout", str(seconds))

    def wait_record(self) -> None:
        """All members know each other: before that nobody may change roles."""

        def known() -> bool:
            return all(self.listed().get(each.label, {}).get("epoch") is not None for each in self.members)

        wait_for(known, "the members' record")
        self.wait_healthy()

    def wait_in_sync(self, *members: Member, seconds: float = SECONDS_MAX) -> None:
        """These, and nobody else, are in the set that etcd keeps."""
        assert self.etcd is not None
        cluster, wanted = self.etcd, {each.label for each in members}
        wait_for(lambda: cluster.in_sync() == wanted, f"an in-sync set of {', '.join(wanted)}", timeout_s=seconds)

    @property
    def names(self) -> dict[str, str]:
        """Whose each address is, or was."""
        return {address: each.label for each in self.members for address in each.addresses}

    def records(self) -> dict[str, GroupRecord | None]:
        """The group's record, as each of the members has it, which are stopped."""
        states = {each.label: load_role(each.store / "twinlog") for each in self.members}
        return {label: state.group if state is not None else None for label, state in states.items()}

    def entries(self) -> dict[str, tuple[EpochEntry, ...]]:
        """The epoch files of all members whose disks are there."""
        found = {}
        for each in self.members:
            with suppress(OSError):
                found[each.label] = load_epochs(each.store / "twinlog")
        return found

    def elections(self) -> int:
        """Number of epochs so far that the group itself decided."""
        return len(elected(self.entries()))

    def epochs(self) -> dict[str, tuple[Epoch, ...]]:
        """The epoch files of all members, which are stopped. A winner is the address that it had then, as clients know it."""

        def winner(entry: EpochEntry) -> str:
            ends = {address: (address, f"{address})") for address in self.names}  # Alone, or behind its name.
            return next((at for at, of_label in ends.items() if entry.winner_label.endswith(of_label)), entry.winner)

        return {
            label: tuple(Epoch(entry.epoch, winner(entry), entry.start_offset) for entry in entries)
            for label, entries in self.entries().items()
        }


def proxies_of(places: Sequence[Place], seed: int, stack: ExitStack) -> dict[str, Proxy]:
    """One beside each member, until the end of the stack."""
    made = {f"broker-a-{number}": Proxy(place, f"{seed} {number}") for number, place in enumerate(places)}
    for each in made.values():
        stack.enter_context(each.running())
    return made


@contextmanager
def running(
    root: Path, net: Net, row: "Row", seed: int, *, hole: str, environment: Mapping[str, str] | None
) -> Iterator[Group]:
    """A group that follows its master. Ends all that it started, and unmounts what it mounted."""
    with ExitStack() as stack:
        places = net.places
        of_namesrvs, of_etcd = places[row.members :][: row.namesrvs], places[row.members + row.namesrvs : -1]
        servers = tuple(
            NameServer(root / f"n{at}", place, row.namesrv_settings) for at, place in enumerate(of_namesrvs)
        )
        for server in servers:
            stack.push(server)  # First: who is interrupted while it starts ends it, too.
            server.start()
        namesrv = ";".join(each.address for each in servers)
        proxies = proxies_of(places[: row.members], seed, stack) if row.proxied else {}
        etcd = PlacedCluster(root / "etcd", version=version_of(seed), places=of_etcd) if of_etcd else None
        if etcd is not None:
            stack.enter_context(etcd)
        found: list[Member] = []
        for number in range(row.members):
            role = {"brokerRole": "SLAVE" if number else master_role(row.level)}
            outside = {"etcdEndpoints": ";".join(etcd.endpoints)} if etcd is not None else {}
            settings = {**role, **LEVELS[row.level], **outside, **row.settings}
            own = root / f"m{number}", places[number], namesrv, number
            found.append(Member(*own, settings, hole, environment, row.disks, row.points))
        group = Group(root, net, servers, tuple(found), places[-1], etcd, proxies=proxies, seed=seed)
        if row.disks:
            stack.enter_context(mounted_all(group, row.image_mb))
        for member in found:
            stack.push(member)
            member.start()
        group.wait_record() if row.members > 1 else group.wait_healthy()
        if etcd is not None:
            group.wait_in_sync(*group.members)
        yield group
