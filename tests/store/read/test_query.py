"""Queries by key through the store: records as they are stored, within what one answer can hold."""

import pytest

from tests.store.indexes import until_caught_up
from tests.store.records import put_message
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message

EVER = (0, 1 << 62)


@pytest.fixture
async def store(tmp_path, nursery):
    sizes = {"mapped_file_size_commit_log": 32 << 20, "max_hash_slot_num": 100, "max_index_num": 400}
    store = MessageStore(StoreConfig(root=tmp_path, **sizes))
    store.load()
    await nursery.start(store.run)
    await until_caught_up(store.index)
    yield store
    await store.close()


def put(store, *bodies):
    """Store messages with the key `k`; where they lie."""
    results = store.put([put_message("T1", body, properties=b"KEYS\x01k") for body in bodies])
    store.dispatch_pending()
    return [result.phy_offset for result in results]


async def test_an_answer_has_the_newest_messages_that_a_client_can_take(store):
    """12 MiB, in the order of the log; one message in any case."""
    offsets = put(store, *(bytes([number]) * (4_000_000) for number in range(4)))
    found = await store.query("T1", "k", 32, *EVER)
    assert [decode_message(record).phy_offset for record in found.records] == offsets[-3:]
    assert found.index_phy_offset == offsets[-1]


async def test_each_message_is_answered_once(store):
    """RocketMQ answers one with two equal keys, or indexed twice after a crash, twice."""
    store.put([put_message("T1", b"x", properties=b"KEYS\x01k k")])
    store.dispatch_pending()
    assert len((await store.query("T1", "k", 32, *EVER)).records) == 1


async def test_a_broken_record_is_not_served(store):
    offsets = put(store, b"first", b"second", b"third")
    file = store.commit_log.files.files[0]
    file.write_at(offsets[1] + 4, b"\0\0\0\0")  # Its magic.
    found = await store.query("T1", "k", 32, *EVER)
    assert [decode_message(record).body for record in found.records] == [b"first", b"third"]
