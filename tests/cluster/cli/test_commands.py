"""`twinlog list`, `topic list`, `send` and `consume` against a real name server, master and slave."""

import json

import pytest

from tests.cluster.cli.conftest import register_under
from tests.cluster.cli.json_schema import violations
from twinlog.store.record.message import host_bytes


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_list_shows_a_serving_master_and_a_streaming_slave(cluster):
    await cluster.twinlog("send", "orders", "hello")
    document = json.loads((await cluster.twinlog("list", "-o", "json")).stdout)
    assert document["schema"] == 1
    assert document["issues"] == []
    master, slave = document["members"]
    assert (master["name"], master["role"], master["state"]) == ("broker-a-0", "master", "serving")
    assert (slave["name"], slave["role"], slave["state"]) == ("broker-a-1", "slave", "streaming")
    assert master["written_offset"] == slave["written_offset"] > 0
    assert master["confirmed_offset"] == master["written_offset"]
    assert (slave["lag_bytes"], slave["lag_seconds"]) == (0, 0)
    assert master["lag_bytes"] is None
    assert master["address"] == cluster.master.address


@pytest.mark.slow
async def test_what_is_printed_is_what_the_schema_says(cluster):
    await cluster.twinlog("send", "orders", "hello")
    await cluster.master.registration.register_all()
    for command in (("list",), ("topic", "list")):
        schema = json.loads((await cluster.twinlog(*command, "-o", "schema")).stdout)
        document = json.loads((await cluster.twinlog(*command, "-o", "json")).stdout)
        assert violations(document, schema) == []


async def test_list_in_a_pipe_is_plain_columns(cluster):
    text = (await cluster.twinlog("list")).stdout.splitlines()
    assert text[0].split() == ["MEMBER", "ADDRESS", "ROLE", "STATE", "WRITTEN", "CONFIRMED", "LAG", "BEHIND", "RATE"]
    assert text[1].split()[:8] == ["broker-a-0", cluster.master.address, "master", "serving", "0", "0", "-", "-"]
    assert text[2].split()[:4] == ["broker-a-1", cluster.slave.address, "slave", "streaming"]


async def test_wide_and_tsv_have_every_column(cluster):
    wide = (await cluster.twinlog("list", "-o", "wide")).stdout.splitlines()
    tsv = (await cluster.twinlog("list", "-o", "tsv")).stdout.splitlines()
    assert "ACKS" in wide[0]
    assert "held by one slave" in wide[1]
    assert tsv[0].split("\t")[:3] == ["member", "address", "role"]
    assert tsv[1].split("\t")[0] == "broker-a-0"


async def test_a_member_that_does_not_answer_is_an_issue(cluster):
    register_under(cluster.slave, "127.0.0.1:9")
    await cluster.slave.registration.register_all()
    document = json.loads((await cluster.twinlog("list", "-o", "json")).stdout)
    assert document["members"][1]["state"] == "unreachable"
    assert document["members"][1]["written_offset"] is None
    assert "does not answer" in document["issues"][0]


async def test_send_says_where_the_message_went(cluster):
    result = await cluster.twinlog("send", "orders", "hello")
    assert result.stdout.startswith("SEND_OK  orders  broker-a queue ")
    assert result.stdout.rstrip().endswith(f"offsetMsgId {host_bytes(cluster.master.address).hex().upper()}{0:016X}")


async def test_what_was_sent_is_consumed_with_all_it_carries(cluster):
    arguments = ("--tags", "TagA", "--keys", "k1 k2", "--property", "colour=red")
    (sent,) = lines(await cluster.twinlog("send", "orders", "hello", *arguments, "-o", "json"))
    (got,) = lines(await cluster.twinlog("consume", "orders", "-o", "json"))
    assert sent["status"] == "SEND_OK"
    for name in ("topic", "broker", "queue_id", "queue_offset", "message_id", "offset_message_id"):
        assert got[name] == sent[name]
    assert (got["body"], got["tags"], got["keys"], got["properties"]) == ("hello", "TagA", "k1 k2", {"colour": "red"})


async def test_messages_of_all_queues_come_in_the_order_of_storing(cluster):
    bodies = [f"message {number}" for number in range(40)]
    await cluster.twinlog("send", "orders", "--lines", "--file", "-", stdin="\n".join(bodies))
    result = await cluster.twinlog("consume", "orders")
    assert [line.strip() for line in result.stdout.splitlines()[1::2]] == bodies
    assert len({line.split()[0] for line in result.stdout.splitlines()[0::2]}) == 4  # As many queues.


async def test_round_robin_over_the_queues(cluster):
    sent = lines(await cluster.twinlog("send", "orders", "x", "--count", "8", "-o", "json"))
    assert sorted(each["queue_id"] for each in sent) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_consume_filters_counts_and_begins_where_asked(cluster):
    for tag in ("A", "B", "C", "A"):
        await cluster.twinlog("send", "orders", f"body {tag}", "--tags", tag)
    consume = ("consume", "orders", "-o", "json")
    assert [m["tags"] for m in lines(await cluster.twinlog(*consume, "--tags", "A || C"))] == ["A", "C", "A"]
    assert len(lines(await cluster.twinlog(*consume, "--count", "3"))) == 3
    assert all(m["queue_offset"] >= 1 for m in lines(await cluster.twinlog(*consume, "--from", "1")))
    last = await cluster.twinlog(*consume, "--from", "last")
    assert last.stdout == ""
    assert "No messages in orders from last on." in last.stderr
    nobody = await cluster.twinlog(*consume, "--tags", "D")
    assert "No messages in orders with the tags D." in nobody.stderr


