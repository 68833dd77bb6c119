"""One record: every field at its place, and nothing else taken for one."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.records import HOST_V4, messages
from twinlog.store.errors import MessageFormatError
from twinlog.store.record.message import (
    MAGIC_V2,
    Message,
    body_crc,
    decode_message,
    encode_message,
    host_bytes,
    host_text,
    message_id,
    split_plain,
)

# Written by a 4.9.7 broker.
OP_RECORD = bytes.fromhex(
    "00000087 daa320a7 74dbdf21 00000000 00000000 0000000000000000 0000000000000990 00000000"
    "000001a1fe1ecae6 7f000001000078bf 000001a1fe1ecae6 7f000001000078bf 00000000 0000000000000000"
    "00000001 30 1b 524d515f5359535f5452414e535f4f505f48414c465f544f504943 0010 57414954017472756502544147530164"
)


def test_a_real_record_means_what_it_should():
    message = decode_message(OP_RECORD)
    assert message == Message(
        topic="RMQ_SYS_TRANS_OP_HALF_TOPIC",
        queue_id=0,
        body=b"0",
        properties_raw=b"WAIT\x01true\x02TAGS\x01d",
        phy_offset=2448,
        born_timestamp=0x1A1FE1ECAE6,
        born_host=host_bytes("127.0.0.1:30911"),
        store_timestamp=0x1A1FE1ECAE6,
        store_host=host_bytes("127.0.0.1:30911"),
        body_crc=0x74DBDF21,
        size=135,
    )
    assert message.properties == {"WAIT": "true", "TAGS": "d"}
    assert encode_message(message) == OP_RECORD


@given(messages(), st.binary(max_size=5), st.binary(max_size=5))
def test_decode_is_the_reverse_of_encode(message, before, after):
    """Wherever the record lies in a buffer."""
    raw = encode_message(message)
    assert decode_message(before + raw + after, len(before)) == message
    assert decode_message(memoryview(before + raw + after), len(before)) == message


@given(messages(), st.binary(max_size=5), st.data())
def test_the_short_way_reads_the_same_or_nothing(message, before, data):
    """Of whole records, also of damaged ones, and of parts of them."""
    raw = bytearray(encode_message(message))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=2)):
        raw[at] ^= data.draw(st.integers(1, 255))
    record = bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, 90, 3]))])
    topic = data.draw(st.sampled_from([message.topic, message.topic[:-1], message.topic + "x"])).encode()
    if (found := split_plain(before + record, len(before), topic)) is not None:
        same = decode_message(record)
        fields, body, properties = found
        assert (fields[0], body, properties, topic) == (same.size, same.body, same.properties_raw, same.topic.encode())
        head = (same.queue_offset, same.phy_offset, same.sys_flag, same.born_timestamp, same.born_host)
        head += (same.store_timestamp, same.store_host, same.reconsume_times, same.prepared_transaction_offset)
        assert fields[5:14] == head


def test_the_short_way_reads_a_real_record():
    assert split_plain(b"x" + OP_RECORD, 1, b"RMQ_SYS_TRANS_OP_HALF_TOPIC")[1:] == (b"0", b"WAIT\x01true\x02TAGS\x01d")


@given(messages(), st.data())
def test_a_part_of_a_record_is_none(message, data):
    raw = encode_message(message)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(MessageFormatError):
        decode_message(raw[:cut])


@given(messages(), st.data())
def test_no_bytes_make_it_fail_otherwise(message, data):
    """Whatever is changed: a message, or MessageFormatError; with the CRC, never another body."""
    raw = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_message(bytes(raw))
    except MessageFormatError:
        return
    assert decoded.body == message.body or body_crc(decoded.body) == decoded.body_crc


@given(st.binary(max_size=300))
def test_random_bytes_are_no_record(data):
    with pytest.raises(MessageFormatError):
        decode_message(data)


def test_sizes_that_end_where_the_record_does():
    """A length field never makes the decoder read beyond the bytes that are there."""
    raw = encode_message(Message("T", 0, b"b" * 20, b"k\x01v"))
    for at in (84, 88 + 20, 88 + 20 + 2):  # Body, topic, properties.
        for value in (0xFF, 0x7F, 0x15):
            broken = bytearray(raw)
            broken[at] = value
            with pytest.raises(MessageFormatError):
                decode_message(bytes(broken))
    # A body that fills the record to its end leaves no byte for the topic's length.
    broken = bytearray(raw)
    broken[84:88] = (len(raw) - 88).to_bytes(4)
    with pytest.raises(MessageFormatError):
        decode_message(bytes(broken))


def test_a_long_topic_needs_version_2():
    message = Message("%RETRY%" + "g" * 200, 0, b"", magic=MAGIC_V2)
    raw = encode_message(message)
    assert decode_message(raw).topic == message.topic
    assert len(raw) == 92 + 207


def test_crc_is_checked_unless_told_otherwise():
    raw = bytearray(encode_message(Message("T", 0, b"hello", body_crc=body_crc(b"hello"))))
    raw[88] ^= 1
    with pytest.raises(MessageFormatError, match="CRC"):
        decode_message(bytes(raw))
    assert decode_message(bytes(raw), check_crc=False).body == b"iello"


def test_vectors():
    assert body_crc(b"hello") == 907060870
    assert body_crc(b"") == 0
    assert message_id(host_bytes("127.0.0.1:30911"), 214) == "7F000001000078BF00000000000000D6"
    assert len(message_id(host_bytes("[::1]:1"), 0)) == 56
    assert attrs.evolve(decode_message(OP_RECORD), phy_offset=214).message_id == "7F000001000078BF00000000000000D6"


@pytest.mark.parametrize("address", ["127.0.0.1:10911", "255.255.255.255:65535", "[::1]:10911", "[fe80::1]:1"])
def test_hosts_there_and_back(address):
    assert host_text(host_bytes(address)) == address
    assert len(host_bytes(address)) in (8, 20)
    assert host_bytes("127.0.0.1:10911") == HOST_V4
