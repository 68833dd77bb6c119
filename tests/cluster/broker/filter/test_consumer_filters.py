"""The table of groups' filters: versions, death and revival, and its file."""

import itertools

import pytest
from attrs import define

from tests.cluster.broker.helpers import sql
from twinlog.cluster.broker.filter.consumer_filters import (
    BLOOM_BITS,
    DEAD_MS_MAX,
    ConsumerFilterManager,
    bloom_positions,
    murmur3_64,
)
from twinlog.cluster.broker.filter.tags import SubscriptionData
from twinlog.cluster.remoting import fastjson
from twinlog.store.record.properties import format_properties


@define
class Clock:
    now: int = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def test_the_newest_version_counts():
    filters = ConsumerFilterManager(Clock())
    filters.register("G", [sql("a = 1", 5)])
    filters.register("G", [sql("a = 2", 5)])
    assert filters.get("T", "G").filter.text == "a = 1", "the same version is the same subscription"
    filters.register("G", [sql("a = 2", 4)])
    assert filters.get("T", "G").filter.text == "a = 1"
    filters.register("G", [sql("a = 2", 6)])
    assert (filters.get("T", "G").filter.text, filters.get("T", "G").client_version) == ("a = 2", 6)
    filters.register("G", [sql("a = 2", 7)])
    assert filters.get("T", "G").client_version == 7


@pytest.mark.parametrize("kind", ["SQL92", "XPATH"])
def test_an_expression_that_is_none_takes_the_old_one_away(kind):
    """So that the group's pulls say so, instead of going on with what it does not want any more."""
    filters = ConsumerFilterManager(Clock())
    filters.register("G", [sql("a = 1", 5)])
    filters.register("G", [sql("a = = 1", 6, kind=kind)])
    assert filters.get("T", "G") is None
    filters.register("G", [sql("a = = 1", 7, kind=kind)])
    assert len(filters) == 0


def test_a_heartbeat_does_not_bring_too_much_work():
    """What is left out comes with the next ones; what is known already costs nothing."""
    filters = ConsumerFilterManager(Clock())
    subscriptions = [sql(f"a = '{n}" + "x" * 8000 + "'", 1, topic=f"T{n}") for n in range(10)]
    for known in (4, 8, 10, 10):
        filters.register("G", subscriptions)
        assert len(filters) == known
    assert not any(filters.get(f"T{n}", "G").is_dead for n in range(10))


def test_tags_are_no_matter_of_this_table():
    filters = ConsumerFilterManager(Clock())
    filters.register("G", [SubscriptionData(topic="T"), sql("", 1)])
    assert len(filters) == 0


def test_who_leaves_is_dead_and_lives_again():
    clock = Clock()
    filters = ConsumerFilterManager(clock)
    filters.register("G", [sql("a = 1", 5), sql("a = 1", 5, topic="U")])
    first, second = filters.get("T", "G"), filters.get("U", "G")
    filters.register("G", [sql("a = 1", 5)])
    assert (first.is_dead, second.is_dead) == (False, True), "a topic that is not listed any more"
    filters.unregister("G")
    assert first.is_dead
    filters.register("G", [sql("a = 1", 5)])
    assert (first.is_dead, second.is_dead) == (False, True)


def test_the_dead_are_dropped_after_a_day():
    clock = Clock()
    filters = ConsumerFilterManager(clock)
    filters.register("G", [sql("a = 1", 5), sql("a = 1", 5, topic="U")])
    filters.register("H", [sql("a = 1", 5)])
    filters.unregister("G")
    clock.now += DEAD_MS_MAX - 1
    filters.clean()
    assert len(filters) == 3
    clock.now += 1
    filters.clean()
    assert len(filters) == 1
    assert filters.get("T", "H") is not None


def test_every_change_is_told_and_nothing_else():
    told = []
    clock = Clock()
    filters = ConsumerFilterManager(clock, lambda: told.append(len(filters)))
    steps = (
        (lambda: filters.register("G", [sql("a = 1", 5)]), True),
        (lambda: filters.register("G", [sql("a = 1", 5)]), False),
        (lambda: filters.register("G", [sql("a = 1", 6)]), True),
        (lambda: filters.unregister("G"), True),
        (lambda: filters.unregister("G"), False),
        (lambda: filters.register("G", [sql("a = 1", 6)]), True),
        (lambda: filters.register("G", []), True),
        (lambda: filters.clean(), False),
    )
    for number, (step, changes) in enumerate(steps):
        told.clear()
        step()
        assert bool(told) == changes, number


ROCKETMQ_FILE = """{
	"filterDataByTopic":{
		"T":{
			"groupFilterData":{
				"G":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[88,28,79]
					},
					"bornTime":1000,
					"clientVersion":5,
					"consumerGroup":"G",
					"dead":false,
					"deadTime":0,
					"expression":"a = 1",
					"expressionType":"SQL92",
					"topic":"T"
				},
				"H":{"expression":"a = =","expressionType":"SQL92"},
				"I":null
			},
			"topic":"T"
		},
		"U":null
	}
}"""


def test_the_file_is_rocketmqs():
    """Loaded, all are dead until they show themselves; what is none any more is left out."""
    clock = Clock()
    filters = ConsumerFilterManager(clock)
    filters.merge(fastjson.loads(ROCKETMQ_FILE.encode()))
    assert len(filters) == 1
    assert filters.get("T", "G").dead_ms == clock.now - 30_000
    filters.register("G", [sql("a = 1", 5)])
    written = fastjson.loads(fastjson.pretty(filters.to_json()).encode())
    (entry,) = written["filterDataByTopic"]["T"]["groupFilterData"].values()
    known = fastjson.loads(ROCKETMQ_FILE.encode())["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert entry.keys() == known.keys()
    assert {**entry, "bloomFilterData": 0} == {**known, "bloomFilterData": 0}
    assert written["filterDataByTopic"]["T"]["topic"] == "T"
    again = ConsumerFilterManager(clock)
    again.merge(written)
    assert again.get("T", "G").filter is filters.get("T", "G").filter


@pytest.mark.parametrize(
    "table", [{"filterDataByTopic": 5}, {"filterDataByTopic": {"T": {"groupFilterData": {"G": {"bornTime": "x"}}}}}]
)
def test_a_file_that_makes_no_sense_is_told(table):
    with pytest.raises((ValueError, AttributeError)):  # What JsonFile.load_into takes for broken.
        ConsumerFilterManager(Clock()).merge(table)


def test_retried_messages_are_asked_for_by_their_first_topic():
    filters = ConsumerFilterManager(Clock())
    filters.register("G", [sql("a = 1", 5)])
    accepts = filters.retry_filter("%RETRY%G")
    for topic, a in itertools.product(("T", "U", ""), ("1", "2")):
        raw = format_properties({"a": a, **({"RETRY_TOPIC": topic} if topic else {})}).encode()
        assert accepts(raw) == (topic != "T" or a == "1")
    assert accepts(b"")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_murmur3(data, value):
    """Published values of the 128 bit hash for x64, first half."""
    assert murmur3_64(data) == value


def test_bits_are_within_rocketmqs_shape():
    assert BLOOM_BITS == 112
    positions = [bloom_positions(f"group{n}#topic") for n in range(100)]
    assert {len(each) for each in positions} == {3}
    assert all(0 <= position < 112 for each in positions for position in each)
