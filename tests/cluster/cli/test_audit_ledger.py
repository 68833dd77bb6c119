"""`twinlog audit --incremental`: running members and directories, the service, and `twinlog check --ledger`."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.cli.json_schema import violations
from tests.cluster.cli.live_logs import change, level, send
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from tests.cluster.pipeline.logs import message, records, write_log
from tests.support.process_group.process import PROGRAM
from tests.support.waiting import wait_for
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.pipeline.audit.report import AuditReport

MEMBERS = ("broker-a-0", "broker-a-1")


async def audited(cluster, ledger: Path, *more: str, members=MEMBERS, status: int = 0) -> dict:
    arguments = ("audit", "--live", "--incremental", str(ledger), *members, "-o", "json", *more)
    result = await cluster.twinlog(*arguments, ok=False)
    assert result.exit_code == status, result.output
    document = json.loads(result.stdout)
    assert violations(document, schema_of(AuditReport)) == []
    return document


async def test_only_new_bytes_of_running_members_are_compared(cluster, tmp_path: Path):
    await send(cluster, *(b"x" * 30_000 for _ in range(9)))
    end = await level(cluster)
    first = (await audited(cluster, tmp_path / "ledger"))["ledger"]
    assert (first["proved_to"], first["new_bytes"], first["compared_by"]) == (end, end, "written")
    await send(cluster, b"y" * 1000)
    later = await level(cluster)
    metrics = tmp_path / "audit.prom"
    second = (await audited(cluster, tmp_path / "ledger", "--metrics", str(metrics)))["ledger"]
    assert (second["proved_to"], second["new_bytes"], second["run"]) == (later, later - end, 2)
    labels = '{group="broker-a",pair="broker-a-0/broker-a-1"}'
    assert f"rocketmq_audit_proved_offset_bytes{labels} {later}" in metrics.read_text().splitlines()


async def test_a_difference_is_found_and_stays_open(cluster, tmp_path: Path):
    """Where no digest was kept, a member reads its log."""
    await send(cluster, *(b"x" * 30_000 for _ in range(9)))
    await level(cluster)
    change(cluster.slave, 100_000)
    for _ in range(2):
        found = await audited(cluster, tmp_path / "ledger", status=1)
        (finding,) = found["findings"]
        assert (finding["cls"], finding["member"], finding["good"]) == ("bit-rot", "broker-a-1", "broker-a-0")
    checked = await cluster.twinlog("check", "--ledger", str(tmp_path / "ledger"), ok=False)
    assert checked.exit_code == 2
    assert "1 finding is open" in checked.stdout


async def test_a_role_change_exchanges_broker_ids_and_no_names(cluster, tmp_path: Path, monkeypatch):
    """What is proved of a member stays its own."""
    await send(cluster, b"x")
    end = await level(cluster)
    await audited(cluster, tmp_path / "ledger")
    addresses = {"broker-a-0": cluster.slave.address, "broker-a-1": cluster.master.address}

    async def address(api, member):
        return member, addresses[member]

    monkeypatch.setattr("twinlog.cluster.pipeline.ledger.live.member_address", address)
    found = (await audited(cluster, tmp_path / "ledger", "--full-pass", "30d"))["ledger"]
    assert (found["proved_to"], found["new_bytes"], found["lost_bytes"]) == (end, 0, 0)
    assert [each["name"] for each in found["members"]] == ["broker-a-1", "broker-a-0"]


async def test_check_says_what_is_proved(cluster, tmp_path: Path):
    await send(cluster, b"x")
    await level(cluster)
    ledger = tmp_path / "ledger"
    await audited(cluster, ledger, "--out", str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "findings.parquet",
        "ledger.html",
        "report.html",
        "report.json",
    ]
    for path in (ledger, ledger / "status.json"):
        checked = await cluster.twinlog("check", "--ledger", str(path))
        assert "proved equal up to offset" in checked.stdout
    checked = await cluster.twinlog("check", "--ledger", str(tmp_path / "out"), ok=False)
    assert (checked.exit_code, "not audited yet" in checked.stdout) == (1, True)
    checked = await cluster.twinlog("check", "--ledger", str(tmp_path / "nothing"), ok=False)
    assert (checked.exit_code, "cannot be read" in checked.stdout) == (3, True)


async def test_samples_of_a_rocketmq_broker_prove_little(cluster, tmp_path: Path, nursery):
    await send(cluster, *(b"%d" % number for number in range(20)))
    await level(cluster)
    address = await serve_rocketmq(nursery, RocketMQ.over(cluster.master.store))
    found = await audited(cluster, tmp_path / "ledger", members=("broker-a-0", address))
    assert (found["verdict"], found["ledger"]["compared_by"]) == ("samples-equal", "samples")
    again = await audited(cluster, tmp_path / "ledger", members=("broker-a-0", address))
    assert again["ledger"]["new_bytes"] == found["ledger"]["new_bytes"]


async def test_a_member_that_does_not_answer_is_away(cluster, tmp_path: Path):
    await send(cluster, b"x")
    end = await level(cluster)
    await audited(cluster, tmp_path / "ledger", members=(cluster.master.address, cluster.slave.address))
    members = (cluster.master.address, "127.0.0.1:1", cluster.slave.address)
    found = await audited(cluster, tmp_path / "ledger", members=members, status=6)
    assert [each["is_away"] for each in found["ledger"]["members"]] == [False, True, False]
    assert [each["name"] for each in found["ledger"]["members"]] == ["broker-a-0", "127.0.0.1:1", "broker-a-1"]
    assert found["ledger"]["members"][2]["proved_to"] == end


async def test_usage(cluster, tmp_path: Path):
    ledger = str(tmp_path / "ledger")
    for arguments, words in (
        (("--every", "1h", "a", "b"), "go with --incremental"),
        (("--incremental", ledger, "--log-only", "a", "b"), "uses no Spark"),
        (("--incremental", ledger, "--every", "0", "a", "b"), "less than a second"),
        (("--incremental", ledger, "--live", "broker-a-0", "broker-b-7"), "No member is called broker-b-7"),
    ):
        result = await cluster.twinlog("audit", *arguments, ok=False)
        assert (result.exit_code, words in result.output) == (2, True), result.output
    await audited(cluster, tmp_path / "ledger")
    result = await cluster.twinlog("audit", "--incremental", ledger, str(tmp_path / "a"), str(tmp_path / "b"), ok=False)
    assert (result.exit_code, "the ledger is of running brokers" in result.output) == (2, True), result.output


@pytest.mark.timeout(120)
def test_a_service_ends_in_order(tmp_path: Path):
    """A line for each run; a second one on its ledger is refused; SIGTERM ends it, and the ledger is whole."""
    data, _ = records([message(number) for number in range(50)], 0, 1 << 16)
    roots = [str(write_log(tmp_path / name, data, 0, 1 << 16)) for name in ("one", "two")]
    command = [str(PROGRAM), "audit", "--incremental", str(tmp_path / "ledger"), "--every", "1s", *roots]
    log = tmp_path / "log"
    with log.open("w") as out:
        service = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "COLUMNS": "200"})
    try:
        wait_for(lambda: "run 2: equal" in log.read_text(), "two runs", timeout_s=60)
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (second.returncode, "in use by another audit" in second.stderr) == (2, True), second.stderr
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0, log.read_text()
    finally:
        service.kill()
        service.wait()
    lines = log.read_text().splitlines()
    assert all(
        f"run {number}: " in line and "proved equal up to offset" in line for number, line in enumerate(lines, 1)
    )
    runs = sorted(path.name for path in (tmp_path / "ledger/runs").iterdir())
    assert len(runs) == len(lines)
