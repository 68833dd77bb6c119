"""How fast a slave is sent bytes: the bucket alone, and a connection in virtual time."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.ha.connections import FILE_SIZE, Master
from tests.helpers import log_bytes, open_store, put
from twinlog.ha.config import HAConfig
from twinlog.ha.policy.flow import BURST_MIN, FlowControl
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER


@given(
    rate=st.integers(1024, 1 << 30),
    steps=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_never_more_than_the_rate_and_a_burst(rate, steps):
    """Whoever sends at most what is allowed has sent, at any time, no more than the rate so far and two bursts."""
    flow, now, sent = FlowControl(rate), 0.0, 0
    for pause, share in steps:
        now += pause
        size = int(flow.allowed(now) * share)
        flow.sent(size)
        sent += size
        assert sent <= rate * now + 2 * max(BURST_MIN, rate * 0.02) + 1


@given(rate=st.integers(1024, 1 << 30), spent=st.floats(0, 1))
def test_who_waits_as_told_may_send_a_frame(rate, spent):
    flow = FlowControl(rate)
    flow.sent(int(flow.allowed(0.0) * spent))
    assert flow.allowed(flow.seconds_until_burst()) > flow.frame_min


async def read_frames(master: Master, end: int) -> tuple[list[int], bytes]:
    """The sizes of all frames up to the log's end, heartbeats included, and their bodies."""
    sizes, log = [], b""
    while len(log) < end:
        offset, size = BATCH_HEADER.unpack(await master.receive(BATCH_HEADER.size))
        assert offset == len(log)
        log += await master.receive(size)
        sizes.append(size)
    return sizes, log


@pytest.mark.parametrize("rate", [2_000, 10_000, 50_000])
async def test_the_limit_holds_within_three_percent_and_no_frame_is_empty(autojump_clock, nursery, tmp_path, rate):
    """RocketMQ 5.3.3, told 10,000 B/s, sends 4.2 MB/s, as it counts headers only; then it sends empty frames without a pause."""
    store = open_store(tmp_path, file_size=FILE_SIZE)
    end = put(store, *[bytes([n]) * 1000 for n in range(100)])
    limited = HAConfig(flow_control_enable=True, max_transfer_byte_in_second=rate, housekeeping_interval_ms=10**6)
    master = Master(store, config=limited)
    nursery.start_soon(master.run)
    await master.slave.send_all(ACK.pack(0))
    with trio.fail_after(200):
        sizes, log = await read_frames(master, end)
    assert log == log_bytes(store)
    assert min(sizes) > 0
    wire = end + len(sizes) * BATCH_HEADER.size
    assert wire / trio.current_time() == pytest.approx(rate, rel=0.03)


async def test_without_the_switch_nothing_is_bounded(autojump_clock, nursery, tmp_path):
    store = open_store(tmp_path, file_size=FILE_SIZE)
    end = put(store, *[b"x" * 1000] * 100)
    master = Master(store, config=HAConfig(max_transfer_byte_in_second=2_000))
    nursery.start_soon(master.run)
    await master.slave.send_all(ACK.pack(0))
    await read_frames(master, end)
    assert trio.current_time() == 0


async def test_heartbeats_come_whatever_the_limit(autojump_clock, nursery, tmp_path):
    store = open_store(tmp_path, file_size=FILE_SIZE)
    put(store, b"x")
    limited = HAConfig(flow_control_enable=True, max_transfer_byte_in_second=1024, send_heartbeat_interval_ms=5_000)
    master = Master(store, config=limited)
    nursery.start_soon(master.run)
    await master.slave.send_all(ACK.pack(store.max_offset))
    for beat in range(1, 4):
        assert BATCH_HEADER.unpack(await master.receive(12)) == (store.max_offset, 0)
        assert trio.current_time() == pytest.approx(5 * beat)
        await master.slave.send_all(ACK.pack(store.max_offset))
