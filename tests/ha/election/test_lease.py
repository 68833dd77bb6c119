"""A lease runs from when the others were asked, not from when they answered."""

from twinlog.ha.election.lease import ALWAYS, Lease


def test_it_runs_from_the_question():
    lease = Lease(3.0)
    assert not lease.held(0)
    assert lease.why == "nobody was asked yet"
    lease.grant(10)
    assert (lease.held(12.9), lease.held(13), lease.remaining(12)) == (True, False, 1)


def test_an_older_answer_takes_nothing_away():
    lease = Lease(3.0)
    lease.grant(10)
    lease.grant(8)
    assert lease.held(12)


def test_it_can_be_given_up():
    lease = Lease(3.0)
    lease.grant(10)
    lease.give_up("the event loop stalls")
    assert (lease.held(10), lease.remaining(10), lease.why) == (False, 0, "the event loop stalls")
    lease.grant(11)
    assert lease.held(12)


def test_nobody_to_ask():
    lease = Lease(3.0)
    lease.grant(ALWAYS)
    assert lease.held(1e12)
