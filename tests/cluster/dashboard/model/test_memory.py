"""What is remembered from one look to the next."""

from attrs import evolve

from tests.cluster.dashboard.helpers import END, MB, facts, member, silent
from tests.cluster.observe.role_facts import RECORD
from twinlog.cluster.admin.roles import History, Reign
from twinlog.cluster.dashboard.model.events import merged, of_history
from twinlog.cluster.dashboard.model.memory import Memory
from twinlog.cluster.dashboard.model.snapshot import Range
from twinlog.cluster.dashboard.model.verdict import verdict_of
from twinlog.store.util.plain import to_plain

REIGN = {
    "epoch": 4,
    "start_offset": 0,
    "old": "broker-a-0",
    "new": "broker-a-1",
    "reason": "",
    "lost_bytes": 0,
    "decided_by": "person",
    "winner": "m1",
    "winner_label": "broker-a-1 (127.0.0.1:10921)",
}


def take(memory, *members, at, **more):
    return memory.take(facts(*members, **more), (), ("n:1",), at)


def of(snapshot, name):
    return next(each for each in snapshot.members if each.member.name == name)


def test_since_when():
    memory = Memory()
    first = take(memory, member(), member(1), at=10.0)
    assert of(first, "broker-a-1").was_so
    changed = take(memory, member(), member(1, state="connecting"), at=20.0)
    later = take(memory, member(), member(1, state="connecting"), at=30.0)
    assert of(later, "broker-a-1").since == of(changed, "broker-a-1").since == 20.0
    assert not of(later, "broker-a-1").was_so


def test_the_lag_of_who_is_silent_grows_from_its_last_word():
    memory = Memory()
    take(memory, member(), member(1), at=10.0)
    take(memory, member(written_offset=END + MB), silent(1), at=11.0)
    snapshot = take(memory, member(written_offset=END + 3 * MB), silent(1), at=15.0)
    found = of(snapshot, "broker-a-1")
    assert (found.lag_bytes, found.lag_seconds, found.is_last_word) == (3 * MB, 4.0, True)
    assert found.last_offset == END


def test_who_is_silent_while_nothing_is_written_lacks_nothing():
    memory = Memory()
    take(memory, member(), member(1), at=10.0)
    assert of(take(memory, member(), silent(1), at=99.0), "broker-a-1").lag_bytes == 0


def test_catching_up_is_seen_in_the_samples():
    memory = Memory()
    for t in range(6):
        slave = member(1, state="catching up", lag_bytes=10 * MB - t * MB, lag_seconds=3.0)
        snapshot = take(memory, member(), slave, at=float(t))
    assert round(of(snapshot, "broker-a-1").catch_up_seconds or 0) == 5


def test_ranges_that_part_and_that_were_cut():
    finding = {"kind": "diverged", "offset": 700, "text": "..."}
    status = {
        "master": {"finding": finding},
        "divergent": [{"first": 100, "size": 50, "path": "p", "why": "given up", "whenMs": 1}],
    }
    slave = member(1, state="diverged", written_offset=1000)
    snapshot = take(Memory(), member(), slave, at=1.0, status={"broker-a-1": status})
    assert of(snapshot, "broker-a-1").diverged == (Range(100, 150, is_cut=True), Range(700, 1000, is_cut=False))


def test_a_fault_of_asking_keeps_the_last_look():
    memory = Memory()
    take(memory, member(), member(1), at=1.0)
    snapshot = memory.fail("no name server answers", ("n:1",), 5.0)
    assert (snapshot.problem, snapshot.at, len(snapshot.members)) == ("no name server answers", 5.0, 2)
    assert memory.events[0].kind == "problem"


def test_events_of_a_failover():
    memory = Memory()
    take(memory, member(), member(1), at=1.0)
    take(memory, silent(0), member(1), at=2.0)
    take(memory, silent(0), member(1, role="master", state="serving", epoch=4), at=3.0)
    shown = [(each.at, each.kind, each.subject) for each in memory.events]
    assert (2.0, "state", "broker-a-0") in shown
    assert (3.0, "role", "broker-a-1") in shown
    assert [each.at for each in memory.events] == sorted((each.at for each in memory.events), reverse=True)


