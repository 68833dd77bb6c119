"""`scripts/bench` in small: it measures what it should, says so, and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks import ack_table, ha_table, http_table, observe_table, roles_table, table
from scripts.benchmarks.machine import ROOT
from scripts.benchmarks.report import new_report
from scripts.benchmarks.store_table import page


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


def test_measures_acknowledgements(tmp_path: Path) -> None:
    """`scripts/bench acks` in small: each level is answered, and the page shows it."""
    report, _ = measured(tmp_path, "acks", "--rounds", "1", "--messages", "20", "--warm-up", "5", timeout_s=55)
    rows = report["results"]
    assert [row["level"] for row in rows] == ["L0", "L1", "L2", "L3", "L3 and SYNC_FLUSH"]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    shown = ack_table.page(report, "raw.json")
    assert shown.count("| L3") == 2


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
