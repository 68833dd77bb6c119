"""The queue of a row."""

import numpy as np
import pytest

from twinlog.cluster.client.producer import by_key
from twinlog.cluster.pipeline.sink.queues import SLOTS, number_of_key, slot_table, slots_of, write_queues
from twinlog.cluster.remoting.route import MessageQueue, read_route


def queues(brokers: str, count: int) -> list[MessageQueue]:
    return [MessageQueue("T", f"broker-{name}", number) for name in brokers for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_rows_are_spread_over_all_queues(count):
    shares = np.bincount(slot_table(queues("ab", count)), minlength=2 * count) / SLOTS * 2 * count
    assert shares.min() > 0.75
    assert shares.max() < 1.25


def test_only_rows_of_queues_that_came_or_went_move():
    before, after = queues("abc", 4), queues("ac", 4)
    was = [before[number] for number in slot_table(before)]
    is_now = [after[number] for number in slot_table(after)]
    assert all(old == new or old.broker_name == "broker-b" for old, new in zip(was, is_now, strict=True))


def test_the_order_of_queues_does_not_matter():
    one = queues("ab", 4)
    other = one[::-1]
    assert [one[number] for number in slot_table(one)] == [other[number] for number in slot_table(other)]


def test_slots_are_of_the_second_half_of_a_digest():
    digests = bytes(8) + (SLOTS + 5).to_bytes(8, "little") + bytes(16)
    assert slots_of(digests).tolist() == [5, 0]


@pytest.mark.parametrize("key", ["", "order-17", "Bestellung-ä", "x" * 300])
def test_a_sharding_key_has_the_queue_of_other_clients(key):
    there = queues("ab", 3)
    assert there[number_of_key(key, len(there))] == by_key(key)(there)


def test_queues_without_a_master_and_without_rights():
    """The first may be written again soon."""
    one = {"readQueueNums": 1, "writeQueueNums": 2}
    route = read_route(
        "T",
        {
            "queueDatas": [
                {"brokerName": "b", "perm": 6, **one},
                {"brokerName": "a", "perm": 6, **one},
                {"brokerName": "c", "perm": 4, **one},
            ],
            "brokerDatas": [
                {"brokerName": "a", "cluster": "C", "brokerAddrs": {"1": "127.0.0.1:1"}},
                {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": "127.0.0.1:2"}},
                {"brokerName": "c", "cluster": "C", "brokerAddrs": {"0": "127.0.0.1:3"}},
            ],
        },
    )
    assert [(each.broker_name, each.queue_id) for each in write_queues(route)] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    assert {each.broker_name for each in route.publish_queues()} == {"b"}
