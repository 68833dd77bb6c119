"""Makes golden/admin/rocketmq-4.9.7-broker.jsonl.xz: what a real broker answers to administrators.

    .venv/bin/python -m tests.golden.make_admin

One name server and one broker of RocketMQ 4.9.7; a producer and a consumer of a few lines; then each request that needs nobody
else's connection. `converse` is the whole dialogue: tests hold the same one with our own broker, and compare.
"""

import base64
import json
import lzma
import shutil
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.clients.remoting import VERSION
from tests.support.process_group.rocketmq import Broker, NameServer

CAPTURE = Path(__file__).parent / "admin" / "rocketmq-4.9.7-broker.jsonl.xz"
ROOT = Path("/tmp/rocketmq-4.9.7")
TOPIC, GROUP, PRODUCERS = "AdminTopic", "AdminGroup", "AdminProducers"
SEND = {"producerGroup": PRODUCERS, "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
SEND |= {"sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0"}
LOOK_SECONDS = 11  # Statistics are looked at each ten seconds.

Ask = Callable[[int, dict[str, str], bytes], tuple[int, bytes]]  # Code, fields, body; the answer's code and body.

STATISTICS = (
    ("TOPIC_PUT_NUMS", TOPIC),
    ("TOPIC_PUT_SIZE", TOPIC),
    ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"),
    ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"),
    ("GROUP_GET_LATENCY", f"0@{TOPIC}@{GROUP}"),
    ("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}"),
    ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@2"),
    ("QUEUE_PUT_SIZE", "SCHEDULE_TOPIC_XXXX@2"),
    ("BROKER_PUT_NUMS", "DefaultCluster"),
    ("BROKER_GET_NUMS", "DefaultCluster"),
    ("TOPIC_PUT_NUMS", "nobody"),
    ("NO_SUCH_NAME", TOPIC),
)


def converse(ask: Ask, *, wait: Callable[[], None]) -> None:
    """Everything that is asked, in its order; `wait` lets time pass until statistics were looked at."""
    prepare(ask)
    wait()
    for name, key in STATISTICS:
        ask(315, {"statsName": name, "statsKey": key}, b"")
    for is_order in ("false", "true"):
        ask(317, {"isOrder": is_order}, b"")
    for topic in (TOPIC, "nobody"):
        ask(303, {"topic": topic, "group": GROUP}, b"")
    ask(308, {"topic": TOPIC, "compareGroup": GROUP}, b"")
    look_at_queues(ask)
    for topic in (TOPIC, "nobody"):
        ask(202, {"topic": topic}, b"")
        ask(300, {"topic": topic}, b"")
    for group in (GROUP, "nobody"):
        ask(203, {"consumerGroup": group}, b"")
        ask(208, {"consumerGroup": group}, b"")
    for group in (PRODUCERS, "nobody"):
        ask(204, {"producerGroup": group}, b"")
    for code in (305, 328, 28, 26, 306, 316, 329):
        ask(code, {}, b"")
    ask(323, {"msgId": "none"}, b"")
    ask(25, {}, b"")
    ask(25, {}, b"rocketmqHome=/tmp\n")
    ask(25, {}, b"brokerPermission=6\n")
    ask(207, {"groupName": "nobody", "removeOffset": "false"}, b"")
    ask(215, {"topic": TOPIC}, b"")
    ask(315, {"statsName": "NO_SUCH_NAME", "statsKey": TOPIC}, b"")


def prepare(ask: Ask) -> None:
    """A topic with messages, a consumer that took some and handed one back, and a producer."""
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    ask(17, {**fields, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}, b"")
    subscription = {"topic": TOPIC, "subString": "TagA", "subVersion": 1, "tagsSet": ["TagA"], "codeSet": [2598919]}
    consumer = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{**subscription, "classFilterMode": False, "expressionType": "TAG"}],
    }
    beat = {"clientID": "127.0.0.1@1", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": PRODUCERS}]}
    ask(34, {}, _compact(beat).encode())
    for number in range(6):
        properties = f"UNIQ_KEY\x01{number:032}\x02TAGS\x01TagA"
        ask(10, {**SEND, "queueId": str(number % 2), "properties": properties}, b"message %d" % number)
    time.sleep(0.5)  # Dispatch.
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32"}
    fields |= {"sysFlag": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1"}
    ask(11, fields, b"")
    ask(15, {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "2"}, b"")
    ask(36, {"offset": "0", "group": GROUP, "delayLevel": "0"}, b"")


def look_at_queues(ask: Ask) -> None:
    """321: with a group that is there and one that is not, and where there is nothing."""
    for more in ({}, {"consumerGroup": GROUP}, {"consumerGroup": "nobody"}):
        ask(321, {"topic": TOPIC, "queueId": "0", "index": "1", "count": "2", **more}, b"")
    for queue_id, index in (("0", "100"), ("7", "0")):
        ask(321, {"topic": TOPIC, "queueId": queue_id, "index": index, "count": "2"}, b"")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


class Recorder:
    """One connection to a broker; keeps every frame of both directions."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=15)
        self.lines: list[str] = []
        self._began, self._opaque = time.monotonic(), 0

    def ask(self, code: int, fields: dict[str, str], body: bytes) -> tuple[int, bytes]:
        self._opaque += 1
        header = {"code": code, "language": "JAVA", "version": VERSION, "opaque": self._opaque, "flag": 0}
        encoded = _compact({**header, "extFields": fields}).encode()
        frame = struct.pack(">i", len(encoded)) + encoded + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        self._note(">", frame)
        while True:
            (size,) = struct.unpack(">i", self._receive(4))
            answer = self._receive(size)
            self._note("<", answer)
            header_size = struct.unpack(">i", answer[:4])[0] & 0xFFFFFF
            told: dict[str, Any] = json.loads(answer[4 : 4 + header_size])
            if told["flag"] & 1 and told["opaque"] == self._opaque:
                return told["code"], answer[4 + header_size :]

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(size)
            if not part:
                raise RuntimeError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _note(self, direction: str, frame: bytes) -> None:
        word = struct.unpack(">i", frame[:4])[0]
        size = word & 0xFFFFFF
        header, body = frame[4 : 4 + size].decode(), frame[4 + size :]
        line: dict[str, Any] = {"t_ms": round((time.monotonic() - self._began) * 1000), "conn": 1, "dir": direction}
        line |= {"serialize": word >> 24, "header": header}
        if body:
            try:
                line["body"] = body.decode()
            except UnicodeDecodeError:
                line["body_b64"] = base64.b64encode(body).decode()
        self.lines.append(json.dumps({**line, "header_length_word": word, "total": len(frame)}))


def main() -> None:
    root = ROOT
    root.mkdir()  # A fixed name, because the broker tells it.
    try:
        with NameServer(root / "namesrv") as namesrv, Broker(root / "broker", namesrv.address) as broker:
            recorder = Recorder(broker.address)
            converse(recorder.ask, wait=lambda: time.sleep(LOOK_SECONDS))
    finally:
        shutil.rmtree(root)
    CAPTURE.write_bytes(lzma.compress("".join(f"{line}\n" for line in recorder.lines).encode(), preset=9))
    print(f"{CAPTURE}: {len(recorder.lines)} frames")


if __name__ == "__main__":
    main()
