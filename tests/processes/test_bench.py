"""`scripts/bench` in small: it measures what it should, says so, and leaves nothing behind."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from scripts.benchmarks import (
    ack_table,
    client_table,
    example,
    failover,
    failover_client,
    failover_etcd,
    failover_etcd_client,
    failover_etcd_table,
    failover_table,
    growth,
    growth_table,
    ha_table,
    http_table,
    observe_table,
    roles_table,
    spark_steps,
    spark_table,
    table,
    where,
    where_steps,
    where_table,
)
from scripts.benchmarks.backlog import Backlog
from scripts.benchmarks.client import PARTS
from scripts.benchmarks.goals_table import Goal
from scripts.benchmarks.machine import ROOT
from scripts.benchmarks.report import new_report, record
from scripts.benchmarks.store_table import page
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.verify.verify import verify


def measured(tmp_path: Path, *arguments: str, timeout_s: float) -> tuple[dict[str, Any], str]:
    """Run a benchmark as a user does; its raw results, and what it printed. It leaves nothing in its scratch directory."""
    out, scratch = tmp_path / "raw.json", tmp_path / "scratch"
    scratch.mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks", *arguments, "--out", str(out)],
        cwd=ROOT,
        env={"TMPDIR": str(scratch), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert list(scratch.iterdir()) == []
    return json.loads(out.read_text()), ran.stdout


@pytest.mark.long
def test_measures_the_store(tmp_path: Path) -> None:
    report, stdout = measured(tmp_path, "store", "--quick", "--repeats", "1", "--only", "twinlog", timeout_s=50)
    assert all(row["measure"] in stdout for row in report["results"])
    shown = page(report, "raw.json")
    lines = [line for line in shown.splitlines() if line.startswith("|") and "---" not in line]
    assert len(lines) >= 12
    assert "start after kill -9" in shown


def test_pages_show_the_newest_raw_results() -> None:
    """No number on a page was typed by hand, or is of an older run."""
    found = table.newest()
    assert found
    for raw in found:
        report = json.loads(raw.read_text())
        kept = raw.with_name(f"{report['benchmark']}.md").read_text()
        assert kept == table.PAGES[report["benchmark"]](report, raw.name)
    assert (table.DIRECTORY / "goals.md").read_text() == table.goals()


@pytest.mark.parametrize(
    ("limit", "is_least", "of_theirs", "said"),
    [
        (1.5, True, True, ["6.0", "4.0", "1.50", "at least 1.5", "reached"]),
        (1.6, True, True, ["6.0", "4.0", "1.50", "at least 1.6", "not reached"]),
        (1.5, False, True, ["6.0", "4.0", "1.50", "at most 1.5", "reached"]),
        (1.4, False, True, ["6.0", "4.0", "1.50", "at most 1.4", "not reached"]),
        (5, False, False, ["6.0", "", "", "at most 5 s", "not reached"]),
    ],
)
def test_a_goal_is_compared_with_medians(limit: float, is_least: bool, of_theirs: bool, said: list[str]) -> None:
    values = {"twinlog": (1, 6, 7), "rocketmq": (4, 4, 9)}
    rows = [{"system": name, "kind": "a", "s": value} for name, several in values.items() for value in several]
    rows += [{"system": "twinlog", "kind": "b", "s": 1000}]  # Of another line.
    goal = Goal("work", "x", {"kind": "a"}, lambda row: float(row["s"]), ".1f", limit, is_least, of_theirs)
    assert goal.line({"results": rows}) == ["work", *said]


@pytest.mark.long
def test_measures_replication(tmp_path: Path) -> None:
    """`scripts/bench ha` in small, without Java: a slave catches up, lags a little, and a page shows it."""
    arguments = ["ha", "--mib", "64", "--body", "1024", "--pair", "twinlog/twinlog"]
    arguments += ["--part", "catch-up", "--part", "raw", "--part", "lag", "--seconds", "0.5", "--rate", "500"]
    report, _ = measured(tmp_path, *arguments, timeout_s=120)
    (caught_up,) = [row for row in report["results"] if row["measure"] == "catch-up"]
    assert caught_up["bytes"] > 60 << 20
    assert 0 < caught_up["taken_seconds"] <= caught_up["seconds"] <= caught_up["dispatched_seconds"]
    (lag,) = [row for row in report["results"] if row["measure"] == "lag"]
    assert lag["messages"] > 100
    shown = ha_table.page(report, "raw.json")
    assert shown.count("| twinlog | twinlog |") == 2
    assert "| *raw* |" in shown


@pytest.mark.long
def test_measures_role_changes(tmp_path: Path) -> None:
    """`scripts/bench roles` in small: a switchover in traffic, and a log that is cut."""
    arguments = ["roles", "--rounds", "1", "--rate", "200", "--mib", "4", "--part", "switchover", "--part", "rewind"]
    report, _ = measured(tmp_path, *arguments, timeout_s=100)
    switchover, rewind = report["results"]
    assert switchover["messages"] > 100
    assert switchover["unanswered"] == 0
    assert 0 < switchover["pause_ms"] < 3000
    assert rewind["bytes"] > 4 << 20
    shown = roles_table.page(report, "raw.json")
    assert "| 200 | 1 |" in shown
    assert "| rewind | " in shown


@pytest.mark.long
def test_measures_http(tmp_path: Path) -> None:
    """`scripts/bench http` in small: brokers with and without the port, and scrapes that tell of what is there."""
    arguments = ["http", "--rounds", "1", "--seconds", "1", "--settle", "0.5", "--scrapes", "3", "--topics", "20"]
    report, _ = measured(tmp_path, *arguments, timeout_s=55)
    rows = report["results"]
    processes = {row["kind"]: row for row in rows if row["measure"] == "process"}
    assert set(processes) == {"off", "on", "probed"}
    assert all(0 < row["ready_cpu_seconds"] <= row["settled_cpu_seconds"] for row in processes.values())
    assert processes["on"]["rss_mib"] > processes["off"]["rss_mib"] > 10
    scrapes = [row for row in rows if row["measure"] == "scrape"]
    assert [(row["topics"], row["lagging"]) for row in scrapes] == [(1, 1), (20, 0), (20, 20)]
    assert [row["answer_kib"] for row in scrapes] == sorted(row["answer_kib"] for row in scrapes)
    assert all(0 < row["loop_ms"] < row["answer_ms"] for row in scrapes)
    shown = http_table.page(report, "raw.json")
    assert "| `httpEnable=false` | " in shown
    assert "| 20 | 20 | " in shown


@pytest.mark.long
def test_measures_acknowledgements(tmp_path: Path) -> None:
    """`scripts/bench acks` in small: each level is answered, and the page shows it."""
    report, _ = measured(tmp_path, "acks", "--rounds", "1", "--messages", "20", "--warm-up", "5", timeout_s=55)
    rows = report["results"]
    assert [row["level"] for row in rows] == ["L0", "L1", "L2", "L3", "L3 and SYNC_FLUSH"]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    shown = ack_table.page(report, "raw.json")
    assert shown.count("| L3") == 2


@pytest.mark.long
@pytest.mark.timeout(120)
def test_measures_clients(tmp_path: Path) -> None:
    """`scripts/bench client` in small, without Java: each part on two loops, and a page that shows it beside what failed."""
    arguments = ["client", "--quick", "--client", "asyncio", "--client", "trio"]
    report, _ = measured(tmp_path, *arguments, timeout_s=100)
    rows = report["results"]
    assert [(row["client"], row["part"]) for row in rows] == [
        (name, part) for name in ("asyncio", "trio") for part in PARTS
    ]
    assert all(row["messages"] > 0 < row["client_cpu_us"] and row["peak_anon_mib"] > 10 for row in rows)
    assert all(
        0 < row["p50_ms"] <= row["p99_ms"] for row in rows if row["part"].startswith("send-") and "p50_ms" in row
    )
    assert sum("p50_ms" in row for row in rows) == 4
    rows += [{**row, "client": "java"} for row in rows if row["client"] == "trio"]
    rows.append(
        {"round": 1, "broker": "twinlog", "client": "librocketmq", "part": "batch", "failed": "it ended with 1"}
    )
    shown = client_table.page(report, "raw.json")
    assert shown.count("| Java |") == len(PARTS)
    assert shown.count("| 1.00 |") == 2 * len(PARTS)
    assert "librocketmq failed in 1 of 1 rounds: it ended with 1." in shown


def test_a_slave_that_checks_no_crcs_is_one() -> None:
    """What verification costs is measured against one that really does without."""
    code = """
