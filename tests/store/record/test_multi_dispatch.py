"""Queues that RocketMQ's multi dispatch filled: a slave fills them as it follows, and they stay whole over crashes and losses."""

import shutil

import pytest
import trio
from structlog.testing import capture_logs

from tests.helpers import log_bytes
from tests.store import golden
from tests.store.message_stores import opened
from tests.store.records import put_message
from twinlog.store.config import BrokerRole
from twinlog.store.queue import consume_queue_table
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.record.multi_dispatch import more_queues, replicated, with_more_queues
from twinlog.store.record.scan import DispatchEntry, scan_records


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


def light(number, *names):
    """The properties of message `number`, the n-th of each of these queues."""
    offsets = ",".join([str(number)] * len(names))
    return f"A\x01b\x02INNER_MULTI_DISPATCH\x01{','.join(names)}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}".encode()


def replicate(messages, root, batch):
    """A slave's store with these messages, of which `batch` came at a time."""
    master, slave = opened(root / "master"), opened(root / "slave", broker_role=BrokerRole.SLAVE)
    for message in messages:
        master.put([message])
    data = log_bytes(master)
    entries = scan_records(data, 0, master.commit_log.file_size, check_crc=True).entries
    ends = [*[entry.phy_offset for entry in entries][batch::batch], len(data)]
    for start, end in zip([0, *ends], ends, strict=False):
        slave.append_replicated(data[start:end], [entry for entry in entries if start <= entry.phy_offset < end])
        slave.dispatch_pending()
    trio.run(master.close)
    return slave


def rebuilt_files(root, to):
    """The queue files that a start makes of the log alone."""
    shutil.copytree(root / "commitlog", to / "commitlog")
    trio.run(opened(to).close)
    return golden.queue_files(to)


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_a_slave_fills_them_as_a_start_does(tmp_path, batch):
    messages = []
    for number in range(60):
        names = ["%LMQ%a", "%LMQ%b"] if number % 2 else []
        properties = light(number // 2, *names) if names else b"A\x01b"
        messages.append(put_message(topic=f"T{number % 3}", body=bytes(100), properties=properties))
    slave = replicate(messages, tmp_path, batch)
    assert slave.queue("%LMQ%a", 0).max_offset == slave.queue("%LMQ%b", 0).max_offset == 30
    trio.run(slave.close)
    assert golden.queue_files(tmp_path / "slave") == rebuilt_files(tmp_path / "slave", tmp_path / "rebuilt")


def test_who_waits_at_one_is_told(tmp_path):
    slave, arrived = opened(tmp_path / "waiting", broker_role=BrokerRole.SLAVE), []
    slave.on_arrival.append(lambda topic, queue_id, max_offset, codes: arrived.append((topic, queue_id, max_offset)))
    slave._reput.add(replicated([entry(light(4, "%LMQ%a"))]))
    slave.dispatch_pending()
    assert arrived == [("T", 3, 8), ("%LMQ%a", 0, 5)]


def test_no_message_gets_into_a_topics_queue(tmp_path):
    """A RocketMQ master without enableMultiDispatch passes on what any client says."""
    messages = [put_message(topic="Orders"), put_message(properties=light(1, "Orders")), put_message(topic="Orders")]
    slave = replicate(messages, tmp_path, 3)
    assert slave.queue("Orders", 0).max_offset == 2
    first, second = (slave.queue("Orders", 0).unit(number) for number in (0, 1))
    assert second.phy_offset > first.phy_offset + first.size  # Not the one between.


def test_there_are_not_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(consume_queue_table, "_LIGHT_MAX", 2)
    messages = [put_message(properties=light(0, "%LMQ%a", "%LMQ%b", "%LMQ%c"))]
    messages.append(put_message(properties=light(1, "%LMQ%c", "%LMQ%b")))
    with capture_logs() as logs:
        slave = replicate(messages, tmp_path, 1)
    assert [slave._queues.find(f"%LMQ%{name}", 0) is not None for name in "abc"] == [True, True, False]
    assert slave.queue("%LMQ%b", 0).max_offset == 2
    assert [each["queue"] for each in logs if "too many queues of multi dispatch" in each["event"]] == ["%LMQ%c"]


def test_a_queue_that_has_messages_of_its_own_keeps_the_order_of_the_log(tmp_path):
    entries = [entry(light(0, "Orders"))._replace(queue_id=0), DispatchEntry("Orders", 0, 1, 1100, 100, 5, 99, 0)]
    store = opened(tmp_path)
    store._queues.put(with_more_queues(entries))
    assert [store.queue("Orders", 0).unit(number).phy_offset for number in (0, 1)] == [1000, 1100]
    assert with_more_queues(entries[1:]) == entries[1:]
