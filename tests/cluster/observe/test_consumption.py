"""How far groups are, out of what brokers tell: pure."""

import pytest
from attrs import evolve

from twinlog.cluster.admin.offsets import move_to
from twinlog.cluster.client.api import QueueOffsets
from twinlog.cluster.observe.consumption import (
    BrokerView,
    LagReport,
    clients_of,
    groups_in,
    queue_lags,
    topic_lag,
    topics_of,
    with_change,
)
from twinlog.cluster.observe.gather import Target
from twinlog.cluster.observe.requests import ConnectedClient, Consumers
from twinlog.cluster.remoting.route import MessageQueue


def view(committed: dict[int, int] | None = None, *, first: int = 0, end: int = 10, consumers=None) -> BrokerView:
    """Tell of one broker with two queues of the topic T, and the group G."""
    ends = {MessageQueue("T", "a", number): QueueOffsets(first, end, 0) for number in range(2)}
    offsets = {("T", "G"): committed} if committed is not None else {}
    return BrokerView(Target("a", "h:1"), offsets, {"T": ends}, {}, {"G": consumers} if consumers else {})


def consumers(*names: str, model: str = "CLUSTERING", topic: str = "T") -> Consumers:
    clients = tuple(ConnectedClient(name, "h:2", "JAVA", 1) for name in names)
    return Consumers(clients, model, "CONSUME_PASSIVELY", "CONSUME_FROM_LAST_OFFSET", {topic: "*"})


@pytest.mark.parametrize(
    ("committed", "first", "end", "lag", "state"),
    [
        (10, 0, 10, 0, "level"),
        (4, 0, 10, 6, "behind"),
        (2, 5, 10, 5, "lost"),
        (12, 0, 10, 0, "ahead"),
        (None, 0, 10, None, "new"),
        (None, 7, 7, 0, "level"),
        (0, 0, 0, 0, "level"),
    ],
)
def test_a_queue_is_behind_by_what_is_left_to_read(committed, first, end, lag, state):
    found = view({} if committed is None else {0: committed}, first=first, end=end)
    row = queue_lags([found], "G", "T")[0]
    assert (row.lag_messages, row.state, row.committed_offset) == (lag, state, committed)


@pytest.mark.parametrize(
    ("connected", "state", "lag"),
    [
        (None, "no consumer", 12),
        (consumers("c1"), "behind", 12),
        (consumers("c1", topic="other"), "not subscribed", 12),
        (consumers("c1", model="BROADCASTING"), "broadcast", None),
    ],
)
def test_a_topic_is_what_its_queues_and_clients_are(connected, state, lag):
    found = view({0: 4, 1: 4}, consumers=connected)
    total = topic_lag([found], queue_lags([found], "G", "T"), "G", "T")
    assert (total.state, total.lag_messages, total.queues) == (state, lag, 2)
    assert total.lag_seconds is None  # Nobody has looked at the oldest messages.


def test_what_is_not_known_is_no_zero():
    found = view({0: 10}, consumers=consumers("c1"))
    total = topic_lag([found], queue_lags([found], "G", "T"), "G", "T")
    assert (total.lag_messages, total.state) == (0, "new")  # Of the queues that are known.


def test_the_age_of_a_topic_is_that_of_its_oldest_queue():
    found = view({0: 4, 1: 4}, consumers=consumers("c1"))
    rows = [
        evolve(row, lag_seconds=seconds) for row, seconds in zip(queue_lags([found], "G", "T"), (3.0, 9.0), strict=True)
    ]
    assert topic_lag([found], rows, "G", "T").lag_seconds == 9.0
    assert topic_lag([found], [rows[0], evolve(rows[1], lag_seconds=None)], "G", "T").lag_seconds is None


def test_groups_topics_and_clients_over_brokers():
    views = [view({0: 1}, consumers=consumers("c1", "c2")), view(consumers=consumers("c2", topic="U"))]
    assert groups_in([view({0: 1})]) == ("G",)
    assert topics_of(views, "G") == ("T", "U")
    assert [client.client_id for client in clients_of(views, "G")] == ["c1", "c2"]


def test_the_trend_is_the_change_since_the_last_look():
    found = view({0: 4, 1: 4}, consumers=consumers("c1"))
    total = topic_lag([found], queue_lags([found], "G", "T"), "G", "T")
    before = LagReport((total,), (), 10_000)
    now = LagReport((evolve(total, lag_messages=22),), (), 12_000)
    assert with_change(None, now).topics[0].change_per_second is None
    assert with_change(before, now).topics[0].change_per_second == 5.0
    gone = LagReport((evolve(total, lag_messages=None),), (), 12_000)
    assert with_change(before, gone).topics[0].change_per_second is None


@pytest.mark.parametrize(
    ("committed", "wanted", "after", "skipped", "again"),
    [
        (4, 0, 2, 0, 2),
        (4, 99, 10, 6, 0),
        (1, 10, 10, 8, 0),  # What was deleted before is not skipped now.
        (None, 5, 5, None, None),
        (4, 4, 4, 0, 0),
    ],
)
def test_a_move_stays_in_the_queue(committed, wanted, after, skipped, again):
    row = queue_lags([view({} if committed is None else {0: committed}, first=2)], "G", "T")[0]
    move = move_to(row, wanted)
    assert (move.before, move.after, move.skipped, move.again) == (committed, after, skipped, again)