import twinlog.ha.slave.replica, twinlog.store.record.column_scan, scripts.benchmarks.ha_unverified as bench, runpy, sys
bench.main = lambda: None
sys.modules["twinlog.cluster.cli.main"].main = bench.main
runpy.run_module("scripts.benchmarks.ha_unverified", run_name="__main__")
from twinlog.store.record.message import Message, encode_message
bad = encode_message(Message("T", 0, b"x", body_crc=1))
scans = twinlog.ha.slave.replica.scan_records, twinlog.store.record.column_scan.scan_columns
print([scan(bad, 0, 4096, check_crc=True).error for scan in scans])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "[None, None]\n", ran.stderr


def test_what_observing_costs_is_compared_round_by_round() -> None:
    """A machine that slows down between rounds changes no ratio; a pair that is not whole does not count."""
    rows = [observed(1, "off", 20.0), observed(1, "on", 21.0), observed(2, "on", 42.0), observed(2, "off", 40.0)]
    rows.append(observed(3, "off", 90.0))
    assert observe_table.differences(rows, "master") == pytest.approx([0.05, 0.05])
    setup = {"rounds": 2, "seconds": 5, "first_warm_up_s": 5, "scrape_seconds": 5, "topics": 1, "body_bytes": 1024}
    shown = observe_table.observe_page({**new_report("observe", setup), "results": rows}, "raw.json")
    assert "| 64 | *difference* | | +5.0 % (+5.0 % to +5.0 %) |" in shown


