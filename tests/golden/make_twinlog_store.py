"""Makes golden/store/twinlog-VERSION: a small store directory as this release leaves it, for later releases to open.

    .venv/bin/python -m tests.golden.make_twinlog_store [DIRECTORY]

A broker takes messages of every kind: plain, with tags and keys, in batches, delayed, transactional, sent back. It is stopped,
and its directory kept; then it takes some more, and is killed in the middle. A capture is a store-NAME.tar.xz, and
truth-NAME.json.xz with what the broker had answered by then.
"""

import json
import lzma
import shutil
import struct
import sys
import tarfile
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.clients.remoting import create_topic, request
from tests.support.process_group.twinlog import Broker, NameServer
from tests.support.waiting import wait_for

GOLDEN = Path(__file__).parent / "store"
SETTINGS = {
    "mappedFileSizeCommitLog": "131072",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
QUEUES = {"plain": 4, "batch": 2, "delayed": 2, "transaction": 2, "retried": 1}
SEND_MESSAGE, SEND_BACK, END_TRANSACTION, GET_MIN_OFFSET, GET_MAX_OFFSET = 10, 36, 37, 31, 30
UPDATE_CONSUMER_OFFSET, UPDATE_GROUP = 15, 200
COMMIT, ROLLBACK = 8, 12
GROUP = "group"
Truth = dict[str, Any]


class Client:
    """Sends requests of single messages, and notes what was answered in `truth`."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.truth: Truth = {"messages": [], "consumer_offsets": {}}
        self._number = 0

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> dict[str, str]:
        header, _ = request(self.broker, code, fields, body)
        if header["code"] != 0:
            raise RuntimeError(f"request {code}: {header}")
        answered: dict[str, str] = header.get("extFields") or {}
        return answered

    def send(self, topic: str, count: int = 1, *, kind: str = "plain", **properties: str) -> list[Truth]:
        """Send single messages; their queues take turns."""
        return [self._send(topic, kind, properties) for _ in range(count)]

    def _send(self, topic: str, kind: str, properties: dict[str, str]) -> Truth:
        number, body, own = self._next(topic)
        queue_id = number % QUEUES[topic]
        answer = self.ask(SEND_MESSAGE, send_fields(topic, queue_id, own | properties), body)
        return self._note(topic, kind, number, answer["msgId"], queue_id, int(answer["queueOffset"]))

    def send_batch(self, topic: str, count: int) -> None:
        """Send one request with several messages."""
        first, parts = self._number, []
        for _ in range(count):
            number, body, own = self._next(topic)
            raw = encode(own)
            sizes = struct.pack(">iiiii", 22 + len(body) + len(raw), 0, 0, number, len(body))
            parts.append(sizes + body + struct.pack(">h", len(raw)) + raw)
        fields = send_fields(topic, first % QUEUES[topic], {}) | {"batch": "true"}
        answer = self.ask(SEND_MESSAGE, fields, b"".join(parts))
        for at, msg_id in enumerate(answer["msgId"].split(",")):
            self._note(topic, "batch", first + at, msg_id, int(answer["queueId"]), int(answer["queueOffset"]) + at)

    def transaction(self, end: int | None) -> None:
        """Send a half message, and end it; None: leave it open."""
        (half,) = self.send("transaction", kind="half", TRAN_MSG="true", PGROUP=GROUP)
        half["ended"] = {COMMIT: "committed", ROLLBACK: "rolled back", None: "open"}[end]
        if end is not None:
            fields = {
                "producerGroup": GROUP,
                "tranStateTableOffset": str(half["queue_offset"]),
                "commitLogOffset": str(half["phy_offset"]),
                "commitOrRollback": str(end),
                "fromTransactionCheck": "false",
                "msgId": half["unique_id"],
                "transactionId": half["unique_id"],
            }
            self.ask(END_TRANSACTION, fields)

    def send_back(self, message: Truth) -> None:
        """As a consumer that failed: the message comes again, later."""
        fields = {"offset": str(message["phy_offset"]), "group": GROUP, "delayLevel": "0", "unitMode": "false"}
        self.ask(SEND_BACK, fields | {"originMsgId": message["unique_id"], "originTopic": message["topic"]})
        message["sent_back"] = True

    def commit_offsets(self, topic: str) -> None:
        for queue_id in range(QUEUES[topic]):
            fields = {
                "consumerGroup": GROUP,
                "topic": topic,
                "queueId": str(queue_id),
                "commitOffset": str(3 + queue_id),
            }
            self.ask(UPDATE_CONSUMER_OFFSET, fields)
            self.truth["consumer_offsets"][f"{topic}@{GROUP}/{queue_id}"] = 3 + queue_id

    def offsets(self, topic: str) -> list[list[int]]:
        """Min and max offset of each queue of a topic."""
        return [
            [
                int(self.ask(code, {"topic": topic, "queueId": str(queue_id)})["offset"])
                for code in (GET_MIN_OFFSET, GET_MAX_OFFSET)
            ]
            for queue_id in range(QUEUES[topic])
        ]

    def _next(self, topic: str) -> tuple[int, bytes, dict[str, str]]:
        """A number, and the body and properties that belong to it."""
        number, self._number = self._number, self._number + 1
        tags = {"TAGS": ("red", "blau-ü", "long " * 30)[number % 3]} if number % 4 else {}
        return (
            number,
            body_of(number),
            {"KEYS": f"key-{number} every-{number % 10}", "UNIQ_KEY": unique_id(number), **tags},
        )

    def _note(self, topic: str, kind: str, number: int, msg_id: str, queue_id: int, queue_offset: int) -> Truth:
        noted = {
            "kind": kind,
            "topic": topic,
            "number": number,
            "unique_id": unique_id(number),
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "phy_offset": int(msg_id[-16:], 16),
        }
        self.truth["messages"].append(noted)
        return noted


def body_of(number: int) -> bytes:
    """The body of a message; lengths differ, and a few are long."""
    return f"body {number} ".encode() * (1 + number % 23 * (20 if number % 31 == 0 else 1))


def unique_id(number: int) -> str:
    return f"7F000001{number:024X}"


def encode(properties: dict[str, str]) -> bytes:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()


def send_fields(topic: str, queue_id: int, properties: dict[str, str]) -> dict[str, str]:
    return {
        "producerGroup": GROUP,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": str(time.time_ns() // 1_000_000),
        "flag": "7",
        "properties": encode(properties).decode(),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def put_all_kinds(client: Client) -> None:
    client.send("plain", 300)
    for size in (1, 2, 7, 30):
        client.send_batch("batch", size)
    client.send("delayed", 3, kind="delivered", DELAY="1")
    client.send("delayed", 3, kind="delayed", DELAY="18")  # 2 hours.
    for end in (COMMIT, ROLLBACK, None):
        client.transaction(end)
    for message in client.send("retried", 3):
        client.send_back(message)
    client.commit_offsets("plain")
    wait_for(lambda: sum(high for _, high in client.offsets("delayed")) >= 3, "delivery of what was delayed for 1 s")


def make(target: Path) -> None:
    """Write both captures and their truth to a directory."""
    target.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        NameServer(Path(scratch, "namesrv")) as namesrv,
        Broker(Path(scratch, "broker"), namesrv.address, settings=SETTINGS) as broker,
    ):
        client = Client(broker.address)
        for topic, queues in QUEUES.items():
            create_topic(broker.address, topic, queues=queues)
        client.ask(UPDATE_GROUP, {}, json.dumps({"groupName": GROUP}).encode())
        put_all_kinds(client)
        client.truth["queues"] = {topic: client.offsets(topic) for topic in QUEUES}
        broker.stop()
        keep(target, "clean", broker.store, client.truth)

        broker.start()
        before, traffic = len(client.truth["messages"]), threading.Thread(target=put_until_killed, args=(client,))
        traffic.start()
        wait_for(lambda: len(client.truth["messages"]) > before + 200, "some traffic")
        broker.kill()
        traffic.join()
        client.truth.pop("queues")
        keep(target, "killed", broker.store, client.truth)


def put_until_killed(client: Client) -> None:
    try:
        while True:
            client.send("plain", 20)
            client.send_batch("batch", 5)
            client.transaction(COMMIT)
    except OSError:
        pass  # This is the end.


def keep(target: Path, name: str, store: Path, truth: Truth) -> None:
    with tarfile.open(target / f"store-{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(store, arcname=name, filter=nobodys)
    text = json.dumps(truth, indent=0).encode()
    (target / f"truth-{name}.json.xz").write_bytes(lzma.compress(text, preset=9))


def nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    directory = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN / f"twinlog-{'.'.join(version('twinlog').split('.')[:2])}"
    )
    shutil.rmtree(directory, ignore_errors=True)
    make(directory)
    print(directory)
