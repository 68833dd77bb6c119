"""`twinlog topic`, `group`, `send`, `tail`, `peek` and `lag` against a real name server, master and slave."""

import json
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

import pytest
import trio
import yaml

from tests.cluster.cli.json_schema import violations
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.admin.waiting import watch
from twinlog.cluster.cli.common.values import moment_ms
from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.push_consumer import PushConsumer
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.subscription import From

NOW = 1_795_265_730.0


def document(result):
    return json.loads(result.stdout)


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


async def filled(cluster, *, count: int = 8, topic: str = "orders") -> None:
    await cluster.twinlog("topic", "create", topic, "--queues", "4")
    await cluster.twinlog("send", topic, "x", "--count", str(count))


# ---- Topics


async def test_a_topic_is_made_shown_changed_and_removed(cluster):
    made = document(await cluster.twinlog("topic", "create", "orders", "--queues", "4", "-o", "json"))
    assert made["done"] is True
    assert [(s["broker"], s["before_perm"], s["write_queues"], s["perm"]) for s in made["settings"]] == [
        ("broker-a", None, 4, "RW")
    ]
    shown = document(await cluster.twinlog("topic", "show", "orders", "-o", "json"))
    assert [queue["queue_id"] for queue in shown["queues"]] == [0, 1, 2, 3]
    await cluster.twinlog("topic", "update", "orders", "--queues", "6", "--perm", "R")
    (broker,) = document(await cluster.twinlog("topic", "show", "orders", "-o", "json"))["brokers"]
    assert (broker["read_queues"], broker["write_queues"], broker["perm"]) == (6, 6, "R-")
    gone = document(await cluster.twinlog("topic", "delete", "orders", "--yes", "-o", "json"))
    assert gone["done"] is True
    left = document(await cluster.twinlog("topic", "list", "-o", "json"))["topics"]
    assert "orders" not in {topic["name"] for topic in left}


async def test_one_of_two_name_servers_may_be_down(cluster):
    await filled(cluster)
    both = f"127.0.0.1:1;{cluster.namesrv}"
    assert document(await cluster.twinlog("topic", "delete", "orders", "--yes", "-n", both, "-o", "json"))["done"]
    assert (await cluster.twinlog("topic", "show", "orders", ok=False)).exit_code == 1


async def test_a_dry_run_changes_nothing(cluster):
    assert "nothing was changed" in (await cluster.twinlog("topic", "create", "orders", "--dry-run")).stdout
    assert (await cluster.twinlog("topic", "show", "orders", ok=False)).exit_code == 1
    await filled(cluster)
    assert "8 messages can be read now" in (await cluster.twinlog("topic", "delete", "orders", "--dry-run")).stdout
    assert document(await cluster.twinlog("topic", "show", "orders", "-o", "json"))["queues"]


async def test_a_topic_is_made_once(cluster):
    await cluster.twinlog("topic", "create", "orders")
    again = await cluster.twinlog("topic", "create", "orders", ok=False)
    assert again.exit_code == 4
    assert "exists already, on broker-a" in again.stderr
    assert "twinlog topic update orders" in again.stderr


async def test_queues_that_hold_messages_are_not_hidden_without_a_word(cluster):
    await filled(cluster)
    refused = await cluster.twinlog("topic", "update", "orders", "--queues", "2", ok=False)
    assert refused.exit_code == 2
    assert "hides 4 messages" in refused.stderr
    done = await cluster.twinlog("topic", "update", "orders", "--queues", "2", "--yes")
    assert "4 -> 2" in done.stdout


async def test_a_topic_that_is_read_is_not_removed(cluster):
    await filled(cluster)
    async with consuming(cluster, "audit"):
        refused = await cluster.twinlog("topic", "delete", "orders", "--yes", ok=False)
    assert refused.exit_code == 4
    assert "Consumers of audit are connected" in refused.stderr


async def test_names_of_which_there_is_nothing_are_told(cluster):
    for arguments, words in (
        (("topic", "show", "nowhere"), "topic list --all"),
        (("topic", "update", "nowhere", "--queues", "2"), "topic list --all"),
        (("group", "show", "nobody"), "group list --all"),
        (("lag", "nobody"), "group list --all"),
        (("peek", "nowhere"), "topic list --all"),
        (("topic", "create", "orders", "--broker", "broker-z"), "twinlog list"),
    ):
        result = await cluster.twinlog(*arguments, ok=False)
        assert result.exit_code in (1, 2)
        assert words in result.stderr
        assert "Traceback" not in result.output


