"""One store directory in turns: written by our store, opened and written by the real 4.9.7, opened by ours again."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from store.config import StoreConfig
from store.message import decode_message, host_bytes
from store.message_store import MessageStore
from tests.interop.compare import end_offset
from tests.interop.java_client import ROOT, JavaClient, Sent, body
from tests.interop.member import TEST_SETTINGS
from tests.interop.remoting import create_topic
from tests.interop.rocketmq import Broker, NameServer
from tests.store.records import put_message

TOPIC, QUEUES = "shared", 4
OURS, REAL, BODY_SIZE = 3000, 1500, 1100  # Several files of the log, and of each queue.


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root=root,
        mapped_file_size_commit_log=int(TEST_SETTINGS["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(TEST_SETTINGS["mappedFileSizeConsumeQueue"]),
    )


def unique_key(number: int) -> str:
    return f"7F000001{number:024X}"


def write(root: Path, first: int, clean: bool) -> None:
    """Put OURS messages in batches of 16; at last stop cleanly, or die with some of them not yet in their queues."""
    store = MessageStore(config(root))
    store.load()
    for start in range(first, first + OURS, 16):
        numbers = range(start, min(start + 16, first + OURS))
        results = store.put([message(number) for number in numbers], together=start % 3 == 0)
        assert len(results) == len(numbers)
        if start < first + OURS - 100:
            store.dispatch_pending()
    if not clean:
        os.kill(os.getpid(), signal.SIGKILL)
    trio.run(store.close)


def message(number: int):
    properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01{unique_key(number)}\x02CLUSTER\x01DefaultCluster\x02TAGS\x01ours"
    return put_message(
        TOPIC,
        body("ours", number, BODY_SIZE),
        queue_id=number % QUEUES,
        properties=properties.encode(),
        born_host=host_bytes("127.0.0.1:40000"),
        store_host=host_bytes("127.0.0.1:10911"),
    )


def write_in_child(root: Path, first: int, *, clean: bool) -> None:
    script = f"from pathlib import Path; from {__name__} import write; write(Path({str(root)!r}), {first}, {clean})"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == (0 if clean else -signal.SIGKILL), ran.stderr
    assert (root / "abort").exists() != clean


async def check(root: Path, sent: list[Sent], ours: int) -> None:
    """Open the directory and find each message where its producer was told it is, and ours in their order."""
    end = end_offset(root / "commitlog")
    store = MessageStore(config(root))
    store.load()
    assert store.max_offset == store.dispatched_offset == end
    for answer in sent:
        found = decode_message(store.message_at(answer.commit_log_offset))
        assert (found.queue_id, found.queue_offset) == (answer.queue_id, answer.queue_offset)
        assert found.properties["UNIQ_KEY"] == answer.msg_id
        assert found.body == body("seed", answer.number, BODY_SIZE)
        assert store.queue(TOPIC, answer.queue_id).unit(answer.queue_offset).phy_offset == answer.commit_log_offset
    queues = [store.queue(TOPIC, queue_id) for queue_id in range(QUEUES)]
    assert sum(queue.max_offset - queue.min_offset for queue in queues) == len(sent) + ours
    keys = set()
    for queue in queues:
        for number in range(queue.min_offset, queue.max_offset):
            keys.add(decode_message(store.message_at(queue.unit(number).phy_offset)).properties["UNIQ_KEY"])
    assert keys == {answer.msg_id for answer in sent} | {unique_key(number) for number in range(ours)}
    await store.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean-stops", "kill-9"])
async def test_both_brokers_write_one_directory(real_namesrv: NameServer, root: Path, clean: bool) -> None:
    """Nothing is lost and nothing doubled, whoever wrote last, and however it ended."""
    namesrv, store = real_namesrv.address, root / "master" / "store"
    sent: list[Sent] = []
    with JavaClient(root / "client") as client:
        for turn in range(2):
            write_in_child(store, turn * OURS, clean=clean)
            with Broker(root / "master", namesrv) as broker:
                create_topic(broker.address, TOPIC, queues=QUEUES)
                producer = client.producer(f"producers-{turn}", namesrv)
                answers = producer.send(TOPIC, REAL, first=turn * REAL, threads=4, body_size=BODY_SIZE)
                assert all(answer.ok for answer in answers)
                sent += answers
                ours = (turn + 1) * OURS
                consumer = client.consumer(f"consumers-{turn}", namesrv, TOPIC)
                consumed = {message.msg_id: message for message in consumer.consumed(len(sent) + ours, timeout_s=60)}
                assert consumed.keys() == {a.msg_id for a in sent} | {unique_key(number) for number in range(ours)}
                for number in range(ours):
                    got = consumed[unique_key(number)]
                    assert (got.queue_id, got.keys, got.tags) == (number % QUEUES, f"k{number}", "ours")
                    assert got.body_sha1 == hashlib.sha1(body("ours", number, BODY_SIZE)).hexdigest()
                consumer.shutdown()
                producer.shutdown()
                if clean:
                    broker.stop()
                else:
                    broker.kill()
            assert (store / "abort").exists() != clean
            await check(store, sent, ours)
