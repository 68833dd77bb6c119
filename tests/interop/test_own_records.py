"""Records that the real 4.9.7 makes by itself, of checks and of offsets that moved: they are those that our functions make."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import attrs

from tests.store import golden
from tests.support.clients.remoting import create_topic, request
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.rocketmq import Broker, NameServer
from twinlog.cluster.broker.consume.offset_moved import OffsetMoved
from twinlog.cluster.broker.transactions.records import asked_again, check_times, counted, given_up, postponed
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.message import Message, decode_message, host_bytes
from twinlog.store.record.scan import scan_records

HALF, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
CHECK_MAX = 3
SETTINGS = {
    **TEST_SETTINGS,
    "transactionCheckInterval": "500",
    "transactionTimeOut": "700",
    "transactionCheckMax": str(CHECK_MAX),
}
PULL = {
    "consumerGroup": "lost",
    "queueId": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "1000",
    "subscription": "*",
    "subVersion": "1",
}
HOURS_73 = 73 * 3_600_000


def begin(broker: str, key: str, properties: str = "", *, age_ms: int = 0) -> None:
    """Send a half message, as a client would that is never heard of again."""
    text = f"KEYS\x01{key}\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02PGROUP\x01nobody\x02TAGS\x01TagA"
    born = str(time.time_ns() // 1_000_000 - age_ms)
    fields = {"a": "nobody", "b": "Open", "c": "TBW102", "d": "4", "e": "1", "f": "4", "g": born, "h": "7"}
    header, _ = request(
        broker, 310, {**fields, "i": text + properties, "j": "0", "k": "false", "m": "false"}, key.encode()
    )
    assert header["code"] == 0, header


def records(store: Path) -> Iterator[Message]:
    """All records in the order of the log."""
    for start, content in golden.log_files(store / "commitlog").items():
        for entry in scan_records(content, start, int(SETTINGS["mappedFileSizeCommitLog"]), check_crc=True).entries:
            yield decode_message(content, entry.phy_offset - start)


def as_stored(put: PutMessage, like: Message) -> Message:
    """The record that the store makes of it, with the place and the time of another."""
    fields = {name: getattr(put, name) for name in PutMessage._fields if name not in ("properties", "tags_code")}
    return attrs.evolve(like, **fields, properties_raw=put.properties)


def test_records_of_the_brokers_own(real_namesrv: NameServer, root: Path) -> None:
    """Half messages are asked about until that is enough, or are too old, or want to be left alone, which RocketMQ counts
    all the same; a consumer asks for an offset that its queue does not have.
    """
    with Broker(root / "master", real_namesrv.address, settings=SETTINGS) as broker:
        create_topic(broker.address, "Open", queues=2)
        begin(broker.address, "asked")
        begin(broker.address, "old", age_ms=HOURS_73)
        begin(broker.address, "alone", "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x0160")
        header, _ = request(broker.address, 11, {**PULL, "topic": "Open", "queueOffset": "9"})
        assert header["code"] == 21, header
        time.sleep(5)
        address = broker.address
        broker.stop()
    found: dict[str, list[Message]] = {}
    for message in records(root / "master" / "store"):
        found.setdefault(message.properties.get("UNIQ_KEY", message.topic), []).append(message)
    *halves, last = found["asked"]
    assert [half.topic for half in halves] == [HALF] * (CHECK_MAX + 1)
    assert [check_times(half) for half in halves] == list(range(CHECK_MAX + 1))
    for before, after in pairwise(halves):
        assert as_stored(asked_again(counted(before)), after) == after
    assert (halves[0].flag, halves[1].flag, last.topic) == (7, 0, GIVEN_UP)
    assert as_stored(given_up(halves[-1], CHECK_MAX), last) == last
    half, last = found["old"]
    assert as_stored(given_up(half, CHECK_MAX), last) == last
    *halves, last = found["alone"]
    assert len(halves) == CHECK_MAX + 1
    for before, after in pairwise(halves):
        assert as_stored(postponed(counted(before)), after) == after
    assert as_stored(given_up(halves[-1], CHECK_MAX), last) == last
    (moved,) = found["OFFSET_MOVED_EVENT"]
    event = OffsetMoved("lost", "broker-a", "Open", 0, requested=9, new=0)
    assert as_stored(event.message(host_bytes(address), moved.born_timestamp), moved) == moved
