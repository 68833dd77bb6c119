"""Parser of registrations (103), as JSON or compressed. Bytes in, a Registration out; every field is checked.

Compressed, a zlib stream of:  size i32, DataVersion JSON | count i32, repeated: size i32, topic line
                               | size i32, list of filter servers | 5.x: mappings of static topics, not read
A topic line is `name read write perm SINGLE_TAG`, blank-separated; 5.x adds attributes.
Source: RegisterBrokerBody.java, TopicConfig.java (RocketMQ 4.9.8).
"""

import struct
import zlib
from collections.abc import Mapping
from struct import Struct
from typing import Any

from twinlog.cluster.namesrv.route_info import Registration
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.namesrv import RegisterBroker
from twinlog.cluster.remoting.names import DataVersion, split_address
from twinlog.cluster.remoting.route import QueueData

VERSION_MIN = 37  # V3_0_11. Older brokers send another body.
NAME_SIZE_MAX = 255  # Characters; RocketMQ's topics have at most 127.
QUEUES_MAX = 65_536
TIMEOUT_MS_MIN = 1000  # One that is shorter than a scan is ignored.
BODY_SIZE_MAX = 64 * 1024 * 1024  # Of a decompressed body: about half a million topics.

_SIZE = Struct(">i")


def read_registration(header: RegisterBroker, body: bytes | memoryview, version: int) -> Registration:
    """Parse a registration. Raises RequestError for a wrong version, checksum, name, number or form."""
    if version < VERSION_MIN:
        remark = f"broker version {version} is too old to register, at least {VERSION_MIN} (V3_0_11) is needed"
        raise RequestError(ResponseCode.VERSION_NOT_SUPPORTED, remark)
    if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
        raise _refused("crc32 not match")
    _check_name("brokerName", header.broker_name)
    _check_name("clusterName", header.cluster_name)
    try:
        split_address(header.broker_addr)
    except ValueError as error:
        raise _refused(f"brokerAddr {error}") from None
    if header.broker_id < 0:
        raise _refused(f"brokerId {header.broker_id} is below 0")
    try:
        data_version, topics = _read_body(body, header)
    except (ValueError, TypeError, AttributeError, OverflowError, struct.error, zlib.error) as error:
        raise _refused(f"the registration's body cannot be read: {error}") from None
    timeout_ms = header.heartbeat_timeout_millis or 0
    return Registration(
        header.cluster_name,
        header.broker_name,
        header.broker_id,
        header.broker_addr,
        header.ha_server_addr,
        data_version,
        topics,
        timeout_ms / 1000 if timeout_ms >= TIMEOUT_MS_MIN else None,
    )


def read_route(topic: str, body: bytes | memoryview) -> list[QueueData]:
    """Parse the queues in the body of 217, a TopicRouteData. Raises RequestError."""
    try:
        shares = _object(fastjson.loads(body), "TopicRouteData").get("queueDatas") or []
        return [_queue(_object(share, "queueDatas").get("brokerName", ""), topic, share) for share in shares]
    except (ValueError, TypeError, AttributeError) as error:
        raise _refused(f"the route cannot be read: {error}") from None


def read_data_version(body: bytes | memoryview) -> DataVersion:
    """Parse the body of 322. Raises RequestError."""
    try:
        return _data_version(fastjson.loads(body))
    except (ValueError, TypeError, OverflowError) as error:
        raise _refused(f"the data version cannot be read: {error}") from None


def _read_body(body: bytes | memoryview, header: RegisterBroker) -> tuple[DataVersion, dict[str, QueueData]]:
    if not body:
        return DataVersion(0), {}
    if header.compressed:
        return _read_compressed(body, header.broker_name)
    table = _object(fastjson.loads(body), "RegisterBrokerBody").get("topicConfigSerializeWrapper") or {}
    topics = _object(_object(table, "topicConfigSerializeWrapper").get("topicConfigTable") or {}, "topicConfigTable")
    version = _data_version(table.get("dataVersion") or {})
    return version, {name: _queue(header.broker_name, name, config) for name, config in topics.items()}


def _read_compressed(body: bytes | memoryview, broker_name: str) -> tuple[DataVersion, dict[str, QueueData]]:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, BODY_SIZE_MAX)
    if not inflater.eof:
        raise ValueError("the zlib stream is cut off" if len(data) < BODY_SIZE_MAX else f"above {BODY_SIZE_MAX} bytes")
    version_text, at = _text(data, 0)
    (count,) = _SIZE.unpack_from(data, at)
    at += _SIZE.size
    topics = {}
    for _ in range(count):
        line, at = _text(data, at)
        name, read, write, perm, *_ = [*line.split(" "), "", "", ""]
        config = {"readQueueNums": int(read), "writeQueueNums": int(write), "perm": int(perm)}
        topics[name] = _queue(broker_name, name, config)
    return _data_version(fastjson.loads(version_text)), topics


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _SIZE.unpack_from(data, at)
    start = at + _SIZE.size
    if not 0 <= size <= len(data) - start:
        raise ValueError(f"{size} bytes at byte {start} of {len(data)}")
    return data[start : start + size].decode(), start + size


def _queue(broker_name: str, topic: str, config: Mapping[str, Any]) -> QueueData:
    _check_name("topic", topic)
    read, write, perm, flag = (
        config.get(key, default)
        for key, default in (("readQueueNums", 16), ("writeQueueNums", 16), ("perm", 6), ("topicSysFlag", 0))
    )
    for number, most in ((read, QUEUES_MAX), (write, QUEUES_MAX), (perm, 15), (flag, 0x7FFFFFFF)):
        if type(number) is not int or not 0 <= number <= most:
            raise ValueError(f"topic {topic}: {number!r:.40} is not in 0..{most}")
    return QueueData(broker_name, read, write, perm, flag)


def _data_version(value: object) -> DataVersion:
    version = DataVersion.read(_object(value, "dataVersion"))
    for number in (version.timestamp, version.counter):
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"{number:.3e} in dataVersion is not a 64-bit integer")
    return version


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is not an object")
    return value


def _check_name(what: str, name: str) -> None:
    if not name.strip() or len(name) > NAME_SIZE_MAX or not name.isprintable():
        raise _refused(f"{what} {name!r:.60} is empty, unprintable or longer than {NAME_SIZE_MAX}")


def _refused(remark: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
