"""Runs over store directories of RocketMQ's and twinlog's form: what is read, what is found, and what is not claimed any more."""

import os
import shutil
from pathlib import Path
from struct import Struct

import pytest

from tests.cluster.pipeline.logs import message, records, write_log
from tests.cluster.pipeline.planting import MASTER, SLAVE, make_pair
from twinlog.cluster.pipeline.audit import tasks
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.standing import Standing
from twinlog.cluster.pipeline.ledger.directories import run_directories
from twinlog.cluster.pipeline.ledger.standing import standing_of
from twinlog.cluster.pipeline.ledger.values import LedgerState, Reason, RunResult, size_of

WEEK = 7 * 86_400_000
FILE_SIZE = 1 << 17


class Group:
    """Two or three directories with one log, and the ledger's state."""

    def __init__(self, root: Path, count: int = 2) -> None:
        self.roots = [root / f"broker-a-{number}" for number in range(count)]
        self.data, self.state = b"", LedgerState()

    def write(self, count: int, *, body: bytes = b"x" * 900, behind: int = 0) -> None:
        """So many messages more; the last directory stays `behind` messages behind."""
        sizes = []
        for _ in range(count):
            more, _ = records([message(1, body)], len(self.data), FILE_SIZE)
            self.data += more
            sizes.append(len(more))
        for root in self.roots:
            cut = len(self.data) - (sum(sizes[len(sizes) - behind :]) if root is self.roots[-1] else 0)
            self._put(root, self.data[:cut])

    def _put(self, root: Path, data: bytes) -> None:
        """Write in place what is new, as a broker does."""
        directory = root / "commitlog"
        if not directory.is_dir():
            write_log(root, data, 0, FILE_SIZE)
            return
        for at in range(0, len(data), FILE_SIZE):
            path, piece = directory / f"{at:020d}", data[at : at + FILE_SIZE].ljust(FILE_SIZE, b"\0")
            if not path.exists():
                path.write_bytes(piece)
            elif path.read_bytes() != piece:
                with path.open("r+b") as file:
                    file.write(piece)

    def flip(self, number: int, offset: int) -> None:
        """A bit of a disk, whose file system does not know of it."""
        path = self.roots[number] / f"commitlog/{offset - offset % FILE_SIZE:020d}"
        before = path.stat()
        with path.open("r+b") as file:
            file.seek(offset % FILE_SIZE)
            byte = file.read(1)
            file.seek(offset % FILE_SIZE)
            file.write(bytes([byte[0] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def audit(self, full_pass_ms: int = WEEK) -> tuple[RunResult, Standing]:
        result, _ = run_directories(self.state, [str(root) for root in self.roots], full_pass_ms)
        self.state = result.state
        return result, standing_of(result.state)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def new_bytes(result: RunResult) -> int:
    return size_of(each for each in result.planned if each.reason is Reason.NEW)


def test_only_what_came_since_is_compared(group):
    group.write(600)
    first, standing = group.audit()
    end = len(group.data)
    assert (standing.verdict, standing.proved_to, standing.log_end) == ("equal", end, end)
    assert first.compared.read_bytes == 2 * end
    group.write(3)
    second, standing = group.audit(10 * WEEK)
    assert new_bytes(second) == len(group.data) - end == standing.new_bytes
    assert standing.proved_to == len(group.data)
    assert second.compared.read_bytes < 2 * (len(group.data) - end + 2 * 65_536)


def test_a_slave_that_is_behind_is_proved_up_to_its_end(group):
    group.write(100, behind=7)
    result, standing = group.audit()
    assert standing.verdict == "equal"
    assert standing.proved_to == standing.members[1].last_offset < len(group.data)
    group.write(1)
    _, standing = group.audit()
    assert standing.proved_to == len(group.data)
    assert result.state.findings == ()


def test_rot_is_found_when_its_turn_comes_and_closed_when_it_is_repaired(group):
    group.write(600)
    size = len(records([message(1, b"x" * 900)], 0, FILE_SIZE)[0])
    body = 70_000 - 70_000 % size + 100
    group.audit()
    group.flip(1, body)
    _, standing = group.audit(10 * WEEK)
    assert standing.open_findings == 0  # Nothing tells of it; its bytes are proved again within a full pass.
    group.state = evolve_paced(group.state)
    result, standing = group.audit()
    (seen,) = result.state.findings
    assert (seen.finding.cls, seen.finding.member, seen.state) == (FindingClass.BIT_ROT, "broker-a-1", "new")
    assert (standing.verdict, standing.proved_to) == ("divergent", 65_536)
    result, _ = group.audit()
    assert [(seen.id, seen.state) for seen in result.state.findings] == [(1, "seen")]
    group.flip(1, body)
    result, standing = group.audit()
    assert [(seen.id, seen.state) for seen in result.closed] == [(1, "repaired")]
    assert (standing.verdict, standing.proved_to) == ("equal", len(group.data))


def test_what_is_new_and_what_is_old_are_told_apart_where_they_touch(group):
    group.write(600)
    group.audit()
    end = len(group.data)
    group.write(3)
    group.state = evolve_paced(group.state)
    result, standing = group.audit()
    assert (standing.new_bytes, standing.again_bytes) == (len(group.data) - end, end)
    assert [(each.start, each.end) for each in result.compared.pieces] == [(0, end), (end, len(group.data))]


def evolve_paced(state: LedgerState) -> LedgerState:
    """A week later."""
    from attrs import evolve

    return evolve(state, paced_ms=state.paced_ms - WEEK)


def test_a_log_that_was_cut_and_written_again_is_compared_again(group):
    """RocketMQ keeps no history: its last proved block tells."""
    group.write(300)
    _, before = group.audit()
    group.data = group.data[: len(records([message(1, b"x" * 900)] * 280, 0, FILE_SIZE)[0])]
    group.write(60, body=b"y" * 901)
    assert len(group.data) > before.log_end
    result, standing = group.audit(10 * WEEK)
    assert {each.member for each in result.lost} == {"broker-a-0", "broker-a-1"}
    assert standing.proved_to == len(group.data)


def test_a_replaced_directory_is_compared_as_a_whole(group):
    """Even if the copy is a good one, nobody has read it."""
    group.write(300)
    group.audit()
    copy = group.roots[1].with_name("copy")
    shutil.copytree(group.roots[1], copy)
    shutil.rmtree(group.roots[1])
    copy.rename(group.roots[1])
    result, standing = group.audit(10 * WEEK)
    assert new_bytes(result) == len(group.data)
    assert "replaced" in result.lost[0].why
    assert standing.proved_to == len(group.data)


def test_a_third_copy_takes_part_from_its_first_run_on(tmp_path: Path):
    group = Group(tmp_path, 3)
    third = group.roots.pop()
    group.write(300)
    group.audit()
    shutil.copytree(group.roots[0], third)
    group.roots.append(third)
    result, standing = group.audit(10 * WEEK)
    assert [each.proved_to for each in standing.members] == [len(group.data)] * 3
    assert new_bytes(result) == len(group.data)
    group.roots.pop()
    result, standing = group.audit(10 * WEEK)
    assert (new_bytes(result), standing.proved_to) == (0, len(group.data))


def test_a_directory_that_is_away_and_comes_back(group):
    group.write(300)
    group.audit()
    hidden = group.roots[1].with_name("hidden")
    group.roots[1].rename(hidden)
    result, standing = group.audit()
    assert (standing.verdict, standing.members[1].is_away) == ("incomplete", True)
    assert [seen.finding.cls for seen in result.state.findings] == [FindingClass.UNREADABLE]
    hidden.rename(group.roots[1])
    result, standing = group.audit(10 * WEEK)
    assert (standing.verdict, new_bytes(result), len(result.closed)) == ("equal", 0, 1)


def test_what_cannot_be_read_is_a_finding_until_it_can(group, monkeypatch):
    """The rest is proved."""
    group.write(600)
    real = tasks.digests_of

    def failing(files, part):
        found = real(files, part)
        if part.member == 0:
            return found
        rows = [row for row in found.rows() if row.start != 65_536]
        packed = b"".join(Struct("<qq16s").pack(*row) for row in rows)
        return found._replace(packed=packed, unreadable=((65_536, 131_072, "input/output error"),))

    monkeypatch.setattr(tasks, "digests_of", failing)
    result, standing = group.audit()
    (seen,) = result.state.findings
    assert (seen.finding.cls, seen.finding.member, seen.finding.why) == (
        FindingClass.UNREADABLE,
        "broker-a-1",
        "input/output error",
    )
    assert (standing.verdict, standing.proved_to) == ("incomplete", 65_536)
    assert standing.proved_bytes == len(group.data) - 65_536
    monkeypatch.undo()
    result, standing = group.audit()
    assert [each.state for each in result.closed] == ["repaired"]
    assert (standing.verdict, standing.proved_to) == ("equal", len(group.data))


def test_a_run_that_is_stopped_keeps_what_it_compared(group, monkeypatch):
    monkeypatch.setattr("twinlog.cluster.pipeline.ledger.directories.SPLIT_SIZE", 65_536)
    group.write(600)
    looks = iter([False, False, False, *[True] * 1000])
    result, _ = run_directories(group.state, [str(root) for root in group.roots], WEEK, is_stopped=lambda: next(looks))
    standing = standing_of(result.state)
    assert (standing.verdict, standing.proved_to) == ("incomplete", 3 * 65_536)
    group.state = result.state
    result, standing = group.audit(10 * WEEK)
    assert new_bytes(result) == len(group.data) - 3 * 65_536
    assert (standing.verdict, standing.proved_to) == ("equal", len(group.data))


@pytest.mark.parametrize("store", ["4.9.7", "own"])
def test_captured_stores(tmp_path: Path, store: str):
    """Equal, then with a byte that changed: the finding is that of `twinlog audit`."""
    pair = make_pair(store, tmp_path)
    state = LedgerState()
    result, _ = run_directories(state, [str(pair[MASTER]), str(pair[SLAVE])], WEEK)
    assert standing_of(result.state).verdict == "equal"
    log = sorted((pair[SLAVE] / "commitlog").iterdir())[0]
    with log.open("r+b") as file:
        file.seek(5_000)
        byte = file.read(1)
        file.seek(5_000)
        file.write(bytes([byte[0] ^ 64]))
    result, _ = run_directories(result.state, [str(pair[MASTER]), str(pair[SLAVE])], WEEK)
    (seen,) = result.state.findings  # The file was written, which its time tells.
    assert (seen.finding.cls, seen.finding.member, seen.finding.good) == (FindingClass.BIT_ROT, SLAVE, MASTER)
