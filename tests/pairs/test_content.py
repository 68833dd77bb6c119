"""Where contents part between two RocketMQ brokers, unseen, and what happens with one of ours in the place of either.

Two stages are played, one with a master of RocketMQ 4.9.7, one with ours; each has a slave of either kind.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pairs.group import FILE_SIZE, max_offset
from tests.pairs.stage import (
    EARLY_OFFSET,
    HISTORY_FILES,
    LATE_OFFSET,
    LATER_MESSAGES,
    READERS,
    TOPIC,
    Stage,
    copy,
    give_up,
    go_on,
    join,
    lose,
    part,
)
from tests.support.disk.compare import (
    CommitLogsDifferError,
    assert_same_commitlog,
    end_offset,
    wait_for_same_commitlog,
    wait_for_same_queues,
)
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.status import committed_offset, send, status
from tests.support.waiting import wait_for

SYNC_S = 15  # A slave of RocketMQ's copies offsets each 10 s.


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("real")
    with Stage(root, rocketmq) as stage:
        yield stage
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("ours")
    with Stage(root, twinlog) as stage:
        yield stage
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Stage]:
    """Ours, whose master loses nothing."""
    with Stage(tmp_path, twinlog) as stage:
        yield stage
    shutil.rmtree(tmp_path, ignore_errors=True)


def wait_for_finding(stage: Stage, kind: str) -> None:
    """Wait until our slave says where its log and the master's part, and in which way."""

    def found() -> bool:
        told = status(stage.ours)
        finding = (told["master"] or {}).get("finding") or {}
        return told["state"] == finding.get("kind") == kind and finding["offset"] == stage.copied_end

    wait_for(found, f"{kind} at {stage.copied_end}")


def test_a_real_slave_lacks_history(real: Stage) -> None:
    """A fresh slave of a real master gets its last file only, and counts as any: producers are told that all is well. A slave
    of ours has the whole history from the same master, and says where its log begins.
    """
    stage = real.played(join)
    assert stage.starts == {"real": HISTORY_FILES * FILE_SIZE, "ours": 0}
    assert_same_commitlog(stage.master.commit_log, stage.ours.commit_log)
    assert (status(stage.ours)["minOffset"], status(stage.ours)["maxOffset"]) == (0, max_offset(stage.master))


def test_links_that_die_within_a_frame(real: Stage, ours: Stage) -> None:
    """Whatever piece of a frame was the last one: our slave of a real master, and a real slave of ours, have the same log."""
    assert_same_commitlog(real.played(join).master.commit_log, real.ours.commit_log)
    stage = ours.played(join)
    assert stage.starts == {"real": 0, "ours": 0}
    for slave in (stage.real, stage.ours):
        assert_same_commitlog(stage.master.commit_log, slave.commit_log)
        wait_for_same_queues(stage.master.store, slave.store)


def test_a_real_master_that_lost_its_last_messages(real: Stage) -> None:
    """It comes back from a crash with a shorter log than its slaves'. The real slave waits until the master's log is longer
    than its own, and follows; producers are told that messages are replicated, and the logs differ for ever. Our slave
    takes nothing, and says from which byte on it has what the master lacks, then from where they differ.
    """
    stage = real.played(join, copy, lose)
    wait_for_finding(stage, "ahead")
    stage.played(go_on)
    assert stage.codes.count(0) > LATER_MESSAGES / 2, stage.codes
    stage.wait_level(stage.real)
    with pytest.raises(CommitLogsDifferError) as differ:
        assert_same_commitlog(stage.master.commit_log, stage.real.commit_log)
    assert stage.copied_end <= differ.value.offset < stage.held_end

    wait_for_finding(stage, "diverged")
    assert end_offset(stage.ours.commit_log) == max_offset(stage.ours) == stage.held_end


