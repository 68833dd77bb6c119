"""Pulling a range: everything once and in order, from whoever has it; loss is never silent, and nothing loops."""

import pytest
import trio

from tests.cluster.pipeline.topics.fake_api import MASTER, QUEUE, SLAVE, FakeApi, Member, options, record
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.offsets import Range
from twinlog.cluster.pipeline.topics.pulling import CUT_SECONDS, HELD_MAX, LANES, QueuePart, RangePuller
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingTimeoutError, RequestError


async def pull(api, start, end, **more):
    """The offsets that a range has, and the warnings."""
    found, warnings = [], []

    async def take(pieces):
        await trio.sleep(0.1)  # A slow reader.
        found.extend(offset for piece in pieces for offset in piece.offsets)

    part = QueuePart(Range(QUEUE, start, end), api.group)
    with trio.fail_after(1000):
        await RangePuller(api, part, options(**more), take, warnings.append).run()
    return found, warnings


@pytest.mark.parametrize("most", [1, 8, 32])
async def test_a_range_is_pulled_once_and_in_order(autojump_clock, most):
    api = FakeApi({MASTER: Member(5, 3000)}, most=most)
    assert await pull(api, 7, 2500) == (list(range(7, 2500)), [])


async def test_pulls_go_where_brokers_suggest_and_back_when_that_one_lags(autojump_clock):
    """The slave has less: what it lacks comes from the master."""
    master, slave = Member(0, 1000, suggests=1), Member(0, 600, suggests=1)
    api = FakeApi({MASTER: master, SLAVE: slave}, addresses={0: MASTER, 1: SLAVE})
    assert await pull(api, 0, 1000) == (list(range(1000)), [])
    assert min(slave.asked) < 600
    assert max(master.asked) > 600


async def test_a_slave_that_keeps_less_is_no_loss(autojump_clock):
    master, slave = Member(0, 1000, suggests=1), Member(500, 1000, suggests=1)
    api = FakeApi({MASTER: master, SLAVE: slave}, addresses={0: MASTER, 1: SLAVE})
    assert await pull(api, 0, 1000) == (list(range(1000)), [])


async def test_while_the_master_is_silent_a_slave_is_read(autojump_clock):
    """What is planned is confirmed, so it is there; nobody waits for a new master."""
    slave = Member(0, 1000)  # It suggests the master.
    api = FakeApi({SLAVE: slave}, addresses={0: MASTER, 1: SLAVE})
    assert await pull(api, 0, 1000, broker_wait_ms=1000) == (list(range(1000)), [])
    assert trio.current_time() < 15


async def test_large_messages_do_not_fill_the_memory(autojump_clock):
    """While a task does not take what is there, no more than a bound is pulled; then all comes, in order."""
    api = FakeApi({MASTER: Member(0, 400, bytes_of=lambda offset: record(offset, bytes(1 << 20)))}, most=1)
    puller, found, most = None, [], 0

    async def take(pieces):
        nonlocal most
        await trio.sleep(1)
        most = max(most, puller._held)
        found.extend(offset for piece in pieces for offset in piece.offsets)

    puller = RangePuller(api, QueuePart(Range(QUEUE, 0, 400), api.group), options(), take, found.append)
    with trio.fail_after(1000):
        await puller.run()
    assert found == list(range(400))
    assert HELD_MAX <= most <= HELD_MAX + (LANES << 21)
    assert puller._held == 0


async def test_what_retention_removed_is_an_error_or_a_warning(autojump_clock):
    api = FakeApi({MASTER: Member(100, 300)})
    with pytest.raises(ReadRefusedError, match=r"messages 90 to 95 are gone.*failOnDataLoss=false") as error:
        await pull(api, 90, 96)
    assert "begins at 100 now" in str(error.value)
    found, warnings = await pull(api, 90, 250, fail_on_data_loss=False)
    assert found == list(range(100, 250))
    assert len(warnings) == 1
    assert "messages 90 to 99 are gone" in warnings[0]


async def test_blanks_of_a_repaired_queue_are_told_and_read_over(autojump_clock):
    api = FakeApi({MASTER: Member(0, 300, missing=set(range(10, 200)))})
    found, warnings = await pull(api, 0, 300)
    assert found == [*range(10), *range(200, 300)]
    assert len(warnings) == 1
    assert "there are no messages 10 to 199" in warnings[0]


async def test_a_gap_that_rocketmq_has_is_loss(autojump_clock):
    """Its files are removed before its queues are corrected."""
    api = FakeApi({MASTER: Member(0, 300, missing=set(range(40)))}, is_twinlog=False)
    with pytest.raises(ReadRefusedError, match="are gone"):
        await pull(api, 0, 300)
    found, warnings = await pull(api, 0, 300, fail_on_data_loss=False)
    assert found == list(range(40, 300))
    assert warnings


EACH_70TH = {*range(9000)} - {*range(0, 9000, 70)}


@pytest.mark.parametrize(("start", "pulls"), [(3, 1), (70, 0)])
async def test_gaps_of_a_filter_are_no_loss(autojump_clock, start, pulls):
    """One pull looks whether the first message is there, where the filter leaves it out."""
    api = FakeApi({MASTER: Member(0, 9000, filtered=EACH_70TH)}, is_twinlog=False)
    assert await pull(api, start, 8990, wanted="a") == (list(range(70, 8990, 70)), [])
    assert api.plain_pulls == pulls


