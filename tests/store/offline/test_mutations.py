"""A thousand kinds of damage: the checker reports each one that something in the store vouches for."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from store.errors import StoreDirectoryError
from store.message import Message, decode_message
from store.message_store import MessageStore
from store.offline.directory import DirectoryOptions, StoreDirectory
from store.offline.verify import Verdict, verify
from tests.store import golden
from tests.store.offline.mutations import covered_files, mutations

CASES = [(version, name) for version in golden.VERSIONS for name in golden.CLEAN]
OPTIONS = DirectoryOptions(
    log_file_size=golden.FILE_SIZE, queue_file_size=golden.CONSUME_QUEUE_FILE_SIZE, index_slots=100
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("version", "name"), CASES)
def test_damage_that_anything_vouches_for_is_reported(version, name, tmp_path):
    """250 of them to each captured store."""
    root = golden.unpack(version, name, tmp_path)
    covered = covered_files(root)
    missed, demanded = [], 0
    for mutation in mutations(root, seed=CASES.index((version, name)), count=250):
        mutation.apply()
        with StoreDirectory.open(root, OPTIONS) as directory:
            verdict = verify(directory).verdict
        mutation.undo()
        if mutation.touches(covered[mutation.path]):
            demanded += 1
            if verdict is Verdict.SOUND:
                missed.append(mutation)
    assert not missed, [(str(m.path.relative_to(root)), m.what) for m in missed]
    assert demanded > 150


@pytest.fixture(params=CASES, ids="-".join)
def digested(request, tmp_path):
    """A captured store that ours has opened, digested and closed, and which case it is."""
    root = golden.unpack(*request.param, tmp_path)
    store = MessageStore(golden.config(root, max_hash_slot_num=100, max_index_num=400))
    store.load()
    trio.run(store.close)
    return root, CASES.index(request.param)


def test_with_a_digest_every_used_byte_of_the_log_is_covered(digested):
    """100 kinds of damage to the log of each."""
    root, number = digested
    assert sound(root)
    covered = covered_files(root, has_digest=True)
    missed, demanded = [], 0
    for mutation in mutations(root, seed=100 + number, count=100, kinds=("commitlog",)):
        if mutation.touches(covered[mutation.path]):
            demanded += 1
            mutation.apply()
            if sound(root):
                missed.append((mutation.path.name, mutation.what))
            mutation.undo()
    assert not missed
    assert demanded > 80


@pytest.mark.timeout(120)
@pytest.mark.parametrize("has_digest", [False, True])
def test_a_damaged_store_opens_or_says_why_and_serves_nothing_broken(digested, has_digest, tmp_path):
    """Every message that is served has its CRC and is one of those that were stored."""
    root, number = digested
    if not has_digest:
        shutil.rmtree(root / "twinlog")
    known = served(root, tmp_path / "whole")
    assert len(known) > 300
    for mutation in mutations(root, seed=200 + number, count=30):
        mutation.apply()
        messages = {}
        with suppress(StoreDirectoryError):
            messages = served(root, tmp_path / "copy")
        mutation.undo()
        for place, body in messages.items():
            # A damaged queue id may make a queue of its own: without a digest nothing says that it is wrong.
            assert known[place] == body if place in known else body in known.values(), (mutation.what, place)


def sound(root: Path) -> bool:
    with StoreDirectory.open(root, OPTIONS) as directory:
        return verify(directory).verdict is Verdict.SOUND


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
