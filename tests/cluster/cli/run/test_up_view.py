"""What `twinlog up` says, out of what it was told."""

from pathlib import Path

import pytest
from attrs import evolve

from twinlog.cluster.cli.members import page_of
from twinlog.cluster.cli.run.pinning import pinned
from twinlog.cluster.cli.run.up_plan import plan_up
from twinlog.cluster.cli.run.up_view import (
    changes,
    cores_of,
    elections_of,
    line_of,
    not_ready,
    page_with_cores,
    planned,
)
from twinlog.cluster.observe.members import Member, MemberList

PLAN = plan_up(Path("/data"))
MASTER = Member(
    name="broker-a-0",
    cluster="C",
    group="broker-a",
    broker_id=0,
    address="127.0.0.1:10911",
    role="master",
    state="serving",
    slaves_counted=1,
)
SLAVE = evolve(
    MASTER,
    name="broker-a-1",
    broker_id=1,
    address="127.0.0.1:10921",
    role="slave",
    state="streaming",
    slaves_counted=None,
)


def test_a_member_nobody_has_heard_of_is_starting():
    assert [(m.name, m.state) for m in planned(PLAN, [MASTER])] == [
        ("broker-a-0", "serving"),
        ("broker-a-1", "starting"),
    ]


def test_a_member_nobody_planned_is_shown_last():
    stranger = evolve(MASTER, name="broker-x-0", address="10.0.0.1:10911")
    assert [m.name for m in planned(PLAN, [stranger, SLAVE, MASTER])] == ["broker-a-0", "broker-a-1", "broker-x-0"]


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        ([MASTER, SLAVE], []),
        ([], ["broker-a-0 is starting", "broker-a-1 is starting"]),
        ([MASTER, evolve(SLAVE, state="connecting")], ["broker-a-1 is connecting"]),
        ([MASTER, evolve(SLAVE, state="catching up")], []),
        ([evolve(MASTER, slaves_counted=0), SLAVE], ["broker-a-0 counts 0 of 1 slaves"]),
    ],
)
def test_ready_is_when_masters_serve_and_count_their_slaves(found, reasons):
    assert not_ready(PLAN, planned(PLAN, found)) == reasons


@pytest.mark.parametrize(
    ("slaves", "overrides", "is_said"),
    [(1, {}, False), (2, {}, True), (2, {"autoFailover": "off"}, False), (1, {"autoFailover": "members"}, True)],
)
def test_it_says_who_elects(slaves, overrides, is_said):
    assert ("elects another one by itself" in elections_of(plan_up(Path("/data"), slaves=slaves), overrides)) is is_said


def test_it_says_that_a_pair_with_etcd_goes_on_alone():
    text = elections_of(plan_up(Path("/data"), with_etcd=True), {})
    assert text.startswith("groups begin with autoFailover=etcd")
    assert "goes on with the members that are left" in text


def test_an_asynchronous_master_need_not_count_anybody():
    plan = plan_up(Path("/data"), is_async=True)
    assert not_ready(plan, planned(plan, [evolve(MASTER, slaves_counted=0), SLAVE])) == []


def test_only_what_changed_is_told():
    assert changes([MASTER, SLAVE], [evolve(MASTER, written_offset=5), SLAVE]) == []
    (line,) = changes([MASTER, SLAVE], [MASTER, evolve(SLAVE, state="connecting", reason="refused")])
    assert line == "broker-a-1  slave  connecting  because refused"


def test_a_line_has_what_is_known():
    member = evolve(SLAVE, written_offset=900, lag_bytes=1200, lag_seconds=0.25, rate_bytes_per_second=2_500_000)
    assert line_of(member) == "broker-a-1  slave  streaming  offset 900  lag 1.2 kB (0.2 s)  rate 2.5 MB/s"


def test_lines_and_table_have_the_core_of_who_is_bound_to_one():
    cores = cores_of(pinned(PLAN, [4, 6]))
    stranger = evolve(MASTER, name="broker-x-0", address="10.0.0.1:10911")
    assert line_of(SLAVE, cores) == "broker-a-1  slave  streaming  core 6"
    assert changes([], [MASTER, stranger], cores) == [
        "broker-a-0  master  serving  core 4",
        "broker-x-0  master  serving",
    ]
    page = page_of(MemberList((MASTER, SLAVE, stranger), ()))
    (table,) = page_with_cores(page, cores).blocks
    assert (table.columns[-1].title, [table.columns[-1].read(row) for row in table.rows]) == ("CORE", [4, 6, None])
    assert page_with_cores(page, cores_of(PLAN)) is page