def observed(number: int, kind: str, master: float) -> dict[str, Any]:
    cpu = {"master": master, "slave-1": 10.0}
    return {
        "round": number,
        "kind": kind,
        "threads": 64,
        "messages_per_s": 1.0,
        "p99_ms": 1.0,
        "cpu_us_per_message": cpu,
    }


def _lost_master(system: str, fault: str, *seconds: float | None, is_patient: bool = False) -> dict[str, Any]:
    """A row of `scripts/bench failover`, of two producers or of the many with a slow poll."""
    clients = {"default": list(seconds)} if is_patient else {"ours": [seconds[0]], "quick": [seconds[1]]}
    row = {"system": system, "fault": fault, "patient": is_patient, "seconds": clients, "told": {}}
    return row | {"acked": 1000, "lost": int(system == "rocketmq")}


def test_a_failover_ends_with_what_another_member_has_stored() -> None:
    """What the old master still answers is no failover, nor is a SEND_OK of before."""
    line = '{"producer": "%s", "id": "%d", "sent": 1, "came": %d, "status": "%s", "offset_id": "7F000001%08X%016X"}'
    told = [("a-0", 90, "SEND_OK", 2), ("a-0", 110, "SEND_OK", 1), ("a-0", 130, "FLUSH_SLAVE_TIMEOUT", 2)]
    told += [("a-0", 150, "SEND_OK", 2), ("b-0", 160, "SEND_OK", 3), ("a-0", 170, "SEND_OK", 2)]
    answers = [
        failover_client.parse(line % (name, number, came, status, port, 0))
        for number, (name, came, status, port) in enumerate(told)
    ]
    watch = failover_client.Watch(["a-0", "b-0", "c-0"], answers)
    firsts = watch.firsts(0, begin=100, old_port=1)
    assert {name: answer.came for name, answer in firsts.items()} == {"a-0": 150, "b-0": 160}
    assert watch.acked() == {"0", "1", "3", "4", "5"}


def test_failovers_go_on_where_they_were_interrupted() -> None:
    """Only what is missing is measured, and nothing that three runs say never ends."""
    plan = failover.planned(["twinlog", "rocketmq-2"], ["kill", "stop", "freeze"], 5, patient=True)
    assert len([run for run in plan if run.system == "twinlog"]) == 5 * 3 + 3
    assert {run.fault for run in plan if run.system == "rocketmq-2"} == {"kill", "stop"}
    done = [_lost_master("twinlog", "kill", 1.0, 1.5)] * 5 + [_lost_master("twinlog", "stop", None, None)] * 3
    left = failover.left_over(plan, done)
    assert left.count(failover.Run("twinlog", "kill")) == 0
    assert left.count(failover.Run("twinlog", "stop")) == 0
    assert left.count(failover.Run("twinlog", "freeze")) == 5
    assert failover.Run("twinlog", "kill", is_patient=True) in left


