"""Java clients of RocketMQ 4.9.7 and 5.3.3 go on when a group has elected another master, and nobody helps.

They are as they come, but ask name servers for routes each second instead of each 30 s, so that the test is short.
"""

import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from tests.pairs.group import ENDLESS
from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import TransactionProducer
from tests.support.clients.remoting import create_topic
from tests.support.process_group import jars
from tests.support.process_group.roles import Group, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

PLAIN, ORDERED, LATER, HALF = TOPICS = ("plain", "ordered", "later", "half")
SETTINGS = {"autoFailover": "members", "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
SLOW_MS, DELAY_LEVEL = 300, 3  # 10 s: the message is due at the next master.
GO_ON_S, CONSUMED_S = 20, 60
Row = tuple[int, int, int, int]  # Queue, offset, begin and end in ms.


class OrderlyConsumer:
    """A push consumer in order; see OrderlyCollector.java."""

    def __init__(self, client: JavaClient, namesrv: str) -> None:
        options = {"group": "in-order", "namesrv": namesrv, "topic": ORDERED, "slow_ms": str(SLOW_MS)}
        self._client, self._handle = client, client.new("OrderlyCollector", options)

    def rows(self) -> list[Row]:
        return [tuple(row) for row in self._client.call(self._handle, "rows")]


def assert_orderly(rows: list[Row]) -> None:
    """ORDERLY: one message of a queue at a time, whoever consumes it, and each for the first time in the queue's order."""
    for queue in {row[0] for row in rows}:
        by_begin = sorted((row for row in rows if row[0] == queue), key=lambda row: row[2])
        assert [(one, other) for one, other in pairwise(by_begin) if other[2] < one[3]] == []
        seen = list(dict.fromkeys(row[1] for row in by_begin))
        assert seen == list(range(len(seen)))


def next_master(group: Group) -> bool:
    return any(status(each).get("roleState") == "serving" for each in group.members[1:])


def test_java_clients_go_on_at_an_elected_master(root: Path) -> None:
    with ExitStack() as stack:
        group = stack.enter_context(running(root / "group", 3, **SETTINGS))
        first, namesrv = group.members[0], group.namesrv.address
        for topic in TOPICS:
            create_topic(first.address, topic)
        old = stack.enter_context(JavaClient(root / "old", poll_ms=1000))
        new = stack.enter_context(JavaClient(root / "new", poll_ms=1000, version=jars.VERSION_5))
        plain, later, half = (new.consumer(f"readers-{topic}", namesrv, topic) for topic in (PLAIN, LATER, HALF))
        in_order = [OrderlyConsumer(old, namesrv), OrderlyConsumer(new, namesrv)]
        jobs = [
            client.producer(f"producers-{number}", namesrv, retries=2).start_sending(
                topic, ENDLESS, seed=topic, pause_ms=20, send_timeout_s=3
            )
            for number, (client, topic) in enumerate(((old, PLAIN), (new, ORDERED)))
        ]
        transactions = TransactionProducer(old, "transactions", namesrv, HALF)
        for job in jobs:
            job.wait_answered(50)
        wait_for(lambda: all(each.rows() for each in in_order), "both consume in order", timeout_s=GO_ON_S)
        delayed = {sent.msg_id for sent in old.producer("P", namesrv).send(LATER, 5, delay_level=DELAY_LEVEL)}
        halves = transactions.send(6, ["UNKNOW"], first=0, seed="t", checked="COMMIT_MESSAGE", keys="k{i}")
        first.kill()
        killed_ms = time.time() * 1000
        wait_for(lambda: next_master(group), "an elected master", timeout_s=GO_ON_S)
        in_order.append(OrderlyConsumer(new, namesrv))  # It gets queues of the others.
        answered = [job.answered() for job in jobs]
        for job, before in zip(jobs, answered, strict=True):
            job.wait_answered(before + 100, timeout_s=GO_ON_S)

        def goes_on() -> bool:
            rows = [row for each in in_order for row in each.rows() if row[2] > killed_ms + 5000]
            return (
                len({row[0] for row in rows}) >= 2
            )  # Who gets a queue of another member begins with its next rebalance.

        wait_for(goes_on, "queues are consumed in order at the new master", timeout_s=CONSUMED_S)
        assert {each.msg_id for each in later.consumed(5, timeout_s=CONSUMED_S)} == delayed
        assert {each.keys for each in half.consumed(6, timeout_s=CONSUMED_S)} == {f"k{number}" for number in range(6)}
        assert len(halves) == 6
        reports = [job.finish(stop=True) for job in jobs]
        sent = {one.msg_id for one in reports[0].sent if one.ok}
        assert len(sent) > 100
        assert sent <= {each.msg_id for each in plain.consumed(len(sent), timeout_s=CONSUMED_S)}
        assert_orderly([row for each in in_order for row in each.rows()])
