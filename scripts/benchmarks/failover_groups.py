"""The groups of three whose masters are lost: ours, which elects by itself, and RocketMQ 5's, whose controllers elect.

Each has a name server of its own kind, small log files, and a disk for every member's store, which can be frozen. Members are
plain processes: nobody starts one again that died.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from attrs import define, field

from scripts.benchmarks.systems import QUEUES
from tests.support.clients.remoting import request
from tests.support.disk.faults import Disk, ext4, make_image
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import BrokerProcess, NameServerProcess
from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import Process
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

KINDS = ("twinlog", "rocketmq", "rocketmq-2")
MEMBERS, CONTROLLERS = 3, 3
WHOLE_SECONDS_MAX = 60.0
DISK_MEGABYTES = 512
GET_CONTROLLER, GET_SYNC_STATE = 1005, 1006
NAMESRV_HEAP = ("-Xms64m", "-Xmx128m", *rocketmq.QUICK_START)
CONTROLLER_HEAP = ("-Xms64m", "-Xmx256m", *rocketmq.QUICK_START)
BROKER_HEAP = ("-Xms256m", "-Xmx512m", *rocketmq.QUICK_START)
# A group of three writes little: small files, of the same sizes for both.
SIZES = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}
# Two members hold what is acknowledged, and the members elect: nothing else is set.
OURS = {"inSyncReplicas": "2", "autoFailover": "members"}
# All that are in sync hold it; the controllers elect one of them.
THEIRS = {"enableControllerMode": "true", "allAckInSyncStateSet": "true"}


@define(kw_only=True)
class Group:
    """Three members, and how to see them as what elects sees them."""

    namesrv: str
    name: str
    members: Sequence[BrokerProcess]
    find_master: Callable[[Sequence[BrokerProcess]], BrokerProcess | None]
    look: Callable[["Group"], bool]

    @property
    def topic(self) -> str:
        return f"topic-of-{self.name}"

    def master(self) -> BrokerProcess:
        found = self.find_master(self.members)
        if found is None:
            raise LookupError(f"{self.name} has no master now")
        return found

    def is_whole(self) -> bool:
        """Whether all members follow one master, and count."""
        try:
            return self.look(self)
        except (OSError, LookupError, ValueError):
            return False

    def wait_whole(self) -> float:
        """Seconds until then. Raises TimeoutError."""
        return wait_for(self.is_whole, f"{self.name} is whole", timeout_s=WHOLE_SECONDS_MAX)


def disk_of(member: BrokerProcess) -> Disk:
    """The disk under its store."""
    return Disk(member.root / "disk")


@define
class Installation:
    """A name server, alone on the machine with what elects; groups come and go."""

    kind: str  # One of KINDS.
    root: Path
    stack: ExitStack
    _namesrv: NameServerProcess = field(init=False)
    _peers: Mapping[str, str] = field(factory=dict, init=False)
    _numbers: "count[int]" = field(factory=lambda: count(1), init=False)

    def __attrs_post_init__(self) -> None:
        if self.kind == "twinlog":
            self._namesrv = self.stack.enter_context(twinlog.NameServer(self.root / "namesrv"))
            return
        self._namesrv = rocketmq.NameServer(self.root / "namesrv", version=jars.VERSION_5, heap=NAMESRV_HEAP)
        self._peers = {f"n{number}": f"{HOST}:{free_port()}" for number in range(CONTROLLERS)}
        controllers = [
            rocketmq.Controller(self.root / name, name, self._peers, heap=CONTROLLER_HEAP) for name in self._peers
        ]
        start_all(self.stack, [self._namesrv, *controllers])
        wait_for(lambda: self._leader() is not None, "the controllers have a leader")

    @contextmanager
    def group(self) -> Iterator[Group]:
        """A new one, of a name that no other had, with a topic that all of its members know."""
        name = f"{self.kind}-{next(self._numbers)}"
        root = self.root / name
        with ExitStack() as stack:
            for number in range(MEMBERS):
                home = root / str(number)
                home.mkdir(parents=True)
                image = make_image(home / "disk.img", megabytes=DISK_MEGABYTES)
                stack.enter_context(ext4(image, home / "disk"))
            members = [self._member(root / str(number), name, number) for number in range(MEMBERS)]
            group = Group(
                namesrv=self._namesrv.address,
                name=name,
                members=members,
                find_master=_our_master if self.kind == "twinlog" else self._their_master,
                look=_is_ours_whole if self.kind == "twinlog" else self._is_theirs_whole,
            )
            for member in members:
                _give_topic(member, group.topic)
            start_all(stack, members)
            group.wait_whole()
            yield group

    def _member(self, root: Path, name: str, number: int) -> BrokerProcess:
        store = root / "disk" / "store"
        settings = {**SIZES, "storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        if self.kind == "twinlog":
            role = "SLAVE" if number else "SYNC_MASTER"
            own = {**settings, **OURS}
            return twinlog.Broker(
                root, self._namesrv.address, role=role, broker_id=number, broker_name=name, settings=own
            )
        least = "2" if self.kind == "rocketmq-2" else "1"
        addresses = ";".join(self._peers.values())
        own = {**settings, **THEIRS, "minInSyncReplicas": least, "controllerAddr": addresses}
        return rocketmq.Broker(
            root,
            self._namesrv.address,
            version=jars.VERSION_5,
            heap=BROKER_HEAP,
            role="SLAVE",  # The controllers say who is master, and which id each one has.
            broker_id=-1,
            broker_name=name,
            settings=own,
        )

    # ---- What the controllers know

    def _leader(self) -> str | None:
        for address in self._peers.values():
            try:
                header, _ = request(address, GET_CONTROLLER)
            except OSError:
                continue
            if leader := (header.get("extFields") or {}).get("controllerLeaderAddress"):
                return str(leader)
        return None

    def _replicas(self, name: str) -> dict[str, Any]:
        leader = self._leader()
        if leader is None:
            raise LookupError("the controllers have no leader")
        _, body = request(leader, GET_SYNC_STATE, body=json.dumps([name]).encode())
        found: dict[str, Any] = json.loads(body)["replicasInfoTable"][name]
        return found

    def _their_master(self, members: Sequence[BrokerProcess]) -> BrokerProcess | None:
        address = self._replicas(members[0].settings["brokerName"]).get("masterAddress")
        return next((each for each in members if each.address == address), None)

    def _is_theirs_whole(self, group: Group) -> bool:
        in_sync = self._replicas(group.name)["inSyncReplicas"]
        return len(in_sync) == MEMBERS and all(each["alive"] for each in in_sync)


@contextmanager
def installed(kind: str, root: Path) -> Iterator[Installation]:
    with ExitStack() as stack:
        yield Installation(kind, root, stack)


def start_all(stack: ExitStack, processes: Sequence[Process]) -> None:
    """All at the same time; the stack ends them."""
    with ThreadPoolExecutor(len(processes)) as pool:
        started = [pool.submit(process.start) for process in processes]
    for process in processes:
        stack.push(process)
    for each in started:
        each.result()


def _our_master(members: Sequence[BrokerProcess]) -> BrokerProcess | None:
    for member in members:
        try:
            found = status(member)
        except OSError:
            continue
        if found["role"] != "SLAVE" and found["state"] == "serving":
            return member
    return None


def _is_ours_whole(group: Group) -> bool:
    found = [status(member) for member in group.members]
    (master,) = [each for each in found if each["role"] != "SLAVE" and each["state"] == "serving"]
    records = [each.get("groupRecord") or {"members": ()} for each in found]
    known = all(len(record["members"]) == MEMBERS for record in records)
    same = len({record.get("version") for record in records}) == 1
    counted = [slave for slave in master["slaves"] if slave["counted"]]
    electable = all(record.get("lossFreeFrom") is not None for record in records)
    return bool(known and same and electable and len(counted) == MEMBERS - 1 and master["policy"]["inSync"] == MEMBERS)


def _give_topic(member: BrokerProcess, topic: str) -> None:
    """Before its first start: slaves ask their master for new topics only now and then."""
    numbers = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "topicSysFlag": 0, "order": False}
    table = {topic: {"topicName": topic, "topicFilterType": "SINGLE_TAG", **numbers}}
    directory = Path(member.settings["storePathRootDir"]) / "config"
    directory.mkdir(parents=True)
    version = {"counter": 1, "timestamp": 1}
    (directory / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