def test_failovers_end_when_all_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems take turns, also of what an interrupted measurement left over, and then it is over."""

    def turn(_: failover.FailoverBench, system: str, runs: Iterable[failover.Run]) -> Iterator[dict[str, Any]]:
        return (_lost_master(system, run.fault, 1.0, 1.5) for run in runs)

    monkeypatch.setattr(failover.FailoverBench, "_turn", turn)
    report = new_report("failover", {})
    report["results"].append(_lost_master("twinlog", "kill", 1.0, 1.5))
    plan = failover.planned(["twinlog", "rocketmq"], ["kill", "stop"], 3, 1, patient=False)
    bench = failover.FailoverBench(plan=plan, done=report["results"])
    rows = record("failover", {}, bench.rows(), failover_table.line, tmp_path / "raw.json", report)
    assert Counter((row["system"], row["fault"]) for row in rows) == Counter(
        {("twinlog", "kill"): 3, ("twinlog", "stop"): 3, ("rocketmq", "kill"): 1, ("rocketmq", "stop"): 1}
    )
    assert [row["system"] for row in rows[1:7]] == ["twinlog"] * 4 + ["rocketmq"] * 2
    assert json.loads((tmp_path / "raw.json").read_text())["results"] == rows


def test_page_of_failovers() -> None:
    """A run that did not end is longer than all others; lost messages are shown."""
    assert failover_table.summary([3.0, 1.0, 2.0, None], 60) == ["2.00", "over 60", "over 60"]
    report = new_report("failover", {"runs": 2, **failover.SETUP})
    rows = [_lost_master("twinlog", "kill", 1.0, 1.5), _lost_master("twinlog", "kill", 2.0, 2.5)]
    rows += [_lost_master("rocketmq", "stop", 12.0, None), _lost_master("rocketmq", "kill", 5.0, 31.0, is_patient=True)]
    report["results"] = rows
    shown = failover_table.page(report, "raw.json")
    assert "| twinlog | `twinlog.client` | 2 | 1.00 | 2.00 | 2.00 |" in shown
    assert "| RocketMQ | Java, `pollNameServerInterval=1000` | 1 | over 60 | over 60 | over 60 |" in shown
    assert "| RocketMQ | kill | 2 | 5.00 | 31.00 | 31.00 |" in shown
    assert "| RocketMQ | 2,000 | 2 |" in shown
    assert all(failover_table.line(row) for row in rows)


def test_a_gap_without_acknowledgements_reaches_over_the_ends_of_an_outage() -> None:
    """A number that was given up is no acknowledgement; without a later one nobody knows how long the gap is."""
    second = 10**9
    told = [(1, 0, "SEND_OK"), (2, 9, "SEND_OK"), (3, 12, "no answer"), (4, 13, "SEND_OK"), (5, 25, "SEND_OK")]
    answers = [
        failover_etcd_client.Answer(number, (at - 1) * second, at * second, status) for number, at, status in told
    ]
    writer = failover_etcd_client.Writer(answers)
    assert writer.longest_gap(10 * second, 20 * second) == 12
    assert writer.within(10 * second, 20 * second) == 1
    assert writer.longest_gap(10 * second, 30 * second) == float("inf")
    assert writer.first(11 * second) == answers[3]
    assert writer.numbers() == {1, 2, 4, 5}


def test_what_was_acknowledged_is_lost_once() -> None:
    """A number that is missing counts when it is missed first, and one that was read back does not count again."""
    ok = [failover_etcd_client.Answer(number, number, number, "SEND_OK") for number in range(1, 5)]
    writer = failover_etcd_client.Writer(ok[:3])
    system = Mock()
    system.numbers.return_value = {1, 3}
    session = failover_etcd.Session(system, Mock(), writer)
    assert session.read_back() == {"acked": 3, "lost": 1}
    writer.answers.append(ok[3])
    assert session.read_back() == {"acked": 1, "lost": 1}
    assert session.read_back() == {"acked": 0, "lost": 0}


def test_page_of_failovers_on_etcd() -> None:
    """Medians with their spread; a run that did not end, and a column that is not of this system."""
    of_a_pair = [(1, 0.5), (2, 0.7), (3, None)]
    rows = [
        {"system": "twinlog-pair", "fault": "kill", "round": number, "seconds": seconds, "acked": 1000, "lost": 0}
        for number, seconds in of_a_pair
    ]
    rows.append({"system": "patroni-pair", "fault": "server", "round": 1, "seconds": 9.0, "acked": 10, "lost": 2})
    outage = {"fault": "outage", "round": 1, "after_seconds": 0.1, "acked": 5, "lost": 0}
    rows.append({**outage, "system": "twinlog-pair", "acked_meanwhile": 1200, "gap_seconds": 0.2, "same_master": True})
    rows.append({**outage, "system": "patroni-pair", "acked_meanwhile": 300, "gap_seconds": None})
    setup = {
        "rounds": 3,
        "outage_seconds": 60.0,
        "etcd": "etcd 3.4",
        "lanes": 2,
        "notes": "Loud.",
        **failover_etcd.SETUP,
    }
    shown = failover_etcd_table.page({**new_report("failover-etcd", setup), "results": rows}, "raw.json")
    assert "| twinlog, a pair | 0.7 (0.5 to over 60; 3) |  |" in shown
    assert "| Patroni, a pair |  | 9.0 (9.0 to 9.0; 1) |" in shown
    assert "| twinlog, a pair | 1,200 (1,200 to 1,200) | 0.2 (0.2 to 0.2; 1) | 1 of 1 |" in shown
    assert "| Patroni, a pair | 15 | 2 |" in shown
    assert shown.endswith("\nLoud.\n")
    assert all(failover_etcd_table.line(row) for row in rows)


def verified(root: Path) -> int:
    """The records of a store directory, which is sound: log, queues and digests."""
    with StoreDirectory.open(root, DirectoryOptions()) as directory:
        report = verify(directory)
    assert report.errors == 0, report.findings
    return report.records


def test_a_backlog_is_a_sound_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its making was interrupted; a copy shares full files alone, and another backlog is not taken for it."""
    backlog = Backlog(topic="bench", messages=12_003, body_bytes=100, log_file_bytes=1 << 20, queue_file_bytes=6_000)
    root, copy = tmp_path / "made", tmp_path / "copy"
    with monkeypatch.context() as patch:
        patch.setattr(Backlog, "_make_queue", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            backlog.make(root)
    sorted((root / "commitlog").iterdir())[-1].unlink()
    backlog.make(root)
    log = sorted((root / "commitlog").iterdir())
    backlog.link(root, copy)
    assert verified(root) == verified(copy) == 12_003
    assert [(copy / "commitlog" / file.name).samefile(file) for file in log] == [True, True, False]
    with pytest.raises(ValueError, match="name another directory"):
        Backlog(topic="bench", messages=12_004, body_bytes=100).make(root)


def test_a_worker_of_spark_that_ends_takes_nothing_away() -> None:
    """CPU time of before has no part in a measurement, and a process with the same id is another one."""
    before = {(1, 0.0): 5.0, (2, 0.0): 20.0}
    assert spark_steps.cpu_between(before, {(1, 0.0): 9.0, (2, 1.0): 2.0}) == 6.0


def test_page_of_spark() -> None:
    """Rates by elapsed time and by CPU time, and what an interrupted measurement leaves over."""
    of_broker = {"broker_cpu_seconds": 0.5, "disk_bytes": 0}
    read = {
        "measure": "source",
        "body": 1024,
        "cold": False,
        "kind": "spark",
        "round": 1,
        "messages": 10**6,
        "bytes": 10**9,
    }
    job = {"job_seconds": 0.5, "job_cpu_seconds": 2.0}
    rows = [{**read, "seconds": 8.0, "cpu_seconds": 12.0, **of_broker, **job}]
    rows.append(
        {"measure": "start-up", "round": 1, "session_seconds": 5.0, "first_seconds": 3.0, "second_seconds": 1.0}
    )
    beside = {
        "measure": "backlog",
        "system": "rocketmq",
        "read_from": "slave",
        "round": 1,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
    }
    beside |= {"cpu_us_per_message": {"master": 50.0}, "master_messages_out": 0, "slave_messages_out": 7}
    rows += [
        {**beside, "spark": "idle", "messages_per_s": 1000.0},
        {**beside, "spark": "reads", "messages_per_s": 900.0},
    ]
    setup = {
        "mib": 512,
        "messages_max": 10**6,
        "rounds": 1,
        "backlog_messages": 10**8,
        "threads": 16,
        "seconds": 30,
        "warm_up_s": 20,
    }
    setup |= {"spark": "4.3", "master": "local[1,4]", "backlog_body_bytes": 100, "backlog_record_bytes": 239}
    setup |= {"backlog_master": "local[2,4]"}
    shown = spark_table.page({**new_report("spark", setup), "results": rows}, "raw.json")
    assert "| 1,024 | memory | Spark (goal: 100 a core) | 125,000 | 125 | 100 | 0.5 | 0 |" in shown
    assert "| 5.0 | 3.0 | 1.0 |" in shown
    assert "| source | 0.50 | 2.00 |" in shown
    behind = spark_table.backlog_page({**new_report("spark-backlog", setup), "results": rows}, "raw.json")
    assert "in a log of 22.3 GiB" in behind
    assert "| RocketMQ | slave | reads | 900 | 0.90 | 1.00 | 2.00 | 50 | 0 | 7 |" in behind
    assert all(spark_table.line(row) for row in rows)


# ---- Where the time goes


def stack(*frames: str) -> str:
    """A stack as the sampler writes it, its innermost frame first: "store/log/x.py:append"."""
    return f"4000 {';'.join(f'/twinlog/{frame}' for frame in frames)}\n"


def test_stacks_belong_to_steps() -> None:
    """A frame that claims what it calls comes before the files of others."""
    run = "trio/_core/_run.py:unrolled_run"
    write = ("cluster/remoting/connection.py:_send_now", "cluster/remoting/connection.py:write")
    text = "".join(
        [
            stack(*write, "ha/master/group_transfer.py:acknowledge", "ha/master/connection.py:_read_task", run),
            stack(
                "store/log/commit_log.py:read", "ha/master/connection.py:_push", "store/log/commit_log.py:append", run
            ),
            stack("trio/_core/_run.py:current_time", "ha/master/connection.py:_read_task", run),
            stack("trio/_core/_io_epoll.py:wait_readable", "ha/master/connection.py:_read_task", run),
            stack("attrs.py:__init__", "store/log/commit_log.py:append", "cluster/remoting/server.py:_take", run),
            stack("outcome.py:send", run),
            stack("json/decoder.py:decode"),
            "6000 (another thread):run\n",
        ]
    )
    found = where_steps.seconds(text)
    assert found.pop("background") == 0.006
    assert found == dict.fromkeys(("arm", "loop", "append", "hand", "acks", "answer", "other"), 0.004)
    assert list(found) == [step for step in where_steps.STEPS if step in found]
    assert where_steps.unknown(text, 5) == [("decoder.py:decode", 1)]


def test_a_sampler_within_a_process_sees_what_uses_cpu_time(tmp_path: Path) -> None:
    """Not what sleeps; and the process ends as it would without it."""
    code = """
import threading, time
def sleeps(): time.sleep(0.5)
def works(until):
    while time.process_time() < until: pass
works(0.4)
other = threading.Thread(target=works, args=[0.7])
other.start()
sleeps()
other.join()
"""
    with where.sampled(tmp_path):
        subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=50)
    (written,) = (tmp_path / where.STACKS).iterdir()
    stacks = [(used, frames[0][1]) for used, frames in where_steps.stacks_of(written.read_text())]
    found = {name: sum(used for used, function in stacks if function == name) for name in ("works", "run", "sleeps")}
    assert found["works"] == pytest.approx(0.4, abs=0.1)
    assert found["run"] == pytest.approx(0.3, abs=0.1)
    assert found["sleeps"] < 0.1


