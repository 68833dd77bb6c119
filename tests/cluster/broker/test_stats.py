"""Statistics: what is counted, how it is looked at, and what is shown of it."""

import pytest

from cluster.broker import stats as stats_module
from cluster.broker.stats import BrokerStatsManager
from cluster.broker.stats_item import DAY, HOUR, MINUTE, Counter, Snapshot, Windows, snapshot
from store.commit_log import PutMessage, PutResult
from store.offset_waiters import PutStatus


def make(cluster="C") -> BrokerStatsManager:
    return BrokerStatsManager(cluster)


def run(stats, begin, end, *, each=lambda: None):
    """Look every second, as the broker does."""
    for second in range(begin, end):
        each()
        stats.look(float(second))


def message(topic="T", queue_id=0) -> PutMessage:
    return PutMessage(topic, queue_id, b"", b"", 0, 0, 0, b"", b"")


def stored(size) -> PutResult:
    return PutResult(PutStatus.PUT_OK, 0, size, 0, 0)


def minute(stats, name, key) -> Snapshot:
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
        counter.look(MINUTE, 10.0 * look)
        seen.append(snapshot([counter], 0, MINUTE))
    assert (seen[0].sum, seen[0].tps) == (10, 1.0)
    assert (seen[1].sum, seen[1].tps) == (20, 1.0)
    assert (seen[5].sum, seen[9].sum) == (60, 60)
    assert seen[9].tps == 1.0


def test_nothing_is_shown_before_the_first_look():
    assert snapshot([Counter(nums=5)], 0, MINUTE) == Snapshot(0, 0.0, 0.0)


def test_counters_of_different_age_are_added():
    """A topic's second queue is used half a minute after its first one."""
    old, young = Counter(), Counter()
    for second in (0, 10, 20, 30):
        old.nums += 10
        old.look(MINUTE, float(second))
    young.nums = 40
    young.look(MINUTE, 30.0)
    assert snapshot([old, young], 0, MINUTE) == Snapshot(80, 2.0, 0.0)


# What is counted


def test_single_messages_count_each_in_its_queue():
    stats = make()
    stats.put([message(), message(queue_id=1), message(), message("U")], [stored(100)] * 4)
    stats.look(0.0)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == Snapshot(3, 0.3, 1.0)
    assert minute(stats, "TOPIC_PUT_SIZE", "T") == Snapshot(300, 30.0, 100.0)
    assert minute(stats, "QUEUE_PUT_NUMS", "T@1") == Snapshot(1, 0.1, 1.0)
    assert minute(stats, "QUEUE_PUT_SIZE", "T@0").sum == 200
    assert minute(stats, "BROKER_PUT_NUMS", "C") == Snapshot(4, 0.4, 0.0)  # Its calls are not counted, as in RocketMQ.


def test_a_refused_message_does_not_count():
    stats = make()
    stats.put([message(), message()], [PutResult(PutStatus.MESSAGE_ILLEGAL), stored(7)])
    assert (stats.puts["T", 0].nums, stats.puts["T", 0].size, stats.broker_puts.nums) == (1, 7, 1)
    stats.put([message("U")], [PutResult(PutStatus.SERVICE_NOT_AVAILABLE)])
    assert stats.view("TOPIC_PUT_NUMS", "U") is None


def test_a_batch_is_one_call():
    stats = make()
    stats.topic_put("T", 3, 10, 2000)
    stats.look(0.0)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == Snapshot(10, 1.0, 10.0)
    assert minute(stats, "TOPIC_PUT_SIZE", "T").average == 2000.0


def test_a_pull_counts_for_group_queue_and_broker():
    stats = make()
    stats.group_get("G", "T", 0, 32, 3200, 4)
    stats.group_get("G", "T", 1, 8, 800, 2)
    stats.look(0.0)
    assert minute(stats, "GROUP_GET_NUMS", "T@G") == Snapshot(40, 4.0, 20.0)
    assert minute(stats, "GROUP_GET_SIZE", "T@G").sum == 4000
    assert minute(stats, "GROUP_GET_LATENCY", "0@T@G") == Snapshot(4, 0.4, 4.0)
    assert minute(stats, "QUEUE_GET_NUMS", "T@1@G").sum == 8
    assert minute(stats, "QUEUE_GET_SIZE", "T@1@G").sum == 800
    assert minute(stats, "BROKER_GET_NUMS", "C").sum == 40
    assert stats.group_get_tps("G", "T") == 4.0
    assert stats.longest_get_ms == 4


