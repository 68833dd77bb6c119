"""Tickets: a member says on its HA connection who it is, whatever address it comes from."""

import trio

from twinlog.ha.master.tickets import NOBODY, TICKET_SECONDS, TICKETS_MAX, Holder, Tickets
from twinlog.ha.policy.admission import AdmissionRules, Proofs, parse_allowed
from twinlog.ha.policy.in_sync import InSync
from twinlog.ha.wire.protocol import ACK, TICKET_MAX


async def test_a_ticket_is_good_once():
    tickets = Tickets()
    ticket = tickets.give(Holder("m1", "proof"))
    assert ticket <= TICKET_MAX
    assert len(ACK.pack(ticket)) == 8
    assert tickets.holder_of(ticket) == Holder("m1", "proof")
    assert tickets.take(ticket) == Holder("m1", "proof")
    assert tickets.take(ticket) is NOBODY
    assert tickets.holder_of(-1) is tickets.holder_of(0) is NOBODY


async def test_a_ticket_is_shown_as_what_its_holder_makes_of_it():
    tickets = Tickets()
    ticket = tickets.give(Holder("m1"), lambda given: given ^ 1)
    assert tickets.take(ticket) is NOBODY
    assert tickets.take(ticket ^ 1) == Holder("m1")


async def test_a_ticket_runs_out(autojump_clock):
    tickets = Tickets()
    first = tickets.give(Holder("m1"))
    await trio.sleep(TICKET_SECONDS + 0.1)
    assert tickets.take(first) is NOBODY


async def test_only_so_many_are_kept():
    tickets = Tickets()
    first, second = tickets.give(Holder("m1")), tickets.give(Holder("m2"))
    for _ in range(TICKETS_MAX - 1):
        tickets.give(Holder("m3"))
    assert tickets.take(first) is NOBODY
    assert tickets.take(second) == Holder("m2")


def test_a_member_of_the_record_is_admitted_from_anywhere_and_nobody_else():
    rules = AdmissionRules()
    rules.members_changed(["m1", "10.0.0.3"])
    assert rules.admits("192.168.7.7", "m1")
    assert not rules.admits("192.168.7.7", "m2")
    assert not rules.admits("192.168.7.7")
    assert rules.admits("10.0.0.3"), "a RocketMQ slave"
    assert not rules.admits("10.0.0.1"), "a member's IP says nothing"


def test_where_the_secret_is_required_a_ticket_has_to_be_proven():
    """Whoever registers with a name server, or comes from a member's IP, is not served; nor is a secret that was dropped."""
    rules = AdmissionRules(*parse_allowed("192.0.2.3"))
    rules.members_changed(["m1", "10.0.0.3"], ["10.0.0.9", "m2"])
    rules.proofs = Proofs(("new", "old"), is_required=True)
    assert rules.admits("198.51.100.7", "m1", "new")
    assert rules.admits("198.51.100.7", "m2", "old"), "one that is about to join"
    assert not rules.admits("198.51.100.7", "m3", "new"), "one that haMembers does not name"
    assert not any(rules.admits(ip, "m1", proof) for ip in ("10.0.0.3", "10.0.0.9") for proof in ("", "dropped"))
    assert rules.admits("192.0.2.3"), "a RocketMQ slave that a person named"
    assert "haSecret=required" in rules.why_not("10.0.0.3")
    rules.proofs = Proofs(("new", "old"))
    assert rules.admits("198.51.100.7", "m1")
    assert rules.admits("10.0.0.3")
    assert not rules.admits("198.51.100.7", "m1", "dropped")


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