def test_system_calls_are_counted_whole() -> None:
    """Those that have no name are the others; what perf could not count is nothing."""
    text = """# started on Friday

100,,raw_syscalls:sys_enter,1,100.00,,
60,,syscalls:sys_enter_epoll_wait,1,100.00,,
30,,syscalls:sys_enter_sendto,1,100.00,,
0,,syscalls:sys_enter_fsync,1,100.00,,
<not counted>,,syscalls:sys_enter_mmap,0,0.00,,
"""
    assert where.calls(text) == {"all": 100, "epoll_wait": 60, "sendto": 30, "other": 10}
    assert where.each_message({"user_s": 0.5, "slept": 20.0}, 10_000) == {"user_us": 50.0, "slept": 0.002}


def test_page_of_where_the_time_goes() -> None:
    """Steps add up to the CPU time that was measured without the sampler; a limit in C has no steps."""
    told = {"round": 1, "threads": 1, "messages": 10, "other_cpu_percent": 3.0, "outcomes": {"SEND_OK": 10}}
    ours = {**told, "system": "twinlog", "role": "SYNC_MASTER", "messages_per_s": 2000.0}
    cpu = {"user_us": 150.0, "system_us": 50.0, "slept": 1.6, "preempted": 0.1}
    calls = {"all": 9.0, "epoll_wait": 2.0, "openat": 0.001, "other": 6.999}
    rows: list[dict[str, Any]] = [
        {**ours, "meter": "cpu", "members": {"master": cpu, "slave-1": {**cpu, "user_us": 50.0}}},
        {**ours, "meter": "calls", "members": {"master": calls, "slave-1": calls}},
        {**ours, "meter": "steps", "members": {"master": {"wait": 30.0, "append": 10.0}, "slave-1": {"loop": 5.0}}},
        {**told, "system": "c-answer", "role": None, "messages_per_s": 1.0, "meter": "cpu", "members": {"master": cpu}},
    ]
    setup = {"body_bytes": 1024, "frame_bytes": 1280, "queues": 8, "rounds": 1, "seconds": 5, "notes": "Loud."}
    setup |= {"first_warm_up_s": 6, "warm_up_s": 2}
    shown = where_table.page({**new_report("where", setup), "results": rows}, "raw.json")
    assert "| twinlog SYNC_MASTER, master | 2,000 | 200.0 | 150.0 | 50.0 | 1.60 | 0.10 | 9.00 |" in shown
    assert "| *C, answers* | 1 | 200.0 |" in shown
    assert f"| {where_steps.STEPS['wait']} | 150.0 |  |" in shown
    assert f"| {where_steps.STEPS['append']} | 50.0 |  |" in shown
    assert "| all | 200.0 | 100.0 |" in shown
    assert "| `epoll_wait` | 2.00 | 2.00 |\n| others | 7.00 | 7.00 |\n| all | 9.00 | 9.00 |" in shown
    assert set(where_table.COULD_GIVE_UP) == set(where_steps.STEPS)
    assert shown.endswith("\nLoud.\n")
    assert all(where_table.line(row) for row in rows)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler: apt install gcc libc6-dev")
