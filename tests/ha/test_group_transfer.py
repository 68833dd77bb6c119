"""Producers that wait for a slave: what they are told, and when."""

from collections.abc import Iterator

import pytest
import trio
import trio.testing
from attrs import frozen

from ha.config import HAConfig
from ha.group_transfer import GroupTransferService
from store.offset_waiters import PutStatus
from tests.helpers import RecordingSink


@frozen(eq=False)
class Slave:
    """As much of a connection as group transfer looks at."""

    address: str = "10.0.0.1:5000"
    ip: str = "10.0.0.1"


@pytest.fixture
async def transfer(autojump_clock, nursery) -> Iterator[GroupTransferService]:
    service = GroupTransferService(HAConfig(slave_fallbehind_max=1000))
    service.members_changed(["10.0.0.1", "10.0.0.2"])
    nursery.start_soon(service.run)
    await trio.testing.wait_all_tasks_blocked()
    return service


NOT_AVAILABLE, TIMEOUT = PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize(
    ("ack", "end", "outcome", "seconds"),
    [
        (None, 100, NOT_AVAILABLE, 0),  # No slave.
        (0, 1000, NOT_AVAILABLE, 0),  # The only one is haSlaveFallbehindMax behind.
        (0, 999, TIMEOUT, 3),
        (99, 100, TIMEOUT, 3),
        (100, 100, None, 0),  # It holds the message already.
        (5000, 100, None, 0),
    ],
)
async def test_outcomes_without_a_further_ack(autojump_clock, transfer, ack, end, outcome, seconds):
    sink = RecordingSink()
    if ack is not None:
        transfer.join(Slave(), ack)
    transfer.wait(end, sink, b"frame")
    while not sink.calls:
        await trio.sleep(0.1)
    assert trio.current_time() == pytest.approx(seconds, abs=0.15)
    assert sink.answered == ([b"frame"] if outcome is None else [])
    assert sink.refused == ([] if outcome is None else [(b"frame", outcome)])


async def test_an_ack_releases_all_below_it_with_one_call_for_each_sink(autojump_clock, transfer):
    slave, one, other = Slave(), RecordingSink(), RecordingSink()
    transfer.join(slave, 0)
    for end, sink in (10, one), (20, other), (30, one), (40, one):
        transfer.wait(end, sink, b"%d" % end)
    transfer.acknowledge(slave, 30)
    assert (one.answered, one.calls, other.answered) == ([b"10", b"30"], 1, [b"20"])
    assert transfer.waiting == 1


async def test_an_ack_in_the_last_moment_counts(autojump_clock, transfer):
    slave, sink = Slave(), RecordingSink()
    transfer.join(slave, 0)
    transfer.wait(10, sink, b"late")
    await trio.sleep(2.999)
    transfer.acknowledge(slave, 10)
    await trio.sleep(10)
    assert (sink.answered, sink.refused) == ([b"late"], [])


async def test_deadlines_overlap(autojump_clock, transfer):
    """Waiting for one does not make the next wait longer, and the timer serves those who come while it sleeps."""
    slave, sink = Slave(), RecordingSink()
    transfer.join(slave, 0)
    for end in 10, 20, 30:
        transfer.wait(end, sink, b"%d" % end)
        await trio.sleep(1.1)
    assert [frame for frame, _ in sink.refused] == [b"10"]
    await trio.sleep(2)
    assert [frame for frame, _ in sink.refused] == [b"10", b"20", b"30"]
    transfer.acknowledge(slave, 30)
    await trio.sleep(100)
    transfer.wait(40, sink, b"40")
    await trio.sleep(3.1)
    assert sink.refused[-1] == (b"40", TIMEOUT)


async def test_a_stranger_releases_nobody_and_is_no_slave(autojump_clock, transfer):
    stranger, sink = Slave("10.0.0.9:1", "10.0.0.9"), RecordingSink()
    transfer.join(stranger, 2**40)
    transfer.wait(10, sink, b"frame")
    assert sink.refused == [(b"frame", NOT_AVAILABLE)]
    assert "10.0.0.9:1" in sink.reasons[0]
    assert "not registered" in sink.reasons[0]


async def test_a_slave_that_registers_while_connected_releases(autojump_clock, transfer):
    known, newcomer, sink = Slave(), Slave("10.0.0.9:1", "10.0.0.9"), RecordingSink()
    transfer.join(known, 0)
    transfer.join(newcomer, 50)
    transfer.wait(10, sink, b"frame")
    assert sink.calls == 0
    transfer.members_changed(["10.0.0.1", "10.0.0.9"])
    assert sink.answered == [b"frame"]


async def test_a_slave_that_comes_back_in_time_releases(autojump_clock, transfer):
    """Its first report may already be past what producers wait for."""
    slave, sink = Slave(), RecordingSink()
    transfer.join(slave, 0)
    transfer.wait(10, sink, b"frame")
    transfer.leave(slave)
    assert transfer.push2_slave_max_offset == 0
    await trio.sleep(1)
    assert sink.calls == 0
    transfer.join(Slave("10.0.0.1:5001"), 10)
    assert sink.answered == [b"frame"]


async def test_reasons_name_who_is_there_and_how_far_behind(autojump_clock, transfer):
    sink = RecordingSink()
    transfer.wait(10, sink, b"frame")
    assert "no slave connected since 2" in sink.reasons[0]
    assert "registered slaves: 10.0.0.1, 10.0.0.2" in sink.reasons[0]
    transfer.join(Slave(), 0)
    transfer.wait(20, sink, b"frame")
    await trio.sleep(3.1)
    assert "slave 10.0.0.1:5000 has acknowledged 0, 20 bytes behind" in sink.reasons[1]
    transfer.wait(2000, sink, b"frame")
    assert "1000 bytes or more behind" in sink.reasons[2]


async def test_who_waits_is_told_when_the_broker_stops(autojump_clock):
    transfer, slave, sink = GroupTransferService(HAConfig()), Slave(), RecordingSink()
    transfer.members_changed(["10.0.0.1"])
    transfer.join(slave, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transfer.run)
        transfer.wait(10, sink, b"frame")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert sink.refused == [(b"frame", TIMEOUT)]
    assert "stops" in sink.reasons[0]
