"""Who is there, and whom the others are told of."""

import pytest

from twinlog.cluster.broker.filter.tags import SubscriptionData, SubscriptionError, build_subscription
from twinlog.cluster.broker.tables.clients import ClientInfo, ConsumerManager, ProducerManager
from twinlog.store.record.properties import java_hash

HEARTBEAT = {
    "consume_type": "CONSUME_PASSIVELY",
    "message_model": "CLUSTERING",
    "consume_from_where": "CONSUME_FROM_LAST_OFFSET",
}


def client(connection, now=0.0):
    return ClientInfo(connection, f"id-{connection}", "JAVA", 409, now)


def managed():
    told = []
    clock = [0.0]
    return ConsumerManager(lambda: clock[0], lambda group, connections: told.append((group, connections))), told, clock


def subscription(topic="T", version=1):
    return SubscriptionData(topic=topic, sub_version=version)


def test_members_are_told_when_one_comes_or_goes_or_topics_change():
    consumers, told, _ = managed()
    consumers.register("G", client("a"), [subscription()], **HEARTBEAT)
    consumers.register("G", client("a"), [subscription(version=2)], **HEARTBEAT)
    assert told == [("G", ["a"])], "a new version of the same topic is no change of membership"
    consumers.register("G", client("b"), [subscription(version=2)], **HEARTBEAT)
    consumers.register("G", client("b"), [subscription(version=2), subscription("T2")], **HEARTBEAT)
    consumers.connection_closed("a")
    consumers.unregister("G", "b")
    assert told[1:] == [("G", ["a", "b"]), ("G", ["a", "b"]), ("G", ["b"])]
    assert consumers.find("G") is None


def test_only_a_later_subscription_replaces_and_unlisted_topics_go():
    consumers, _, _ = managed()
    consumers.register("G", client("a"), [subscription(version=5), subscription("T2")], **HEARTBEAT)
    consumers.register("G", client("a"), [subscription(version=4)], **HEARTBEAT)
    assert consumers.find_subscription("G", "T").sub_version == 5
    assert consumers.find_subscription("G", "T2") is None


def test_silence_of_120_seconds_ends_a_membership():
    """Of that group only: a client may have left it without a word, and its queues need another owner."""
    consumers, told, clock = managed()
    consumers.register("G", client("a"), [], **HEARTBEAT)
    consumers.register("G", client("b", 30.0), [], **HEARTBEAT)
    consumers.register("H", client("a", 30.0), [], **HEARTBEAT)
    told.clear()
    clock[0] = 120.0
    assert consumers.expire() == set()
    clock[0] = 121.0
    assert consumers.expire() == {"a"}
    assert told == [("G", ["b"])]
    assert consumers.has("a"), "still in H"


def test_producers_go_with_their_connection():
    producers = ProducerManager(lambda: 121.0)
    producers.register("P", client("a"))
    producers.register("Q", client("a"))
    producers.connection_closed("a")
    assert producers.groups == {}
    producers.register("P", client("b"))
    assert producers.expire() == {"b"}
    assert not producers.has("b")


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_is_wanted_without_an_expression(expression):
    assert build_subscription("T", expression).wanted is None


def test_tags_are_compared_by_their_java_hash():
    built = build_subscription("T", "TagA || TagC|| TagA")
    assert built.tags == ("TagA", "TagC")
    assert built.wanted == {2598919, 2598921} == {java_hash("TagA"), java_hash("TagC")}
    assert SubscriptionData.read(built.to_json()) == built


def test_an_expression_without_any_tag_is_an_error():
    with pytest.raises(SubscriptionError):
        build_subscription("T", "||")


def test_a_producer_is_found_by_its_id_until_it_has_left_every_group():
    producers = ProducerManager(lambda: 0.0)
    producers.register("P", client("a"))
    producers.register("Q", client("a"))
    assert producers.find("id-a") == "a"
    producers.unregister("P", "a")
    assert producers.find("id-a") == "a"
    producers.unregister("Q", "a")
    assert producers.find("id-a") is None


def test_ids_that_a_connection_no_longer_uses_are_forgotten():
    """Or heartbeats under ever new names would fill the memory."""
    producers = ProducerManager(lambda: 0.0)
    for number in range(5):
        producers.register("P", ClientInfo("a", f"name-{number}", "JAVA", 409, 0.0))
        producers.register(f"P{number}", ClientInfo("a", f"name-{number}", "JAVA", 409, 0.0))
    producers.connection_closed("a")
    assert producers._by_id == {}


def test_the_latest_connection_of_an_id_stays_when_the_old_one_goes():
    producers = ProducerManager(lambda: 0.0)
    producers.register("P", ClientInfo("old", "id", "JAVA", 409, 0.0))
    producers.register("P", ClientInfo("new", "id", "JAVA", 409, 0.0))
    producers.connection_closed("old")
    assert producers.find("id") == "new"
