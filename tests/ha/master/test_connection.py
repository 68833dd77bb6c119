"""The master's side of one slave, over memory and in virtual time."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.ha.connections import FILE_SIZE, Master, start
from tests.helpers import RecordingSink, log_bytes, open_store, put
from twinlog.ha.errors import HAConnectionLostError, HALogError, HARefusedError
from twinlog.ha.master.connection import Drain
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER, NO_REQUEST_YET


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "master", file_size=FILE_SIZE)


async def test_an_empty_slave_gets_the_whole_log_and_then_each_message(autojump_clock, nursery, store):
    end = put(store, *[b"x" * 1000] * 40)
    assert end > 2 * FILE_SIZE
    master = await start(nursery, store)
    await master.report(0)
    assert await master.receive_log(0, end) == log_bytes(store)
    new_end = put(store, b"one more")
    assert await master.receive_log(end, new_end) == log_bytes(store)[end:]
    assert trio.current_time() == 0


async def test_no_frame_crosses_the_end_of_a_file(autojump_clock, nursery, store):
    put(store, *[b"x" * 1000] * 40)
    master = await start(nursery, store)
    await master.report(0)
    at = 0
    while at < store.max_offset:
        phy_offset, size = BATCH_HEADER.unpack(await master.receive(12))
        assert phy_offset == at
        assert size == min(FILE_SIZE - at % FILE_SIZE, store.max_offset - at)  # Grown as far as can be.
        at += len(await master.receive(size))


async def test_frames_stay_as_small_as_they_are_told_to(autojump_clock, nursery, store):
    put(store, *[b"x" * 1000] * 4)
    master = await start(nursery, store, transfer_batch_size=100, transfer_batch_size_max=100)
    await master.report(0)
    assert BATCH_HEADER.unpack(await master.receive(12)) == (0, 100)


async def test_a_request_inside_a_record_is_served_from_there(autojump_clock, nursery, store):
    end = put(store, b"x" * 1000)
    master = await start(nursery, store)
    await master.report(77)
    assert await master.receive_log(77, end) == log_bytes(store)[77:]


async def test_signs_of_life_before_the_request_change_nothing(autojump_clock, nursery, store):
    end = put(store, b"x")
    master = await start(nursery, store)
    await master.report(NO_REQUEST_YET)
    await master.report(NO_REQUEST_YET, NO_REQUEST_YET)
    assert (master.requests, master.transfer.slaves) == ([], ())
    await master.report(NO_REQUEST_YET, 0)
    assert master.requests == [master.connection]
    assert await master.receive_log(0, end) == log_bytes(store)


async def test_a_request_cut_into_bytes(autojump_clock, nursery, store):
    end = put(store, *[b"x"] * 3)
    master = await start(nursery, store)
    for byte in ACK.pack(end):
        await master.slave.send_all(bytes([byte]))
        await wait_all_tasks_blocked()
    assert master.transfer.push2_slave_max_offset == end


@pytest.mark.parametrize("request_offset", [-2, -(2**63), 2**40, 2**63 - 1])
async def test_a_request_that_cannot_be_ends_the_connection(autojump_clock, nursery, store, request_offset):
    put(store, b"x")
    master = await start(nursery, store)
    await master.report(request_offset)
    await master.ended.wait()
    assert isinstance(master.error, HARefusedError)
    assert master.requests == []
    assert (master.transfer.slaves, master.transfer.push2_slave_max_offset) == ((), 0)
    assert await master.slave.receive_some() == b""


async def test_one_past_the_end_is_too_much_and_the_end_is_not(autojump_clock, nursery, store):
    end = put(store, b"x")
    refused, served = await start(nursery, store), await start(nursery, store)
    await refused.report(end + 1)
    await served.report(end)
    assert isinstance(refused.error, HARefusedError)
    assert served.transfer.push2_slave_max_offset == end


@pytest.mark.parametrize(
    ("reports", "complaint"),
    [
        ([0, 300, 299], "cannot fall"),
        ([0, NO_REQUEST_YET], "cannot fall"),
        ([0, 2**40], "were sent"),
        ([0, 300, 2**40], "were sent"),
    ],
)
async def test_reports_that_cannot_be_end_it_and_count_for_nothing(autojump_clock, nursery, store, reports, complaint):
    """Not even the sound ones that came with them in one read."""
    put(store, b"x" * 1000)
    sink, master = RecordingSink(), await start(nursery, store)
    await master.report(reports[0])
    master.transfer.wait(300, sink, b"frame")
    await master.report(*reports[1:])
    await master.ended.wait()
    assert isinstance(master.error, HARefusedError)
    assert complaint in str(master.error)
    assert (master.transfer.push2_slave_max_offset, master.transfer.slaves, sink.calls) == (0, (), 0)


async def test_what_was_not_sent_on_this_connection_cannot_be_acknowledged(autojump_clock, nursery, store):
    """Although the log has it."""
    end = put(store, b"x" * 1000)
    master = await start(nursery, store, transfer_batch_size=100, transfer_batch_size_max=100)
    master.slave.receive_stream.close()  # The master's sending fails, its reading does not.
    await master.report(0, end)
    await master.ended.wait()
    assert master.transfer.push2_slave_max_offset == 0


async def test_an_ack_may_overtake_the_return_of_the_send(autojump_clock, nursery, store):
    """Bytes count as sent from before the call on."""
    end = put(store, b"x" * 1000)
    master = await start(nursery, store)

    async def ack_before_send_returns() -> None:
        if master.connection.sent_offset == end:
            await master.slave.send_all(ACK.pack(end))
            await wait_all_tasks_blocked()
            assert master.transfer.push2_slave_max_offset == end

    ours = master.connection.transport.stream
    ours.send_stream.send_all_hook = ack_before_send_returns
    await master.report(0)
    assert (master.error, master.transfer.push2_slave_max_offset) == (None, end)


async def test_acks_release_producers(autojump_clock, nursery, store):
    end = put(store, b"x")
    sink, master = RecordingSink(), await start(nursery, store)
    await master.report(0)
    master.transfer.wait(end, sink, b"frame")
    await master.receive_log(0, end)
    await master.report(end)
    assert sink.answered == [b"frame"]


async def test_a_silent_log_sends_heartbeats(autojump_clock, nursery, store):
    """One after each 5 s without anything else, with the next offset."""
    end = put(store, b"x")
    master = await start(nursery, store)
    await master.report(end)
    for beat in 5, 10, 15:
        assert await master.receive(12) == BATCH_HEADER.pack(end, 0)
        assert trio.current_time() == pytest.approx(beat)
        await master.report(end)
    await trio.sleep(3)
    new_end = put(store, b"y")
    await master.receive_log(end, new_end)
    await master.report(new_end)
    assert await master.receive(12) == BATCH_HEADER.pack(new_end, 0)
    assert trio.current_time() == pytest.approx(23)


async def test_a_slave_of_rocketmq_waits_five_seconds_and_gets_its_heartbeat_at_once(autojump_clock, nursery, store):
    master = await start(nursery, store)
    await trio.sleep(5.01)
    await master.report(0)
    assert await master.receive(12) == BATCH_HEADER.pack(0, 0)
    assert trio.current_time() == pytest.approx(5.01)


@pytest.mark.parametrize("before", [[], [0]])
async def test_a_silent_peer_is_dropped_after_twenty_seconds(autojump_clock, nursery, store, before):
    """With a request or without."""
    master = await start(nursery, store)
    if before:
        await master.report(*before)
    await master.ended.wait()
    assert trio.current_time() == pytest.approx(20)
    assert isinstance(master.error, HAConnectionLostError)


async def test_signs_of_life_do_not_replace_the_request(autojump_clock, nursery, store):
    master = await start(nursery, store)
    for _ in range(5):
        await master.report(NO_REQUEST_YET)
        await trio.sleep(3.9)
    await master.ended.wait()
    assert trio.current_time() == pytest.approx(20)


async def test_bytes_that_make_no_report_are_no_sign_of_life(autojump_clock, nursery, store):
    """One each 5 s, after a sound request."""
    master = await start(nursery, store)
    await master.report(0)
    for _ in range(7):
        await trio.sleep(5)
        if not master.ended.is_set():
            await master.slave.send_all(b"\0")
            await wait_all_tasks_blocked()
    assert master.ended.is_set()
    assert isinstance(master.error, HAConnectionLostError)
    assert "silent for 20 s" in str(master.error)


async def test_a_slave_that_reports_but_takes_nothing_is_dropped(autojump_clock, nursery, store):
    """RocketMQ keeps it for ever: it looks at reports only."""
    put(store, b"x" * 1000)
    master = await start(nursery, store)

    async def never() -> None:
        await trio.sleep_forever()

    master.connection.transport.stream.send_stream.send_all_hook = never
    for _ in range(30):
        await trio.sleep(1)
        if not master.ended.is_set():
            await master.report(0)
    assert master.ended.is_set()
    assert isinstance(master.error, HAConnectionLostError)
    assert "took none of" in str(master.error)


async def test_a_slave_that_takes_a_little_now_and_then_is_kept(autojump_clock, nursery, store):
    put(store, *[b"x" * 1000] * 40)
    master = await start(nursery, store, transfer_batch_size=100, transfer_batch_size_max=100)

    async def slowly() -> None:
        await trio.sleep(15)

    master.connection.transport.stream.send_stream.send_all_hook = slowly
    for _ in range(60):
        await master.report(0)
        await trio.sleep(5)
    assert not master.ended.is_set()


async def test_a_request_and_an_ack_in_one_read_count_together_or_not_at_all(autojump_clock, nursery, store):
    end = put(store, b"x")
    sound, forged = await start(nursery, store), await start(nursery, store)
    await sound.report(end, end)
    assert (sound.error, sound.transfer.push2_slave_max_offset) == (None, end)
    await forged.report(end, 2**62)
    assert isinstance(forged.error, HARefusedError)
    assert (forged.error.cause, forged.requests, forged.transfer.push2_slave_max_offset) == ("bad_ack", [], 0)


def test_a_peer_that_takes_no_bytes_is_told_from_one_that_has_none_to_take():
    drain = Drain(0.0)
    assert drain.stuck_seconds(1000, 0, 5.0) == 0  # All taken.
    assert drain.stuck_seconds(2000, 900, 10.0) == 0  # 100 more were.
    assert drain.stuck_seconds(2000, 900, 15.0) == 5
    assert drain.stuck_seconds(2000, 912, 20.0) == 10  # A heartbeat came on top.
    assert drain.stuck_seconds(3000, 1912, 25.0) == 15  # So did bytes of the log.
    assert drain.stuck_seconds(3000, 1800, 30.0) == 0
    assert drain.stuck_seconds(3000, 1800, 31.0) == 1
    assert drain.stuck_seconds(3000, 0, 90.0) == 0


async def test_a_slave_that_reports_is_kept_for_ever(autojump_clock, nursery, store):
    master = await start(nursery, store)
    for _ in range(30):
        await master.report(0)
        await trio.sleep(19)
    assert not master.ended.is_set()


async def test_a_slave_that_leaves_is_forgotten(autojump_clock, nursery, store):
    end = put(store, b"x")
    master = await start(nursery, store)
    await master.report(end)
    assert master.transfer.push2_slave_max_offset == end
    await master.slave.aclose()
    await master.ended.wait()
    assert (master.error, master.transfer.push2_slave_max_offset, store.appended) == (None, 0, [])


async def test_a_probe_that_leaves_without_a_byte_is_no_error(autojump_clock, nursery, store):
    master = await start(nursery, store)
    await master.slave.aclose()
    await master.ended.wait()
    assert (master.error, master.requests) == (None, [])


async def test_half_a_request_and_an_end(autojump_clock, nursery, store):
    master = await start(nursery, store)
    await master.slave.send_all(b"\0\0\0")
    await master.slave.aclose()
    await master.ended.wait()
    assert isinstance(master.error, HAConnectionLostError)


async def test_a_log_that_loses_what_comes_next_ends_the_connection(autojump_clock, nursery, store):
    """RocketMQ leaves such a slave alive on heartbeats for ever."""
    put(store, *[b"x" * 1000] * 40)
    master = await start(nursery, store)
    ours = master.connection.transport.stream

    async def lose_first_file() -> None:
        ours.send_stream.send_all_hook = None
        store.commit_log.files.files.pop(0).delete()
        store.commit_log.files.files.pop(0).delete()

    ours.send_stream.send_all_hook = lose_first_file
    await master.report(0)
    await master.ended.wait()
    assert isinstance(master.error, HALogError)


async def test_two_slaves_at_different_pace(autojump_clock, nursery, store):
    """The fast one releases producers, whatever the slow one does."""
    transfer, sink = GroupTransferService(), RecordingSink()
    fast, slow = Master(store, transfer), Master(store, transfer)
    transfer.members_changed(["10.0.0.1", "10.0.0.1"])
    for master in fast, slow:
        nursery.start_soon(master.run)
        await master.report(0)
    for _ in range(5):
        end = put(store, b"x" * 100)
        transfer.wait(end, sink, b"frame")
        await fast.receive_log(fast.connection.ack_offset, end)
        await fast.report(end)
    assert len(sink.answered) == 5
    assert [slave.ack_offset for slave in transfer.slaves] == [end, 0]
    assert await slow.receive_log(0, end) == log_bytes(store)
    await fast.slave.aclose()
    await fast.ended.wait()
    assert transfer.push2_slave_max_offset == 0
    await slow.report(end)
    assert transfer.push2_slave_max_offset == end
