"""The etcd of a group under test: real members, each in a place of its own, and what the group keeps there."""

import json
import subprocess
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import define, field

from scripts.fault_matrix.places import Place, enter_namespace
from tests.support.process_group.etcd import DEBIAN, NEWEST, EtcdCluster, EtcdMember, Version
from tests.support.process_group.process import Process

VERSIONS = (DEBIAN, NEWEST)
PORTS = (0, 1, 2)  # Clients, peers, metrics.
QUOTA = 16 << 20  # Bytes. etcd takes no more, so that a test can fill it.
FILL_KEY, FILL_SIZE = "/fill/", 1 << 20
CTL_SECONDS = 30


class PlacedMember(EtcdMember):
    """One server, in its place."""

    def __init__(self, root: Path, name: str, version: Version, place: Place) -> None:
        super().__init__(root, name, version, None)
        self.place = place
        self.port = place.port(*PORTS)

    @property
    def endpoint(self) -> str:
        return f"http://{self.place.address}:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://{self.place.address}:{self.port + 1}"

    @property
    def metrics_url(self) -> str:
        """Told to anybody, also while clients are refused."""
        return f"http://{self.place.address}:{self.port + 2}"

    def start(self) -> None:
        program = [str(self.version.program()), f"--name={self.name}", f"--data-dir={self.data_dir}", *self.flags]
        self._command = [*self.place.prefix, *program]
        Process.start(self)

    def metric(self, name: str) -> float | None:
        """Asked from its own place."""

        def ask() -> list[str]:
            if self.place.namespace:
                enter_namespace(self.place)
            with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=1) as answer:
                return answer.read().decode().splitlines()

        with ThreadPoolExecutor(1) as beside:  # A thread that has gone elsewhere does not come back.
            try:
                lines = beside.submit(ask).result()
            except OSError:
                return None
        return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), None)


@define(eq=False)
class PlacedCluster(EtcdCluster):
    """A member in each of `places`."""

    places: Sequence[Place] = field(factory=tuple)

    def __attrs_post_init__(self) -> None:
        self.size = len(self.places)
        self.flags = (*self.flags, f"--quota-backend-bytes={QUOTA}")
        self.members = [
            PlacedMember(self.root, f"etcd-{n}", self.version, place) for n, place in enumerate(self.places)
        ]

    def __str__(self) -> str:
        return f"etcd {self.version.number}, {'one member' if self.size == 1 else f'{self.size} members'}"

    def _configure(self) -> None:
        EtcdCluster._configure(self)
        for member in self.members:
            assert isinstance(member, PlacedMember)
            others = [flag for flag in member.flags if not flag.startswith("--listen-metrics-urls=")]
            member.flags = [*others, f"--listen-metrics-urls={member.metrics_url}"]

    def ctl(self, *arguments: str, user: str = "", standard_input: str = "") -> str:
        """etcdctl, in the first member's place. Raises AssertionError with what it says when it fails."""
        assert not user
        command = [*self.places[0].prefix, "etcdctl", f"--endpoints={','.join(self.endpoints)}"]
        command += ["--dial-timeout=3s", "--command-timeout=10s", *arguments]
        done = subprocess.run(command, input=standard_input, capture_output=True, text=True, timeout=CTL_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def record(self) -> dict[str, Any] | None:
        """The group's record, as etcdctl shows it to a person; None: etcd has none, or does not answer."""
        try:
            told = self.ctl("get", "--prefix", "/twinlog/", "--print-value-only")
        except (AssertionError, subprocess.TimeoutExpired):
            return None
        found = (json.loads(line) for line in told.splitlines() if line.startswith("{"))
        return next((value["record"] for value in found), None)

    def in_sync(self) -> frozenset[str]:
        """Names of the members in sync; empty where that cannot be read."""
        record = self.record()
        if record is None:
            return frozenset()
        names = {each["id"]: each["name"] for each in record["members"]}
        return frozenset(names.get(id, id) for id in record.get("inSync", ()))

    def fill(self) -> None:
        """Until it takes nothing more: etcd raises NOSPACE, and refuses every write."""
        for number in range(2 * QUOTA // FILL_SIZE):
            try:
                self.ctl("put", f"{FILL_KEY}{number}", standard_input="x" * FILL_SIZE)
            except AssertionError as error:
                if "space exceeded" not in str(error):
                    raise
                return
        raise AssertionError(f"etcd took more than {QUOTA} bytes")

    def make_room(self) -> None:
        """What a person does: delete, compact, defragment, and take the alarm back."""
        self.ctl("del", "--prefix", FILL_KEY)
        told = json.loads(self.ctl("get", FILL_KEY, "--write-out=json"))
        self.ctl("compact", str(told["header"]["revision"]))
        self.ctl("defrag")
        self.ctl("alarm", "disarm")


def version_of(seed: int) -> Version:
    """Debian's by even seeds, the newest by odd ones."""
    return VERSIONS[seed % len(VERSIONS)]


def size_of(sizes: Sequence[int], seed: int) -> int:
    """How many members a run has, where a row allows several numbers. 0: no etcd."""
    return sizes[seed // len(VERSIONS) % len(sizes)] if sizes else 0
