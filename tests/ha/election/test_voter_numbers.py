"""Numbers of epochs that nobody can have come by honestly: one such promise would be the last that could ever be given."""

from attrs import evolve

from tests.ha.voters import GROUP, HISTORY, SLAVE, asked
from twinlog.ha.election.voter import EPOCH_STEP_MAX, LeaseAsk, PromiseAsk, lease


def _lease(**changes):
    ask = LeaseAsk(
        id=SLAVE.promised,
        address="a",
        ha_address="a",
        entries=HISTORY,
        max_offset=90,
        confirmed_offset=90,
        group=GROUP,
        boot_ms=1,
    )
    return lease(SLAVE, evolve(ask, **changes), HISTORY, 90, 90, "b")


def test_numbers_do_not_jump_to_where_nothing_comes_after():
    for epoch in ((1 << 64) - 1, SLAVE.promised.epoch + EPOCH_STEP_MAX + 1):
        state, answer = asked(SLAVE, PromiseAsk(epoch=epoch, candidate="c"))
        assert (state, answer.granted) == (None, False)
        state, told = _lease(id=SLAVE.promised._replace(epoch=epoch))
        assert (state, told.accepted) == (None, False)
    assert asked(SLAVE, PromiseAsk(epoch=SLAVE.promised.epoch + EPOCH_STEP_MAX, candidate="c"))[1].granted


def test_only_the_first_epoch_has_no_winner():
    state, told = _lease(id=SLAVE.promised._replace(epoch=9, winner=""))
    assert (state, told.accepted) == (None, False)
