"""Producers that wait for a slave: what they are told, and when."""

import math
from collections import deque
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from attrs import define, frozen
from structlog.testing import capture_logs

from tests.helpers import RecordingSink
from twinlog.ha.config import HAConfig
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.util.histogram import BOUNDS


@frozen(eq=False)
class Slave:
    """As much of a connection as group transfer looks at."""

    address: str = "10.0.0.1:5000"
    ip: str = "10.0.0.1"
    member: str = ""


@pytest.fixture
async def transfer(autojump_clock, nursery) -> Iterator[GroupTransferService]:
    service = GroupTransferService(HAConfig(slave_fallbehind_max=1000))
    service.members_changed(["10.0.0.1", "10.0.0.2"])
    nursery.start_soon(service.run)
    await trio.testing.wait_all_tasks_blocked()
    return service


@define(eq=False)
class TimedSink(RecordingSink):
    """Notes when it is told."""

    began: float = 0.0
    told_at: float = math.inf

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self.told_at = trio.current_time()


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


async def test_of_the_messages_of_one_read_each_has_its_own_outcome(autojump_clock, transfer):
    """One is held already, one waits, one is haSlaveFallbehindMax ahead of the slave; the next time, both wait."""
    sink, next_sink = RecordingSink(), RecordingSink()
    slave = Slave()
    transfer.join(slave, 100)
    transfer.wait_each([(100, b"held"), (101, b"waits"), (1100, b"ahead")], sink)
    assert (sink.answered, sink.refused) == ([b"held"], [(b"ahead", NOT_AVAILABLE)])
    transfer.acknowledge(slave, 1000)
    transfer.wait_each([(1200, b"1"), (1300, b"2")], next_sink)
    assert (transfer.waiting, transfer.push2_slave_max_offset) == (2, 1000)
    transfer.acknowledge(slave, 1300)
    assert (sink.answered, next_sink.answered, next_sink.calls) == ([b"held", b"waits"], [b"1", b"2"], 1)


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


async def test_an_ack_that_is_there_at_the_deadline_counts(autojump_clock, transfer):
    """Both tasks wake at the same moment, in any order: what is in the socket by then is looked at before anybody is refused."""
    slave, sink = Slave(), RecordingSink()
    transfer.join(slave, 0)

    async def acknowledge_at(deadline: float, end: int) -> None:
        await trio.sleep_until(deadline)
        transfer.acknowledge(slave, end)

    async with trio.open_nursery() as nursery:
        for end in range(1, 51):
            transfer.wait(end, sink, b"frame")
            nursery.start_soon(acknowledge_at, trio.current_time() + 3, end)
            await trio.sleep(3.5)
    assert (len(sink.answered), sink.refused) == (50, [])


async def test_a_slave_that_hangs_is_suspended_and_then_nobody_waits_for_it(autojump_clock, transfer):
    """One producer after the other, each for the whole time-out, three times; then 11 at once, until it holds everything."""
    slave, sink = Slave(), RecordingSink()
    transfer.join(slave, 0)
    with capture_logs() as logs:
        for end in range(1, 7):
            transfer.wait(end, sink, b"frame")
            if len(sink.refused) < end:
                await trio.sleep(3.001)
    assert [status for _, status in sink.refused] == [TIMEOUT] * 3 + [NOT_AVAILABLE] * 3
    assert "suspended: it missed 3 deadlines in a row" in sink.reasons[-1]
    assert "the slaves that are there are suspended" in sink.reasons[-1]
    assert [entry["peer"] for entry in logs if "slave suspended" in entry["event"]] == ["10.0.0.1:5000"]
    transfer.acknowledge(slave, 6)
    assert not transfer.slaves[0].suspended
    transfer.wait(7, sink, b"frame")
    transfer.acknowledge(slave, 7)
    assert sink.answered == [b"frame"]


