"""Role changes as a person makes them, by the command line, and what a consumer group may see of them."""

import json
import threading
from collections.abc import Mapping
from typing import Any, Self

from attrs import define, field

from tests.support.clients.remoting import request
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.status import status
from tests.support.process_group.up import run
from tests.support.waiting import wait_for

QUERY_CONSUMER_OFFSET, MEMBER_STATUS = 14, 20001
DONE, NOT_ALL_FOLLOW = 0, 6
GROUPED_S = 40
SAMPLE_S = 0.1


def change_role(verb: str, candidate: BrokerProcess, *arguments: str) -> dict[str, Any]:
    """`twinlog switchover` or `failover`; what it answers. Fails with its words unless it succeeds.

    After a failover the member that is gone may not follow yet.
    """
    done = run(verb, "--candidate", candidate.address, "--yes", "-o", "json", *arguments, namesrv=candidate.namesrv)
    expected = (DONE,) if verb == "switchover" else (DONE, NOT_ALL_FOLLOW)
    assert done.returncode in expected, f"{verb} ended with {done.returncode}\n{done.stderr}\n{candidate.tail()}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def wait_grouped(master: BrokerProcess, count: int) -> None:
    """Wait until so many members are in the master's record, and all of its slaves count: its role can change."""

    def is_grouped() -> bool:
        found = status(master)
        record = found.get("groupRecord") or {"members": ()}
        counted = [slave for slave in found["slaves"] if slave["counted"]]
        return len(record["members"]) == count == len(counted) + 1

    wait_for(is_grouped, f"{count} members in the record of {master.root}", timeout_s=GROUPED_S)


def wait_electable(slave: BrokerProcess, count: int) -> None:
    """Wait until a slave holds the record of so many members too, and from where on it promises that nothing acknowledged is
    lost: it can be chosen when its master is gone.
    """

    def holds_record() -> bool:
        record = status(slave).get("groupRecord") or {"members": ()}
        return len(record["members"]) == count and record["lossFreeFrom"] is not None

    wait_for(holds_record, f"{count} members in the record of {slave.root}", timeout_s=GROUPED_S)


@define(eq=False)
class OffsetWatch:
    """Asks the master, again and again, how far a group has consumed; keeps what fell."""

    master: BrokerProcess  # Set anew after each role change.
    group: str
    topic: str
    queues: int = 4
    fallen: list[str] = field(factory=list, init=False)
    seen: dict[int, int] = field(factory=dict, init=False)
    _over: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            master = self.master
            for queue_id in range(self.queues):
                try:
                    header, _ = request(master.address, QUERY_CONSUMER_OFFSET, self._fields(queue_id))
                except OSError as error:
                    self.fallen.append(f"{master.address} does not answer: {error}")
                    continue
                self._look(master, queue_id, header)

    def _look(self, master: BrokerProcess, queue_id: int, header: Mapping[str, Any]) -> None:
        before = self.seen.get(queue_id, 0)
        now = int(header["extFields"]["offset"]) if header["code"] == 0 else 0
        if now < before:
            self.fallen.append(f"queue {queue_id} at {master.address}: {before}, then {now}")
        self.seen[queue_id] = max(before, now)

    def _fields(self, queue_id: int) -> dict[str, str]:
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": str(queue_id)}
        return {**fields, "setZeroIfNotFound": "false"}
