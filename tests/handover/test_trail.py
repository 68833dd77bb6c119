"""RocketMQ starts over the directory of a slave that was killed with bytes behind its log's end which it had not verified.

What is sound of them is the master's and may be taken; from the first record that is not, nothing may be.
"""

import random
from pathlib import Path

import pytest

from tests.helpers import log_bytes, replicate
from tests.store.records import put_message
from tests.support.clients.remoting import runtime_info
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from tests.support.waiting import wait_for
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import scan_records

FILE_SIZE = int(TEST_SETTINGS.get("mappedFileSizeCommitLog", 1 << 20))


def open_store(root: Path, role: BrokerRole) -> MessageStore:
    store = MessageStore(
        StoreConfig(
            root=root, broker_role=role, mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=6_000
        )
    )
    store.load()
    return store


def prepare(root: Path, data: bytes, spoilt: int | None) -> int:
    """A slave that died far behind; where its log ended then."""
    slave = open_store(root, BrokerRole.SLAVE)
    verified = scan_records(data, 0, FILE_SIZE, check_crc=True).entries[10].phy_offset
    replicate(slave, data[:verified])
    received = bytearray(data)
    if spoilt is not None:
        received[spoilt] ^= 1
    slave.begin_tail().write(memoryview(received)[verified:])
    slave._release()
    return verified


def max_offset(broker: BrokerProcess) -> int:
    """-1: it cannot tell yet."""
    try:
        return int(runtime_info(broker.address)["commitLogMaxOffset"])
    except ValueError:
        return -1


@pytest.mark.parametrize("is_sound", [True, False], ids=["sound", "damaged"])
def test_rocketmq_takes_no_damaged_record_of_a_trail(tmp_path: Path, is_sound: bool) -> None:
    master, rng = open_store(tmp_path / "master", BrokerRole.ASYNC_MASTER), random.Random(1)
    master.put([put_message("Trail", rng.randbytes(1000)) for _ in range(60)])
    data = log_bytes(master)
    entries = scan_records(data, 0, FILE_SIZE, check_crc=True).entries
    bad = entries[40].phy_offset
    torn = data[: entries[55].phy_offset + 500]  # The last one had only begun to arrive.
    verified = prepare(tmp_path / "slave" / "store", torn, None if is_sound else bad + 100)
    end = entries[55].phy_offset if is_sound else bad
    with (
        twinlog.NameServer(tmp_path / "namesrv") as namesrv,
        rocketmq.Broker(tmp_path / "slave", namesrv.address, role="SLAVE", settings=TEST_SETTINGS) as broker,
    ):
        wait_for(lambda: max_offset(broker) >= 0, "an answer")
        assert verified < max_offset(broker) == end
        broker.kill()
    log = (tmp_path / "slave" / "store" / "commitlog" / f"{0:020d}").read_bytes()
    assert log[:end] == data[:end]
