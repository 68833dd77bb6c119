"""What a cluster is asked before anything is read: ends of queues, places, what is away."""

import pytest
from pyspark.sql.types import StructType

from tests.cluster.pipeline.topics.fake_api import MASTER, QUEUE, SLAVE, FakeApi, Member, options, record
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.datasource import TopicStreamReader
from twinlog.cluster.pipeline.topics.offsets import Ends
from twinlog.cluster.pipeline.topics.options import Chosen, Place
from twinlog.cluster.pipeline.topics.survey import Surveyor
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.route import MessageQueue


async def surveyed(api, **more):
    """The survey of T."""
    return await Surveyor(api, options(**more)).survey()


async def place_of(api, *, end=False, **place):
    """The offset of the only queue."""
    surveyor = Surveyor(api, options(fail_on_data_loss=place.pop("fails", True)))
    where = Place(**{"option": "startingOffsets", "otherwise": -2, **place})
    return (await surveyor.places(await surveyor.survey(), where))[QUEUE]


@pytest.mark.parametrize(
    ("confirmed", "end"), [(0, 20), (29_999, 30), (29_096, 30), (29_095, 29), (99_999, 100), (None, 100)]
)
async def test_a_queue_ends_where_it_is_confirmed(autojump_clock, confirmed, end):
    """Records are 96 bytes, 1000 apart."""
    api = FakeApi({MASTER: Member(20, 100)}, confirmed=confirmed)
    assert len(record(0)) == 96
    survey = await surveyed(api)
    assert survey.queues == {QUEUE: Ends(20, end)}
    assert survey.queues[QUEUE].written == 100
    assert survey.clusters == {"b": "C"}


def test_what_is_not_confirmed_for_a_while_is_not_cut():
    """After a failover the new master waits for its slaves. What it does not have at all is cut."""
    reader = TopicStreamReader(options(), StructType())
    now = Ends(20, 20, written=100)
    reader._short_since[QUEUE] = float("-inf")
    with pytest.raises(ReadRefusedError, match="up to 101, and ends at 20 now"):
        reader._start(QUEUE, 101, now)
    assert reader._start(QUEUE, 100, now) == 100


async def test_rocketmq_does_not_say_what_is_confirmed(autojump_clock):
    assert (await surveyed(FakeApi({MASTER: Member(20, 100)}, confirmed=0, is_twinlog=False))).ends == {QUEUE: 100}


async def test_without_a_master_a_slave_is_asked(autojump_clock):
    api = FakeApi({SLAVE: Member(0, 7)}, addresses={1: SLAVE})
    assert (await surveyed(api)).queues == {QUEUE: Ends(0, 7, by_master=False)}


async def test_a_broker_that_is_away_is_named(autojump_clock):
    survey = await surveyed(FakeApi({}))
    assert survey.queues == {}
    assert survey.all_queues == {QUEUE}
    assert "Connection refused" in survey.away["b"]
    with pytest.raises(ReadRefusedError, match="the broker b does not answer, and this read needs its queues"):
        survey.require("this read")


async def test_missing_rights_are_an_error_at_once(autojump_clock):
    member = Member(0, 7, errors=[RequestError(ResponseCode.NO_PERMISSION, "no")])
    with pytest.raises(ReadRefusedError, match="may SUB"):
        await surveyed(FakeApi({MASTER: member}))


async def test_queues_that_are_not_assigned_are_left_out(autojump_clock):
    other = Chosen(queues=frozenset({MessageQueue("T", "b", 5)}))
    assert (await surveyed(FakeApi({MASTER: Member(0, 7)}), chosen=other)).all_queues == frozenset()


@pytest.mark.parametrize(("wanted", "found"), [(-2, 10), (-1, 90), (10, 10), (55, 55), (90, 90)])
async def test_offsets_are_places(autojump_clock, wanted, found):
    assert await place_of(FakeApi({MASTER: Member(10, 90)}), named={QUEUE: wanted}) == found


@pytest.mark.parametrize(("wanted", "nearest"), [(9, 10), (91, 90)])
async def test_offsets_out_of_range_are_refused_or_the_nearest_is_taken(autojump_clock, wanted, nearest):
    api = FakeApi({MASTER: Member(10, 90)})
    with pytest.raises(
        ReadRefusedError, match=rf"startingOffsets: {wanted} is no offset of queue 0 of T on b, which has 10 to 90"
    ):
        await place_of(api, named={QUEUE: wanted})
    assert await place_of(api, named={QUEUE: wanted}, fails=False) == nearest


async def test_a_queue_that_nobody_has_is_refused(autojump_clock):
    with pytest.raises(ReadRefusedError, match="queue 7 of T on x, which no broker"):
        await place_of(FakeApi({MASTER: Member(10, 90)}), named={MessageQueue("T", "x", 7): 1})


@pytest.mark.parametrize("time_ms", [0, 5_010, 5_011, 5_012, 5_014, 5_015, 5_018, 5_030, 5_039, 5_040, 9_999])
async def test_a_time_is_the_first_message_at_or_after_it(autojump_clock, time_ms):
    """Three messages in each ms, and a few ms without any."""

    def stored(offset):
        return record(offset, store_timestamp=5_010 + (offset - 10) // 3 if offset < 25 else 5_010 + offset // 3)

    api = FakeApi({MASTER: Member(10, 90, bytes_of=stored)})
    times = {offset: 5_010 + ((offset - 10) // 3 if offset < 25 else offset // 3) for offset in range(10, 90)}
    expected = next((offset for offset, at in times.items() if at >= time_ms), 90)
    assert await place_of(api, option="startingTimestamp", otherwise=time_ms, is_time=True) == expected
