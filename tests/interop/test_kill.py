"""kill -9 in traffic: what a SYNC_MASTER answered is true, whoever dies."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.clients.java_client import JavaClient, Producer
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import end_offset, wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.waiting import wait_for

TOPIC = "killed"
SLAVE_LOST = {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}


class Cluster(NamedTuple):
    namesrv: str
    master: twinlog.Broker
    slave: twinlog.Broker
    client: JavaClient
    producer: Producer


@pytest.fixture
def cluster(root: Path) -> Iterator[Cluster]:
    """Single processes, because `twinlog up` would start again what a test kills."""
    with (
        twinlog.NameServer(root / "namesrv") as namesrv,
        twinlog.Broker(root / "master", namesrv.address, role="SYNC_MASTER") as master,
        twinlog.Broker(root / "slave", namesrv.address, role="SLAVE") as slave,
        JavaClient(root / "client") as client,
    ):
        create_topic(master.address, TOPIC)
        producer = client.producer("kill-producer", namesrv.address)
        producer.send_until_ok("probe")
        yield Cluster(namesrv.address, master, slave, client, producer)


def test_slave_dies(cluster: Cluster) -> None:
    """No SEND_OK for a message that the slave lacks; RocketMQ's two statuses for the others; then it catches up."""
    job = cluster.producer.start_sending(TOPIC, 1_000_000, threads=16, send_timeout_s=15)
    job.wait_answered(1000)
    cluster.slave.kill()
    slave_end = end_offset(cluster.slave.commit_log)
    job.wait_answered(job.answered() + 500)
    report = job.finish(stop=True)

    assert report.whole
    confirmed = [message for message in report.sent if message.ok]
    assert len(confirmed) >= 900
    assert max(message.commit_log_offset for message in confirmed) < slave_end
    others = [message for message in report.sent if not message.ok]
    assert [message for message in others if message.error] == []
    assert {message.status for message in others} <= SLAVE_LOST
    assert "SLAVE_NOT_AVAILABLE" in {message.status for message in others}

    cluster.slave.start()
    wait_for_same_commitlog(cluster.master.commit_log, cluster.slave.commit_log)
    cluster.producer.send_until_ok(TOPIC)


@pytest.mark.long  # tests/pairs kills our master in the traffic of a Java producer, too.
def test_master_dies(cluster: Cluster) -> None:
    """After its restart every acknowledged message is there, and the slave still has the same log."""
    job = cluster.producer.start_sending(TOPIC, 1_000_000, threads=16)
    job.wait_answered(2000)
    cluster.master.kill()
    sent = job.finish(stop=True).sent
    acknowledged = {message.msg_id for message in sent if message.status}
    assert len(acknowledged) >= 1900

    cluster.master.start()
    cluster.producer.send_until_ok(TOPIC)
    consumer = cluster.client.consumer("kill-consumer", cluster.namesrv, TOPIC)

    def all_arrived() -> bool:  # Among others: what was stored when the master died, but not answered.
        return acknowledged <= {message.msg_id for message in consumer.consumed(0)}

    wait_for(all_arrived, "every acknowledged message at the consumer")
    wait_for_same_commitlog(cluster.master.commit_log, cluster.slave.commit_log)


def test_master_stops(cluster: Cluster) -> None:
    """SIGTERM in traffic: each message that it stored was answered, and what was answered is there."""
    job = cluster.producer.start_sending(TOPIC, 1_000_000, threads=16)
    job.wait_answered(2000)
    cluster.master.stop()
    sent = job.finish(stop=True).sent
    acknowledged = {message.msg_id for message in sent if message.status}
    assert len(acknowledged) >= 2000
    assert {message.status for message in sent if message.status} == {"SEND_OK"}

    cluster.master.start()
    cluster.producer.send_until_ok("probe")
    consumer = cluster.client.consumer("stop-consumer", cluster.namesrv, TOPIC)
    consumed = {message.msg_id for message in consumer.consumed(len(acknowledged), timeout_s=60)}
    assert consumed == acknowledged
    wait_for_same_commitlog(cluster.master.commit_log, cluster.slave.commit_log)
