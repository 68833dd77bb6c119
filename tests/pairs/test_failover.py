"""Clients go on when a group has elected another master, and nobody helps: Java's of RocketMQ 4.9.7 and 5.3.3, Go's and ours.

They are as they come but for their timers, so that the test is short: Java's and Go's ask name servers for routes each second and
share out queues each 2 s. Go's, as it comes, goes on after half a minute: so long it waits for pulls whose connection is lost.
"""

import time
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from tests.clients import programs
from tests.pairs.group import ENDLESS
from tests.pairs.lasting_clients import GoClient, Got, OwnClient, Row, is_gapless
from tests.support.clients.java_client import Consumed, JavaClient
from tests.support.clients.java_reader import TransactionProducer
from tests.support.clients.remoting import create_topic
from tests.support.process_group import jars
from tests.support.process_group.roles import Group, running
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

PLAIN, ORDERED, LATER, HALF, GO, OWN = TOPICS = ("plain", "ordered", "later", "half", "go", "own")
SETTINGS = {"autoFailover": "members", "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
SLOW_MS, DELAY_LEVEL = 300, 3  # 10 s: the message is due at the next master.
GO_ON_S, CONSUMED_S = 20, 60
SHARE_OUT = ("-Drocketmq.client.rebalance.waitInterval=2000",)


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


def as_got(messages: list[Consumed]) -> list[Got]:
    return [Got(each.queue_id, each.queue_offset, each.msg_id) for each in messages]


def test_clients_go_on_at_an_elected_master(root: Path) -> None:
    programs.require_go()
    with ExitStack() as stack:
        group = stack.enter_context(running(root / "group", 3, **SETTINGS))
        first, namesrv = group.members[0], group.namesrv.address
        for topic in TOPICS:
            create_topic(first.address, topic)
        go = stack.enter_context(GoClient(root / "go.log", namesrv, GO))
        own = stack.enter_context(OwnClient(namesrv, OWN, group="in-order", ordered=ORDERED, slow_ms=SLOW_MS))
        old = stack.enter_context(JavaClient(root / "old", poll_ms=1000, jvm_options=SHARE_OUT))
        new = stack.enter_context(JavaClient(root / "new", poll_ms=1000, jvm_options=SHARE_OUT, version=jars.VERSION_5))
        # First, so that the queues are shared out before messages come: Java keeps the lock of one in use for 20 s more.
        in_order: list[OrderlyConsumer | OwnClient] = [
            OrderlyConsumer(old, namesrv),
            OrderlyConsumer(new, namesrv),
            own,
        ]

        def all_rows() -> list[Row]:
            return [row for each in in_order for row in each.rows()]

        plain, later, half = (new.consumer(f"readers-{topic}", namesrv, topic) for topic in (PLAIN, LATER, HALF))
        transactions = TransactionProducer(old, "transactions", namesrv, HALF)
        jobs = [
            client.producer(f"producers-{number}", namesrv, retries=2).start_sending(
                topic, ENDLESS, seed=topic, pause_ms=20, send_timeout_s=3
            )
            for number, (client, topic) in enumerate(((old, PLAIN), (new, ORDERED)))
        ]
        for job in jobs:
            job.wait_answered(50)
        wait_for(lambda: all(each.rows() for each in in_order), "all consume in order", timeout_s=CONSUMED_S)
        delayed = {sent.msg_id for sent in old.producer("P", namesrv).send(LATER, 5, delay_level=DELAY_LEVEL)}
        halves = transactions.send(6, ["UNKNOW"], first=0, seed="t", checked="COMMIT_MESSAGE", keys="k{i}")
        for lasting in (go, own):
            lasting.wait_more(20, GO_ON_S)
        settled = as_got(plain.consumed(50)), list(go.got[0]), list(own.got[0])
        first.kill()
        killed_ms = time.time() * 1000
        wait_for(lambda: next_master(group), "an elected master", timeout_s=GO_ON_S)
        in_order.append(OrderlyConsumer(new, namesrv))  # It gets queues of the others.
        answered = [job.answered() for job in jobs]
        for job, before in zip(jobs, answered, strict=True):
            job.wait_answered(before + 100, timeout_s=GO_ON_S)
        own.wait_more(100, GO_ON_S)
        own.wait_restarted(GO_ON_S)

        def goes_on() -> bool:
            """Two queues, of which one is at another consumer than before; ours has one, too."""
            late = {row[0] for row in all_rows() if row[2] > killed_ms + 5000}
            holders = Counter(queue for each in in_order for queue in {row[0] for row in each.rows()})
            return len(late) >= 2 and any(holders[at] > 1 for at in late) and own.rows()[-1][2] > killed_ms + 5000

        wait_for(goes_on, "queues are consumed in order at the new master", timeout_s=CONSUMED_S)
        assert {each.msg_id for each in later.consumed(5, timeout_s=CONSUMED_S)} == delayed
        assert {each.keys for each in half.consumed(6, timeout_s=CONSUMED_S)} == {f"k{number}" for number in range(6)}
        assert len(halves) == 6
        plain.shutdown()
        plain_again = new.consumer(f"readers-{PLAIN}", namesrv, PLAIN)
        go.wait_more(50, CONSUMED_S)
        go.wait_restarted(GO_ON_S)
        reports = [job.finish(stop=True) for job in jobs]
        sent = {one.msg_id for one in reports[0].sent if one.ok}
        assert len(sent) > 100
        read = as_got(plain.consumed(0))

        def all_read() -> bool:
            return sent <= {each.body for each in (*read, *as_got(plain_again.consumed(0)))}

        wait_for(all_read, "all that was sent is consumed", timeout_s=CONSUMED_S)
        for lasting in (go, own):
            lasting.wait_more(20, GO_ON_S)
        wait_for(lambda: is_gapless(read, as_got(plain_again.consumed(0))), "nothing is skipped", timeout_s=GO_ON_S)
        for lasting in (go, own):
            wait_for(
                lambda got=lasting.got: is_gapless(*got), f"{lasting.topic}: nothing is skipped", timeout_s=GO_ON_S
            )
        again = as_got(plain_again.consumed(0)), go.got[1], own.got[1]
        for then, known in zip(again, settled, strict=True):
            assert not {each[:2] for each in then} & {each[:2] for each in known}
        assert_orderly(all_rows())