async def test_many_producers_of_a_slave_that_hangs_are_all_told_within_one_time_out(autojump_clock, transfer):
    """A hundred a second: the first ones wait 3 s, and as soon as their deadlines are over nobody waits any more."""
    transfer.join(Slave(), 0)
    sinks = []
    for end in range(1, 601):
        sinks.append(TimedSink(began=trio.current_time()))
        transfer.wait(end, sinks[-1], b"frame")
        await trio.sleep(0.01)
    await trio.sleep(3)
    waits = [sink.told_at - sink.began for sink in sinks]
    assert max(waits) < 3.01
    assert max(wait for wait, sink in zip(waits, sinks, strict=True) if sink.began > 3.1) == 0


async def test_a_slave_that_hangs_costs_nothing_beside_one_that_does_not(autojump_clock, transfer):
    good, hung, sink = Slave(), Slave("10.0.0.2:5000", "10.0.0.2"), RecordingSink()
    transfer.join(good, 0)
    transfer.join(hung, 0)
    for end in range(1, 100):
        transfer.wait(end, sink, b"%d" % end)
        transfer.acknowledge(good, end)
        await trio.sleep(1)
    assert (len(sink.answered), sink.refused) == (99, [])
    shown = {slave.address: slave for slave in transfer.slaves}
    assert (shown["10.0.0.1:5000"].in_sync, shown["10.0.0.1:5000"].stalled) == (True, False)
    assert (shown["10.0.0.2:5000"].in_sync, shown["10.0.0.2:5000"].stalled) == (False, True)


