"""The systems of `scripts/bench failover-etcd`, each member in a network namespace of its own, which stands for a machine.

Name servers, controllers, etcd and the writers are on a machine that nothing happens to, at the first place.
"""

import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import psutil
import trio
from attrs import define, field, frozen

from scripts.benchmarks import failover_etcd_client
from scripts.benchmarks.failover_etcd_patroni import PatroniMember, Timing, rows_at
from scripts.benchmarks.failover_groups import (
    BROKER_HEAP,
    CONTROLLER_HEAP,
    CONTROLLERS,
    GET_CONTROLLER,
    GET_SYNC_STATE,
    NAMESRV_HEAP,
    SIZES,
    start_all,
)
from scripts.benchmarks.systems import QUEUES
from scripts.fault_matrix.places import Place
from tests.support.clients.remoting import is_registered, request
from tests.support.process_group import jars, rocketmq
from tests.support.process_group.etcd import DEBIAN, EtcdCluster, EtcdMember
from tests.support.process_group.ports import free_port
from tests.support.process_group.process import PROGRAM, Process
from tests.support.process_group.rocketmq import _java as java
from tests.support.process_group.status import MEMBER_STATUS
from tests.support.waiting import wait_for
from twinlog.client import RemotingError, open_admin

BROKER_PORT = 10_911
READ_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.5
# Two copies, on the disks of both, and the set in etcd: nothing else is set.
OURS = {"inSyncReplicas": "2", "flushDiskType": "SYNC_FLUSH", "autoFailover": "etcd"}
# All that are in sync hold what is acknowledged; the controllers elect one of them.
THEIRS = {"enableControllerMode": "true", "allAckInSyncStateSet": "true"}


@frozen
class Machine:
    """The place where nothing happens: its address, and the etcd that runs there."""

    place: Place
    etcd: EtcdCluster

    def pause(self) -> None:
        for member in self.etcd.members:
            member.pause()

    def resume(self) -> None:
        for member in self.etcd.members:
            member.resume()


class _Etcd(EtcdMember):
    """One that is reached from other places."""

    def __init__(self, root: Path, number: int, place: Place) -> None:
        self._address = place.address
        super().__init__(root, f"etcd-{number}", DEBIAN, None)

    @property
    def endpoint(self) -> str:
        return f"http://{self._address}:{self.port}"


def three_etcds(root: Path, place: Place) -> EtcdCluster:
    """With the times that are etcd's defaults."""
    cluster = EtcdCluster(root, 3, flags=("--heartbeat-interval=100", "--election-timeout=1000"))
    cluster.members = [_Etcd(root, number, place) for number in range(3)]
    return cluster


@define(eq=False, kw_only=True)
class System(ABC):
    """Members that elect a master. A group of them comes and goes; what outlives it is installed once."""

    runs_of_group: ClassVar[int] = 1  # Faults that a group takes; healed between them.
    round_seconds: ClassVar[float] = 1.0  # A fault comes at any time of the longest period in which it looks at things.

    kind: str
    root: Path
    machine: Machine
    places: Sequence[Place]
    _numbers: "count[int]" = field(factory=lambda: count(1), init=False)

    def install(self, stack: ExitStack) -> None:  # noqa: B027  # Most have none.
        """The common part of all groups."""

    @abstractmethod
    def begin(self, stack: ExitStack) -> None:
        """A new group. The stack ends it."""

    @abstractmethod
    def is_whole(self) -> bool:
        """True if all members follow one master, and are in sync as far as they are to be."""

    @abstractmethod
    def master(self) -> int:
        """The number of the member. Raises LookupError or OSError."""

    @abstractmethod
    def pids(self, number: int) -> list[int]:
        """All processes of a member."""

    def server_pid(self, number: int) -> int:
        """The one that stores."""
        return self.pids(number)[0]

    @abstractmethod
    def start_again(self, number: int) -> None:
        """One whose processes are gone."""

    @abstractmethod
    def writer(self) -> list[str]:
        """The command of a client."""

    @abstractmethod
    def numbers(self) -> set[int]:
        """All that is there. Raises OSError when it cannot be read now."""

    def pause_electors(self) -> None:  # noqa: B027
        """Controllers of its own; etcd is paused for all."""

    def resume_electors(self) -> None:  # noqa: B027
        """The reverse."""

    def wait_whole(self, seconds: float = 90.0) -> float:
        """Seconds until then. Raises TimeoutError."""

        def look() -> bool:
            with suppress(OSError, LookupError, ValueError):
                if self.is_whole():
                    return True
            time.sleep(LOOK_SECONDS)  # Each look is work for all members.
            return False

        return wait_for(look, f"{self.kind} is whole", timeout_s=seconds)


