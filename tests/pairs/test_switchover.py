"""The real Java client in ten switchovers: its producer notices nothing, its consumer misses nothing.

Both are as RocketMQ makes them: they learn of another master when they ask the name server, each 30 s. Until then they talk to
the old one, which hands on what they send.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pairs.group import ENDLESS, LEVEL_S, Group, max_offset
from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.role_changes import OffsetWatch, change_role, wait_grouped
from tests.support.waiting import wait_for

TOPIC, READERS = "switched", "readers"
SWITCHOVERS, APART_S = 10, 2.0
RETRIES, SEND_TIMEOUT_S = 2, 3  # DefaultMQProducer's own.
CONSUMED_S = 60


@pytest.fixture
def client(root: Path) -> Iterator[JavaClient]:
    with JavaClient(root / "client") as client:
        yield client


def make_members(root: Path, namesrv: str, count: int) -> list[twinlog.Broker]:
    """A master and its slaves, none of them started."""
    master = twinlog.Broker(root / "member-0", namesrv, role="SYNC_MASTER")
    numbers = range(1, count)
    return [master, *(twinlog.Broker(root / f"member-{n}", namesrv, role="SLAVE", broker_id=n) for n in numbers)]


def test_a_java_producer_and_consumer_over_ten_switchovers(root: Path, client: JavaClient) -> None:
    """No exception; every message that was acknowledged is in the log and was consumed; no committed offset falls."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        members = [stack.enter_context(member) for member in make_members(root, namesrv, 3)]
        create_topic(members[0].address, TOPIC)
        wait_grouped(members[0], len(members))
        consumer = client.consumer(READERS, namesrv, TOPIC)
        producer = client.producer("producers", namesrv, retries=RETRIES)
        job = producer.start_sending(TOPIC, ENDLESS, threads=4, pause_ms=5, send_timeout_s=SEND_TIMEOUT_S)
        job.wait_answered(50)
        with OffsetWatch(members[0], READERS, TOPIC) as watch:
            for number in range(1, SWITCHOVERS + 1):
                time.sleep(APART_S)
                winner = members[number % len(members)]
                result = change_role("switchover", winner)
                watch.master = winner
                assert (result["epoch"], result["winner"], result["lost_bytes"]) == (number, winner.address, 0)
            time.sleep(APART_S)
            report = job.finish(stop=True)
            sent = {one.msg_id for one in report.sent if one.ok}
            consumed = consumer.consumed(len(sent), timeout_s=CONSUMED_S)
        assert report.whole
        assert [one for one in report.sent if one.error is not None] == []
        assert len(sent) > 100 * SWITCHOVERS
        assert sent <= {one.msg_id for one in consumed}
        assert watch.fallen == []
        assert sum(watch.seen.values()) > 0
        slaves = [member for member in members if member is not winner]
        for slave in slaves:
            wait_for(lambda: max_offset(slave) == max_offset(winner), f"{slave.root} is level", timeout_s=LEVEL_S)  # noqa: B023
        group = Group(winner, slaves, TOPIC)
        group.told = list(report.sent)
        group.assert_equal()
