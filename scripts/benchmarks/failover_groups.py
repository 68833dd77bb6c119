"""The two groups of three whose masters are lost: ours, which elects by itself, and RocketMQ 5's, whose controllers elect."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field, frozen

from tests.support.clients.remoting import request
from tests.support.process_group import jars, rocketmq
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.ports import HOST, free_port
from tests.support.waiting import wait_for

TOPIC, QUEUES, MEMBERS, GROUP = "failover", 4, 3, "broker-a"
CONTROLLER_OF, SYNC_STATE = 1005, 1006
WHOLE_SECONDS_MAX = 60.0
QUICK = rocketmq.QUICK_START
SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}
CONTROLLED = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
}


@define
class RocketMQGroup:
    namesrv: str
    controllers: Sequence[rocketmq.Controller]
    members: Sequence[rocketmq.Broker]

    def replicas(self) -> dict[str, Any]:
        for controller in self.controllers:
            try:
                header, _ = request(controller.address, CONTROLLER_OF)
                leader = header["extFields"].get("controllerLeaderAddress")
                if leader:
                    _, body = request(leader, SYNC_STATE, body=json.dumps([GROUP]).encode())
                    return json.loads(body)["replicasInfoTable"][GROUP]
            except (OSError, KeyError, ValueError) as error:
                last = error
        return {}

    def master(self) -> rocketmq.Broker:
        address = self.replicas()["masterAddress"]
        return next(each for each in self.members if each.address == address)

    def is_whole(self) -> bool:
        found = self.replicas()
        return len(found.get("inSyncReplicas", ())) == MEMBERS and all(e.get("alive", True) for e in found["inSyncReplicas"])


@contextmanager
def rocketmq_group(root: Path, least: int) -> Iterator[RocketMQGroup]:
    with ExitStack() as stack:
        namesrv = rocketmq.NameServer(root / "namesrv", version=jars.VERSION_5, heap=("-Xms64m", "-Xmx128m", *QUICK))
        peers = {f"n{n}": f"{HOST}:{free_port()}" for n in range(3)}
        controllers = [rocketmq.Controller(root / n, n, peers, heap=("-Xms64m", "-Xmx256m", *QUICK)) for n in peers]
        for each in (namesrv, *controllers):
            stack.enter_context(each)
        settings = {**SETTINGS, **CONTROLLED, "minInSyncReplicas": str(least), "controllerAddr": ";".join(peers.values())}
        members = [
            rocketmq.Broker(
                root / str(n), namesrv.address, version=jars.VERSION_5, role="SLAVE", broker_id=-1, broker_name=GROUP,
                settings=settings, heap=("-Xms256m", "-Xmx512m", *QUICK),
            )
            for n in range(MEMBERS)
        ]
        group = RocketMQGroup(namesrv.address, controllers, members)
        for each in members:
            stack.enter_context(each)
        wait_for(group.is_whole, "all in sync", timeout_s=WHOLE_SECONDS_MAX)
        yield group
