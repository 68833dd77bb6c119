"""Who counts. Each connection has a key; the IP is what the name server knows."""

from hypothesis import given
from hypothesis import strategies as st

from twinlog.ha.policy.in_sync import InSync, Limits, Slave


def in_sync(*ips: str) -> InSync:
    table = InSync()
    table.members_changed(ips)
    return table


def test_a_stranger_never_counts():
    table = in_sync("10.0.0.1")
    table.join("stranger", "10.0.0.9:1", "10.0.0.9", 2**40)
    table.acknowledge("stranger", 2**41)
    assert (table.counted, table.push2_slave_max_offset) == (0, 0)


def test_a_request_counts_as_an_ack():
    """A slave that comes back may hold what producers wait for."""
    table = in_sync("10.0.0.1")
    table.join("slave", "10.0.0.1:1", "10.0.0.1", 700)
    assert table.push2_slave_max_offset == 700


def test_the_newest_connection_of_an_address_counts():
    table = in_sync("10.0.0.1")
    table.join("old", "10.0.0.1:1", "10.0.0.1", 700)
    table.join("new", "10.0.0.1:2", "10.0.0.1", 300)
    assert [slave.counted for slave in table.slaves().values()] == [False, True]
    assert table.push2_slave_max_offset == 300
    table.leave("new")
    assert table.push2_slave_max_offset == 700


def test_two_slaves_on_one_machine_are_two_entries():
    table = in_sync("10.0.0.1", "10.0.0.1")
    for name, ack in ("a", 1), ("b", 2), ("c", 3):
        table.join(name, f"10.0.0.1:{ack}", "10.0.0.1", ack)
    assert [slave.counted for slave in table.slaves().values()] == [False, True, True]
    assert all(slave.admitted for slave in table.slaves().values())


def test_what_one_slave_left_behind_is_no_second_voice():
    """Two slaves on one machine: one of them comes back while its old connection still stands, the other one holds nothing."""
    table = in_sync("10.0.0.1", "10.0.0.1")
    table.join("other", "10.0.0.1:1", "10.0.0.1", 0, end=0)
    table.join("old", "10.0.0.1:2", "10.0.0.1", 0, end=0)
    table.acknowledge("old", 5000)
    table.join("new", "10.0.0.1:3", "10.0.0.1", 5000, end=5000)
    assert (table.held_by(1), table.held_by(2)) == (5000, 0)
    assert table.reach(2) > 5000, "a message may wait for two: the second is there, or comes"
    table.acknowledge("new", 6000)
    assert (table.held_by(1), table.held_by(2)) == (6000, 0)
    table.acknowledge("other", 5500)
    assert (table.held_by(1), table.held_by(2)) == (6000, 5500), "what came later reached another one"
    table.leave("old")
    assert (table.held_by(1), table.held_by(2)) == (6000, 5500)


def test_two_slaves_on_one_machine_are_two_voices_once_both_acknowledge_something_new():
    table = in_sync("10.0.0.1", "10.0.0.1", "10.0.0.2")
    table.join("a", "10.0.0.1:1", "10.0.0.1", 0, end=100)
    table.acknowledge("a", 100)
    table.join("b", "10.0.0.1:2", "10.0.0.1", 100, end=100)
    table.join("c", "10.0.0.2:1", "10.0.0.2", 40, end=100)
    assert [table.held_by(n) for n in (1, 2, 3)] == [100, 40, 0]
    table.acknowledge("a", 100)
    assert [table.held_by(n) for n in (1, 2, 3)] == [100, 40, 0], "that says nothing new"
    table.acknowledge("a", 101)
    assert [table.held_by(n) for n in (1, 2, 3)] == [101, 100, 40]


def test_membership_changes_while_connected():
    table = in_sync()
    table.join("slave", "10.0.0.1:1", "10.0.0.1", 700)
    assert table.counted == 0
    table.members_changed(["10.0.0.1"])
    assert (table.counted, table.push2_slave_max_offset) == (1, 700)
    table.members_changed([])
    assert (table.counted, table.push2_slave_max_offset) == (0, 0)


