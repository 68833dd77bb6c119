"""11 and 46 with SQL92 expressions."""

import random

import attrs
import pytest
import trio

from tests.cluster.broker.helpers import heartbeat, opened, put
from tests.cluster.broker.pulls import OWN_SUBSCRIPTION, PULL, SUSPEND, make_pulls
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.store.config import BrokerRole
from twinlog.store.record.message import decode_message


def sql_beat(expression="a = 1", *, version=1, kind="SQL92", topic="T1"):
    beat = heartbeat(topic, expression=expression, version=version)
    beat["consumerDataSet"][0]["subscriptionDataSet"][0]["expressionType"] = kind
    return beat


def filtering(client, expression="a = 1", **how):
    client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
    assert client.ask(34, sql_beat(expression, **how)).code == 0
    client.connection.sent.clear()


def sql_broker(tmp_path, **options):
    return make_pulls(tmp_path, enable_property_filter=True, **options)


def found(reply):
    """The queue offsets of the messages in an answer."""
    data, at, offsets = b"".join(reply.body), 0, []
    while at < len(data):
        message = decode_message(data, at)
        offsets.append(message.queue_offset)
        at += message.size
    return offsets


@pytest.mark.parametrize("own", [False, True])
async def test_only_what_the_expression_lets_through_is_found(tmp_path, own):
    """By the heartbeat's expression or by the request's own; what is passed over counts as looked at."""
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client)
        for n in range(6):
            put(client.broker, properties={"a": str(n % 3)})
        put(client.broker)
        put(client.broker, properties={"a": "none"}, body=b"x" * 40_000)
        put(client.broker, properties={"a": "1"}, body=b"x" * 40_000)
        fields = {"sysFlag": OWN_SUBSCRIPTION, "subscription": "a = 1", "expressionType": "SQL92"} if own else {}
        reply = client.ask(11, **{**PULL, **fields})
        assert (reply.code, found(reply), reply.ext["nextBeginOffset"]) == (0, [1, 4, 8], "9")
        reply = client.ask(11, **{**PULL, **fields, "queueOffset": 5})
        assert (reply.code, found(reply)) == (0, [8])
        reply = client.ask(11, **{**PULL, **fields, "maxMsgNums": 1})
        assert (reply.code, found(reply), reply.ext["nextBeginOffset"]) == (0, [1], "2")


async def test_when_nothing_matches_the_consumer_goes_on_behind_it(tmp_path):
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client, "a = 5")
        for _ in range(1000):
            put(client.broker, properties={"a": "1"})
        reply = client.ask(11, **{**PULL, "sysFlag": SUSPEND})
        assert (reply.code, reply.remark) == (20, "NO_MATCHED_MESSAGE")
        assert 0 < int(reply.ext["nextBeginOffset"]) <= 800
        assert reply.body == b""


async def test_a_filter_that_takes_its_time_does_not_hold_up_the_others(tmp_path, monkeypatch):
    """An answer looks at messages for so long and no longer; at one at least."""
    monkeypatch.setattr("twinlog.store.read.get_message._SEARCH_SECONDS_MAX", -1.0)
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client, "a = 5")
        for _ in range(3):
            put(client.broker, properties={"a": "1"})
        reply = client.ask(11, **PULL)
        assert (reply.code, reply.ext["nextBeginOffset"]) == (20, "1")


@pytest.mark.parametrize(
    ("registered", "asked", "code", "remark"),
    [
        ("a = = 1", {}, 27, "The broker's consumer filter data is not exist!Your expression may be wrong!"),
        ("a = 1", {"subVersion": 2}, 25, "the consumer's subscription not latest"),
        ("a = 1", {"sysFlag": 4, "subscription": "a = = 1"}, 23, "parse the consumer's subscription failed"),
        ("a = 1", {"sysFlag": 4, "subscription": ""}, 23, "parse the consumer's subscription failed"),
        (
            "a = 1",
            {"sysFlag": 4, "subscription": "a", "expressionType": "XPATH"},
            23,
            "parse the consumer's subscription failed",
        ),
    ],
)
async def test_pulls_with_filters_that_are_none(tmp_path, registered, asked, code, remark):
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client, registered)
        reply = client.ask(11, **{**PULL, "expressionType": "SQL92", **asked})
        assert (reply.code, reply.remark) == (code, remark)