class Broker(Process):
    """A broker of either kind in its place."""

    def __init__(self, root: Path, place: Place, command: Sequence[str], settings: dict[str, str]) -> None:
        self.root, self.place = root, place
        self.address = f"{place.address}:{BROKER_PORT}"
        self.namesrv = settings["namesrvAddr"]
        store = root / "store"
        conf = root / "broker.conf"
        root.mkdir(parents=True)
        own = {
            "brokerClusterName": "DefaultCluster",
            "brokerIP1": place.address,
            "brokerIP2": place.address,
            "listenPort": str(BROKER_PORT),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "autoCreateTopicEnable": "true",
            **SIZES,
            **settings,
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        _give_topic(store, topic_of(settings["brokerName"]))
        name = f"{settings['brokerName']} at {place.name}"
        home = {"ROCKETMQ_HOME": str(root)}
        super().__init__(name, [*place.prefix, *command, "-c", str(conf)], log=root / "stdout.log", environment=home)

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: is_registered(self.namesrv, self.address), f"registration at {self.namesrv}")


def topic_of(group: str) -> str:
    return f"topic-of-{group}"


def _give_topic(store: Path, topic: str) -> None:
    """Before its first start: slaves ask their master for new topics only now and then."""
    numbers = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "topicSysFlag": 0, "order": False}
    table = {topic: {"topicName": topic, "topicFilterType": "SINGLE_TAG", **numbers}}
    (store / "config").mkdir(parents=True)
    version = {"counter": 1, "timestamp": 1}
    (store / "config" / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))


@define(eq=False, kw_only=True)
class Brokers(System):
    """The common part of groups of brokers, ours and RocketMQ's."""

    settings: Mapping[str, str] = field(factory=dict)
    namesrv: str = field(init=False)
    name: str = field(default="", init=False)
    members: list[Broker] = field(factory=list, init=False)

    def begin(self, stack: ExitStack) -> None:
        self.name = f"{self.kind}-{next(self._numbers)}"
        self.members = [
            self._member(self.root / self.name / str(at), at, at_place) for at, at_place in enumerate(self.places)
        ]
        start_all(stack, self.members)

    @abstractmethod
    def _member(self, root: Path, number: int, place: Place) -> Broker:
        """One that is not started."""

    def pids(self, number: int) -> list[int]:
        return [self.members[number].pid] if self.members[number].running else []

    def start_again(self, number: int) -> None:
        Process.start(self.members[number])

    def writer(self) -> list[str]:
        return failover_etcd_client.command(self.namesrv, topic_of(self.name))

    def numbers(self) -> set[int]:
        found = trio.run(_read_all, self.namesrv, topic_of(self.name))
        if found is None:
            raise OSError(f"{self.name} could not be read within {READ_SECONDS_MAX:.0f} s")
        return found