def test_measures_the_limits_in_c(tmp_path: Path) -> None:
    """`scripts/bench where` in small, without Java and perf: what the kernel alone takes for a message with a slave."""
    arguments = ["where", "--rounds", "1", "--seconds", "1", "--first-warm-up", "0", "--warm-up", "0"]
    arguments += ["--only", "c-answer", "--only", "c-pass-on", "--meter", "cpu", "--threads", "2"]
    report, _ = measured(tmp_path, *arguments, timeout_s=50)
    members = {row["system"]: set(row["members"]) for row in report["results"]}
    assert members == {"c-answer": {"master"}, "c-pass-on": {"master", "slave-1"}}
    assert all(row["messages"] == row["outcomes"]["answered"] > 100 for row in report["results"])


def test_lines_of_the_program_of_rocketmq() -> None:
    """Its rates are of 9 s each; failures are counted since it began."""
    text = "Current Time: 2026-11-27 02:50:00,000 Send TPS: {} Max RT(ms): 30 Average RT(ms):   3.250 Send Failed: {}"
    text += " Response Failed: 1"
    assert example.parse("topic: bench threadCount: 64 messageSize: 1024") is None
    lines = [example.parse(text.format(rate, failed)) for rate, failed in ((1000, 2), (20000, 2), (22000, 5))]
    used = {"master": 10.0, "client": 5.0, "machine": 20.0}
    row = example.result(64, [line for line in lines if line is not None], used)
    assert row["outcomes"] == {"SEND_OK": 420_000, "failed": 3}
    assert row["messages_per_s"] == 21_000
    assert row["mean_ms"] == 3.25
    row |= {"round": 1, "system": "twinlog", "role": "SYNC_MASTER"}
    ours = {**row, "program": "ours", "p50_ms": 1.0, "p99_ms": 2.0}
    setup = {"body_bytes": 1024, "queues": 8, "slaves": 1, "first_warm_up_s": 1, "warm_up_s": 1, "seconds": 10}
    report = {**new_report("produce", setup), "results": [ours, {**row, "program": "rocketmq"}]}
    shown = table.page(report, "raw.json")
    assert "## SYNC_MASTER, 64 client threads\n" in shown
    assert "## SYNC_MASTER, 64 client threads, RocketMQ's program\n" in shown
    assert "| mean 3.25 |  | 30.00 |" in shown


