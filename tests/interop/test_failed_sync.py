"""SYNC_FLUSH on a disk whose first sync fails: RocketMQ says SEND_OK all the same, twinlog says that it is not on the disk.

Both run under the same shim, which lets every fsync, fdatasync and msync of the commit log fail with EIO. RocketMQ
(DefaultMappedFile.flush, 5.3.3; MappedFile.flush, 4.9) logs the error and goes on as if the bytes were on the disk.
"""

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.clients.remoting import create_topic, message_fields, request
from tests.support.disk.faults import FLUSH_DISK_TIMEOUT, OK, SERVICE_NOT_AVAILABLE, Shim
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS

SETTINGS = TEST_SETTINGS | {"flushDiskType": "SYNC_FLUSH"}
SEND, TOPIC = 10, "Sync"


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return Shim.build(tmp_path)


def send(address: str) -> tuple[int, str]:
    """Code and remark of the answer."""
    fields = message_fields(TOPIC, properties="WAIT\x01true")
    header, _ = request(address, SEND, fields, b"on the disk?", timeout_s=20)
    return header["code"], header.get("remark") or ""


@pytest.mark.parametrize("kind", ["rocketmq-5.3.3", "twinlog"])
def test_the_first_sync_that_fails(tmp_path: Path, shim: Shim, kind: str) -> None:
    """What a producer is told that waits for the disk. Open on 5.3.3, closed here."""

    class RealBroker(rocketmq.Broker):
        def environment(self) -> Mapping[str, str]:
            return {**super().environment(), **shim.env}

    class OurBroker(twinlog.Broker):
        def environment(self) -> Mapping[str, str]:
            return {**super().environment(), **shim.env}

    root = tmp_path / "broker"
    with twinlog.NameServer(tmp_path / "namesrv") as namesrv:
        if kind == "twinlog":
            broker: rocketmq.Broker | twinlog.Broker = OurBroker(root, namesrv.address, settings=SETTINGS)
        else:
            settings = SETTINGS | {"timerWheelEnable": "false"}
            broker = RealBroker(root, namesrv.address, settings=settings, version=jars.VERSION_5)
        with broker:
            create_topic(broker.address, TOPIC, queues=1)
            assert send(broker.address)[0] == OK
            shim.arm("fsync fdatasync msync", errno.EIO, "commitlog")
            answers = [send(broker.address) for _ in range(3)]
            shim.disarm()
            after = send(broker.address)
            broker.kill()
    if kind == "twinlog":
        assert answers[0][0] == FLUSH_DISK_TIMEOUT
        assert [code for code, _ in (*answers[1:], after)] == [SERVICE_NOT_AVAILABLE] * 3
        assert "Input/output error" in answers[1][1]
    else:
        assert [code for code, _ in (*answers, after)] == [OK] * 4
        said = (root / "logs/rocketmqlogs/store.log").read_text(errors="replace")
        assert "Error occurred when force data to disk" in said