# ---- Send, tail, peek


async def test_batches_go_into_one_request_each(cluster):
    await cluster.twinlog("topic", "create", "orders", "--queues", "1")
    stdin = "\n".join(str(number) for number in range(10))
    sent = lines(
        await cluster.twinlog("send", "orders", "--lines", "--file", "-", "--batch", "4", "-o", "json", stdin=stdin)
    )
    assert [(each["messages"], each["queue_offset"]) for each in sent] == [(4, 0), (4, 4), (2, 8)]
    got = lines(await cluster.twinlog("consume", "orders", "-o", "json"))
    assert [each["body"] for each in got] == [str(number) for number in range(10)]


async def test_messages_go_where_they_are_told(cluster):
    await cluster.twinlog("topic", "create", "orders", "--queues", "4")
    to_2 = lines(await cluster.twinlog("send", "orders", "x", "--queue", "2", "--count", "3", "-o", "json"))
    assert {each["queue_id"] for each in to_2} == {2}
    sharded = lines(await cluster.twinlog("send", "orders", "x", "--shard", "k", "--count", "3", "-o", "json"))
    assert len({each["queue_id"] for each in sharded}) == 1
    refused = await cluster.twinlog("send", "orders", "x", "--queue", "9", ok=False)
    assert refused.exit_code == 1
    assert "there are: broker-a 0, broker-a 1" in refused.stderr


async def test_a_delay_is_said_as_time(cluster):
    await cluster.twinlog("topic", "create", "orders")
    (sent,) = lines(await cluster.twinlog("send", "orders", "later", "--delay", "2h", "-o", "json"))
    assert sent["status"] == "SEND_OK"
    assert (await cluster.twinlog("consume", "orders")).stdout == ""