@pytest.mark.parametrize(
    ("batch", "title", "sends"),
    [(1, "Produce", "one sync send under"), (32, "Batches", "one sync send of 32 messages together under")],
)
def test_the_page_of_producers_says_how_many_messages_a_send_has(batch: int, title: str, sends: str) -> None:
    row = {
        "round": 1,
        "system": "twinlog",
        "role": "SYNC_MASTER",
        "threads": 4,
        "messages_per_s": 100.0,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "max_ms": 3.0,
        "cpu_us_per_message": {"master": 20.0},
        "outcomes": {"SEND_OK": 10},
        "other_cpu_percent": 1.0,
    }
    report = new_report(
        "produce", dict.fromkeys(("body_bytes", "queues", "seconds", "first_warm_up_s", "warm_up_s"), 1)
    )
    report["setup"] |= {"slaves": 1} | ({"batch": batch} if batch > 1 else {})
    shown = table.page(report | {"results": [row]}, "raw.json")
    assert shown.startswith(f"# {title}: ")
    assert sends in " ".join(shown.split())
    assert "Answer only" not in shown


def test_the_line_of_growth_is_the_one_that_the_costs_lie_on() -> None:
    first, each = growth_table.line_of([0, 1, 2, 8], [20, 23, 26, 44])
    assert (round(first, 6), round(each, 6)) == (20, 3)


