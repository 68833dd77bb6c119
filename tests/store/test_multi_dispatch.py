"""Queues that RocketMQ's multi dispatch filled stay whole over crashes and losses, though twinlog fills none itself."""

import shutil

import pytest
import trio

from store.consume_queue import ConsumeQueue
from store.multi_dispatch import more_queues
from store.record_scan import DispatchEntry
from tests.store import golden
from tests.store.records import put_message
from tests.store.test_message_store import opened


def entry(properties):
    return DispatchEntry("T", 3, 7, 1000, 100, 5, 99, 0, properties)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"", []),
        (b"INNER_MULTI_DISPATCH\x01%LMQ%a,b", []),
        (b"INNER_MULTI_DISPATCH\x01%LMQ%a,b\x02INNER_MULTI_QUEUE_OFFSET\x014,11", [("%LMQ%a", 0, 4), ("b", 3, 11)]),
        (b"INNER_MULTI_DISPATCH\x01%LMQ%a,b\x02INNER_MULTI_QUEUE_OFFSET\x014", []),
        (b"INNER_MULTI_DISPATCH\x01a\x02INNER_MULTI_QUEUE_OFFSET\x01x", []),
        (b"INNER_MULTI_DISPATCH\x01../a\x02INNER_MULTI_QUEUE_OFFSET\x011", []),
        (b"INNER_MULTI_DISPATCH\x01a b\x02INNER_MULTI_QUEUE_OFFSET\x011", []),
        (b"INNER_MULTI_DISPATCH\x01a\x02INNER_MULTI_QUEUE_OFFSET\x01" + b"9" * 5000, []),
    ],
)
def test_further_queues(properties, expected):
    found = list(more_queues([entry(b""), entry(properties)]))
    assert [one[:3] for one in found] == expected
    assert all(one[3:] == entry(properties)[3:] for one in found)


@pytest.fixture
def left(tmp_path):
    """A store as RocketMQ leaves it: every other message is in a light queue, too."""
    store = opened(tmp_path)
    for number in range(30):
        light = b"\x02INNER_MULTI_DISPATCH\x01%%LMQ%%a\x02INNER_MULTI_QUEUE_OFFSET\x01%d" % (number // 2)
        store.put([put_message(body=bytes(9_000), properties=b"A\x01b" + light * (number % 2))])
    assert store._queues.put(list(more_queues(store._reput.pending)))
    trio.run(store.close)
    return tmp_path


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("after_crash", [False, True])
@pytest.mark.parametrize("side_files", [False, True])
def test_they_stay_whole(left, side_files, after_crash, lost):
    before = golden.queue_files(left)
    assert sum(path.startswith("%LMQ%a/0/") for path in before) == 2
    if lost:  # Seen as long as something knows of it.
        shutil.rmtree(left / "consumequeue" / "%LMQ%a") if side_files else (
            left / "consumequeue" / "%LMQ%a" / "0" / f"{200:020}"
        ).unlink()
    if not side_files:
        shutil.rmtree(left / "twinlog")
    if after_crash:
        (left / "abort").touch()
    store = opened(left)
    assert golden.queue_files(left) == before
    queue = store.queue("%LMQ%a", 0)
    assert isinstance(queue, ConsumeQueue)
    assert queue.max_offset == 15
    trio.run(store.close)
