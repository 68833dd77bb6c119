"""Delayed and sent back messages of a real broker: what ours makes of the same records is byte for byte the real one's."""

import attrs

from tests.cluster.broker.wire import directed_frames
from tests.store import golden
from twinlog.cluster.broker.delay.records import delivered
from twinlog.cluster.broker.processors.send_back import sent_back
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.message import Message, decode_message
from twinlog.store.record.scan import SCHEDULE_TOPIC, scan_records

DELAYS_MS = (1000, 5000, 10_000, 30_000, 60_000)
SEND_BACK = 36


def records(root):
    """Every record by its place in the log."""
    found = {}
    for start, content in golden.log_files(root / "commitlog").items():
        for entry in scan_records(content, start, golden.FILE_SIZE, check_crc=True).entries:
            found[entry.phy_offset] = decode_message(content, entry.phy_offset - start)
    return found


def as_stored(put: PutMessage, like: Message) -> Message:
    """The record that the store makes of it, with the place and the time of another."""
    fields = {name: getattr(put, name) for name in PutMessage._fields if name not in ("properties", "tags_code")}
    return attrs.evolve(like, **fields, properties_raw=put.properties)


def key(message):
    return message.properties.get("UNIQ_KEY"), message.reconsume_times


def test_delivered_messages_are_the_real_brokers(tmp_path):
    found = records(golden.unpack("4.9.7", "master", tmp_path))
    compared = 0
    for waiting in (message for message in found.values() if message.topic == SCHEDULE_TOPIC):
        ours = delivered(waiting)
        theirs = [m for m in found.values() if m.topic == ours.topic and key(m) == key(waiting)]
        if theirs:  # Not those that were not due yet when the capture ended.
            (real,) = theirs
            assert as_stored(ours, real) == real
            compared += 1
    assert compared == sum(1 for m in found.values() if "DELAY" in m.properties and m.topic != SCHEDULE_TOPIC) == 11


def test_what_consumers_send_back_is_the_real_brokers(tmp_path):
    found = records(golden.unpack("4.9.7", "master", tmp_path))
    compared = 0
    for (_, direction), command in directed_frames("rocketmq-4.9.7"):
        if direction != ">" or command.code != SEND_BACK:
            continue
        message = found[int(command.ext["offset"])]
        topic = f"%RETRY%{command.ext['group']}"
        level = int(command.ext["delayLevel"]) or 3 + message.reconsume_times
        ours = sent_back(message, topic, 0, level, DELAYS_MS, 0)
        real = next(
            m
            for m in found.values()
            if m.topic == SCHEDULE_TOPIC and m.properties["REAL_TOPIC"] == topic and key(m)[0] == key(message)[0]
        )
        assert as_stored(ours, real) == real
        compared += 1
    assert compared > 2
