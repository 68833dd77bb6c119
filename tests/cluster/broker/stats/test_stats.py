"""Statistics: what is counted, how it is looked at, and what is shown of it."""

from collections import defaultdict

import pytest
from attrs import define, field

from twinlog.cluster.broker.stats import stats as stats_module
from twinlog.cluster.broker.stats.stats import (
    DAY,
    HOUR,
    MINUTE,
    BrokerStatsManager,
    Counter,
    CounterSnapshot,
    Windows,
    snapshot,
)
from twinlog.store.log.commit_log import PutResult
from twinlog.store.log.offset_waiters import PutStatus


@define
class FakeQueue:
    min_offset: int = 0
    max_offset: int = 0
    put_bytes: int = 0


@define
class Store:
    """Consume queues that grow."""

    table: defaultdict[tuple[str, int], FakeQueue] = field(factory=lambda: defaultdict(FakeQueue))
    is_master: bool = True

    def put(self, topic="T", queue_id=0, *, count=1, size=100):
        queue = self.table[topic, queue_id]
        queue.max_offset += count
        queue.put_bytes += count * size

    def queues(self):
        return ((topic, queue_id, queue) for (topic, queue_id), queue in self.table.items())


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def stats(store):
    stats = BrokerStatsManager("C", store.queues, takes_puts=lambda: store.is_master)
    stats.sample(0.0)
    return stats


def run(stats, begin, end, *, each=lambda: None):
    """Look every second, as the broker does."""
    for second in range(begin, end):
        each()
        stats.sample(float(second))


def stored(size) -> PutResult:
    return PutResult(PutStatus.PUT_OK, 0, size, 0, 0)


def minute(stats, name, key) -> CounterSnapshot:
    return stats.view(name, key)[MINUTE]


# The lists of looks


def test_lists_are_due_at_once_and_then_at_their_pace():
    windows = Windows()
    due = {second: windows.due(float(second)) for second in range(3601)}
    assert due[0] == [MINUTE, HOUR, DAY]
    assert [second for second in due if MINUTE in due[second]] == list(range(0, 3601, 10))
    assert [second for second in due if HOUR in due[second]] == [0, 600, 1200, 1800, 2400, 3000, 3600]
    assert [second for second in due if DAY in due[second]] == [0, 3600]


def test_a_late_look_is_one_look():
    """After a stall of half a minute two looks are not made up for, and the pace is kept."""
    windows = Windows()
    windows.due(0.0)
    assert windows.due(35.0) == [MINUTE]
    assert windows.due(39.0) == []
    assert windows.due(40.0) == [MINUTE]


def test_a_minute_is_seven_looks():
    """As RocketMQ: the first look of all is put behind one that found nothing, ten seconds before."""
    counter, seen = Counter(), []
    for look in range(10):
        counter.nums += 10
        counter.sample(MINUTE, 10.0 * look)
        seen.append(snapshot([counter], 0, MINUTE))
    assert (seen[0].sum, seen[0].tps) == (10, 1.0)
    assert (seen[1].sum, seen[1].tps) == (20, 1.0)
    assert (seen[5].sum, seen[9].sum) == (60, 60)
    assert seen[9].tps == 1.0


def test_nothing_is_shown_before_the_first_look():
    assert snapshot([Counter(nums=5)], 0, MINUTE) == CounterSnapshot(0, 0.0, 0.0)


def test_counters_of_different_age_are_added():
    """A topic's second queue is used half a minute after its first one."""
    old, young = Counter(), Counter()
    for second in (0, 10, 20, 30):
        old.nums += 10
        old.sample(MINUTE, float(second))
    young.nums = 40
    young.sample(MINUTE, 30.0)
    assert snapshot([old, young], 0, MINUTE) == CounterSnapshot(80, 2.0, 0.0)


# What is counted


def test_messages_count_in_their_queue(stats, store):
    for queue_id in (0, 1, 0):
        store.put(queue_id=queue_id)
    store.put("U")
    stats.sample(10.0)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == CounterSnapshot(3, 0.3, 1.0)
    assert minute(stats, "TOPIC_PUT_SIZE", "T") == CounterSnapshot(300, 30.0, 100.0)
    assert minute(stats, "QUEUE_PUT_NUMS", "T@1") == CounterSnapshot(1, 0.1, 1.0)
    assert minute(stats, "QUEUE_PUT_SIZE", "T@0").sum == 200
    assert minute(stats, "BROKER_PUT_NUMS", "C") == CounterSnapshot(
        4, 0.4, 0.0
    )  # Its calls are not counted, as in RocketMQ.