def test_our_master_that_lost_its_last_messages(ours: Stage) -> None:
    """Our slave tells it what it lacks, and it serves nobody. Let go on by a person, it is followed by our slave, which keeps
    aside what was given up. A slave of RocketMQ's cannot cut its log: it is refused, by its length and then by its content.
    """
    stage = ours.played(join, copy, lose)
    assert 0 not in send(stage.master.port, TOPIC, 1, size=10)
    assert [end_offset(slave.commit_log) for slave in (stage.real, stage.ours)] == [stage.held_end] * 2
    stage.played(give_up)
    wait_for(lambda: status(stage.master)["refused"]["over_max"] > 0, "the real slave is refused")
    stage.played(go_on)
    wait_for(lambda: status(stage.master)["refused"]["diverged"] > 0, "the real slave is refused")
    assert any(f"from byte {stage.copied_end} on" in each["why"] for each in status(stage.master)["refusedLast"])
    assert end_offset(stage.real.commit_log) == stage.held_end
    assert stage.codes.count(0) > LATER_MESSAGES / 2, stage.codes
    wait_for_same_commitlog(stage.master.commit_log, stage.ours.commit_log)
    wait_for_same_queues(stage.master.store, stage.ours.store)
    (kept,) = status(stage.ours)["divergent"]
    assert (kept["first"], kept["size"]) == (stage.copied_end, stage.held_end - stage.copied_end)


def test_offsets_that_were_committed_while_the_master_was_away(real: Stage, ours: Stage) -> None:
    """A real slave takes the older ones of the master that is back, and its consumers get everything again. Ours keeps what
    consumers told it, whoever its master is.
    """
    real.played(join, copy, lose, go_on)
    wait_for(
        lambda: committed_offset(real.real, READERS, TOPIC) == EARLY_OFFSET, "the offset goes back", timeout_s=SYNC_S
    )
    ours.played(join, copy, lose, give_up, go_on)
    for stage in (real, ours):
        assert committed_offset(stage.ours, READERS, TOPIC) == LATE_OFFSET


def test_a_slave_with_a_tail_of_its_own_meets_a_longer_log(real: Stage) -> None:
    """A real slave is level in no time, and differs. Ours takes nothing and says where the logs part; with haAutoResync=true it
    keeps its tail aside, and then has the master's log.
    """
    stage = real.played(join, copy, lose, go_on, part)
    stage.wait_level(stage.real)
    with pytest.raises(CommitLogsDifferError) as differ:
        assert_same_commitlog(stage.master.commit_log, stage.real.commit_log)
    assert stage.copied_end <= differ.value.offset < stage.parted_end
    check_parted_slave(stage)


def test_a_slave_with_a_tail_of_its_own_meets_our_longer_log(whole: Stage) -> None:
    """The same with our master, which serves neither."""
    stage = whole.played(join, copy, go_on, part)
    check_parted_slave(stage)
    wait_for(lambda: status(stage.master)["refused"]["diverged"] > 0, "the real slave is refused")
    assert end_offset(stage.real.commit_log) == stage.parted_end


def check_parted_slave(stage: Stage) -> None:
    wait_for_finding(stage, "diverged")
    assert end_offset(stage.ours.commit_log) == stage.parted_end
    tail = log_bytes(stage.ours.commit_log)[stage.copied_end : stage.parted_end]
    stage.ours.stop()
    with stage.ours.conf.open("a") as conf:
        conf.write("haAutoResync=true\n")
    stage.ours.start()
    wait_for_same_commitlog(stage.master.commit_log, stage.ours.commit_log)
    wait_for_same_queues(stage.master.store, stage.ours.store)
    (kept,) = status(stage.ours)["divergent"]
    assert (kept["first"], kept["size"]) == (stage.copied_end, len(tail))
    path = Path(kept["path"])
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    assert tail in b"".join(file.read_bytes() for file in files if file.is_file())


def log_bytes(commit_log: Path) -> bytes:
    """All files of a log, whose first byte is that of the whole log."""
    return b"".join(path.read_bytes() for path in sorted(commit_log.iterdir()))
