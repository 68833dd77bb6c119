"""Store directories of earlier releases, as their brokers left them: everything is found, and nothing is made anew.

They stay as they are for good; a release that changes something adds its own (tests/golden/make_twinlog_store.py).
"""

import json
import lzma
import tarfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from tests.golden.make_twinlog_store import GROUP, QUEUES, SETTINGS, body_of
from tests.store import golden
from twinlog.cluster.config.json_file import JsonFile
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.finding import Severity
from twinlog.store.offline.verify.verify import verify
from twinlog.store.record.message import decode_message

RELEASES = sorted(path.name for path in golden.GOLDEN.glob("twinlog-*"))
HALF_TOPIC, SCHEDULE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
DELIVERED_LEVEL, DELAYED_LEVEL = 1, 18
WARNING = {"warning", "error", "critical"}


class Kept:
    """One directory, unpacked, and what its broker had answered."""

    def __init__(self, release: str, name: str, to: Path) -> None:
        directory = golden.GOLDEN / release
        self.name = name
        self.root = to / name
        self.truth = json.loads(lzma.decompress((directory / f"truth-{name}.json.xz").read_bytes()))
        with tarfile.open(directory / f"store-{name}.tar.xz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = staticmethod(tarfile.data_filter)
            archive.extractall(to)

    def config(self):
        return golden.config(
            self.root,
            mapped_file_size_commit_log=int(SETTINGS["mappedFileSizeCommitLog"]),
            mapped_file_size_consume_queue=int(SETTINGS["mappedFileSizeConsumeQueue"]),
            max_hash_slot_num=int(SETTINGS["maxHashSlotNum"]),
            max_index_num=int(SETTINGS["maxIndexNum"]),
        )

    def opened(self):
        store = MessageStore(self.config())
        store.load()
        return store

    def messages(self):
        return self.truth["messages"]


@pytest.fixture(params=[(release, name) for release in RELEASES for name in ("clean", "killed")], ids="-".join)
def kept(request, tmp_path):
    return Kept(*request.param, tmp_path)


@pytest.fixture(params=RELEASES)
def clean(request, tmp_path):
    return Kept(request.param, "clean", tmp_path)


@pytest.fixture(params=RELEASES)
def killed(request, tmp_path):
    return Kept(request.param, "killed", tmp_path)


@asynccontextmanager
async def index_level(store):
    """Have the index follow the log to its end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.index.run)
        while store.index.statistics().lag_bytes:
            await trio.sleep(0.005)
        yield
        nursery.cancel_scope.cancel()


def place_of(sent):
    """The queue that a message lies in, by its kind."""
    level = {"delivered": DELIVERED_LEVEL, "delayed": DELAYED_LEVEL}.get(sent["kind"])
    if level:
        return SCHEDULE_TOPIC, level - 1
    return (HALF_TOPIC, 0) if sent["kind"] == "half" else (sent["topic"], sent["queue_id"])


def test_there_is_a_kept_directory():
    assert "twinlog-0.1" in RELEASES


def test_each_answered_message_is_where_its_producer_was_told(kept):
    store = kept.opened()
    kinds = set()
    for sent in kept.messages():
        message = decode_message(store.message_at(sent["phy_offset"]))
        assert (message.topic, message.queue_id) == place_of(sent)
        assert message.queue_offset == sent["queue_offset"]
        assert message.body == body_of(sent["number"])
        assert message.properties["UNIQ_KEY"] == sent["unique_id"]
        unit = store.queue(message.topic, message.queue_id).unit(message.queue_offset)
        assert (unit.phy_offset, unit.size) == (sent["phy_offset"], message.size)
        kinds.add(sent["kind"])
    assert kinds == {"plain", "batch", "delivered", "delayed", "half"}


def test_queues_end_where_they_did(clean):
    store = clean.opened()
    for topic, queues in clean.truth["queues"].items():
        found = [store.queue(topic, queue_id) for queue_id in range(QUEUES[topic])]
        assert [[queue.min_offset, queue.max_offset] for queue in found] == queues


async def test_each_key_finds_its_message(kept):
    store = kept.opened()
    async with index_level(store):
        for sent in kept.messages():
            topic = place_of(sent)[0]
            for key in (f"key-{sent['number']}", sent["unique_id"]):
                found = await store.index.find(topic, key, 64, 0, 1 << 62)
                assert sent["phy_offset"] in found
    await store.close()


def test_side_files_are_trusted_after_a_clean_stop(clean):
    """Nothing is walked, rebuilt or recomputed, and no warning is logged."""
    files = {path.name: path.read_bytes() for path in (clean.root / "twinlog").iterdir()}
    assert {"recovery-point", "digest"} <= files.keys()
    with capture_logs() as lines:
        store = clean.opened()
    assert [line for line in lines if line["log_level"] in WARNING] == []
    (opened,) = [line for line in lines if line["event"] == "store opened"]
    assert (opened["walked"], opened["dispatched"]) == (0, 0)
    assert opened["walked_from"] == store.max_offset
    assert store.digest.digests.end == store.max_offset // BLOCK_SIZE * BLOCK_SIZE


def test_after_a_kill_the_walk_begins_at_the_recovery_point(killed):
    with capture_logs() as lines:
        store = killed.opened()
    assert [line for line in lines if line["log_level"] in WARNING] == []
    (opened,) = [line for line in lines if line["event"] == "store recovered"]
    assert 0 < opened["walked_from"] < store.max_offset
    assert store.digest.digests.end > 0


async def test_is_sound_before_and_after(kept):
    """Every record, unit, index item and side file fits; again when this release has opened and closed it."""
    before = verified(kept.root)
    assert [finding for finding in before if kept.name == "clean" or finding.severity is Severity.ERROR] == []
    store = kept.opened()
    async with index_level(store):
        pass
    await store.close()
    assert verified(kept.root) == ()


def verified(root):
    options = DirectoryOptions(index_slots=int(SETTINGS["maxHashSlotNum"]))
    with StoreDirectory.open(root, options) as directory:
        return verify(directory, processes=1).findings


def test_the_brokers_own_tables_are_read(kept):
    config = kept.root / "config"
    topics = JsonFile(config / "topics.json").load()["topicConfigTable"]
    assert {topic: topics[topic]["writeQueueNums"] for topic in QUEUES} == QUEUES
    offsets = JsonFile(config / "consumerOffset.json").load()["offsetTable"]
    found = {f"{name}/{queue_id}": offset for name, queues in offsets.items() for queue_id, offset in queues.items()}
    assert kept.truth["consumer_offsets"].items() <= found.items()
    assert GROUP in JsonFile(config / "subscriptionGroup.json").load()["subscriptionGroupTable"]
    assert JsonFile(config / "delayOffset.json").load()["offsetTable"] == {str(DELIVERED_LEVEL): 3}