def test_a_message_can_be_asked_about_at_once(stats, store):
    """As in RocketMQ: without an answer until it comes, then with zeros until the next look."""
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    store.put()
    assert stats.view("TOPIC_PUT_NUMS", "T") == [CounterSnapshot(), CounterSnapshot(), CounterSnapshot()]


def test_what_was_there_before_the_start_does_not_count(store):
    store.put(count=1000)
    stats = BrokerStatsManager("C", store.queues)
    stats.sample(0.0)
    store.put(count=2)
    stats.sample(10.0)
    assert minute(stats, "TOPIC_PUT_NUMS", "T").sum == 2


def test_what_a_slave_is_given_does_not_count(stats, store):
    store.is_master = False
    store.put(count=5)
    stats.sample(10.0)
    store.is_master = True
    store.put(count=3)
    stats.sample(20.0)
    assert stats.puts["T", 0].nums == 3


def test_a_queue_that_is_cut_counts_from_there_on(stats, store):
    store.put(count=5)
    stats.sample(10.0)
    store.table["T", 0].max_offset = 2
    stats.sample(20.0)
    store.put(count=4)
    stats.sample(30.0)
    assert stats.puts["T", 0].nums == 9


def test_a_queue_that_begins_late_counts_its_own_messages(stats, store):
    store.table["T", 0] = FakeQueue(min_offset=1000, max_offset=1000)
    store.put(count=2)
    stats.sample(10.0)
    assert stats.puts["T", 0].nums == 2


def test_a_batch_is_one_call(stats, store):
    store.put(queue_id=3, count=10, size=200)
    stats.batch_put("T", 3, 10)
    stats.sample(10.0)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == CounterSnapshot(10, 1.0, 10.0)
    assert minute(stats, "TOPIC_PUT_SIZE", "T").average == 2000.0


def test_a_pull_counts_for_group_queue_and_broker(stats):
    stats.group_get("G", "T", 0, 32, 3200, 4)
    stats.group_get("G", "T", 1, 8, 800, 2)
    stats.sample(10.0)
    assert minute(stats, "GROUP_GET_NUMS", "T@G") == CounterSnapshot(40, 4.0, 20.0)
    assert minute(stats, "GROUP_GET_SIZE", "T@G").sum == 4000
    assert minute(stats, "GROUP_GET_LATENCY", "0@T@G") == CounterSnapshot(4, 0.4, 4.0)
    assert minute(stats, "QUEUE_GET_NUMS", "T@1@G").sum == 8
    assert minute(stats, "QUEUE_GET_SIZE", "T@1@G").sum == 800
    assert minute(stats, "BROKER_GET_NUMS", "C").sum == 40
    assert stats.group_get_tps("G", "T") == 4.0
    assert stats.longest_get_ms == 4


class Walked(dict):
    """Counts how often somebody goes through all of it."""

    walks = 0

    def items(self):
        self.walks += 1
        return super().items()


def test_many_topics_of_a_group_cost_one_walk_over_the_counters(stats):
    gets = stats.gets = Walked()
    for topic in "TU":
        for queue_id in (0, 1):
            stats.group_get("G", topic, queue_id, 10, 100, 1)
    stats.group_get("H", "T", 0, 100, 100, 1)
    stats.sample(10.0)
    assert [stats.group_get_tps("G", topic) for topic in "TUV"] == [2.0, 2.0, 0.0]
    assert gets.walks == 1
    stats.group_get("G", "T", 2, 10, 100, 1)
    stats.sample(20.0)
    assert stats.view("GROUP_GET_NUMS", "T@G")[0].sum == 30, "a new queue counts"
    stats.group_deleted("G")
    assert stats.group_get_tps("G", "U") == 0.0


def test_what_is_sent_back_counts(stats):
    stats.send_back("G", "T", 1)
    stats.sample(10.0)
    assert minute(stats, "SNDBCK_PUT_NUMS", "T@G") == CounterSnapshot(1, 0.1, 1.0)