def test_events_of_an_election():
    record = {"groupRecord": to_plain(evolve(RECORD, auto_failover="members"))}

    def look(at, **own):
        told = {"roleState": "following", **record, "autoFailover": {"mode": "members", **own}}
        return take(memory, silent(0), member(1), at=at, status={"broker-a-1": told})

    memory = Memory()
    assert look(1.0).groups[0].failover.mode == "members"
    snapshot = look(2.0, suspected=True, why="broker-a-0 was not heard for 5.1 s")
    assert (
        "broker-a elects another master by itself: broker-a-0 was not heard for 5.1 s." in verdict_of(snapshot).details
    )
    look(3.0, suspected=True, tried=1, givenUp=1, whyGivenUp="too few votes")
    look(4.0, tried=2, givenUp=1, won=1)
    assert [(each.at, each.mark, each.text) for each in memory.events if each.kind == "election"] == [
        (4.0, "ok", "was elected"),
        (4.0, "warn", "began a failover by itself"),
        (3.0, "bad", "gave up its election (too few votes)"),
        (3.0, "warn", "began a failover by itself"),
        (2.0, "warn", "takes its master for dead (broker-a-0 was not heard for 5.1 s)"),
    ]


def test_a_role_change_that_was_seen_is_not_told_again_from_the_history():
    memory = Memory()
    take(memory, member(), member(1), at=100.0)
    take(memory, member(role="slave", state="streaming"), member(1, role="master", state="serving", epoch=4), at=103.0)
    shown = of_history(
        History(group="broker-a", told_by="broker-a-1", reigns=(Reign(kind="switchover", at_ms=102_000, **REIGN),))
    )
    assert len(merged(memory.events, shown)) == len(memory.events)
    old = of_history(
        History(group="broker-a", told_by="broker-a-1", reigns=(Reign(kind="failover", at_ms=5_000, **REIGN),))
    )
    assert merged(memory.events, old)[-1].text == "became the master in epoch 4 (failover)"


def test_who_does_not_fit_has_no_lag():
    """A diverged slave is level by numbers alone."""
    slave = member(1, state="diverged", lag_bytes=0, lag_seconds=0.0)
    assert of(take(Memory(), member(), slave, at=1.0), "broker-a-1").lag_bytes is None


def test_a_cluster_that_is_gone_is_not_a_new_one():
    memory = Memory()
    take(memory, member(), member(1), at=1.0)
    take(memory, at=2.0)
    snapshot = take(memory, at=3.0)
    assert snapshot.gone == ("broker-a-0", "broker-a-1")
    assert (
        verdict_of(snapshot).headline
        == "NOT RUNNING: no broker is registered any more; there were broker-a-0, broker-a-1"
    )


def test_a_group_whose_members_are_all_gone_is_remembered_until_it_is_back():
    """A name server forgets who is silent for two minutes; the other group's data does not make this one's safe."""
    other = [
        member(number, name=f"broker-b-{number}", group="broker-b", address=f"127.0.0.2:{number}") for number in (0, 1)
    ]
    both, one = facts(member(), member(1), *other), facts(member(), member(1))
    memory = Memory()
    snapshots = [memory.take(found, (), (), float(at)) for at, found in enumerate((both, one, one, both))]
    assert [snapshot.gone for snapshot in snapshots] == [
        (),
        ("broker-b-0", "broker-b-1"),
        ("broker-b-0", "broker-b-1"),
        (),
    ]


def test_the_history_says_that_a_group_elected_by_itself():
    told = {**REIGN, "decided_by": "group", "reason": "not heard for 5.1 s"}
    history = History(group="a", told_by="b", reigns=(Reign(kind="failover", at_ms=1_000, **told),))
    (shown,) = of_history(history)
    assert shown.text == "became the master in epoch 4 (failover by the group itself: not heard for 5.1 s)"