def test_what_is_sent_back_counts():
    stats = make()
    stats.send_back("G", "T", 1)
    stats.look(0.0)
    assert minute(stats, "SNDBCK_PUT_NUMS", "T@G") == Snapshot(1, 0.1, 1.0)


def test_delivered_messages_leave_the_queue_of_their_level():
    stats = make()
    stats.delivered(3, [message()], [stored(50)])
    stats.look(0.0)
    assert minute(stats, "QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER").sum == 1
    assert minute(stats, "GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER").sum == 50
    assert minute(stats, "TOPIC_PUT_NUMS", "T").sum == 1


# Over time


def test_minute_hour_and_day_of_a_steady_stream():
    """One message a second for two hours and some."""
    stats = make()
    run(stats, 0, 7300, each=lambda: stats.topic_put("T", 0, 1, 100))
    over_minute, over_hour, over_day = stats.view("TOPIC_PUT_NUMS", "T")
    assert (over_minute.sum, over_minute.tps, over_minute.average) == (60, 1.0, 1.0)
    assert (over_hour.sum, over_hour.tps) == (3600, 1.0)
    assert over_day.sum == 7201  # The look at 7200 s saw it; the one before the first is put an hour before.


def test_a_stream_that_ended_is_seen_to_end():
    stats = make()
    stats.topic_put("T", 0, 100, 100)
    run(stats, 0, 61)
    assert minute(stats, "TOPIC_PUT_NUMS", "T").sum == 0
    assert stats.view("TOPIC_PUT_NUMS", "T")[HOUR].sum == 100


def test_what_is_born_between_two_looks_is_shown_as_from_the_first():
    stats = make()
    run(stats, 0, 995)
    stats.topic_put("T", 0, 5, 5)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == Snapshot(0, 0.0, 0.0)
    run(stats, 995, 1001)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == Snapshot(5, 0.5, 5.0)
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
def test_there_is_nothing_of_what_never_was(name, key):
    stats = make()
    stats.topic_put("T", 0, 1, 1)
    stats.group_get("G", "T", 0, 1, 1, 0)
    assert stats.view(name, key) is None


def test_the_brokers_own_numbers_are_born_with_the_first_message():
    stats = make()
    assert stats.view("BROKER_PUT_NUMS", "C") is None
    assert stats.view("BROKER_GET_NUMS", "C") is None


# Forgetting


def test_a_deleted_topic_is_forgotten():
    stats = make()
    for topic in ("T", "TT"):
        stats.topic_put(topic, 0, 1, 1)
        stats.group_get("G", topic, 0, 1, 1, 0)
        stats.send_back("G", topic, 1)
    stats.topic_deleted("T")
    assert stats.topics() == {"TT"}
    assert stats.view("GROUP_GET_NUMS", "T@G") is None
    assert stats.view("SNDBCK_PUT_NUMS", "TT@G") is not None


def test_a_deleted_group_is_forgotten():
    stats = make()
    for group in ("G", "GG"):
        stats.group_get(group, "T", 0, 1, 1, 0)
        stats.send_back(group, "T", 1)
    stats.group_deleted("G")
    assert list(stats.gets) == [("T", 0, "GG")]
    assert list(stats.send_backs) == [("T", "GG")]


def test_there_is_room_for_so_many_only(monkeypatch):
    """More go uncounted; those that nothing came for in a day make room."""
    monkeypatch.setattr(stats_module, "COUNTERS_MAX", 4)
    stats = make()
    for number in range(6):
        stats.topic_put(f"T{number}", 0, 1, 1)
    assert len(stats.puts) == 4
    assert stats.view("TOPIC_PUT_NUMS", "T5") is None
    assert stats.broker_puts.nums == 6
    for hour in range(25):
        stats.topic_put("T0", 0, 1, 1)
        stats.look(hour * 3600.0)
    assert list(stats.puts) == [("T0", 0)]
    stats.topic_put("T5", 0, 1, 1)
    assert stats.view("TOPIC_PUT_NUMS", "T5") is not None
