"""Mixed pairs: a slave serves a consumer when its master is gone."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.support.clients.java_client import JavaClient
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import end_offset, wait_for_same_commitlog
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.waiting import wait_for

TOPIC = "followed"
FILE_SIZE = 1 << 20  # As TEST_SETTINGS has it.


@pytest.mark.parametrize(
    ("masters", "slaves"),
    [
        pytest.param(twinlog, rocketmq, id="real-slave", marks=pytest.mark.long),  # Also in tests/pairs.
        pytest.param(rocketmq, twinlog, id="our-slave"),
    ],
)
def test_slave_follows_and_then_serves(masters: ModuleType, slaves: ModuleType, root: Path) -> None:
    """The slave's log is the master's, also after a kill -9 of the slave; without its master it serves a consumer."""
    with (
        masters.NameServer(root / "namesrv") as namesrv,
        masters.Broker(root / "master", namesrv.address, role="SYNC_MASTER") as master,
        slaves.Broker(root / "slave", namesrv.address, role="SLAVE") as slave,
        JavaClient(root / "client") as client,
    ):
        create_topic(master.address, TOPIC)
        producer = client.producer("follow-producer", namesrv.address)
        producer.send_until_ok("probe")
        sent = producer.send(TOPIC, 2000, threads=4, body_size=1500)
        assert [message for message in sent if not message.ok] == []
        start, end = wait_for_same_commitlog(master.commit_log, slave.commit_log)
        assert start == 0
        assert end > 2 * FILE_SIZE

        slave.kill()
        alone = producer.send(TOPIC, 500, first=2000, threads=16, send_timeout_s=10)
        assert {message.status for message in alone} <= {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}
        slave.start()
        assert wait_for_same_commitlog(master.commit_log, slave.commit_log) == (0, end_offset(master.commit_log))
        producer.send_until_ok("probe")
        sent += alone

        # A slave copies topics every 10 s; before it knows one, it answers that there is none.
        wait_for(lambda: knows_topic(slave), "the topic at the slave", timeout_s=25)
        master.stop()
        consumer = client.consumer("follow-consumer", namesrv.address, TOPIC)
        consumed = {message.msg_id for message in consumer.consumed(len(sent), timeout_s=60)}
        assert consumed == {message.msg_id for message in sent}


def knows_topic(slave: BrokerProcess) -> bool:
    topics = slave.store / "config" / "topics.json"
    return topics.exists() and f'"{TOPIC}"' in topics.read_text()
