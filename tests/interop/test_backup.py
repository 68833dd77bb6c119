"""A backup of a real RocketMQ at work; its slave, and its successor, are real brokers that start from the copy."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Reader
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import jars
from tests.support.process_group.member import QUICK_SLAVE, TEST_SETTINGS
from tests.support.process_group.rocketmq import Broker, NameServer
from tests.support.waiting import at_once
from twinlog.store.offline.copy.backup import back_up
from twinlog.store.offline.copy.restore import restore
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.verify.verify import VerifyVerdict, verify

TOPIC, QUEUES = "kept", 4


@pytest.mark.parametrize("version", [pytest.param(jars.VERSION, marks=pytest.mark.long), jars.VERSION_5])
def test_a_real_master_at_work_is_backed_up(real_namesrv: NameServer, root: Path, version: str) -> None:
    """A slave follows from where the backup ends; a master alone serves whatever was acknowledged before it."""
    namesrv = real_namesrv.address
    settings = TEST_SETTINGS | QUICK_SLAVE | ({"timerWheelEnable": "false"} if version == jars.VERSION_5 else {})
    broker = partial(Broker, namesrv=namesrv, version=version, settings=settings)
    with JavaClient(root / "client") as client:
        with broker(root / "master") as master:
            create_topic(master.address, TOPIC, queues=QUEUES)
            producer = client.producer("backup-producer", namesrv)
            before = producer.send(TOPIC, 1200, threads=4, body_size=1100)
            assert all(sent.ok for sent in before)
            job = producer.start_sending(TOPIC, 1200, first=1200, threads=4, body_size=1100)
            job.wait_answered(200)
            with StoreDirectory.open(master.store) as directory:
                made = back_up(directory, root / "backup")
            report = job.finish()
            assert made.source.was_running
            assert made.damage == ()
            assert made.records >= len(before)
            restore(root / "backup", root / "slave" / "store")
            with broker(root / "slave", role="SLAVE") as slave:
                start, _ = wait_for_same_commitlog(master.commit_log, slave.commit_log)
                assert start == 0
                at_once((slave.stop, master.stop))
            assert len(report.sent) == 1200
        restored = restore(root / "backup", root / "alone" / "store")
        assert restored.rebuilt.queue_messages is not None
        with broker(root / "alone") as alone:
            reader = Reader(client, namesrv, "broker-a")
            queues = [reader.queue(TOPIC, queue_id) for queue_id in range(QUEUES)]
            for sent in before:
                found = queues[sent.queue_id].messages[sent.queue_offset]
                assert (found.msg_id, found.commit_log_offset) == (sent.msg_id, sent.commit_log_offset)
            for sent in before[::200]:
                assert reader.by_id(TOPIC, sent.msg_id).commit_log_offset == sent.commit_log_offset  # By the index.
            more = client.producer("later-producer", namesrv).send(TOPIC, 100, first=9000)
            assert all(sent.ok for sent in more)
            alone.stop()
    for name in ("slave", "alone"):
        with StoreDirectory.open(root / name / "store") as directory:
            assert verify(directory).verdict is VerifyVerdict.SOUND
