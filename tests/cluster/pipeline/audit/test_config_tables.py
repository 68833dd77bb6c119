"""Comparison of topics, groups and offsets between members."""

import json
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from twinlog.cluster.pipeline.audit.config_tables import CHANGED_LATELY_MS, compare_tables, read_tables
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.places import StoreUri

NOW = 1_700_000_000_000
C = FindingClass


class Member:
    """A directory with nothing but small files."""

    def __init__(self, root: Path, newest_ms: int = NOW) -> None:
        self.root = root
        (root / "config").mkdir(parents=True)
        (root / "checkpoint").write_bytes(Struct(">q").pack(newest_ms).ljust(4096, b"\0"))

    def topics(self, counter: int, timestamp: int, **perms: int) -> "Member":
        version = {"counter": counter, "timestamp": timestamp}
        table = {name: {"topicName": name, "perm": perm} for name, perm in perms.items()}
        return self.write("topics.json", {"dataVersion": version, "topicConfigTable": table})

    def offsets(self, **offsets: int) -> "Member":
        return self.write(
            "consumerOffset.json", {"offsetTable": {f"{name}@g": {"0": at} for name, at in offsets.items()}}
        )

    def write(self, name: str, value: Any) -> "Member":
        (self.root / "config" / name).write_text(value if isinstance(value, str) else json.dumps(value))
        return self


def compared(*members: Member, **options: int) -> list[tuple[FindingClass, str, str | None]]:
    uris = [StoreUri(str(member.root)) for member in members]
    tables = [read_tables(uri.name, StoreFiles(uri=uri, log=(), file_size=1, first=0, end=0)) for uri in uris]
    return [(found.cls, found.member, found.topic) for found in compare_tables(tables[0], tables[1:], **options)]


@pytest.fixture
def pair(tmp_path):
    return Member(tmp_path / "m"), Member(tmp_path / "s")


def test_equal_tables(pair):
    for member in pair:
        member.topics(3, NOW, A=6, B=6).offsets(A=9)
    assert compared(*pair) == []


@pytest.mark.parametrize(("counter", "findings"), [(0, 0), (1, 1)])
def test_a_table_that_was_never_changed_is_written_by_slaves_alone(pair, counter, findings):
    """A master writes it with its first change; what its slaves take from it before that are the groups of the system."""
    master, slave = pair
    master.topics(3, NOW, A=6)
    slave.topics(3, NOW, A=6)
    version = {"counter": counter, "timestamp": NOW}
    groups = {"TOOLS_CONSUMER": {"groupName": "TOOLS_CONSUMER"}}
    slave.write("subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": groups})
    assert len(compared(*pair)) == findings


@pytest.mark.parametrize(
    ("changed", "version", "expected"),
    [
        (NOW, (2, NOW - 9), [(C.LAG, "s", None)]),
        (NOW - CHANGED_LATELY_MS - 1, (2, 5), [(C.CONFIG, "s", "A"), (C.CONFIG, "s", "B"), (C.CONFIG, "s", "C")]),
        (NOW, (3, NOW), [(C.CONFIG, "s", "A"), (C.CONFIG, "s", "B"), (C.CONFIG, "s", "C")]),
        (NOW, (4, NOW), [(C.CONFIG, "s", "A"), (C.CONFIG, "s", "B"), (C.CONFIG, "s", "C")]),
    ],
    ids=["just before the end", "long before", "of the same version", "of a newer version"],
)
def test_an_older_table_is_lag_for_a_while(pair, changed, version, expected):
    master, slave = pair
    master.topics(3, changed, A=6, B=6)
    slave.topics(*version, A=4, C=6)
    assert compared(*pair) == expected


def test_a_slave_behind_in_offsets_is_lag_within_reason(pair):
    master, slave = pair
    master.offsets(A=1000, B=500, C=7)
    slave.offsets(A=500, B=500)
    assert compared(*pair) == [(C.LAG, "s", None)]
    assert compared(*pair, behind_max=400) == [(C.OFFSETS, "s", "A"), (C.LAG, "s", None)]


def test_a_slave_ahead_in_offsets_is_a_finding(pair):
    master, slave = pair
    master.offsets(A=10)
    slave.offsets(A=11, B=1)
    assert compared(*pair) == [(C.OFFSETS, "s", "A"), (C.OFFSETS, "s", "B")]


def test_an_older_copy_of_the_master_is_behind_itself(tmp_path):
    master, slave = Member(tmp_path / "m", NOW - 9), Member(tmp_path / "s")
    master.offsets(A=10, B=9)
    slave.offsets(A=11, B=8)
    assert compared(master, slave) == [(C.LAG, "m", None), (C.LAG, "s", None)]


def test_delivery_of_delayed_messages(pair):
    master, slave = pair
    master.write("delayOffset.json", '{"offsetTable":{1:5000,2:2}}')
    slave.write("delayOffset.json", '{"offsetTable":{1:2,2:3}}')
    assert compared(*pair) == [(C.OFFSETS, "s", "SCHEDULE_TOPIC_XXXX")] * 2


def test_a_table_that_only_one_has(pair):
    master, slave = pair
    master.topics(3, NOW, A=6).offsets(A=1)
    slave.offsets(A=1)
    assert compared(*pair) == [(C.CONFIG, "s", None)]


def test_what_is_no_json_is_not_compared(pair):
    """It is a finding of the member's own check."""
    master, slave = pair
    master.topics(3, NOW, A=6).offsets(A=1)
    slave.write("topics.json", "{").write("consumerOffset.json", "[]")
    assert compared(*pair) == [(C.LAG, "s", None)]


def test_logs_alone_have_no_tables(pair):
    master, _ = pair
    master.topics(3, NOW, A=6).offsets(A=10_000)
    assert compared(*pair) == []
