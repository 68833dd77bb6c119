"""`twinlog log diff --live`: two running members, and RocketMQ's brokers as they answer."""

import json
import socket

import pytest
import trio
from attrs import evolve

from tests.cluster.cli.json_schema import violations
from tests.cluster.cli.live_logs import change, level, send
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.observe.live_diff import LiveDiffReport, sample_offsets
from twinlog.cluster.observe.log_side import LogSide
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.store.record.message import body_crc, decode_message, encode_message


async def diff(cluster, *more: str, status: int = 0):
    result = await cluster.twinlog("log", "diff", "--live", "broker-a-0", "broker-a-1", *more, ok=False)
    assert result.exit_code == status, result.output
    return result


async def report(cluster, *more: str, status: int = 0) -> dict:
    document = json.loads((await diff(cluster, *more, "-o", "json", status=status)).stdout)
    assert violations(document, schema_of(LiveDiffReport)) == []
    return document


async def test_equal_logs(cluster):
    """Every byte was compared; who is who is told."""
    await send(cluster, *(b"x" * 30_000 for _ in range(9)))
    end = await level(cluster)
    found = await report(cluster)
    assert (found["verdict"], found["compared_by"], found["equal_to"]) == ("equal", "digests", end)
    assert (found["common_start"], found["common_end"], found["difference"]) == (0, end, None)
    assert (found["left"]["role"], found["right"]["role"]) == ("master", "slave")
    assert found["left"]["software"] == "twinlog"
    assert found["not_compared"] == []
    text = (await diff(cluster)).stdout
    assert "equal where they overlap" in text
    assert "every byte was compared by digests" in text


async def test_two_empty_logs_are_equal(cluster):
    assert (await report(cluster))["verdict"] == "equal"


async def test_the_first_byte_that_differs_and_both_messages(cluster):
    """In a log of several blocks; the one that is damaged is named."""
    await send(cluster, *(b"%d" % number * 20_000 for number in range(9)))
    await level(cluster)
    start = 5 * 20_000 + 3_000
    change(cluster.slave, start)
    change(cluster.slave, start + 30_000)
    found = await report(cluster, status=1)
    assert (found["verdict"], found["equal_to"]) == ("different", start)
    difference = found["difference"]
    assert difference["first_offset"] == start
    assert difference["left"]["problem"] is None
    assert "CRC" in difference["right"]["problem"]
    assert difference["left"]["start_offset"] == difference["right"]["start_offset"] <= start
    assert difference["left"]["message"]["topic"] == "orders"
    assert difference["left"]["message"]["body"].startswith("5555")
    assert "body" in difference["fields"]
    text = (await diff(cluster, status=1)).stdout
    assert "different: first at" in text
    assert "the right one is damaged there: " in text
    assert "555555" in text


async def test_damaged_neighbours_are_one_finding(cluster):
    """As in an audit: how many records there are in a row, and where the first sound one follows."""
    await send(cluster, *(b"%d" % number * 20_000 for number in range(9)))
    await level(cluster)
    size = (await report(cluster))["common_end"] // 9
    for number in (2, 3, 4):
        change(cluster.slave, number * size + 9_000)
    difference = (await report(cluster, status=1))["difference"]
    assert (difference["first_offset"], difference["left"]["end_offset"]) == (2 * size + 9_000, 3 * size)
    assert (difference["right"]["start_offset"], difference["right"]["end_offset"]) == (2 * size, 5 * size)
    assert difference["right"]["problem"].startswith("3 records in a row are damaged; the first one: its body ")
    assert "the right one is damaged there: 3 records in a row are damaged" in (await diff(cluster, status=1)).stdout


async def test_other_messages_that_are_both_sound(cluster):
    """Two masters of one past: each wrote its own."""
    await send(cluster, b"common")
    common = await level(cluster)
    for broker, body in ((cluster.master, b"left"), (cluster.slave, b"right")):
        message = decode_message(broker.store.message_at(0))
        other = encode_message(evolve(message, body=body, body_crc=body_crc(body), phy_offset=common))
        broker.store.commit_log.append_raw(other)
    found = await report(cluster, status=1)
    assert (found["verdict"], found["right_behind_bytes"]) == ("different", -1)
    assert found["difference"]["first_offset"] == common + 3, "the size of the record"
    assert found["difference"]["left"]["message"]["body"] == "left"
    assert found["difference"]["right"]["message"]["body"] == "right"
    assert "both are intact there" in (await diff(cluster, status=1)).stdout