def test_the_page_of_growth_shows_each_part() -> None:
    def row(part: str, value: int, system: str, us: float) -> dict[str, Any]:
        return {
            "round": 1,
            "part": part,
            "value": value,
            "system": system,
            "messages_per_s": 1e6 / us,
            "p99_ms": 5.0,
            "cpu_us_per_message": {"master": us, "client": 9.0}
            | {f"slave-{n}": 11.0 for n in range(part == "slaves" and value)},
            "anon_mib": {"master": 70.0},
            "outcomes": {"SEND_OK": 10, "FLUSH_DISK_TIMEOUT": 1},
            "other_cpu_percent": 1.0,
        }

    points = [(part, value) for part in growth.PARTS for value in growth.PARTS[part][:2]]
    rows = [row(*point, kind, 20.0 + place) for point in points for place, kind in enumerate(growth.KINDS)]
    rows += [row("slaves", 8, "twinlog", 44.0)]
    report = new_report("growth", dict.fromkeys(("body_bytes", "queues", "threads", "threads_of_size", "rounds"), 1))
    report["setup"] |= {"first_warm_up_s": 10, "warm_up_s": 2, "seconds": 8}
    shown = growth_table.page(report | {"results": rows}, "raw.json")
    assert "| 8 | twinlog | 22,727 | 5.0 | 44.0 | 2.20 | 88.0 | 70 | 1 |" in shown
    assert shown.count("| RocketMQ |") == len(points) + 1
    assert "| bodies of 100 bytes | 50,000/s, 5.0 MB/s | 47,619/s, 4.8 MB/s |" in shown
    assert "| bodies of 1 bytes, 8 slaves | 22,727/s, 0.0 MB/s |  |" in shown
    assert "| 8 | 8 | 400,000 | 0.6 | 0.6 |" in shown
    assert "RocketMQ: 21.0 us, and 0.0 us for each slave (the furthest point is 0 % from that line)" in shown
    alone = growth_table.page(report | {"results": [each for each in rows if each["part"] == "queues"]}, "raw.json")
    assert alone.startswith("# Growth: what a message costs with more queues, in more rounds\n")
    assert alone.count("## ") == 1


def test_a_log_of_blanks_is_a_log(tmp_path: Path) -> None:
    """A log without a message, whose end is that of its last file."""
    growth.make_log(tmp_path, 1)
    with StoreDirectory.open(tmp_path, DirectoryOptions()) as directory:
        report = verify(directory)
    assert (report.errors, report.log_start, report.log_end) == (0, 0, growth.GIB)


@pytest.mark.long
@pytest.mark.parametrize("part", ["queues", "connections", "slaves"])
def test_measures_growth(tmp_path: Path, part: str) -> None:
    seconds = ("--rounds", "1", "--seconds", "2", "--first-warm-up", "2", "--warm-up", "1")
    report, _ = measured(
        tmp_path, "growth", "--part", part, "--up-to", "100", "--only", "twinlog", *seconds, timeout_s=300
    )
    assert {row["part"] for row in report["results"]} == {part}
    assert all(row["outcomes"].get("SEND_OK", 0) > 100 for row in report["results"])