@pytest.mark.parametrize("removed", [1, 31, 500, 5000])
async def test_what_retention_removed_is_found_under_a_filter(autojump_clock, removed):
    """The queue's start does not show it yet, as on RocketMQ."""
    api = FakeApi({MASTER: Member(0, 9000, missing=set(range(3, 3 + removed)), filtered=EACH_70TH)}, is_twinlog=False)
    with pytest.raises(ReadRefusedError, match=r"messages 3 to \d+ are gone.*failOnDataLoss=false"):
        await pull(api, 3, 8990, wanted="a")
    found, warnings = await pull(api, 3, 8990, wanted="a", fail_on_data_loss=False)
    assert found == [offset for offset in range(70, 8990, 70) if offset >= 3 + removed]
    (warning,) = warnings
    assert f"messages 3 to {2 + removed} are gone" in warning


async def test_all_of_a_filtered_range_is_gone(autojump_clock):
    api = FakeApi({MASTER: Member(0, 300, missing=set(range(250)), filtered={*range(300)})}, is_twinlog=False)
    found, (warning,) = await pull(api, 10, 200, wanted="a", fail_on_data_loss=False)
    assert found == []
    assert "messages 10 to 199 are gone" in warning


async def test_a_blank_before_a_filtered_range_is_told(autojump_clock):
    """Of twinlog, whose queues begin where their messages do."""
    api = FakeApi({MASTER: Member(0, 300, missing={0, 1, 90}, filtered={*range(50)})})
    found, (warning,) = await pull(api, 0, 200, wanted="a")
    assert found == [offset for offset in range(50, 200) if offset != 90]
    assert "there are no messages 0 to 1" in warning


async def test_a_filtered_range_is_checked_where_it_is_read(autojump_clock):
    """The master suggests a slave, which still has what the master has removed; without the master the slave is enough."""
    master = Member(0, 300, suggests=1, missing={0, 1}, filtered={*range(50)})
    slave = Member(0, 300, suggests=1, filtered={*range(50)})
    api = FakeApi({MASTER: master, SLAVE: slave}, addresses={0: MASTER, 1: SLAVE}, is_twinlog=False)
    with pytest.raises(ReadRefusedError, match="messages 0 to 1 are gone"):
        await pull(api, 0, 300, wanted="a")
    del api.members[MASTER]
    assert await pull(api, 0, 300, wanted="a", broker_wait_ms=1000) == (list(range(50, 300)), [])


async def test_a_queue_that_was_cut_is_told_after_a_while(autojump_clock):
    api = FakeApi({MASTER: Member(0, 50)})
    with pytest.raises(ReadRefusedError, match=r"up to 80, and ends at 50 now"):
        await pull(api, 0, 80)
    assert CUT_SECONDS <= trio.current_time() < CUT_SECONDS + 5
    found, warnings = await pull(api, 0, 80, fail_on_data_loss=False)
    assert found == list(range(50))
    assert "ends at 50 now" in warnings[0]


async def test_a_new_master_is_found(autojump_clock):
    """The old one is gone in the middle; the new one is registered later, and has to build its queue first."""
    old, new = Member(0, 2000), Member(0, 900)
    api = FakeApi({MASTER: old}, addresses={0: MASTER, 1: SLAVE})

    async def fail_over():
        await trio.sleep(0.05)
        del api.members[MASTER]
        await trio.sleep(20)
        api.members[SLAVE] = new
        api.addresses = {0: SLAVE}
        await trio.sleep(5)
        new.end = 2000

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_over)
        assert await pull(api, 0, 2000) == (list(range(2000)), [])


async def test_a_broker_that_stays_away_is_an_error_in_the_end(autojump_clock):
    with pytest.raises(ReadRefusedError, match=r"from master:1 for \d+ s: .*Connection refused.* Check that it runs"):
        await pull(FakeApi({}), 0, 10, broker_wait_ms=7000)
    assert 7 <= trio.current_time() < 9


@pytest.mark.parametrize(
    ("error", "seconds", "word"),
    [
        (RequestError(ResponseCode.NO_PERMISSION, "the topic is forbidden"), 0, "may SUB"),
        (RequestError(1, "AclException: wrong signature"), 0, "secretKey"),
        (RequestError(1, "The broker does not support consumer to filter message by SQL92"), 0, "enablePropertyFilter"),
        (RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse failed"), 0, "correct it"),
        (RequestError(ResponseCode.TOPIC_NOT_EXIST, "no topic"), 5, "topic's name"),
        (RequestError(ResponseCode.SYSTEM_BUSY, "busy"), 5, "Its log tells more"),
        (RemotingTimeoutError(MASTER, 11, 3000), 60, "no answer"),
    ],
)
async def test_refusals_say_what_to_do(autojump_clock, error, seconds, word):
    api = FakeApi({MASTER: Member(0, 10, errors=[error])})
    with pytest.raises(ReadRefusedError, match=word):
        await pull(api, 0, 10)
    assert seconds <= trio.current_time() < seconds + 2


async def test_a_short_refusal_does_not_matter(autojump_clock):
    busy = RequestError(ResponseCode.SYSTEM_BUSY, "busy")
    member = Member(0, 100, errors=[busy] * 5)

    async def calm():
        await trio.sleep(1)
        member.errors.clear()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(calm)
        assert await pull(FakeApi({MASTER: member}), 0, 100) == (list(range(100)), [])


@pytest.mark.parametrize(
    "bytes_of",
    [
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9,
        lambda offset: record(offset)[:-3],
        lambda _: record(3) + record(2),
    ],
)
async def test_what_is_no_record_is_told(autojump_clock, bytes_of):
    api = FakeApi({MASTER: Member(0, 5, bytes_of=bytes_of)}, most=1)
    with pytest.raises(ReadRefusedError, match="is no records"):
        await pull(api, 0, 5)
