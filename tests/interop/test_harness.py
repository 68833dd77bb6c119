"""The harness against itself: the real client, name server, master and slave, with nothing of ours between them.

What fails here is the harness or the machine, not twinlog; look at the other interop tests only when these pass.
"""

import hashlib
from pathlib import Path

import pytest

from tests.support.clients.java_client import JavaClient, body
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import CommitLogsDifferError, assert_same_commitlog, wait_for_same_commitlog
from tests.support.process_group.rocketmq import Broker, NameServer


@pytest.mark.long
def test_real_cluster_replicates_and_delivers(real_namesrv: NameServer, root: Path) -> None:
    """A real SYNC_MASTER and SLAVE: what the client sent is consumed unchanged, and the two logs are the same bytes."""
    namesrv = real_namesrv.address
    with (
        Broker(root / "master", namesrv, role="SYNC_MASTER") as master,
        Broker(root / "slave", namesrv, role="SLAVE") as slave,
        JavaClient(root / "client") as client,
    ):
        create_topic(master.address, "harness")
        producer = client.producer("harness-producer", namesrv)
        producer.send_until_ok("harness-probe")
        sent = producer.send(
            "harness", 200, keys="schlüssel-{i}", tags=["rot", "grün"], properties={"日本": "値-{i}"}, body_size=3000
        )
        assert all(message.ok for message in sent)
        consumed = {m.msg_id: m for m in client.consumer("harness-consumer", namesrv, "harness").consumed(200)}
        for message in sent:
            got = consumed[message.msg_id]
            assert got.body_sha1 == hashlib.sha1(body("seed", message.number, 3000)).hexdigest()
            assert got.keys == f"schlüssel-{message.number}"
            assert got.tags == ["rot", "grün"][message.number % 2]
            assert got.properties["日本"] == f"値-{message.number}"
            assert (got.queue_id, got.queue_offset) == (message.queue_id, message.queue_offset)
        start, end = wait_for_same_commitlog(master.commit_log, slave.commit_log)
        assert start == 0
        assert end > 200 * 3000


def test_compare_names_the_first_difference(tmp_path: Path) -> None:
    """A byte that differs, and a log that is shorter, are both reported with their offset."""
    record = bytes.fromhex("00000010 daa320a7 0102030405060708")
    for name, data in {"a": record * 2, "b": record + record[:-1] + b"?", "c": record}.items():
        directory = tmp_path / name
        directory.mkdir()
        (directory / f"{0:020}").write_bytes(data + bytes(100))
    assert assert_same_commitlog(tmp_path / "a", tmp_path / "a") == (0, 32)
    with pytest.raises(CommitLogsDifferError) as wrong_byte:
        assert_same_commitlog(tmp_path / "a", tmp_path / "b")
    assert wrong_byte.value.offset == 31
    with pytest.raises(CommitLogsDifferError) as too_short:
        assert_same_commitlog(tmp_path / "a", tmp_path / "c")
    assert too_short.value.offset == 16
