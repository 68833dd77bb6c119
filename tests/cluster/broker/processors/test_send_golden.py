"""The captured requests of a real producer, put through our processor: our records are the real broker's."""

import attrs
import pytest

from tests.cluster.broker.sending import Producer, make_parts
from tests.cluster.broker.wire import directed_frames
from tests.store import golden
from twinlog.store.record.message import decode_message
from twinlog.store.record.scan import SCHEDULE_TOPIC, scan_records

SENDS = (310, 320)


def exchanges(capture):
    """Each captured send with the header text of its answer, None for oneway."""
    waiting, found = {}, []
    for (connection, direction), command in directed_frames(capture):
        key = connection, command.opaque
        if direction == ">" and command.code in SENDS:
            found.append([command, None])
            waiting[key] = found[-1]
        elif direction == "<" and command.is_response and key in waiting:
            waiting.pop(key)[1] = command
    return found


def is_transaction(command):
    return "TRAN_MSG" in command.ext["i"]


def unique_key(text):
    return next(part[9:] for part in text.split("\x02") if part.startswith("UNIQ_KEY\x01"))


def captured_messages(root):
    """By UNIQ_KEY and topic, in the order of the log; entries of their queues by physical offset."""
    messages, entries = {}, {}
    for start, content in golden.log_files(root / "commitlog").items():
        scan = scan_records(
            content, start, golden.FILE_SIZE, check_crc=True, delays_ms=(1000, 5000, 10_000, 30_000, 60_000)
        )
        for entry in scan.entries:
            message = decode_message(content, entry.phy_offset - start)
            key = message.properties.get("UNIQ_KEY"), message.topic
            messages.setdefault(key, message)
            entries[message.phy_offset] = entry
    return messages, entries


def expected_of(command, captured):
    """The real broker's records of a request."""
    topic = command.ext["b"]
    if command.code == 310:
        late = "DELAY\x01" in command.ext["i"]
        return [captured[unique_key(command.ext["i"]), SCHEDULE_TOPIC if late else topic]]
    keys, body = [], bytes(command.body)
    while body:
        size = int.from_bytes(body[:4])
        keys.append(unique_key(body[:size].decode(errors="replace")))
        body = body[size:]
    return [captured[key, topic] for key in keys]


def without_place(message):
    """The message without what depends on what was stored before it."""
    return attrs.evolve(message, phy_offset=0, queue_offset=0)


@pytest.fixture
def replay(tmp_path):
    """A producer whose broker has the captured one's settings; its clock is set by the test."""
    clock = [0]
    broker = make_parts(
        tmp_path / "ours",
        now_ms=lambda: clock[0],
        broker={"broker_cluster_name": "GoldenCluster", "broker_name": "golden-a"},
        mapped_file_size_commit_log=golden.FILE_SIZE,
        address="127.0.0.1:30111",
    )
    return Producer(broker), clock


def test_records_and_answers_are_the_real_brokers(replay, tmp_path):
    """Plain, oneway, batch and delayed messages: every byte but the place in log and queue."""
    producer, clock = replay
    captured, captured_entries = captured_messages(golden.unpack("4.9.7", "master", tmp_path))
    entries = {}
    producer.parts.store.on_arrival.append(
        lambda topic, queue_id, end, codes: entries.setdefault((topic, queue_id), []).extend(codes)
    )
    compared = 0
    for command, answer in exchanges("rocketmq-4.9.7"):
        if is_transaction(command):
            continue
        expected = expected_of(command, captured)
        clock[0] = expected[0].store_timestamp
        producer.wire.remote_host = expected[0].born_host
        before = producer.parts.store.max_offset
        name, queue_id = command.ext["b"], int(command.ext["e"])
        sent = producer.send(command)
        stored = [m for m in producer.stored() if m.phy_offset >= before] if before else producer.stored()
        assert list(map(without_place, stored)) == list(map(without_place, expected))
        producer.parts.store.dispatch_pending()
        where = stored[0].topic, stored[0].queue_id
        assert entries[where][-len(stored) :] == [captured_entries[m.phy_offset].tags_code for m in expected]
        compared += len(stored)
        if answer is None:
            assert sent == []
            continue
        (ours,) = sent
        assert (ours.code, ours.opaque, ours.flag, ours.body) == (answer.code, answer.opaque, answer.flag, b"")
        assert ours.remark is answer.remark is None
        changing = {"msgId": "", "queueOffset": ""}
        assert ours.ext | changing == answer.ext | changing
        assert ours.ext["msgId"] == ",".join(message.message_id for message in stored)
        assert (ours.ext["queueId"], ours.ext["queueOffset"]) == (str(queue_id), str(stored[0].queue_offset))
        assert name in (stored[0].topic, stored[0].properties.get("REAL_TOPIC"))
    assert compared == 248 + 20 + 6 + 45


def test_binary_requests_are_answered_in_kind(replay):
    """With ROCKETMQ headers the answers hold the same fields, in the same serialization."""
    producer, clock = replay
    answered = 0
    for command, answer in exchanges("rocketmq-4.9.7-binary"):
        if is_transaction(command) or answer is None:
            continue
        clock[0] += 1
        (ours,) = producer.send(command)
        assert (ours.code, ours.opaque, ours.serialize_type) == (0, answer.opaque, answer.serialize_type)
        assert ours.ext.keys() == answer.ext.keys()
        assert ours.ext["queueId"] == answer.ext["queueId"]
        answered += 1
    assert answered > 200
