"""Damage at rest, of a thousand kinds: a store opens or says why it does not, and serves nothing broken."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from tests.store import golden
from tests.store.offline.mutations import mutations
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import Message, decode_message


@pytest.fixture(params=golden.STOPPED, ids="-".join)
def digested(request, tmp_path):
    """A captured store with its digest, and which one it is."""
    return golden.unpack_digested(*request.param, tmp_path), golden.STOPPED.index(request.param)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("has_digest", [False, True])
def test_a_damaged_store_opens_or_says_why_and_serves_nothing_broken(digested, has_digest, tmp_path):
    """125 kinds of damage each: every message that is served has its CRC and is one of those that were stored."""
    root, number = digested
    if not has_digest:
        shutil.rmtree(root / "twinlog")
    known = served(root, tmp_path / "whole")
    assert len(known) > 300
    for mutation in mutations(root, seed=200 + number, count=125):
        mutation.apply()
        messages = {}
        with suppress(StoreDirectoryError):
            messages = served(root, tmp_path / "copy")
        mutation.undo()
        for place, body in messages.items():
            # A damaged queue id may make a queue of its own: without a digest nothing says that it is wrong.
            assert known[place] == body if place in known else body in known.values(), (mutation.what, place)


def served(root: Path, copy: Path) -> dict[tuple[str, int, int], bytes]:
    """The bodies of all messages of all queues, as a store opened on a copy of the directory serves them, by place.

    Raises MessageFormatError when one of them is broken.
    """
    shutil.copytree(root, copy)
    store = MessageStore(golden.config(copy, max_hash_slot_num=100, max_index_num=400))
    found = {}
    try:
        store.load()
        for topic, queue_id, queue in store.queues():
            offset = queue.min_offset
            while offset < queue.max_offset:
                result = store.get_message(topic, queue_id, offset, 32, None)
                for buffer in result.buffers:
                    for message in decode_all(buffer):
                        assert (message.topic, message.queue_id) == (topic, queue_id)
                        assert offset <= message.queue_offset < result.next_offset
                        found[topic, queue_id, message.queue_offset] = message.body
                assert result.next_offset > offset, result.status
                offset = result.next_offset
        trio.run(store.close)
    finally:
        shutil.rmtree(copy)
    return found


def decode_all(buffer: memoryview) -> Iterator[Message]:
    at = 0
    while at < len(buffer):
        message = decode_message(buffer, at)
        yield message
        at += message.size
