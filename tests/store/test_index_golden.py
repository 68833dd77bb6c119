"""The index of the real RocketMQ's store directories: made anew from their logs, carried on, and asked."""

import json
import shutil

import pytest

from tests.cluster.broker.wire import directed_frames
from tests.store import golden
from tests.store.indexes import index_files, make_index, open_log, running, take_apart, until_caught_up
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message

FOREVER = (0, (1 << 63) - 1)


@pytest.fixture(params=golden.ALL, ids="-".join)
def case(request):
    """Version and name of each captured directory."""
    return request.param


@pytest.fixture
def captured(case, tmp_path):
    """Each captured directory."""
    return golden.unpack(*case, tmp_path)


async def test_made_anew_from_the_log_it_is_byte_for_byte_rocketmqs(captured):
    """Headers, slots, items, and bounds of files. The names are times of this run."""
    expected = index_files(captured)
    assert len(expected) == 2
    shutil.rmtree(captured / "index")
    async with running(make_index(captured, open_log(captured, golden.FILE_SIZE))):
        pass
    found = index_files(captured)
    for ours, theirs in zip(
        map(take_apart, found), map(take_apart, expected), strict=True
    ):  # For a readable difference.
        assert ours.header == theirs.header
        assert ours.slots == theirs.slots
        assert ours.items == theirs.items
    assert found == expected


async def test_rocketmqs_own_files_stay_as_they_are(captured):
    """Nothing is missing in them, so nothing is added."""
    expected = {path.name: path.read_bytes() for path in (captured / "index").iterdir()}
    after_crash = (captured / "abort").exists()
    async with running(make_index(captured, open_log(captured, golden.FILE_SIZE)), after_crash=after_crash):
        pass
    assert {path.name: path.read_bytes() for path in (captured / "index").iterdir()} == expected


@pytest.fixture
async def store(captured, nursery):
    """The store over a captured directory, its index made anew."""
    shutil.rmtree(captured / "index")
    store = MessageStore(golden.config(captured))
    store.load()
    await nursery.start(store.run)
    await until_caught_up(store.index)
    yield store
    await store.close()


async def found_messages(store, topic, key, count_max=64):
    found = await store.query(topic, key, count_max, *FOREVER)
    return [decode_message(record) for record in found.records]


async def test_every_key_that_the_client_sent_is_found(case, store):
    """By unique key just that message, by other keys all that have it, and little besides: what shares its hash."""
    rows = json.loads((golden.GOLDEN / f"rocketmq-{case[0]}" / "keys.json").read_text())
    assert len(rows) > 300
    offsets = {}
    for topic, keys, unique, offset in rows:
        if offset >= 0:
            found = await found_messages(store, topic, unique, 32)
            assert [m.phy_offset for m in found] == [offset]
        for key in set(keys.split()):
            offsets.setdefault((topic, key), []).append(offset)
    assert len(offsets) > 100
    for (topic, key), sent in offsets.items():
        found = [m for m in await found_messages(store, topic, key) if key in m.properties["KEYS"].split()]
        assert {m.topic for m in found} == {topic}
        assert len(found) >= len(sent)  # A message may have been sent twice, to be retried.
        assert {m.phy_offset for m in found} >= set(sent) - {-1}


@pytest.mark.parametrize("case", [(version, golden.RUNNING) for version in golden.VERSIONS])
async def test_answers_are_those_that_rocketmq_gave(case, store):
    """The captured answers to request 12: the same records in the same order, and how far the index went."""
    asked, compared = {}, 0
    for (connection, direction), command in directed_frames(f"rocketmq-{case[0]}"):
        if direction == ">" and command.code == 12:
            asked[connection, command.opaque] = command.ext
        elif direction == "<" and command.is_response and (connection, command.opaque) in asked:
            question = asked.pop((connection, command.opaque))
            begin_ms, end_ms = int(question["beginTimestamp"]), int(question["endTimestamp"])
            found = await store.query(question["topic"], question["key"], int(question["maxNum"]), begin_ms, end_ms)
            assert b"".join(found.records) == command.body
            assert str(found.index_timestamp) == command.ext["indexLastUpdateTimestamp"]
            assert str(found.index_phy_offset) == command.ext["indexLastUpdatePhyoffset"]
            compared += 1
    assert compared == 4