async def test_what_only_one_of_the_two_has_is_told(cluster):
    """The first file is deleted on the slave, and the master is ahead."""
    await send(cluster, *(b"x" * 300_000 for _ in range(5)))
    end = await level(cluster)
    assert end > 1 << 20
    cluster.slave.store.commit_log.files.drop_first().close()
    record = bytes(cluster.master.store.message_at(0))
    cluster.master.store.commit_log.append_raw(record)
    found = await report(cluster)
    assert (found["verdict"], found["common_start"], found["common_end"]) == ("equal", 1 << 20, end)
    assert found["right_behind_bytes"] == len(record)
    assert [(each["side"], each["start_offset"], each["end_offset"]) for each in found["not_compared"]] == [
        ("left", 0, 1 << 20),
        ("left", end, end + len(record)),
    ]
    assert "broker-a-1 has deleted them, or never had them" in (await diff(cluster)).stdout


async def test_in_traffic(cluster):
    """What is appended meanwhile is left out."""
    going_on = True

    async def produce():
        while going_on:
            await send(cluster, *(b"x" * 5_000 for _ in range(20)))

    await send(cluster, *(b"x" * 50_000 for _ in range(10)))
    async with trio.open_nursery() as producing:
        producing.start_soon(produce)
        for _ in range(3):
            found = await report(cluster)
            assert found["verdict"] == "equal"
            assert found["common_end"] > 500_000
        going_on = False


async def test_a_log_that_moves_meanwhile_is_compared_as_far_as_it_goes(cluster, monkeypatch):
    """The slave loses its first file after the first question."""
    await send(cluster, *(b"x" * 300_000 for _ in range(5)))
    end = await level(cluster)
    digests = LogSide.digests

    async def drop_and_ask(side, question):
        if side.name == "broker-a-1" and cluster.slave.store.min_offset == 0:
            cluster.slave.store.commit_log.files.drop_first().close()
        return await digests(side, question)

    monkeypatch.setattr(LogSide, "digests", drop_and_ask)
    found = await report(cluster)
    assert (found["verdict"], found["common_start"], found["equal_to"]) == ("equal", 1 << 20, end)


async def test_a_member_that_goes_away_meanwhile(cluster, monkeypatch):
    await send(cluster, b"x")
    await level(cluster)

    async def fail(side, question):
        raise RemotingConnectError(side.address, "the connection was lost")

    monkeypatch.setattr(LogSide, "digests", fail)
    found = await report(cluster, status=6)
    assert (found["verdict"], found["equal_to"]) == ("incomplete", 0)
    assert "the connection was lost" in found["reason"]
    assert "incomplete: equal up to 0 of" in (await diff(cluster, status=6)).stdout


async def test_forms_of_the_answer(cluster):
    lines = (await diff(cluster, "-o", "tsv")).stdout.splitlines()
    assert lines[0].split("\t")[:2] == ["verdict", "compared_by"]
    assert lines[1].split("\t")[:2] == ["equal", "digests"]
    for arguments in (("-o", "schema", "--live"), ("--live", "-o", "schema")):
        shown = await cluster.twinlog("log", "diff", *arguments)
        assert json.loads(shown.stdout)["title"] == "LiveDiffReport"


async def test_addresses_do_as_well_as_names(cluster):
    sides = (cluster.master.address, cluster.slave.address)
    result = await cluster.twinlog("log", "diff", "--live", *sides, "-n", "127.0.0.1:1", "-o", "json")
    found = json.loads(result.stdout)
    assert (found["left"]["name"], found["left"]["address"]) == ("broker-a-0", sides[0])


async def test_usage(cluster):
    result = await cluster.twinlog("log", "diff", "--live", "broker-a-0", "broker-b-7", ok=False)
    assert (result.exit_code, "No member is called broker-b-7" in result.output) == (2, True)
    assert (await diff(cluster, "--queues", status=2)).exit_code == 2