@define(eq=False, kw_only=True)
class Twinlog(Brokers):
    """SYNC_MASTER with autoFailover=etcd."""

    runs_of_group: ClassVar[int] = 3  # After a third election within 10 minutes it waits.

    def install(self, stack: ExitStack) -> None:
        port, root = free_port(), self.root / "namesrv"
        root.mkdir(parents=True)
        conf = root / "namesrv.conf"
        own = self.machine.place
        conf.write_text(
            f"listenPort={port}\nbindAddress={own.address}\nkvConfigPath={root}/kv.json\nhttpEnable=false\n"
        )
        self.namesrv = f"{own.address}:{port}"
        command = [*own.prefix, PROGRAM, "namesrv", "-c", str(conf)]
        server = stack.enter_context(Process("twinlog namesrv", command, log=root / "stdout.log"))
        server.wait_ready()

    def _member(self, root: Path, number: int, place: Place) -> Broker:
        settings = {
            "brokerName": self.name,
            "brokerId": str(number),
            "brokerRole": "SLAVE" if number else "SYNC_MASTER",
            "namesrvAddr": self.namesrv,
            "bindAddress": place.address,
            "httpEnable": "false",
            "etcdEndpoints": ";".join(self.machine.etcd.endpoints),
            **OURS,
            **self.settings,
        }
        return Broker(root, place, [PROGRAM, "broker", "-n", self.namesrv], settings)

    def _status(self, member: Broker) -> dict[str, Any]:
        header, body = request(member.address, MEMBER_STATUS, timeout_s=1)
        if header["code"] != 0:
            raise LookupError(str(header))
        found: dict[str, Any] = json.loads(body)
        return found

    def master(self) -> int:
        for number, member in enumerate(self.members):
            with suppress(OSError):
                found = self._status(member)
                if found["role"] != "SLAVE" and found["state"] == "serving":
                    return number
        raise LookupError(f"{self.name} has no master now")

    def is_whole(self) -> bool:
        found = [self._status(member) for member in self.members]
        masters = [each for each in found if each["role"] != "SLAVE" and each["state"] == "serving"]
        records = [each.get("groupRecord") or {"members": ()} for each in found]
        return bool(
            len(masters) == 1
            and all(len(record["members"]) == len(found) for record in records)
            and all(record.get("lossFreeFrom") is not None for record in records)
            and len({record.get("version") for record in records}) == 1
            and all(len(record.get("inSync") or ()) == len(found) for record in records)
            and masters[0]["policy"]["inSync"] == len(found)
        )


@define(eq=False, kw_only=True)
class RocketMq(Brokers):
    """Version 5 with three controllers."""

    round_seconds: ClassVar[float] = 5.0

    controllers: list[rocketmq.Controller] = field(factory=list, init=False)
    _peers: dict[str, str] = field(factory=dict, init=False)

    def install(self, stack: ExitStack) -> None:
        own = self.machine.place
        namesrv = rocketmq.NameServer(self.root / "namesrv", version=jars.VERSION_5, heap=NAMESRV_HEAP)
        self.namesrv = f"{own.address}:{namesrv.port}"
        self._peers = {f"n{number}": f"{own.address}:{free_port()}" for number in range(CONTROLLERS)}
        self.controllers = [
            rocketmq.Controller(self.root / name, name, self._peers, heap=CONTROLLER_HEAP) for name in self._peers
        ]
        start_all(stack, [namesrv, *self.controllers])
        wait_for(lambda: self._leader() is not None, "the controllers have a leader")

    def _member(self, root: Path, number: int, place: Place) -> Broker:
        settings = {
            "brokerName": self.name,
            "brokerId": "-1",  # The controllers say who is master, and which id each one has.
            "brokerRole": "SLAVE",
            "namesrvAddr": self.namesrv,
            "controllerAddr": ";".join(self._peers.values()),
            **THEIRS,
            **self.settings,
        }
        main = "org.apache.rocketmq.broker.BrokerStartup"
        member = Broker(root, place, [*java(root, jars.VERSION_5, BROKER_HEAP), main], settings)
        rocketmq.make_home(root)
        member.slow_to_stop = True  # type: ignore[misc]
        return member

    def _leader(self) -> str | None:
        for address in self._peers.values():
            try:
                header, _ = request(address, GET_CONTROLLER, timeout_s=1)
            except OSError:
                continue
            if leader := (header.get("extFields") or {}).get("controllerLeaderAddress"):
                return str(leader)
        return None

    def _replicas(self) -> dict[str, Any]:
        leader = self._leader()
        if leader is None:
            raise LookupError("the controllers have no leader")
        _, body = request(leader, GET_SYNC_STATE, body=json.dumps([self.name]).encode(), timeout_s=1)
        found: dict[str, Any] = json.loads(body)["replicasInfoTable"][self.name]
        return found

    def master(self) -> int:
        address = self._replicas().get("masterAddress")
        return [member.address for member in self.members].index(str(address))

    def is_whole(self) -> bool:
        in_sync = self._replicas()["inSyncReplicas"]
        return len(in_sync) == len(self.places) and all(each["alive"] for each in in_sync)

    def pause_electors(self) -> None:
        for controller in self.controllers:
            controller.send_signal(signal.SIGSTOP)

    def resume_electors(self) -> None:
        for controller in self.controllers:
            if controller.running:
                controller.send_signal(signal.SIGCONT)