async def test_the_groups_of_a_heartbeat_share_what_is_compiled_at_once(tmp_path):
    async with opened(sql_broker(tmp_path)) as client:
        beats = [
            sql_beat(f"a = '{n}" + "x" * 8000 + "'")["consumerDataSet"][0] | {"groupName": f"G{n}"} for n in range(10)
        ]
        for known in (4, 8, 10, 10):
            assert client.ask(34, {"clientID": "c1", "consumerDataSet": beats}).code == 0
            assert len(client.broker.tables.filters) == known


async def test_a_filter_older_than_the_subscription(tmp_path):
    """The table's subscription is as new as the pull, its filter is not: as after a bad word that came between."""
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client)
        info = client.broker.tables.consumers.find("G")
        info.subscriptions["T1"] = attrs.evolve(info.subscriptions["T1"], sub_version=7)
        reply = client.ask(11, **{**PULL, "subVersion": 7})
        assert (reply.code, reply.remark) == (28, "the consumer's consumer filter data not latest")


@pytest.mark.parametrize("fields", [{}, {"sysFlag": 4, "subscription": "a = 1", "expressionType": "SQL92"}])
async def test_without_enable_property_filter_sql92_is_refused(tmp_path, fields):
    async with opened(make_pulls(tmp_path)) as client:
        filtering(client)
        reply = client.ask(11, **{**PULL, **fields})
        assert (reply.code, reply.remark) == (1, "The broker does not support consumer to filter message by SQL92")


@pytest.mark.parametrize("asks_about_retries", [False, True])
async def test_retried_messages_are_filtered_where_that_is_wanted(tmp_path, asks_about_retries):
    """By the expression for the topic that they come from; the retry topic itself is subscribed to by tag."""
    async with opened(sql_broker(tmp_path, filter_support_retry=asks_about_retries)) as client:
        filtering(client)
        beat = sql_beat()
        beat["consumerDataSet"][0]["subscriptionDataSet"] += heartbeat("%RETRY%G")["consumerDataSet"][0][
            "subscriptionDataSet"
        ]
        assert client.ask(34, beat).code == 0
        for a, topic in (("1", "T1"), ("2", "T1"), ("2", "T9")):
            put(client.broker, "%RETRY%G", properties={"a": a, "RETRY_TOPIC": topic})
        reply = client.ask(11, **{**PULL, "topic": "%RETRY%G"})
        assert found(reply) == ([0, 2] if asks_about_retries else [0, 1, 2])


@pytest.mark.parametrize("ending", ["by tag now", "left", "dead", "switched off"])
async def test_a_filter_that_is_over_withholds_no_retried_messages(tmp_path, ending):
    async with opened(sql_broker(tmp_path, filter_support_retry=True)) as client:
        broker = client.broker
        filtering(client)
        retries = heartbeat("%RETRY%G")["consumerDataSet"][0]["subscriptionDataSet"]
        beat = sql_beat(version=2, kind="TAG" if ending == "by tag now" else "SQL92")
        subscriptions = beat["consumerDataSet"][0]["subscriptionDataSet"]
        beat["consumerDataSet"][0]["subscriptionDataSet"] = retries if ending == "left" else subscriptions + retries
        assert client.ask(34, beat).code == 0
        put(broker, "%RETRY%G", properties={"a": "2", "RETRY_TOPIC": "T1"})
        if ending == "dead":
            broker.tables.filters.unregister("G")
        if ending == "switched off":
            broker.settings.config = attrs.evolve(broker.settings.config, enable_property_filter=False)
        assert found(client.ask(11, **{**PULL, "topic": "%RETRY%G"})) == [0]