async def test_tail_shows_what_comes(cluster):
    await filled(cluster)
    found: list = []

    async def tail():
        found.append(await cluster.twinlog("tail", "orders", "--count", "2", "-o", "json"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tail)
        with trio.fail_after(20):
            while len(cluster.master.held_pulls) < 4:
                await trio.sleep(0.01)
        async with Client(cluster.namesrv) as client:  # Two commands in one process would share its stdout.
            for _ in range(2):
                await Producer(client.api).send(OutgoingMessage(topic="orders", body=b"new"))
    assert [each["body"] for each in lines(found[0])] == ["new", "new"]


async def test_a_time_to_begin_from_shows_nothing_older(cluster):
    await filled(cluster)
    with trio.fail_after(10):
        await trio.sleep(0.02)
    nothing = await cluster.twinlog("consume", "orders", "--from", "@99999999999999")
    assert nothing.stdout == ""
    everything = await cluster.twinlog("consume", "orders", "--from", "1h", "-o", "json")
    assert len(lines(everything)) == 8


@pytest.mark.slow
async def test_yaml_is_what_json_is(cluster):
    await filled(cluster)
    for arguments in (("topic", "list"), ("topic", "show", "orders"), ("group", "list"), ("list",)):
        as_yaml = yaml.safe_load((await cluster.twinlog(*arguments, "-o", "yaml")).stdout)
        assert as_yaml.keys() == document(await cluster.twinlog(*arguments, "-o", "json")).keys()
    got = list(yaml.safe_load_all((await cluster.twinlog("consume", "orders", "-o", "yaml")).stdout))
    assert [each["body"] for each in got] == ["x"] * 8


async def test_peek_finds_messages_by_place_key_and_both_ids(cluster):
    await cluster.twinlog("topic", "create", "orders", "--queues", "1")
    await cluster.twinlog("send", "orders", "old")
    sent = '{"id": 1}'
    (sent_at,) = lines(await cluster.twinlog("send", "orders", sent, "--keys", "k1 k2", "--tags", "A", "-o", "json"))
    for arguments in (
        ("orders",),
        ("orders", "--key", "k2"),
        ("orders", "--queue", "0", "--offset", "1"),
        (sent_at["message_id"],),
        (sent_at["offset_message_id"],),
        (sent_at["message_id"], "--topic", "orders"),
    ):
        (found,) = lines(await cluster.twinlog("peek", *arguments, "-o", "json"))
        assert found["message"]["body"] == sent
        assert found["message"]["message_id"] == sent_at["message_id"]
    text = (await cluster.twinlog("peek", "orders")).stdout
    assert '      "id": 1' in text
    assert "no group: nobody reads the topic" in text
    assert "00000000  7b 22 69 64" in (await cluster.twinlog("peek", "orders", "--body", "hex")).stdout


async def test_peek_tells_who_has_consumed_it_and_moves_nobody(cluster):
    await cluster.twinlog("topic", "create", "orders", "--queues", "1")
    await cluster.twinlog("send", "orders", "x", "--count", "2")
    await cluster.twinlog("consume", "orders", "--group", "audit", "--count", "1")
    for offset, state in ((0, "consumed"), (1, "not yet")):
        result = await cluster.twinlog("peek", "orders", "--queue", "0", "--offset", str(offset), "-o", "json")
        (reader,) = lines(result)[0]["consumed_by"]
        assert (reader["group"], reader["state"], reader["committed_offset"]) == ("audit", state, 1)


async def test_what_is_not_there_to_peek_at_is_told(cluster):
    await filled(cluster)
    for arguments, words in (
        (("orders", "--queue", "0", "--offset", "9"), "it holds 0 to 1"),
        (("orders", "--key", "nokey"), "has the key nokey"),
        (("0" * 32,), "no message is called"),
    ):
        result = await cluster.twinlog("peek", *arguments, ok=False)
        assert result.exit_code == 1
        assert words.lower() in result.stderr.lower()


# ---- Groups, lag


@asynccontextmanager
async def consuming(cluster, group: str):
    """A member of the group that reads the topic orders, and takes everything."""

    async def take(_batch) -> None:
        pass

    async with (
        Client(cluster.namesrv) as client,
        PushConsumer(client, group, {"orders": "*"}, handler=take, start=From.FIRST),
    ):
        with trio.fail_after(20):
            while cluster.master.tables.consumers.find(group) is None:
                await trio.sleep(0.01)
        yield


async def test_groups_are_listed_with_their_lag(cluster):
    await filled(cluster)
    await cluster.twinlog("consume", "orders", "--group", "audit", "--count", "5")
    (group,) = document(await cluster.twinlog("group", "list", "-o", "json"))["groups"]
    assert (group["name"], group["clients"], group["lag_messages"], group["state"]) == ("audit", 0, 3, "no consumer")
    found = document(await cluster.twinlog("lag", "audit", "-o", "json"))
    assert sum(queue["lag_messages"] for queue in found["queues"]) == 3
    (topic,) = found["topics"]
    assert (topic["topic"], topic["lag_messages"], topic["state"]) == ("orders", 3, "no consumer")
    assert topic["lag_seconds"] > 0
    assert "no consumer" in (await cluster.twinlog("lag")).stdout


async def test_connected_clients_and_what_they_hold_are_shown(cluster):
    await filled(cluster)
    async with consuming(cluster, "audit"):
        with trio.fail_after(20):
            while True:
                found = document(await cluster.twinlog("group", "show", "audit", "-o", "json"))
                holders = {q["consumer"] for q in found["queues"] if q["topic"] == "orders"}
                if holders and None not in holders:
                    break
        assert len(found["clients"]) == 1
        assert holders == {found["clients"][0]["client_id"]}
        assert found["subscriptions"]["orders"] == "*"
        assert found["message_model"] == "clustering"
        text = (await cluster.twinlog("group", "show", "audit")).stdout
        assert "subscribes to" in text


async def test_a_group_is_made_changed_and_removed(cluster):
    await cluster.twinlog("group", "create", "audit", "--retry-max", "3")
    (settings,) = document(await cluster.twinlog("group", "show", "audit", "-o", "json"))["settings"]
    assert (settings["retry_max"], settings["broadcast"]) == (3, True)
    changed = await cluster.twinlog("group", "update", "audit", "--no-broadcast")
    assert "yes -> no" in changed.stdout
    assert (await cluster.twinlog("group", "create", "audit", ok=False)).exit_code == 4
    await cluster.twinlog("group", "delete", "audit", "--yes")
    assert (await cluster.twinlog("group", "show", "audit", ok=False)).exit_code == 1


async def test_offsets_are_moved_while_nobody_is_connected(cluster):
    await filled(cluster)
    await cluster.twinlog("consume", "orders", "--group", "audit")
    reset = ("group", "reset", "audit", "orders", "--to", "first")
    plan = document(await cluster.twinlog(*reset, "--dry-run", "-o", "json"))
    assert [(m["before"], m["after"], m["again"]) for m in plan["moves"]] == [(2, 0, 2)] * 4
    assert document(await cluster.twinlog("lag", "audit", "-o", "json"))["topics"][0]["lag_messages"] == 0
    assert (await cluster.twinlog(*reset, ok=False)).exit_code == 2  # Nobody to ask.
    done = await cluster.twinlog(*reset, "--yes")
    assert "read again: 8" in done.stdout
    assert len(lines(await cluster.twinlog("consume", "orders", "--group", "audit", "-o", "json"))) == 8
    await cluster.twinlog("group", "seek", "audit", "orders", "1", "-1", "--yes")
    assert document(await cluster.twinlog("lag", "audit", "-o", "json"))["topics"][0]["lag_messages"] == 1
    await cluster.twinlog("group", "clone", "audit", "other", "--yes")
    assert document(await cluster.twinlog("lag", "other", "-o", "json"))["topics"][0]["lag_messages"] == 1


async def test_connected_consumers_are_moved_too(cluster):
    """The broker stores the place and tells the clients, which go on there."""
    await filled(cluster)
    async with consuming(cluster, "audit"):
        with trio.fail_after(30):
            while document(await cluster.twinlog("group", "list", "-o", "json"))["groups"][0]["lag_messages"] != 0:
                await trio.sleep(0.05)
        done = document(
            await cluster.twinlog("group", "reset", "audit", "orders", "--to", "first", "--yes", "-o", "json")
        )
        assert len(done["clients"]) == 1
        assert {move["after"] for move in done["moves"]} == {0}
        refused = await cluster.twinlog("group", "delete", "audit", "--yes", ok=False)
        assert refused.exit_code == 4
        assert "would create it again" in refused.stderr


async def test_what_is_printed_is_what_the_schema_says(cluster):
    await filled(cluster)
    await cluster.twinlog("consume", "orders", "--group", "audit", "--count", "3")
    for arguments in (
        ("topic", "show", "orders"),
        ("topic", "update", "orders", "--queues", "5"),
        ("topic", "delete", "orders", "--dry-run"),
        ("group", "list"),
        ("group", "show", "audit"),
        ("group", "update", "audit", "--retry-max", "2"),
        ("group", "delete", "audit", "--dry-run"),
        ("group", "reset", "audit", "orders", "--to", "last", "--dry-run"),
        ("lag",),
        ("lag", "audit"),
        ("peek", "orders"),
        ("send", "orders", "x"),
        ("consume", "orders", "--count", "1"),
        ("config", "get", "broker-a-0"),
        ("config", "set", "broker-a-0", "traceOn=false", "--dry-run"),
        ("config", "explain", "traceOn"),
        ("bundle", "--dry-run"),
    ):
        schema = document(await cluster.twinlog(*arguments, "-o", "schema"))
        assert violations(document(await cluster.twinlog(*arguments, "-o", "json")), schema) == [], arguments


@pytest.mark.parametrize(
    ("text", "seconds_ago"), [("30m", 1800), ("2h", 7200), ("1d", 86400), ("now", 0), ("1.5m", 90)]
)
def test_times_ago(text, seconds_ago):
    assert moment_ms(text, NOW) == round((NOW - seconds_ago) * 1000)


def test_a_time_of_day_is_the_last_one():
    at = datetime.fromtimestamp(NOW)
    assert moment_ms(f"{at:%H:%M}", NOW) == round(at.replace(second=0, microsecond=0).timestamp() * 1000)
    later = moment_ms("23:59:59", NOW)
    assert later < NOW * 1000
    assert NOW * 1000 - later < 86_400_000


async def test_watching_stops_with_the_reader(cluster):
    """-w in a pipe prints one answer after the other."""
    await filled(cluster)
    answers: list[str] = []
    async with open_admin((cluster.namesrv,)) as admin:
        with trio.move_on_after(0.3):
            await watch(partial(admin.groups.lag), 0.05, lambda found: answers.append(found))
    assert len(answers) > 1
