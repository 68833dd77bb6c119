"""A remoting client of a few lines, for what the harness asks of any cluster, real or ours, without a JVM.

It is kept apart from our own codec on purpose: a mistake there must not be able to hide here.
"""

import json
import socket
import ssl
import struct
import time
from collections.abc import Iterable
from typing import Any

GET_BROKER_RUNTIME_INFO, UPDATE_AND_CREATE_TOPIC, GET_ROUTE, GET_CLUSTER = 28, 17, 105, 106
LOCK_BATCH_MQ = 41
VERSION = 407  # V4_9_7
TLS_ONLY: set[str] = set()  # Addresses that take no plain connections.


def request(
    address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b"", *, timeout_s: float = 5
) -> tuple[Any, bytes]:
    """Send one request over a connection of its own; return the answer's header and body."""
    host, port = address.rsplit(":", 1)
    with _connect(host, int(port), timeout_s, secure=address in TLS_ONLY) as connection:
        return exchange(connection, code, fields or {}, body)


def exchange(connection: socket.socket, code: int, fields: dict[str, str], body: bytes) -> tuple[Any, bytes]:
    """Send one request over a connection on which nothing else is under way; return the answer's header and body."""
    header = {"code": code, "language": "JAVA", "version": VERSION, "opaque": 1, "flag": 0, "extFields": fields}
    encoded = json.dumps(header).encode()
    connection.sendall(struct.pack(">ii", 4 + len(encoded) + len(body), len(encoded)) + encoded + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    frame = _receive(connection, size)
    header_size = struct.unpack(">i", frame[:4])[0] & 0xFFFFFF
    return json.loads(frame[4 : 4 + header_size]), frame[4 + header_size :]


def _connect(host: str, port: int, timeout_s: float, *, secure: bool) -> socket.socket:
    plain = socket.create_connection((host, port), timeout=timeout_s)
    if not secure:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def message_fields(topic: str, *, queue_id: int = 0, queues: int = 1, properties: str = "") -> dict[str, str]:
    """The header of SEND_MESSAGE for a message of one of our harnesses."""
    return {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": str(queues),
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "0",
        "properties": properties,
        "reconsumeTimes": "0",
    }


def create_topic(broker: str, topic: str, *, queues: int = 4) -> None:
    """Create a topic on one broker, as mqadmin updateTopic does. A broker answers once the name server knows it."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    header, _ = request(broker, UPDATE_AND_CREATE_TOPIC, fields)
    if header["code"] != 0:
        raise RuntimeError(f"{broker} did not create {topic}: {header}")


def lock_queues(broker: str, group: str, client: str, topic: str, queue_ids: Iterable[int]) -> set[int] | None:
    """LOCK_BATCH_MQ for a client: the queues that are its now; None: refused."""
    queues = [{"topic": topic, "brokerName": "broker-a", "queueId": queue_id} for queue_id in queue_ids]
    body = json.dumps({"consumerGroup": group, "clientId": client, "mqSet": queues}).encode()
    header, answer = request(broker, LOCK_BATCH_MQ, body=body)
    return {queue["queueId"] for queue in json.loads(answer)["lockOKMQSet"]} if header["code"] == 0 else None


def is_registered(namesrv: str, address: str) -> bool:
    """Say whether the name server lists this broker address, as master or slave."""
    try:
        _, body = request(namesrv, GET_CLUSTER)
    except OSError:
        return False
    return f'"{address}"'.encode() in body


def runtime_info(broker: str) -> dict[str, str]:
    """Return what the broker tells of itself (getBrokerRuntimeInfo)."""
    _, body = request(broker, GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(body)["table"]
    return table


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed in the middle of an answer")
        data += piece
    return bytes(data)