async def test_a_held_pull_waits_for_a_message_that_its_expression_lets_through(tmp_path, autojump_clock, nursery):
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client)
        nursery.start_soon(client.broker.held_pulls.run)
        assert client.ask(11, **{**PULL, "sysFlag": SUSPEND}) is None
        put(client.broker, properties={"a": "2"})
        await trio.sleep(1)
        assert client.connection.sent == []
        put(client.broker, properties={"a": "1"})
        await trio.sleep(0.001)
        (answer,) = client.connection.sent
        assert (answer.code, decode_message(answer.body).queue_offset) == (0, 1)


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_stands_in_a_subscription_has_its_code(tmp_path, seed):
    """In a heartbeat, a check or a pull: no handler fails, and the three agree on what an expression is."""
    dice = random.Random(seed)
    pieces = [
        "a",
        "b",
        "=",
        "<>",
        ">",
        "5",
        "'x'",
        "(",
        ")",
        "AND",
        "OR",
        "NOT",
        "IS",
        "NULL",
        "IN",
        "\x00",
        "é",
        "\u2028",
        "--",
    ]
    async with opened(sql_broker(tmp_path)) as client:
        filtering(client)
        put(client.broker, properties={"a": "5", "b": "x"})
        for version in range(2, 100):
            text = " ".join(dice.choices(pieces, k=dice.randint(1, 8)))
            data = {"topic": "T1", "subString": text, "expressionType": "SQL92"}
            is_one = client.ask(46, {"clientId": "c", "group": "G", "subscriptionData": data}).code == 0
            assert client.ask(34, sql_beat(text, version=version)).code == 0
            assert client.ask(11, **{**PULL, "subVersion": version}).code in ((0, 20) if is_one else (27,)), text
            own = {"sysFlag": OWN_SUBSCRIPTION, "subscription": text, "expressionType": "SQL92"}
            assert client.ask(11, **{**PULL, **own}).code in ((0, 20) if is_one else (23,)), text


async def test_a_slave_filters_as_its_master_does(tmp_path):
    """Consumers send heartbeats to slaves, too."""
    async with opened(sql_broker(tmp_path)) as client:
        put(client.broker, properties={"a": "2"})
        put(client.broker, properties={"a": "1"})
    async with opened(sql_broker(tmp_path, role=BrokerRole.SLAVE)) as client:
        filtering(client)
        reply = client.ask(11, **PULL)
        assert (reply.code, found(reply)) == (0, [1])


async def test_a_filter_dies_with_its_group_and_outlives_a_restart(tmp_path):
    broker = sql_broker(tmp_path)
    async with opened(broker) as client:
        filtering(client)
        assert not broker.tables.filters.get("T1", "G").is_dead
        client.connection.close()
        assert broker.tables.filters.get("T1", "G").is_dead
        await broker.tables.filters_writer.save()
    again = sql_broker(tmp_path)
    again.tables.filters_writer.file.load_into(again.tables.filters.merge)
    assert again.tables.filters.get("T1", "G").filter.text == "a = 1"
    assert again.tables.filters.get("T1", "G").is_dead


async def test_a_config_check_says_what_is_wrong_with_an_expression(tmp_path):
    """46, before a consumer starts."""

    def check(client, expression, kind="SQL92"):
        data = {"topic": "T1", "subString": expression, "expressionType": kind}
        return client.ask(46, {"clientId": "c", "group": "G", "subscriptionData": data})

    async with opened(sql_broker(tmp_path)) as client:
        assert check(client, "a = 1").code == 0
        assert check(client, "a ||", "TAG").code == 0
        assert client.ask(46, {"clientId": "c", "group": "G"}).code == 0
        for expression, kind, why in (
            ("a = = 1", "SQL92", "'=' in line 1, column 5, is unexpected"),
            ("a > 'x'", "SQL92", "'x' cannot be compared by >"),
            ("", "SQL92", "it ends too early"),
            ("a = #", "SQL92", "'#' in line 1, column 5, is not the start of a token"),
            ("a", "XPATH", "XPATH is not a type of expression"),
        ):
            reply = check(client, expression, kind)
            assert reply.code == 23
            assert reply.remark.startswith("Invalid MessageSelector. ")
            assert why in reply.remark
    async with opened(make_pulls(tmp_path)) as client:
        assert check(client, "a = = 1").code == 1
