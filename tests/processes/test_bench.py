"""`scripts/bench store` in small: it measures what it should, says so, and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

from tests.bench import table
from tests.bench.machine import ROOT
from tests.bench.store_table import page


def test_measures_the_store(tmp_path: Path) -> None:
    out, scratch = tmp_path / "raw.json", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "tests.bench", "store", "--quick", "--repeats", "1", "--only", "twinlog"]
    ran = subprocess.run(
        [*command, "--out", str(out)],
        cwd=ROOT,
        env={"TMPDIR": str(scratch), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert list(scratch.iterdir()) == []
    report = json.loads(out.read_text())
    assert all(row["measure"] in ran.stdout for row in report["results"])
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
