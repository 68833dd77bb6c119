"""The real RocketMQ's name server and broker as processes of a run, each in its place, with its logs on a good disk."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from scripts.fault_matrix.group import SETTINGS, Member, NameServer
from scripts.fault_matrix.places import Place
from tests.support.process_group import jars
from tests.support.process_group.process import Process
from tests.support.process_group.rocketmq import SMALL_HEAP, make_home
from tests.support.process_group.rocketmq import _java as java


class TheirNameServer(NameServer):
    """org.apache.rocketmq.namesrv.NamesrvStartup."""

    slow_to_stop = True

    def __init__(self, root: Path, place: Place) -> None:
        self.place, self.root = place, root
        self.port = 9876 if place.prefix else place.port(0, 2)
        self.address = f"{place.address}:{self.port}"
        self.conf = root / "namesrv.conf"
        make_home(root)
        self.conf.write_text(f"listenPort={self.port}\nkvConfigPath={root}/kv.json\n")
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = [*place.prefix, *java(root, jars.VERSION, SMALL_HEAP), main, "-c", str(self.conf)]
        Process.__init__(self, "namesrv", command, log=root / "log", environment={"ROCKETMQ_HOME": str(root)})

    def start(self) -> None:
        Process.start(self)
        self.wait_until(lambda: self.printed("The Name Server boot success"), "its boot")


class TheirMember(Member):
    """org.apache.rocketmq.broker.BrokerStartup. Its store lies in `home`, which may be a disk of its own."""

    slow_to_stop = True

    def __init__(
        self,
        root: Path,
        place: Place,
        namesrv: str,
        number: int,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._lie_in(root, place, number)
        self.own_log = root / "server.log"  # All of its logs; they are one file here.
        self.stale_pid = -1  # A process that runs with another role than its broker.conf says now.
        self.settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerIP1": place.address,
            "brokerIP2": place.address,
            "listenPort": str(self.port),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.commit_log),
            **SETTINGS,
            **settings,
        }
        make_home(root)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = [*place.prefix, *java(root, jars.VERSION, SMALL_HEAP), main, "-c", str(self.conf)]
        told = {"ROCKETMQ_HOME": str(root), **(environment or {})}
        Process.__init__(self, self.label, command, log=root / "log", environment=told)

    def start(self) -> None:
        Process.start(self)
        self.wait_booted()

    def wait_booted(self) -> None:
        self.wait_until(lambda: self.printed("The broker["), "its boot")

    def edit(self, role: str, number: int) -> None:
        """Another role from its next start on."""
        self.settings |= {"brokerRole": role, "brokerId": str(number)}
        self.configure()
        self.stale_pid = self.pid if self.running else -1

    def empty(self) -> None:
        """Its store is removed, as before its first start."""
        for path in self.home.iterdir():
            if path.name != "lost+found":
                shutil.rmtree(path)

    @property
    def is_stale(self) -> bool:
        return self.running and self.pid == self.stale_pid

    def lines_with(self, what: str) -> list[str]:
        """Of its log."""
        return [line for line in self.lines_from(0) if what in line]
