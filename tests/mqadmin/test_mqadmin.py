"""Every sub-command of RocketMQ 4.9.7's mqadmin, against RocketMQ and against twinlog: it prints the same.

docs/reference/compatibility.toml says which of them may differ, and why; what it does not name must be equal.
"""

import difflib
import json
import re
import time
from pathlib import Path

import pytest

from tests.mqadmin.clusters import Cluster, assert_all_codes_are_known
from tests.mqadmin.normalise import names, normalise
from tests.mqadmin.rows import ROWS, Compare, Row
from tests.mqadmin.table import differences
from tests.support.clients.remoting import request
from tests.support.process_group import twinlog

UNTIL_SECONDS = 20


def answer(cluster: Cluster, row: Row) -> tuple[str, bool]:
    """What a row prints, made comparable, with the file that it writes; and whether it failed."""
    out, err = cluster.mqadmin(row.command, row.arguments)
    deadline = time.monotonic() + UNTIL_SECONDS
    while not re.search(row.until, out) and time.monotonic() < deadline:
        time.sleep(0.2)
        out, err = cluster.mqadmin(row.command, row.arguments)
    if row.file:
        out += "\n" + pretty((cluster.out / row.file).read_text()) if (cluster.out / row.file).exists() else "\nno file"
    text = normalise(out, cluster.words())
    return re.sub(row.hide, "<hidden>", text, flags=re.MULTILINE) if row.hide else text, "Exception" in err


def pretty(text: str) -> str:
    return json.dumps(json.loads(text), indent=1, sort_keys=True)


def judge(row: Row, real: str, ours: str) -> str:
    """What is different; empty for nothing."""
    if row.compare is Compare.SHAPE:
        return "" if bool(real) == bool(ours) else f"RocketMQ's answer has {len(real)} characters, ours {len(ours)}"
    if row.compare is Compare.KEYS:
        missing = names(real) - names(ours)
        return f"ours is without {sorted(missing)}" if missing else ""
    left, right = real.splitlines(), ours.splitlines()
    if row.compare is Compare.LINES:
        left, right = sorted(left), sorted(right)
    return "\n".join(difflib.unified_diff(left, right, "RocketMQ", "twinlog", lineterm=""))


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_it_prints_what_it_prints_for_rocketmq(clusters: tuple[Cluster, Cluster], row: Row) -> None:
    (real, real_failed), (ours, ours_failed) = (answer(cluster, row) for cluster in clusters)
    if row.ours:
        assert re.search(row.ours, ours), ours
    different = judge(row, real, ours)
    if real_failed != ours_failed:
        different += f"\nfails: RocketMQ {real_failed}, twinlog {ours_failed}"
    if different and not row.differs:
        pytest.fail(f"mqadmin {row.name}\n{different}", pytrace=False)
    assert different or not row.differs, "it is the same by now: let the row say so"


def test_each_name_server_is_told(clusters: tuple[Cluster, Cluster], root: Path) -> None:
    """mqadmin takes several, and tells each of them what name servers do not tell one another."""
    ours = clusters[1]
    with twinlog.NameServer(root / "another") as another:
        both = f"{ours.namesrv};{another.address}"
        out, err = ours.tool.both("updateKvConfig", "-n", both, "-s", "EACH", "-k", "key", "-v", "value")
        assert "success" in out, err
        for address in both.split(";"):
            header, _ = request(address, 101, {"namespace": "EACH", "key": "key"})
            assert header["extFields"] == {"value": "value"}
        ours.tool.both("updateNamesrvConfig", "-n", both, "-k", "orderMessageEnable", "-v", "false")
        for address in both.split(";"):
            assert b"orderMessageEnable=false" in request(address, 319)[1]


def test_what_differs_has_its_reason() -> None:
    assert {row.command for row in ROWS if row.differs} == differences().keys()


def test_every_sub_command_has_a_row(clusters: tuple[Cluster, Cluster]) -> None:
    commands = clusters[0].tool.commands()
    assert len(commands) > 50
    assert set(commands) == {row.command for row in ROWS}


def test_every_request_code_of_4_9_7_is_known(clusters: tuple[Cluster, Cluster]) -> None:
    assert_all_codes_are_known(clusters[0].tool)
