"""A real slave of RocketMQ 4.9.7 in a group whose masters are ours: it goes on following, whoever is master."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pairs.group import ENDLESS, LEVEL_S, Group, max_offset
from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import create_topic
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.role_changes import change_role, wait_grouped
from tests.support.waiting import wait_for

TOPIC = "followed"
# It learns of another master when it registers: the least that it takes.
REAL_SETTINGS = {**TEST_SETTINGS, "registerNameServerPeriod": "10000", "haSendHeartbeatInterval": "300"}


@pytest.fixture
def client(root: Path) -> Iterator[JavaClient]:
    with JavaClient(root / "client") as client:
        yield client


def test_a_real_slave_follows_each_master(root: Path, client: JavaClient) -> None:
    """There and back: in the end all three logs are the same bytes, with everything that was acknowledged."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        first = stack.enter_context(twinlog.Broker(root / "first", namesrv, role="SYNC_MASTER"))
        second = stack.enter_context(twinlog.Broker(root / "second", namesrv, role="SLAVE", broker_id=1))
        real = rocketmq.Broker(root / "real", namesrv, role="SLAVE", broker_id=2, settings=REAL_SETTINGS)
        stack.enter_context(real)
        create_topic(first.address, TOPIC)
        wait_grouped(first, 3)
        producer = client.producer("producers", namesrv, retries=2)
        job = producer.start_sending(TOPIC, ENDLESS, threads=2, pause_ms=20, send_timeout_s=3)
        for winner in (second, first):
            job.wait_answered(job.answered() + 50)
            result = change_role("switchover", winner)
            assert (result["winner"], result["lost_bytes"]) == (winner.address, 0)
            reached = max_offset(winner)
            wait_for(lambda: max_offset(real) > reached, f"{real.root} follows {winner.root}", timeout_s=LEVEL_S)  # noqa: B023
        report = job.finish(stop=True)
        assert [one for one in report.sent if one.error is not None] == []
        for slave in (second, real):
            wait_for(lambda: max_offset(slave) == max_offset(first), f"{slave.root} is level", timeout_s=LEVEL_S)  # noqa: B023
        group = Group(first, [second, real], TOPIC)
        group.told = list(report.sent)
        start, end = group.assert_equal()
        assert (start, end) == (0, max_offset(first))
