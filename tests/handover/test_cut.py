"""A start cuts a torn record and all behind it. RocketMQ moves its position only: the old bytes come back after the next crash.

RocketMQ issue 10666. The store is the same for both: ten messages of one size, of which a power loss took two in the middle. A
twinlog master would not cut here: what is sound behind damage stays. A slave does, as its master has all of it.
"""

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.store.records import put_message
from tests.support.clients.remoting import create_topic, message_fields, request
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.message_store import MessageStore

SEND, GET_MAX_OFFSET, VIEW = 10, 30, 33
TOPIC, FILE_SIZE, BODY_SIZE = "Cut", 1 << 20, 600
COUNT, LOST = 10, (5, 6)  # Messages, and those that the power loss took.


def prepare(root: Path, lost: tuple[int, ...] = LOST) -> int:
    """Write the store; the size of a record."""
    store = MessageStore(
        StoreConfig(root=root, mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=6_000)
    )
    store.load()
    results = store.put([put_message(TOPIC, body(f"old-{n}", BODY_SIZE)) for n in range(COUNT)])
    store.dispatch_pending()
    store._release()
    size = results[0].size
    if not lost:
        return size
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(results[lost[0]].phy_offset)
        file.write(bytes(size * len(lost)))
    for path in (root / "consumequeue").rglob("0*"):  # As if RocketMQ had never flushed the queues' last units.
        if path.is_file():
            raw = path.read_bytes()
            path.write_bytes(raw[: 20 * lost[0]].ljust(len(raw), b"\0"))
    return size


def body(text: str, size: int) -> bytes:
    return (text + "." + hashlib.sha1(text.encode()).hexdigest()).ljust(size, "x").encode()


def send(broker: BrokerProcess, data: bytes) -> tuple[int, int]:
    """Where the message was put: byte of the log, number in its queue."""
    header, _ = request(broker.address, SEND, message_fields(TOPIC), data)
    assert header["code"] == 0, header
    return int(header["extFields"]["msgId"][-16:], 16), int(header["extFields"]["queueOffset"])


def record(broker: BrokerProcess, phy_offset: int) -> bytes | None:
    header, data = request(broker.address, VIEW, {"offset": str(phy_offset)})
    return data if header["code"] == 0 else None


def max_offset(broker: BrokerProcess) -> int:
    header, _ = request(broker.address, GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
    return int(header["extFields"]["offset"])


@pytest.mark.parametrize(
    ("make", "comes_back"), [(rocketmq.Broker, True), (twinlog.Broker, False)], ids=["rocketmq", "twinlog"]
)
def test_what_a_start_cut_comes_back_behind_new_messages_after_a_crash(
    tmp_path: Path, make: Callable[..., BrokerProcess], comes_back: bool
) -> None:
    """Open on 4.9.7, closed here. The new messages end just where an old one begins."""
    size = prepare(tmp_path / "broker" / "store")
    old = size * (LOST[1] + 1)
    log = tmp_path / "broker" / "store" / "commitlog" / f"{0:020d}"
    with twinlog.NameServer(tmp_path / "namesrv") as namesrv:
        if not comes_back:
            with make(tmp_path / "broker", namesrv.address, role="SLAVE", settings=TEST_SETTINGS):
                pass
        broker = make(tmp_path / "broker", namesrv.address, settings=TEST_SETTINGS)
        with broker:
            create_topic(broker.address, TOPIC, queues=1)
            assert max_offset(broker) == LOST[0]
            assert record(broker, old) is None, "it was cut"
            assert (b"old-7." in log.read_bytes()) is comes_back, "but lies on the disk"
            first, number = send(broker, body("new-5", 100))
            assert (first, number) == (size * LOST[0], LOST[0])
            written = record(broker, first)
            assert written is not None
            overhead = struct.unpack_from(">i", written)[0] - 100
            second, _ = send(broker, body("new-6", size * len(LOST) - len(written) - overhead))
            assert second == first + len(written)
            broker.kill()
        with make(tmp_path / "broker", namesrv.address, port=broker.port, settings=TEST_SETTINGS) as broker:
            for phy_offset, text in ((first, b"new-5"), (second, b"new-6")):
                assert text in (record(broker, phy_offset) or b"")
            assert max_offset(broker) == (COUNT if comes_back else LOST[1] + 1)
            assert (record(broker, old) is not None) is comes_back
            if comes_back:
                assert b"old-7" in (record(broker, old) or b"")


def test_rocketmq_goes_on_where_a_slaves_log_was_cut(tmp_path: Path) -> None:
    """While it ran, in the middle of its log; RocketMQ then finds that log, no more, and puts its messages behind it."""
    root = tmp_path / "broker" / "store"
    size = prepare(root, lost=())
    sizes = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 6_000}
    store = MessageStore(StoreConfig(root=root, broker_role=BrokerRole.SLAVE, **sizes))
    store.load()
    trio.run(store.truncate, 4 * size, "a test")
    store._release()  # As a crash leaves it.
    with twinlog.NameServer(tmp_path / "namesrv") as namesrv:
        with rocketmq.Broker(tmp_path / "broker", namesrv.address, settings=TEST_SETTINGS) as broker:
            create_topic(broker.address, TOPIC, queues=1)
            assert max_offset(broker) == 4
            assert [record(broker, n * size) is not None for n in range(6)] == [True] * 4 + [False] * 2
            assert send(broker, body("new-4", 100)) == (4 * size, 4)
            broker.kill()
        with rocketmq.Broker(tmp_path / "broker", namesrv.address, port=broker.port, settings=TEST_SETTINGS) as broker:
            assert max_offset(broker) == 5
            assert b"new-4" in (record(broker, 4 * size) or b"")
