"""Bodies of request 103: valid ones become a Registration, others get an error with the reason."""

import json
import struct
import zlib

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.namesrv.registration import BODY_SIZE_MAX, read_data_version, read_registration
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.namesrv import RegisterBroker
from twinlog.cluster.remoting.names import DataVersion
from twinlog.cluster.remoting.route import QueueData

HEADER = RegisterBroker("broker-a", "192.0.2.11:10911", "DefaultCluster", "192.0.2.11:10912", 0)
TOPIC = {
    "order": False,
    "perm": 7,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "TBW102",
    "topicSysFlag": 1,
    "writeQueueNums": 4,
}


def body_of(topics: object, version: object = None) -> bytes:
    version = {"counter": 3, "timestamp": 1795264829652} if version is None else version
    wrapper = {"dataVersion": version, "topicConfigTable": topics}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def compressed_of(*lines: str, version: str = '{"counter":3,"timestamp":5}', tail: bytes = b"") -> bytes:
    texts = [line.encode() for line in lines]
    data = struct.pack(">i", len(version)) + version.encode() + struct.pack(">i", len(texts))
    data += b"".join(struct.pack(">i", len(text)) + text for text in texts)
    return zlib.compress(data + struct.pack(">i", 2) + b"[]" + tail)


def test_a_plain_body():
    found = read_registration(HEADER, body_of({"TBW102": TOPIC}), 409)
    assert (found.cluster, found.broker_name, found.broker_id) == ("DefaultCluster", "broker-a", 0)
    assert (found.address, found.ha_server_addr) == ("192.0.2.11:10911", "192.0.2.11:10912")
    assert found.data_version == DataVersion(1795264829652, 3)
    assert found.topics == {"TBW102": QueueData("broker-a", 8, 4, 7, 1)}


def test_a_body_of_5_x():
    wrapper = {
        "dataVersion": {"counter": 3, "stateVersion": 0, "timestamp": 5},
        "mappingDataVersion": {"counter": 0, "timestamp": 1},
        "topicConfigTable": {"T1": {**TOPIC, "attributes": {}}},
        "topicQueueMappingInfoMap": {},
    }
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    assert read_registration(HEADER, body, 479).topics == {"T1": QueueData("broker-a", 8, 4, 7, 1)}


def test_missing_numbers_have_rocketmqs_defaults():
    assert read_registration(HEADER, body_of({"T1": {}}), 409).topics == {"T1": QueueData("broker-a", 16, 16, 6, 0)}


def test_no_body_is_a_registration_without_topics():
    found = read_registration(HEADER, b"", 409)
    assert (found.data_version, found.topics) == (DataVersion(0, 0), {})


def test_a_compressed_body():
    header = evolve(HEADER, compressed=True)
    body = compressed_of(
        "T1 8 4 7 SINGLE_TAG", 'T2 1 1 6 MULTI_TAG {"queue.type":"BatchCQ"}', tail=struct.pack(">i", 0)
    )
    found = read_registration(header, body, 409)
    assert found.data_version == DataVersion(5, 3)
    assert found.topics == {"T1": QueueData("broker-a", 8, 4, 7), "T2": QueueData("broker-a", 1, 1, 6)}


def test_the_checksum_covers_the_body_as_sent():
    body = compressed_of("T1 8 4 7 SINGLE_TAG")
    crc = zlib.crc32(body) & 0x7FFFFFFF
    assert read_registration(evolve(HEADER, compressed=True, body_crc32=crc), body, 409).topics
    assert zlib.crc32(b"{}") & 0x7FFFFFFF == 598130499
    with pytest.raises(RequestError, match="crc32 not match"):
        read_registration(evolve(HEADER, compressed=True, body_crc32=crc ^ 1), body, 409)


def test_an_ancient_broker_is_refused():
    with pytest.raises(RequestError, match="version 36 is too old") as caught:
        read_registration(HEADER, body_of({}), 36)
    assert caught.value.code == ResponseCode.VERSION_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"broker_name": ""}, "brokerName '' is empty"),
        ({"broker_name": " "}, "brokerName"),
        ({"broker_name": "a\nb"}, "brokerName"),
        ({"cluster_name": "x" * 256}, "clusterName"),
        ({"broker_addr": "broker-a"}, "brokerAddr 'broker-a' is not host:port"),
        ({"broker_addr": "broker-a:0"}, "brokerAddr"),
        ({"broker_id": -1}, "brokerId -1"),
    ],
)
def test_bad_headers_are_refused(changes, reason):
    with pytest.raises(RequestError, match=reason):
        read_registration(evolve(HEADER, **changes), body_of({}), 409)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "cannot be read: line 1"),
        (b"[]", "RegisterBrokerBody is not an object"),
        (b'{"topicConfigSerializeWrapper":[1]}', "topicConfigSerializeWrapper is not an object"),
        (body_of([1]), "topicConfigTable is not an object"),
        (body_of({}, version=[1]), "dataVersion is not an object"),
        (body_of({}, version={"counter": "x"}), "cannot be read"),
        (body_of({}, version={"counter": []}), "cannot be read"),
        (body_of({}, version={"counter": 1e400}), "cannot be read"),
        (body_of({}, version={"counter": 1e30}), r"1\.000e\+30 in dataVersion"),
        (body_of({"T1": []}), "cannot be read"),
        (body_of({"T1": {"perm": "6"}}), "topic T1: '6' is not in 0..15"),
        (body_of({"T1": {"perm": True}}), "topic T1: True"),
        (body_of({"T1": {"perm": 16}}), "topic T1: 16"),
        (body_of({"T1": {"readQueueNums": -1}}), "topic T1: -1"),
        (body_of({"T1": {"writeQueueNums": 65_537}}), "topic T1: 65537"),
        (body_of({"": TOPIC}), "topic '' is empty"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_bad_plain_bodies_are_refused(body, reason):
    with pytest.raises(RequestError, match=reason) as caught:
        read_registration(HEADER, body, 409)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", "cannot be read"),
        (compressed_of("T1 8 4 7 SINGLE_TAG")[:-8], "the zlib stream is cut off"),
        (zlib.compress(b""), "cannot be read"),
        (zlib.compress(struct.pack(">i", -1)), "-1 bytes at byte 4 of 4"),
        (zlib.compress(struct.pack(">i", 100) + b"{}"), "100 bytes at byte 4 of 6"),
        (zlib.compress(struct.pack(">i2si", 2, b"{}", 5)), "cannot be read"),
        (compressed_of("T1 8 4"), "cannot be read"),
        (compressed_of("T1 8 x 7 SINGLE_TAG"), "cannot be read"),
        (compressed_of("T1 8 4 99 SINGLE_TAG"), "topic T1: 99"),
        (compressed_of(version="[]"), "dataVersion is not an object"),
        (zlib.compress(bytes(BODY_SIZE_MAX + 1)), f"above {BODY_SIZE_MAX} bytes"),
    ],
)
def test_bad_compressed_bodies_are_refused(body, reason):
    with pytest.raises(RequestError, match=reason):
        read_registration(evolve(HEADER, compressed=True), body, 409)


@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_any_body_is_read_or_refused(data, compressed, packed):
    body = zlib.compress(data) if packed else data
    try:
        read_registration(evolve(HEADER, compressed=compressed), body, 409)
    except RequestError:
        return


def test_data_versions():
    assert read_data_version(b'{"counter":3,"stateVersion":0,"timestamp":5}') == DataVersion(5, 3)
    for bad in (b"", b"[]", b'{"counter":{}}'):
        with pytest.raises(RequestError, match="the data version cannot be read"):
            read_data_version(bad)