def test_delivered_messages_leave_the_queue_of_their_level(stats):
    stats.delivered(3, [stored(50)])
    stats.sample(10.0)
    assert minute(stats, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER").sum == 1
    assert minute(stats, "GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER").sum == 50


# Over time


def test_minute_hour_and_day_of_a_steady_stream(stats, store):
    """One message a second for two hours and some."""
    run(stats, 1, 7300, each=store.put)
    over_minute, over_hour, over_day = stats.view("TOPIC_PUT_NUMS", "T")
    assert (over_minute.sum, over_minute.tps, over_minute.average) == (60, 1.0, 1.0)
    assert (over_hour.sum, over_hour.tps) == (3600, 1.0)
    assert over_day.sum == 7200


def test_a_stream_that_ended_is_seen_to_end(stats, store):
    store.put(count=100)
    run(stats, 1, 81)
    assert minute(stats, "TOPIC_PUT_NUMS", "T").sum == 0
    run(stats, 81, 601)
    assert stats.view("TOPIC_PUT_NUMS", "T")[HOUR].sum == 100


def test_what_is_born_between_two_looks_is_shown_as_from_the_first(stats, store):
    run(stats, 1, 995)
    store.put(count=5)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == CounterSnapshot(0, 0.0, 0.0)
    run(stats, 995, 1001)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == CounterSnapshot(5, 0.5, 1.0)
    assert minute(stats, "BROKER_PUT_NUMS", "C").tps == 0.5  # Not spread over the time before.


# What is asked for


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "U"),
        ("TOPIC_PUT_NUMS", ""),
        ("TOPIC_PUT_NUMS", "T@0"),
        ("QUEUE_PUT_NUMS", "T"),
        ("QUEUE_PUT_NUMS", "T@9"),
        ("QUEUE_PUT_NUMS", "T@x"),
        ("QUEUE_PUT_NUMS", "T@²"),
        ("QUEUE_PUT_NUMS", "T@" + "9" * 5000),
        ("GROUP_GET_NUMS", "T@H"),
        ("GROUP_GET_NUMS", "@"),
        ("GROUP_GET_LATENCY", "T@0@G"),
        ("QUEUE_GET_NUMS", "0@T@G"),
        ("SNDBCK_PUT_NUMS", "T@G"),
        ("BROKER_PUT_NUMS", "D"),
        ("BROKER_GET_FROM_DISK_NUMS", "C"),
        ("NO_SUCH", "T"),
        ("", ""),
    ],
)
def test_there_is_nothing_of_what_never_was(stats, store, name, key):
    store.put()
    stats.group_get("G", "T", 0, 1, 1, 0)
    assert stats.view(name, key) is None


def test_the_brokers_own_numbers_are_born_with_the_first_message(stats):
    assert stats.view("BROKER_PUT_NUMS", "C") is None
    assert stats.view("BROKER_GET_NUMS", "C") is None


# Forgetting


def test_a_deleted_topic_is_forgotten(stats, store):
    for topic in ("T", "TT"):
        store.put(topic)
        stats.group_get("G", topic, 0, 1, 1, 0)
        stats.send_back("G", topic, 1)
    stats.sample(10.0)
    stats.topic_deleted("T")
    assert stats.topics() == {"TT"}
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    assert stats.view("SNDBCK_PUT_NUMS", "TT@G") is not None


def test_a_deleted_group_is_forgotten(stats):
    for group in ("G", "GG"):
        stats.group_get(group, "T", 0, 1, 1, 0)
        stats.send_back(group, "T", 1)
    stats.group_deleted("G")
    assert list(stats.gets) == [("T", 0, "GG")]
    assert list(stats.send_backs) == [("T", "GG")]


def test_there_is_room_for_so_many_only(monkeypatch, stats, store):
    """More go uncounted; those that nothing came for in a day make room."""
    monkeypatch.setattr(stats_module, "COUNTERS_MAX", 4)
    for number in range(6):
        store.put(f"T{number}")
    stats.sample(10.0)
    assert len(stats.puts) == 4
    assert stats.view("TOPIC_PUT_NUMS", "T5") is None
    assert stats.broker_puts.nums == 6
    for hour in range(1, 26):
        store.put("T0")
        stats.sample(hour * 3600.0)
    assert list(stats.puts) == [("T0", 0)]
    store.put("T5")
    assert stats.view("TOPIC_PUT_NUMS", "T5") is not None