async def test_as_many_as_inSyncReplicas_must_hold_it(autojump_clock):  # noqa: N802
    transfer, sink = GroupTransferService(HAConfig(in_sync_replicas=3)), RecordingSink()
    transfer.members_changed(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    slaves = [Slave(f"10.0.0.{n}:5000", f"10.0.0.{n}") for n in (1, 2, 3)]
    transfer.join(slaves[0], 0)
    transfer.wait(10, sink, b"too few")
    assert sink.refused == [(b"too few", NOT_AVAILABLE)]
    assert "2 needed, 1 there to wait for" in sink.reasons[0]
    for slave in slaves[1:]:
        transfer.join(slave, 0)
    transfer.wait(20, sink, b"frame")
    transfer.acknowledge(slaves[2], 20)
    assert (transfer.push2_slave_max_offset, transfer.confirmed_offset, sink.answered) == (20, 0, [])
    transfer.acknowledge(slaves[0], 20)
    assert (transfer.confirmed_offset, sink.answered) == (20, [b"frame"])


async def test_inSyncReplicas_1_asks_nobody(autojump_clock):  # noqa: N802
    transfer, sink = GroupTransferService(HAConfig(in_sync_replicas=1)), RecordingSink()
    transfer.wait(10, sink, b"frame")
    assert sink.answered == [b"frame"]


async def test_fewer_in_sync_than_minInSyncReplicas_is_a_refusal_with_the_reason(autojump_clock, nursery):  # noqa: N802
    transfer, slave = GroupTransferService(HAConfig(min_in_sync_replicas=2)), Slave()
    transfer.members_changed(["10.0.0.1"])
    nursery.start_soon(transfer.run)
    assert transfer.refusal is not None
    assert transfer.refusal.startswith("in-sync replicas not enough: 1 of this broker group are in sync")
    assert "minInSyncReplicas=2" in transfer.refusal
    assert "registered slaves: 10.0.0.1" in transfer.refusal
    transfer.join(slave, 0)
    assert transfer.refusal is None
    transfer.leave(slave)
    assert transfer.refusal is not None


async def test_slaves_of_a_new_epoch_are_waited_for_and_nothing_is_refused_meanwhile(autojump_clock, nursery):
    """As long as a message may wait for them; then all is as ever."""
    transfer, slave = GroupTransferService(HAConfig(min_in_sync_replicas=2)), Slave()
    transfer.members_changed(["10.0.0.1"])
    nursery.start_soon(transfer.run)
    transfer.expect_slaves()
    came, gone = RecordingSink(), TimedSink(began=trio.current_time())
    assert transfer.refusal is None
    transfer.wait(100, came, b"frame")
    await trio.sleep(0.5)
    transfer.join(slave, 100)
    assert came.answered == [b"frame"]
    transfer.leave(slave)
    assert transfer.refusal is None
    transfer.wait(200, gone, b"frame")
    await trio.sleep(2.6)
    assert transfer.refusal is not None
    await trio.sleep(2)
    assert gone.told_at == 3.5


async def test_minInSyncReplicas_1_never_refuses(autojump_clock, transfer):  # noqa: N802
    assert transfer.refusal is None


async def test_enableAutoInSyncReplicas_is_told_when_it_lowers(autojump_clock, nursery):  # noqa: N802
    """By what is in sync; a message that waits is answered by those that are left. Never without a line in the log."""
    config = HAConfig(in_sync_replicas=3, min_in_sync_replicas=2, auto_in_sync_replicas=True)
    end = [0]
    transfer, sink = GroupTransferService(config, lambda: end[0]), RecordingSink()
    transfer.members_changed(["10.0.0.1", "10.0.0.2"])
    one, other = Slave(), Slave("10.0.0.2:5000", "10.0.0.2")
    transfer.join(one, 0)
    transfer.join(other, 0)
    nursery.start_soon(transfer.run)
    assert transfer.decision.need == 3
    end[0] = 10
    transfer.wait(10, sink, b"frame")
    transfer.acknowledge(one, 10)
    assert sink.calls == 0
    with capture_logs() as logs:
        transfer.leave(other)
    assert (transfer.decision.need, sink.answered) == (2, [b"frame"])
    lowered = [entry for entry in logs if "how many members must hold" in entry["event"]]
    assert [(entry["log_level"], entry["need"], entry["in_sync"]) for entry in lowered] == [("warning", 2, 2)]
    transfer.leave(one)
    assert transfer.refusal is not None, "never below minInSyncReplicas"


async def test_much_that_does_not_wait_beside_a_little_that_does(autojump_clock, nursery):
    """Slow producers that wait beside a flood of WAIT=false: each is judged by its own message, and none gives up wrongly."""
    end = [0]
    transfer, slave, sink = GroupTransferService(HAConfig(), lambda: end[0]), Slave(), RecordingSink()
    transfer.members_changed(["10.0.0.1"])
    transfer.join(slave, 0)
    nursery.start_soon(transfer.run)

    async def lag_behind() -> None:
        """It never gets level with the log, and is always just in time."""
        on_the_way: deque[int] = deque()
        while True:
            await trio.sleep(0.1)
            on_the_way.append(end[0])
            if len(on_the_way) > 25:
                transfer.acknowledge(slave, on_the_way.popleft())

    nursery.start_soon(lag_behind)
    for step in range(10_000):
        end[0] += 1000
        if step % 40 == 0:
            transfer.wait(end[0], sink, b"frame")
        await trio.sleep(0.01)
    await trio.sleep(6)
    assert (len(sink.answered), sink.refused) == (250, [])
    nursery.cancel_scope.cancel()


async def test_how_long_producers_waited_is_counted_by_outcome(autojump_clock, transfer):
    """One note for a released prefix; whoever need not wait is not counted."""
    slave, sink = Slave(), RecordingSink()
    transfer.wait(5, sink, b"too few")
    transfer.join(slave, 0)
    for end in range(10, 20):
        transfer.wait(end, sink, b"frame")
    await trio.sleep(0.2)
    transfer.acknowledge(slave, 15)
    await trio.sleep(5)
    counted = {outcome: sum(taken.counts) for (_, outcome), taken in transfer.waits.taken().items()}
    assert counted == {"not_available": 1, "confirmed": 6, "timeout": 4}
    taken = transfer.waits.taken()
    assert taken[2, "confirmed"].counts[BOUNDS.index(0.25)] == 6
    assert taken[2, "timeout"].sum == pytest.approx(12, abs=0.2)
    assert sum(transfer.waits.recent()) == 10
