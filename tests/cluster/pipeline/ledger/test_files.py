"""The files of a ledger: whole runs, or none; tables that anybody reads; one audit at a time."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from attrs import asdict

from tests.cluster.pipeline.ledgers import BLOCK, HOUR, NAMES, NOON, first_run, make_ledger
from twinlog.cluster.pipeline.ledger import files
from twinlog.cluster.pipeline.ledger.files import LedgerError, opened, read_standing, read_state, read_tables
from twinlog.cluster.pipeline.ledger.rows import TABLES, RunRow
from twinlog.cluster.pipeline.ledger.values import LedgerState


def test_tables_have_the_rows_of_all_runs(tmp_path: Path):
    tables = read_tables(make_ledger(tmp_path / "ledger"))
    assert set(tables) == set(TABLES)
    runs = tables["run"].to_pylist()
    assert [(each["run"], each["proved_to"], each["new_bytes"], each["fault_bytes"]) for each in runs] == [
        (1, BLOCK, 4 * BLOCK, 0),
        (2, 5 * BLOCK, BLOCK, BLOCK),
    ]
    assert [each["state"] for each in tables["findings"].to_pylist()] == ["new", "repaired"]
    assert tables["ranges"].to_pylist()[1]["different"] == [NAMES[2]]
    assert {each["epoch"] for each in tables["members"].to_pylist()} == {3}
    assert read_tables(tmp_path / "ledger", last=1)["run"].num_rows == 1


def test_one_run_is_read_by_anybody(tmp_path: Path):
    make_ledger(tmp_path / "ledger")
    table = pq.read_table(tmp_path / "ledger/runs/00000002/run.parquet")
    assert table.schema.metadata[b"twinlog.ledger"] == b"1"
    assert table.column_names == list(asdict(RunRow(run=0, started=0, ended=0, kind="", verdict="")))
    assert table["started"][0].as_py().timestamp() * 1000 == NOON + HOUR


def test_what_holds_now(tmp_path: Path):
    """Read from the ledger, or from a copy of one small file."""
    ledger = make_ledger(tmp_path / "ledger")
    found = read_standing(ledger)
    assert (found.proved_to, found.log_end, found.open_findings) == (5 * BLOCK, 5 * BLOCK, 0)
    assert (found.oldest_proof_ms, found.newest_proof_ms, found.checked_ms) == (NOON, NOON + HOUR, NOON + HOUR)
    assert read_standing(ledger / "status.json") == found


@pytest.mark.parametrize("step", range(1, 9))
def test_a_kill_at_any_point_leaves_whole_runs(tmp_path: Path, monkeypatch, step: int):
    """The process ends at the `step`th write or rename of the second run; the next one goes on from a whole one."""
    directory, count = tmp_path / "ledger", 0
    run = first_run()
    with opened(directory) as ledger:
        ledger.add(run, "0.3")

    def dying(work):
        def call(*args, **options):
            nonlocal count
            count += 1
            if count == step:
                raise KeyboardInterrupt
            return work(*args, **options)

        return call

    monkeypatch.setattr(files, "write_durably", dying(files.write_durably))
    monkeypatch.setattr(os, "rename", dying(os.rename))
    second = make_second(run.state)
    with pytest.raises(KeyboardInterrupt), opened(directory) as ledger:
        ledger.add(second, "0.3")
    monkeypatch.undo()
    (directory / files.STATUS).unlink(missing_ok=True)
    is_there = step > 7  # Five tables, the state, the rename.
    with opened(directory) as ledger:
        assert ledger.state().run == (2 if is_there else 1)
        assert read_standing(directory / files.STATUS).run == (2 if is_there else 1)
        if not is_there:
            ledger.add(second, "0.3")
    assert read_tables(directory)["run"]["run"].to_pylist() == [1, 2]


def make_second(state: LedgerState):
    from attrs import evolve

    one = first_run()
    return evolve(one, state=evolve(state, run=2))


def test_one_audit_at_a_time(tmp_path: Path):
    with opened(tmp_path / "ledger"), pytest.raises(LedgerError, match="in use by another audit"):
        opened(tmp_path / "ledger").__enter__()


def test_what_is_no_ledger_is_refused(tmp_path: Path):
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(LedgerError, match="is no ledger"):
        opened(tmp_path).__enter__()
    with pytest.raises(LedgerError, match="on a disk"):
        opened(Path("s3://bucket/ledger")).__enter__()
    with pytest.raises(LedgerError, match=r"status\.json"):
        read_standing(tmp_path / "missing.json")


def test_a_damaged_state_is_named(tmp_path: Path):
    ledger = make_ledger(tmp_path / "ledger")
    path = ledger / "runs/00000002/state"
    path.write_bytes(path.read_bytes().replace(b'"run": 2', b'"run": 3'))
    with pytest.raises(LedgerError, match="its checksum is wrong"):
        read_state(ledger)


def test_an_empty_ledger_holds_nothing(tmp_path: Path):
    with opened(tmp_path / "ledger") as ledger:
        assert ledger.state() == LedgerState()
    assert read_standing(tmp_path / "ledger").proved_to is None
    assert read_tables(tmp_path / "ledger")["findings"].num_rows == 0