def test_the_highest_ack_falls_when_its_slave_leaves():
    table = in_sync("10.0.0.1", "10.0.0.2")
    table.join("fast", "10.0.0.1:1", "10.0.0.1", 0)
    table.join("slow", "10.0.0.2:1", "10.0.0.2", 0)
    table.acknowledge("fast", 900)
    table.acknowledge("slow", 400)
    assert (table.push2_slave_max_offset, table.held_by(1), table.held_by(2), table.held_by(3)) == (900, 900, 400, 0)
    table.leave("fast")
    assert table.push2_slave_max_offset == 400


IPS = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
STEPS = st.one_of(
    st.tuples(st.just("members"), st.lists(IPS, max_size=4)),
    st.tuples(st.just("join"), st.integers(0, 5), IPS, st.integers(0, 50)),
    st.tuples(st.just("ack"), st.integers(0, 5), st.integers(0, 100)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
)


@given(st.lists(STEPS, max_size=40))
def test_never_more_voices_than_registered_slaves(steps):
    """After any history: the counted ones are registered, few enough, and the best of them is the answer."""
    table, joined, doubted = InSync(), set(), set()
    for what, *arguments in steps:
        if what == "members":
            table.members_changed(*arguments)
        elif what == "join":
            key, ip, ack = arguments
            table.leave(key)
            doubted |= {slave.address for slave in table.slaves().values() if slave.address.startswith(f"{ip}:")}
            doubted -= {f"{ip}:{key}"}
            table.join(key, f"{ip}:{key}", ip, ack)
            joined.add(key)
        elif what == "leave":
            table.leave(*arguments)
            joined.discard(*arguments)
        elif arguments[0] in joined:
            held = table.slaves()[arguments[0]].ack_offset  # The connection refuses an acknowledgement that falls.
            table.acknowledge(arguments[0], max(arguments[1], 50, held))
            doubted -= {
                slave.address for slave in table.slaves().values() if slave.address.endswith(f":{arguments[0]}")
            }
        counted = [slave for slave in table.slaves().values() if slave.counted]
        for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
            ours = [slave for slave in table.slaves().values() if slave.address.startswith(f"{ip}:")]
            assert sum(slave.counted for slave in ours) == min(len(ours), table.registered.count(ip))
        assert table.counted == len(counted)
        held = [table.held_by(slaves) for slaves in range(1, 6)]
        acks = sorted((slave.ack_offset for slave in counted), reverse=True)
        assert held[0] == (acks or [0])[0]
        sure = sorted((each.ack_offset for each in counted if each.address not in doubted), reverse=True)
        assert held[1:] == (sure + [0] * 5)[1:5]
        assert table.push2_slave_max_offset == max(acks, default=0)


# In sync, suspended, stalled. The log ends at `end`; times are seconds.


def one_slave(*, ack: int = 0, end: int = 0, now: float = 0.0, **limits: float) -> InSync:
    table = InSync(Limits(**limits))
    table.members_changed(["10.0.0.1"])
    table.join("slave", "10.0.0.1:1", "10.0.0.1", ack, end=end, now=now)
    return table


def look(table: InSync, end: int, now: float) -> Slave:
    return table.slaves(end, now)["slave"]


def test_a_slave_that_holds_everything_is_in_sync_at_once_and_another_when_it_is_level():
    assert one_slave(ack=500, end=500).in_sync(500, 0.0) == 1
    table = one_slave(ack=100, end=500)
    assert (table.in_sync(500, 0.0), look(table, 500, 0.0).reason) == (0, "has not been level since it connected")
    assert not table.acknowledge("slave", 499)
    assert table.acknowledge("slave", 500)
    assert (table.in_sync(600, 0.1), table.in_sync(500, 0.1)) == (1, 1)


def test_in_sync_by_bytes():
    table = one_slave(ack=500, end=500, gap_max=100)
    assert (table.in_sync(599, 1.0), table.in_sync(600, 1.0)) == (1, 0)
    assert look(table, 600, 1.0).reason == "100 bytes or more behind"


def test_in_sync_by_time():
    """It has held the whole log within the last 15 s, whatever was appended since: how much it lacks says nothing."""
    table = one_slave(ack=500, end=500)
    for second in range(1, 60):  # Half a second behind all the time.
        assert table.in_sync(500 + second * 100, float(second)) == 1
        table.tick(500 + second * 100, float(second))
        table.acknowledge("slave", 500 + second * 100)
    for second in range(60, 100):  # Now it stands still.
        table.tick(500 + second * 100, float(second))
        assert table.in_sync(500 + second * 100, float(second)) == (second <= 59 + 15)
    assert look(table, 20_000, 100.0).stalled


def test_an_idle_log_leaves_everybody_in_sync():
    table = one_slave(ack=500, end=500)
    assert table.in_sync(500, 1e6) == 1
    assert look(table, 500, 1e6).reason == ""


def test_suspended_after_three_deadlines_in_a_row_and_until_it_is_level():
    table = one_slave(ack=500, end=500)
    assert [table.missed(600, end=700, now=3.0) for _ in range(2)] == [False, False]
    assert not table.missed(500, end=700, now=3.1)  # It had that one: the row is broken.
    assert [table.missed(600, end=700, now=4.0) for _ in range(3)] == [False, False, True]
    assert (table.counted, table.eligible, table.in_sync(700, 4.0)) == (1, 0, 0)
    assert (table.reach(1), table.held_by(1)) == (0, 500), "nobody waits for it, but what it holds counts"
    assert "missed 3 deadlines" in look(table, 700, 4.0).reason
    assert not table.acknowledge("slave", 650)
    assert table.held_by(1) == 650
    assert table.acknowledge("slave", 700)
    assert (table.eligible, table.in_sync(750, 5.0), look(table, 750, 5.0).suspended) == (1, 1, False)


def test_a_suspended_slave_that_stays_behind_is_not_let_in_again():
    """It has the log's end of 2 s ago all the time, and producers would wait that long each time."""
    table = one_slave(ack=0, end=0)
    for _ in range(3):
        table.missed(100, end=100, now=0.0)
    for second in range(1, 30):
        table.tick(second * 100, float(second))
        table.acknowledge("slave", max((second - 2) * 100 - 1, 0))
        assert look(table, second * 100, float(second)).suspended
    table.tick(3000, 30.0)
    table.tick(3000, 32.0)
    assert table.acknowledge("slave", 3000)


def test_a_slave_comes_back_as_suspended_as_it_left_unless_it_holds_everything():
    table = one_slave(ack=0, end=0)
    for _ in range(3):
        table.missed(100, end=100, now=0.0)
    table.leave("slave")
    table.join("slave", "10.0.0.1:2", "10.0.0.1", 50, end=100, now=1.0)
    assert table.suspended == {"10.0.0.1:2"}
    table.leave("slave")
    table.join("slave", "10.0.0.1:3", "10.0.0.1", 100, end=100, now=2.0)
    assert table.suspended == frozenset()


def test_stalled_is_who_lacks_bytes_and_acknowledges_none():
    table = one_slave(ack=0, end=0, stalled_seconds=10.0)
    for second in range(20):  # Slow, but it moves.
        table.acknowledge("slave", second)
        table.tick(10_000, float(second))
    assert not look(table, 10_000, 20.0).stalled
    assert not look(table, 10_000, 29.0).stalled
    assert look(table, 10_000, 29.1).stalled
    assert look(table, 10_000, 29.1).reason.startswith("stalled: 9981 bytes to go, and no acknowledgement for 10 s")
    assert not look(table, 19, 1000.0).stalled, "it has all there is"


def test_a_connection_in_doubt_that_does_not_count_is_cleared_by_what_was_written_later():
    table = InSync()
    table.members_changed(["10.0.0.1", "10.0.0.2"])
    table.join("old", "10.0.0.1:1", "10.0.0.1", 100, end=100)
    table.join("new", "10.0.0.1:2", "10.0.0.1", 100, end=100)
    table.join("other", "10.0.0.2:1", "10.0.0.2", 150, end=150)
    table.acknowledge("old", 150)  # More than was there when the new one came: this one lives.
    table.leave("new")
    assert table.held_by(2) == 150
