"""Where a stream begins."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ha.connections import FILE_SIZE, Master
from tests.helpers import log_bytes, open_store, put
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HARefusedError
from twinlog.ha.master.connection_admission import LogBudget
from twinlog.ha.policy.pushing import BURST_MIN, AppendStamps, FlowControl, push_start
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER


@pytest.mark.parametrize(
    ("requested", "start"),
    [
        (0, 2048),  # An empty slave gets the first file that is left; RocketMQ would send the last one only.
        (2048, 2048),
        (2049, 2049),  # Inside a record: normal for a RocketMQ slave.
        (5000, 5000),
    ],
)
def test_requests_that_are_served(requested, start):
    assert push_start(requested, 2048, 5000, 1024) == start


@pytest.mark.parametrize(
    ("requested", "cause", "complaint"),
    [
        (-1, "bad_request", "offset -1"),
        (-(2**63), "bad_request", "offset -"),
        (5001, "over_max", "1 bytes that this master lacks"),
        (2**63 - 1, "over_max", "lacks"),
        (1, "below_min", "begins at 2048"),
        (2047, "below_min", "begins at 2048"),
    ],
)
def test_requests_that_cannot_be_served(requested, cause, complaint):
    with pytest.raises(HARefusedError, match=complaint) as refused:
        push_start(requested, 2048, 5000, 1024)
    assert refused.value.cause == cause


def test_an_empty_log_serves_an_empty_slave():
    assert push_start(0, 0, 0, 1024) == 0


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


def test_ages():
    stamps = AppendStamps()
    for offset, now in (100, 10.0), (200, 20.0), (200, 25.0), (300, 30.0):
        stamps.note(offset, now)
    assert stamps.age(300, 300, 40.0) == 0.0  # Lacks nothing.
    assert stamps.age(299, 300, 40.0) == 10.0
    assert stamps.age(200, 300, 40.0) == 10.0
    assert stamps.age(150, 300, 40.0) == 20.0
    assert stamps.age(99, 300, 40.0) is None  # From before the first stamp.
    assert stamps.age(300, 350, 40.0) == 0.0  # Appended just now, not stamped yet.


@settings(max_examples=30)
@given(st.integers(1, 50_000), st.floats(0, 1))
def test_old_stamps_get_thinner_and_stay_near_the_truth(count, where):
    """One byte each 0.1 s, up to more than an hour."""
    stamps = AppendStamps()
    for number in range(count):
        stamps.note(number, number * 0.1)
    ack = int(where * count)
    age = stamps.age(ack, count + 1, count * 0.1)
    assert age is not None
    assert (count - ack - 1) * 0.1 * 0.99 - 0.2 <= age <= (count - ack) * 0.1


def test_log_lines_are_limited_and_counted():
    limit = LogBudget(burst=3, per_second=0.5)
    assert [limit.allows(1.0) for _ in range(5)] == [True, True, True, False, False]
    assert limit.suppressed == 2
    assert not limit.allows(2.9)
    assert limit.allows(3.1)
