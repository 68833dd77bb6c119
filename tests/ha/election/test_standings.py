"""How members stand as the next master, and why nobody could be elected."""

from attrs import evolve

from tests.ha.election.votes_given import SECOND, answer, group, said
from twinlog.ha.election.election import standings, why_nobody
from twinlog.ha.election.voter import LeaseReply
from twinlog.store.epoch_file import EpochId


def renewed(id: str, max_offset: int, **more) -> LeaseReply:
    told = {"accepted": True, "why": "", "whole": True} | more
    return LeaseReply(
        promised=EpochId(2, "a"),
        last=SECOND[-1],
        max_offset=max_offset,
        flushed_offset=0,
        group_version=2,
        member=id,
        **told,
    )


def test_a_master_tells_by_its_lease_who_would_be_next():
    found = standings(group(3, 2), {"b": renewed("b", 150), "c": renewed("c", 170)}, master="a")
    assert [(each.member, each.rank, each.against) for each in found] == [
        ("c", 0, ""),
        ("b", 1, ""),
        ("a", None, "it is the master"),
    ]
    assert why_nobody(group(3, 2), found) == ""


def test_what_speaks_against_each():
    answers = {
        "b": renewed("b", 150, accepted=False, why="it has promised epoch 7 to d"),
        "c": renewed("c", 150, whole=False),
    }
    four = group(4, 2, not_voting="d")
    against = {each.member: each.against for each in standings(four, answers, master="a")}
    assert against["b"] == "it has promised epoch 7 to d"
    assert against["c"].startswith("it may lack bytes")
    assert against["d"] == "it cannot vote: a RocketMQ slave"
    missing = standings(group(3, 2), {"b": renewed("b", 150)}, master="a")
    assert {each.member: each.against for each in missing}["c"] == "it does not answer"
    assert why_nobody(group(3, 2), missing) == "2 of 3 members would have to promise their votes, 1 could"


def test_a_member_with_a_full_disk_votes_and_does_not_win():
    found = standings(group(3, 2), said(answer("b", 170, can_store=False), answer("c", 150)))
    assert [(each.member, each.rank, each.votes) for each in found] == [
        ("c", 0, True),
        ("a", None, False),
        ("b", None, True),
    ]
    assert why_nobody(group(3, 2), found) == ""
    full = standings(group(3, 2), said(answer("b", 170, can_store=False), answer("c", 150, can_store=False)))
    assert why_nobody(group(3, 2), full) == "nobody could store messages"


def test_where_the_master_alone_holds_messages_nobody_else_knows_what_is_lost():
    record = group(2, 1)
    found = standings(record, {"b": renewed("b", 150)}, master="a")
    assert why_nobody(record, found).startswith("only the master has to hold a message")
    assert why_nobody(evolve(record, acks_needed=2), found) == ""


def test_who_was_deposed_lately_comes_after_an_equal():
    answers = said(answer("b", 150), answer("c", 150))
    assert [each.member for each in standings(group(3, 2), answers)][:2] == ["b", "c"]
    assert [each.member for each in standings(group(3, 2), answers, frozenset("b"))][:2] == ["c", "b"]
