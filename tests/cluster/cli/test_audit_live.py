"""`twinlog audit --live`: running members by their own digests, past the first difference, and RocketMQ's by samples."""

import json
from pathlib import Path

from attrs import evolve

from tests.cluster.cli.json_schema import violations
from tests.cluster.cli.live_logs import change, level, send
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.pipeline.audit import live
from twinlog.cluster.pipeline.audit.report import AuditReport
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.store.record.message import body_crc, decode_message, encode_message


async def audited(cluster, *more: str, members=("broker-a-0", "broker-a-1"), status: int = 0) -> dict:
    result = await cluster.twinlog("audit", "--live", *members, "-o", "json", *more, ok=False)
    assert result.exit_code == status, result.output
    document = json.loads(result.stdout)
    assert violations(document, schema_of(AuditReport)) == []
    return document


def parted(cluster, common: int) -> None:
    """Two masters of one past: each wrote its own."""
    for broker, body in ((cluster.master, b"left"), (cluster.slave, b"not the same")):
        message = decode_message(broker.store.message_at(0))
        other = encode_message(evolve(message, body=body, body_crc=body_crc(body), phy_offset=common))
        broker.store.commit_log.append_raw(other)


async def test_equal_members(cluster):
    await send(cluster, *(b"x" * 30_000 for _ in range(9)))
    end = await level(cluster)
    found = await audited(cluster)
    assert (found["verdict"], found["compared_by"], found["findings"]) == ("equal", "digests", [])
    assert [(each["name"], each["first_offset"], each["last_offset"]) for each in found["members"]] == [
        ("broker-a-0", 0, end),
        ("broker-a-1", 0, end),
    ]
    assert [each["equal_bytes"] for each in found["members"]] == [end, end]
    assert found["blocks"] == -(-end // 65_536)
    assert found["startup_seconds"] is None


async def test_every_damaged_place_is_named_with_the_good_copy(cluster):
    """Not the first one only."""
    await send(cluster, *(b"%d" % number * 20_000 for number in range(9)))
    await level(cluster)
    places = [13_000, 100_000, 150_000]
    for place in places[:2]:
        change(cluster.slave, place)
    change(cluster.master, places[2])
    found = await audited(cluster, status=1)
    assert [(each["cls"], each["member"], each["offset"], each["good"]) for each in found["findings"]] == [
        ("bit-rot", "broker-a-1", 13_000, "broker-a-0"),
        ("bit-rot", "broker-a-1", 100_000, "broker-a-0"),
        ("bit-rot", "broker-a-0", 150_000, "broker-a-1"),
    ]
    assert all(each["topic"] == "orders" and each["since_ms"] for each in found["findings"])


async def test_damaged_neighbours_are_one_finding(cluster):
    """With the number of records, and the bounds of all of them, as an audit of directories has it."""
    await send(cluster, *(b"%d" % number * 20_000 for number in range(9)))
    size = await level(cluster) // 9
    for number in (2, 3, 4, 7):
        change(cluster.slave, number * size + 9_000)
    found = await audited(cluster, status=1)
    bounds = [(each["offset"], each["end"], each["record"], each["record_end"]) for each in found["findings"]]
    assert bounds == [
        (2 * size + 9_000, 5 * size, 2 * size, 5 * size),
        (7 * size + 9_000, 8 * size, 7 * size, 8 * size),
    ]
    assert [each["count"] for each in found["findings"]] == [3, 1]
    assert found["findings"][0]["what"] == "3 records in a row are damaged"
    assert found["totals"] == {"bit-rot": 4}


async def test_where_logs_parted_for_good_is_one_finding(cluster):
    await send(cluster, *(b"x" * 30_000 for _ in range(9)))
    common = await level(cluster)
    parted(cluster, common)
    found = await audited(cluster, status=1)
    (divergent,) = [each for each in found["findings"] if each["cls"] == "divergent"]
    assert (divergent["member"], divergent["offset"]) == ("broker-a-1", common)
    assert divergent["end"] == min(cluster.master.store.max_offset, cluster.slave.store.max_offset)
    assert divergent["mend"] == "twinlog rewind broker-a-1"


async def test_places_are_bounded(cluster, monkeypatch):
    monkeypatch.setattr(live, "PLACES_MAX", 2)
    await send(cluster, *(b"x" * 30_000 for _ in range(9)))
    await level(cluster)
    for number in range(4):
        change(cluster.slave, number * 70_000 + 500)
    found = await audited(cluster, status=1)
    assert [each["cls"] for each in found["findings"]] == ["bit-rot", "bit-rot", "unreadable"]
    assert "2 places that differ are listed" in found["findings"][2]["why"]


async def test_a_member_that_does_not_answer_is_named_and_the_others_are_audited(cluster):
    await send(cluster, b"x")
    await level(cluster)
    members = (cluster.master.address, "127.0.0.1:1", cluster.slave.address)
    found = await audited(cluster, members=members, status=6)
    assert found["verdict"] == "incomplete"
    assert [bool(each["problem"]) for each in found["members"]] == [False, True, False]
    assert "127.0.0.1:1" in found["not_read"][0]
    assert found["blocks"] == 1


async def test_nobody_answers(cluster):
    result = await cluster.twinlog("audit", "--live", "127.0.0.1:1", "127.0.0.1:2", ok=False)
    assert result.exit_code == 3
    assert "cannot be reached" in result.output


async def test_a_member_that_goes_away_meanwhile(cluster, monkeypatch):
    await send(cluster, b"x")
    end = await level(cluster)

    async def fail(side, question):
        raise RemotingConnectError(side.address, "the connection was lost")

    monkeypatch.setattr("twinlog.cluster.observe.log_side.LogSide.digests", fail)
    found = await audited(cluster, status=6)
    (unreadable,) = found["findings"]
    assert (unreadable["cls"], unreadable["offset"], unreadable["end"]) == ("unreadable", 0, end)
    assert "the connection was lost" in found["not_read"][0]


async def test_one_that_is_behind_lags_and_that_is_no_fault(cluster):
    await send(cluster, b"x" * 5_000)
    end = await level(cluster)
    cluster.master.store.commit_log.append_raw(bytes(cluster.master.store.message_at(0)))
    found = await audited(cluster)
    assert found["verdict"] == "equal"
    (lag,) = found["findings"]
    assert (lag["cls"], lag["member"], lag["offset"], lag["good"]) == ("lag", "broker-a-1", end, "broker-a-0")
    assert found["members"][1]["behind_bytes"] == lag["end"] - end


async def test_one_broker_by_two_names_is_compared_with_nobody(cluster):
    """It is equal to itself, which proves nothing."""
    address = cluster.master.address
    found = await audited(cluster, members=("broker-a-0", address), status=6)
    assert found["not_read"] == [f"{address}: it is broker-a-0, by another name"]
    found = await audited(cluster, members=("broker-a-0", "broker-a-1", address), status=6)
    assert [each["problem"] is None for each in found["members"]] == [True, True, False]


async def test_with_rocketmq_on_a_side_samples_are_compared(cluster, nursery):
    """And what differs is named, but never called equal."""
    await send(cluster, *(b"%d" % number for number in range(20)))
    await level(cluster)
    broker = RocketMQ.over(cluster.master.store)
    address = await serve_rocketmq(nursery, broker)
    found = await audited(cluster, members=("broker-a-0", address))
    assert (found["verdict"], found["compared_by"]) == ("samples-equal", "samples")
    assert found["records"] > 2
    assert found["members"][1]["software"] == "RocketMQ 4.9.7"
    place = sorted(broker.records)[7]
    message = decode_message(broker.records[place])
    other = evolve(message, body=b"z", body_crc=body_crc(b"z"))
    broker.records[place] = encode_message(other)
    found = await audited(cluster, members=("broker-a-0", address), status=1)
    assert (found["findings"][0]["cls"], found["findings"][0]["offset"]) == ("divergent", place)


async def test_the_report_is_written(cluster, tmp_path: Path):
    await send(cluster, b"x")
    await level(cluster)
    out = tmp_path / "report"
    result = await cluster.twinlog("audit", "--live", "broker-a-0", "broker-a-1", "--out", str(out))
    assert "equal: every byte that members have in common" in result.stdout
    assert json.loads((out / "report.json").read_bytes())["verdict"] == "equal"
    assert "<svg" in (out / "report.html").read_text()


async def test_usage(cluster):
    for arguments, words in (
        (("--live", "broker-a-0"), "at least one SLAVE"),
        (("--live", "broker-a-0", "broker-a-0"), "named twice"),
        (("--live", "broker-a-0", "broker-a-1", "--spark-master", "local"), "uses no Spark"),
        (("--live", "broker-a-0", "broker-b-7"), "No member is called broker-b-7"),
    ):
        result = await cluster.twinlog("audit", *arguments, ok=False)
        assert (result.exit_code, words in result.output) == (2, True), result.output


async def test_metrics_of_an_audit(cluster, tmp_path):
    """A broker and node_exporter read them; what was found is told apart from lag."""
    await send(cluster, *(b"%d" % number * 20_000 for number in range(3)))
    await level(cluster)
    path = tmp_path / "made" / "audit.prom"
    await audited(cluster, "--metrics", str(path))
    labels = '{group="broker-a",pair="broker-a-0/broker-a-1"}'
    assert f"rocketmq_audit_divergent_records{labels} 0" in path.read_text().splitlines()
    change(cluster.slave, 13_000)
    await audited(cluster, "--metrics", str(path), status=1)
    assert f"rocketmq_audit_divergent_records{labels} 1" in path.read_text().splitlines()
