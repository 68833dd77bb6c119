"""Who counts. Each connection has a key; the IP is what the name server knows."""

from hypothesis import given
from hypothesis import strategies as st

from ha.in_sync import InSync


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
    assert (table.is_counted("old"), table.is_counted("new")) == (False, True)
    assert table.push2_slave_max_offset == 300
    table.leave("new")
    assert table.push2_slave_max_offset == 700


def test_two_slaves_on_one_machine_are_two_entries():
    table = in_sync("10.0.0.1", "10.0.0.1")
    for name, ack in ("a", 1), ("b", 2), ("c", 3):
        table.join(name, f"10.0.0.1:{ack}", "10.0.0.1", ack)
    assert [slave.counted for slave in table.slaves().values()] == [False, True, True]
    assert all(slave.admitted for slave in table.slaves().values())


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
    table, joined = InSync(), set()
    for what, *arguments in steps:
        if what == "members":
            table.members_changed(*arguments)
        elif what == "join":
            key, ip, ack = arguments
            table.leave(key)
            table.join(key, f"{ip}:{key}", ip, ack)
            joined.add(key)
        elif what == "leave":
            table.leave(*arguments)
            joined.discard(*arguments)
        elif arguments[0] in joined:
            table.acknowledge(arguments[0], max(arguments[1], 50))
        counted = [slave for slave in table.slaves().values() if slave.counted]
        for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
            ours = [slave for slave in table.slaves().values() if slave.address.startswith(f"{ip}:")]
            assert sum(slave.counted for slave in ours) == min(len(ours), table.registered.count(ip))
        assert table.counted == len(counted)
        acks = sorted((slave.ack_offset for slave in counted), reverse=True)
        assert [table.held_by(slaves) for slaves in range(1, 6)] == (acks + [0] * 5)[:5]
        assert table.push2_slave_max_offset == max(acks, default=0)