async def test_a_group_goes_on_where_it_stood(cluster):
    consume = ("consume", "orders", "--group", "audit", "-o", "json")
    await cluster.twinlog("send", "orders", "x", "--count", "10")
    first = lines(await cluster.twinlog(*consume, "--count", "4"))
    rest = lines(await cluster.twinlog(*consume))
    ids = {message["message_id"] for message in first + rest}
    assert (len(first), len(rest), len(ids)) == (4, 6, 10)
    assert lines(await cluster.twinlog(*consume)) == []
    await cluster.twinlog("send", "orders", "y")
    assert [message["body"] for message in lines(await cluster.twinlog(*consume))] == ["y"]


async def test_a_look_without_a_group_moves_nobodys_offsets(cluster):
    await cluster.twinlog("send", "orders", "x")
    for _ in range(2):
        assert len(lines(await cluster.twinlog("consume", "orders", "-o", "json"))) == 1


async def test_a_body_that_is_no_text(cluster, tmp_path):
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00\xfe")
    await cluster.twinlog("send", "orders", "--file", str(file))
    (got,) = lines(await cluster.twinlog("consume", "orders", "-o", "json"))
    assert got["body_base64"] == "/wD+"
    assert "<3 bytes> ff 00 fe" in (await cluster.twinlog("consume", "orders")).stdout


async def test_topics_are_listed_with_their_messages(cluster):
    await cluster.twinlog("send", "orders", "x", "--count", "3")
    await cluster.master.registration.register_all()  # By itself it does so a moment after the first message.
    (topic,) = json.loads((await cluster.twinlog("topic", "list", "-o", "json")).stdout)["topics"]
    assert (topic["name"], topic["write_queues"], topic["perm"], topic["messages"]) == ("orders", 4, "RW", 3)
    assert topic["brokers"] == ["broker-a"]
    everything = json.loads((await cluster.twinlog("topic", "list", "--all", "-o", "json")).stdout)["topics"]
    assert {"orders", "TBW102", "broker-a", "DefaultCluster"} <= {each["name"] for each in everything}


async def test_a_message_that_no_slave_has_is_told(lone_master):
    """The exit status says that something is to be looked at; the message is stored."""
    result = await lone_master.twinlog("send", "orders", "x", ok=False)
    assert result.exit_code == 1
    assert result.stdout.startswith("SLAVE_NOT_AVAILABLE  orders")
    assert "1 of 1 messages are stored, but on fewer members" in result.stderr
    assert "twinlog list" in result.stderr


async def test_an_unknown_topic_is_one_sentence(cluster):
    result = await cluster.twinlog("consume", "nowhere", ok=False)
    assert result.exit_code == 1
    assert "Error: No broker has a readable queue of the topic nowhere" in result.stderr
    assert "Traceback" not in result.output


async def test_a_broker_in_place_of_a_name_server_is_told_from_one(cluster):
    result = await cluster.twinlog("list", "-n", cluster.master.address, ok=False)
    assert result.exit_code == 1
    assert "a name server, not a broker?" in result.stderr


async def test_a_topic_name_that_cannot_be_is_refused_with_the_brokers_words(cluster):
    result = await cluster.twinlog("send", "no good", "x", ok=False)
    assert result.exit_code == 1
    assert "Error: The request was refused." in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("send", "orders"), "argument or with --file"),
        (("send", "orders", "x", "--lines"), "--lines needs --file"),
        (("send", "orders", "x", "--property", "novalue"), "K=V"),
        (("send", "orders", "x", "--property", "KEYS=1"), "is reserved by RocketMQ"),
        (("consume", "orders", "--from", "middle"), "expected an offset, first, last, a time"),
        (("list", "-o", "xml"), "Invalid value"),
        (("list", "-n", "127.0.0.1:99999"), "--namesrv 127.0.0.1:99999: expected HOST:PORT"),
        (("send", "", "x"), "TOPIC is empty"),
        (("consume", "orders", "--tags", " || "), "names no tag"),
        (("consume", "orders", "--tags", "A", "--sql", "price > 1"), "either --tags or --sql"),
        (("tail", "orders", "--since", "yesterday"), "a time ago (30m, 2h, 1d)"),
        (("send", "orders", "x", "--shard", "k", "--queue", "1"), "--shard chooses the queue"),
        (("send", "orders", "x", "--batch", "2", "--delay", "5s"), "cannot be delayed"),
        (("peek", "orders", "--offset", "3"), "use --queue and --offset together"),
        (("topic", "update", "orders"), "nothing to change"),
        (("topic", "create", "a b"), "illegal characters"),
        (("group", "update", "audit"), "nothing to change"),
        (("group", "reset", "audit", "orders", "--to", "somewhere", "--yes"), "--to somewhere: expected first, last"),
        (("group", "seek", "audit", "orders", "0", "--foo"), "No such option: --foo"),
        (("config", "set", "broker-a-0"), "add KEY=VALUE"),
        (("config", "set", "traceOn=false"), "name a MEMBER, or add --all-masters"),
    ],
)
async def test_wrong_usage_has_status_2(cluster, arguments, words):
    result = await cluster.twinlog(*arguments, ok=False)
    assert result.exit_code == 2
    assert words in result.stderr