async def _read_all(namesrv: str, topic: str) -> set[int] | None:
    """All numbers that are there, by the name server's route; None when they could not be read."""
    found: set[int] = set()
    with trio.move_on_after(READ_SECONDS_MAX):
        async with open_admin((namesrv,)) as admin:
            while True:
                try:
                    await admin.consume(topic, lambda message: found.add(int(message.body)) or True)
                except RemotingError:
                    await trio.sleep(0.5)  # The master is not at it yet.
                else:
                    return found
    return None


@define(eq=False, kw_only=True)
class Patroni(System):
    """PostgreSQL with synchronous_mode, on the same etcd."""

    runs_of_group: ClassVar[int] = 4

    environment: Path
    timing: Timing
    members: list[PatroniMember] = field(factory=list, init=False)

    def begin(self, stack: ExitStack) -> None:
        name = f"{self.kind}-{next(self._numbers)}"
        endpoints = self.machine.etcd.endpoints
        self.members = [
            PatroniMember(self.root / name / str(at), place, name, endpoints, self.timing, self.environment)
            for at, place in enumerate(self.places)
        ]
        for member in self.members:
            stack.callback(member.end)
            member.start()
            if member is self.members[0]:  # It is the one that makes the database.
                wait_for(lambda: self._role(0) == "primary", f"{name} has a primary", timeout_s=60)

    def _role(self, number: int) -> str:
        try:
            own = self.members[number]
            return next(str(each["role"]) for each in own.cluster() if each["name"] == own.place.name).replace(
                "leader", "primary"
            )
        except (OSError, StopIteration, ValueError, KeyError):
            return ""

    def _seen(self) -> Sequence[Any]:
        """As the first of them that answers says."""
        for member in self.members:
            with suppress(OSError, ValueError, KeyError):
                return member.cluster()
        raise LookupError(f"no member of {self.kind} answers")

    def master(self) -> int:
        leaders = [each["name"] for each in self._seen() if each["role"] == "leader"]
        names = [member.place.name for member in self.members]
        if len(leaders) != 1:
            raise LookupError(f"{self.kind} has {len(leaders)} primaries now")
        return names.index(leaders[0])

    def is_whole(self) -> bool:
        views = [member.cluster() for member in self.members]
        for view in views:
            roles = sorted(str(each["role"]) for each in view)
            wanted = sorted(["leader", "sync_standby", *["replica"] * (len(self.members) - 2)])
            states = {str(each["state"]) for each in view}
            if roles != wanted or not states <= {"running", "streaming"}:
                return False
        return True

    def pids(self, number: int) -> list[int]:
        return self.members[number].pids()

    def server_pid(self, number: int) -> int:
        server = self.members[number].postmaster
        if server is None:
            raise LookupError("no PostgreSQL runs there")
        return server.pid

    def start_again(self, number: int) -> None:
        self.members[number].start()

    def writer(self) -> list[str]:
        program = Path(__file__).with_name("failover_etcd_rows.py")
        hosts = [place.address for place in self.places]
        return [str(self.environment / "bin" / "python"), str(program), *hosts]

    def numbers(self) -> set[int]:
        return rows_at(self.places[self.master()].address)


# ---- What happens to a member


@frozen
class Fault:
    """Fate of the machine of a master. `server` is that of PostgreSQL alone, below a Patroni that goes on."""

    system: System
    kind: str
    number: int

    def inject(self) -> None:
        if self.kind == "cut":
            place = self.system.places[self.number]
            for chain, side in (("INPUT", "-i"), ("OUTPUT", "-o")):
                place.run("iptables", "-w", "-A", chain, side, "eth0", "-j", "DROP")
        elif self.kind == "server":
            server = psutil.Process(self.system.server_pid(self.number))
            _signal([server.pid, *(each.pid for each in server.children(recursive=True))], signal.SIGKILL)
        else:
            _signal(self.system.pids(self.number), signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)

    def heal(self) -> None:
        """Start what is gone again, and let go what is held."""
        self.release()
        if self.kind == "kill":
            wait_for(lambda: not self.system.pids(self.number), "its processes are gone", timeout_s=10)
            self.system.start_again(self.number)

    def release(self) -> None:
        """As far as it holds a process that lives."""
        if self.kind == "cut":
            place = self.system.places[self.number]
            for chain in ("INPUT", "OUTPUT"):
                place.run("iptables", "-w", "-F", chain)
        elif self.kind == "stop":
            _signal(reversed(self.system.pids(self.number)), signal.SIGCONT)


def _signal(pids: "Sequence[int] | reversed[int]", number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