async def test_somebody_who_cannot_be_asked(cluster):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = await cluster.twinlog("log", "diff", "--live", "broker-a-0", f"127.0.0.1:{port}", ok=False)
    assert result.exit_code == 3
    assert "cannot be reached" in result.output


# RocketMQ on a side


async def fake(cluster, nursery) -> tuple[RocketMQ, str]:
    """A RocketMQ broker that has the slave's log."""
    broker = RocketMQ.over(cluster.slave.store)
    return broker, await serve_rocketmq(nursery, broker)


async def sampled(cluster, left: str, right: str, status: int = 0) -> dict:
    result = await cluster.twinlog("log", "diff", "--live", left, right, "-o", "json", ok=False)
    assert result.exit_code == status, result.output
    document = json.loads(result.stdout)
    assert violations(document, schema_of(LiveDiffReport)) == []
    return document


async def test_samples_of_a_rocketmq_broker(cluster, nursery):
    """The words say that they are samples."""
    await send(cluster, *(b"x" * 1_000 * (number % 30 + 1) for number in range(150)))
    end = await level(cluster)
    _, address = await fake(cluster, nursery)
    found = await sampled(cluster, "broker-a-0", address)
    assert (found["verdict"], found["compared_by"], found["common_end"]) == ("samples-equal", "samples", end)
    assert 30 < found["samples"] < 150
    assert found["right"]["software"] == "RocketMQ 4.9.7"
    assert found["equal_to"] == end, "the last record is among them"
    text = (await cluster.twinlog("log", "diff", "--live", address, "broker-a-0")).stdout
    assert "sampled: " in text
    assert "the others were not compared" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 77, 148, 149])
async def test_the_first_record_that_differs_is_found_by_halving(cluster, nursery, number):
    """From there on all differ, as they do where two logs part."""
    await send(cluster, *(b"%d" % number for number in range(150)))
    await level(cluster)
    broker, address = await fake(cluster, nursery)
    starts = sorted(broker.records)
    for start in starts[number:]:
        record = broker.records[start]
        broker.records[start] = record[:40] + bytes([record[40] ^ 1]) + record[41:]
    found = await sampled(cluster, "broker-a-0", address, status=1)
    assert (found["verdict"], found["difference"]["first_offset"]) == ("different", starts[number])
    assert found["equal_to"] == starts[number]
    assert found["samples"] < 130


async def test_a_damaged_record_that_is_sampled(cluster, nursery):
    """On the side that tells where records begin."""
    await send(cluster, *(b"x" * 200 for _ in range(9)))
    await level(cluster)
    _, address = await fake(cluster, nursery)
    change(cluster.master, 150)
    found = await sampled(cluster, "broker-a-0", address, status=1)
    assert (found["difference"]["first_offset"], found["equal_to"]) == (0, 0)
    assert "CRC" in found["difference"]["left"]["problem"]
    assert found["difference"]["left"]["message"]["topic"] == "orders"
    assert found["difference"]["right"]["problem"] is None


async def test_two_rocketmq_brokers_are_compared_where_files_begin(cluster, nursery):
    await send(cluster, *(b"x" * 90_000 for _ in range(30)))
    await level(cluster)
    (one, first), (_, second) = await fake(cluster, nursery), await fake(cluster, nursery)
    found = await sampled(cluster, first, second)
    assert (found["verdict"], found["samples"]) == ("samples-equal", 3 * 8)
    start = min(offset for offset in one.records if offset >= 1 << 20)
    one.records[start] = one.records[start][:-1] + b"!"
    found = await sampled(cluster, first, second, status=1)
    assert found["difference"]["first_offset"] == start


async def test_a_broker_that_tells_no_record_at_all(cluster, nursery):
    await send(cluster, b"x")
    await level(cluster)
    (one, first), (two, second) = await fake(cluster, nursery), await fake(cluster, nursery)
    one.records.clear()
    two.records.clear()
    assert (await sampled(cluster, first, second, status=6))["verdict"] == "incomplete"


@pytest.mark.parametrize("end", [1, 2, 100, 1 << 20, 1 << 40])
def test_where_samples_are_looked_for(end):
    offsets = sample_offsets(5, 5 + end)
    assert offsets == sorted(set(offsets))
    assert (offsets[0], offsets[-1]) == (5, 5 + end - 1)
    assert len(offsets) < 90
