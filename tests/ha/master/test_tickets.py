"""Tickets: a member says on its HA connection who it is, whatever address it comes from."""

import trio

from twinlog.ha.master.tickets import TICKET_SECONDS, TICKETS_MAX, Tickets
from twinlog.ha.policy.admission import AdmissionRules
from twinlog.ha.policy.in_sync import InSync
from twinlog.ha.wire.protocol import ACK, TICKET_MAX


async def test_a_ticket_is_good_once():
    tickets = Tickets()
    ticket = tickets.give("m1")
    assert ticket <= TICKET_MAX
    assert len(ACK.pack(ticket)) == 8
    assert tickets.member_of(ticket) == "m1"
    assert tickets.take(ticket) == "m1"
    assert tickets.take(ticket) is None
    assert tickets.member_of(-1) is tickets.member_of(0) is None


async def test_a_ticket_runs_out(autojump_clock):
    tickets = Tickets()
    first = tickets.give("m1")
    await trio.sleep(TICKET_SECONDS + 0.1)
    assert tickets.take(first) is None


async def test_only_so_many_are_kept():
    tickets = Tickets()
    first, second = tickets.give("m1"), tickets.give("m2")
    for _ in range(TICKETS_MAX - 1):
        tickets.give("m3")
    assert tickets.take(first) is None
    assert tickets.take(second) == "m2"


def test_a_member_of_the_record_is_admitted_from_anywhere_and_nobody_else():
    rules = AdmissionRules()
    rules.members_changed(["m1", "10.0.0.3"])
    assert rules.admits("192.168.7.7", "m1")
    assert not rules.admits("192.168.7.7", "m2")
    assert not rules.admits("192.168.7.7")
    assert rules.admits("10.0.0.3"), "a RocketMQ slave"
    assert not rules.admits("10.0.0.1"), "a member's IP says nothing"


def test_a_member_counts_under_its_id_and_once():
    """Two members behind one IP, and a connection that one of them left behind."""
    table = InSync()
    table.members_changed(["m1", "m2"])
    table.join("left behind", "10.0.0.1:1", "10.0.0.1", 50, member="m1")
    table.join("m1", "10.0.0.1:2", "10.0.0.1", 70, member="m1")
    table.join("m2", "10.0.0.1:3", "10.0.0.1", 60, member="m2")
    assert table.acks == [60, 70]
    assert not table.slaves()["left behind"].counted
    table.acknowledge("left behind", 100)
    assert table.acks == [60, 70], "what it acknowledges does not count"
    table.members_changed(["m2"])
    assert table.acks == [60]


def test_who_says_nothing_does_not_count_for_a_member():
    table = InSync()
    table.members_changed(["m1"])
    table.join("other", "10.0.0.1:1", "10.0.0.1", 100)
    assert table.acks == []
    assert table.slaves()["other"].reason == "not registered, does not count"


def test_before_there_is_a_record_its_ip_counts():
    table = InSync()
    table.members_changed(["10.0.0.1"])
    table.join("m1", "10.0.0.1:1", "10.0.0.1", 10, member="m1")
    assert table.acks == [10]
    table.members_changed(["m1"])
    assert table.acks == [10], "and its id from then on"
