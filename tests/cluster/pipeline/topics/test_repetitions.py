"""Option dropRepetitions of the readers, against brokers in this process; the rule itself: tests/cluster/pipeline/sink."""

import json

from tests.cluster.pipeline.sink.encoding import batch_of
from tests.cluster.pipeline.topics.reading import Query, in_thread, known, rows, send
from tests.support.group.loopback import cluster as cluster
from twinlog.cluster.pipeline.sink.ids import RowIds
from twinlog.cluster.pipeline.sink.options import sink_options
from twinlog.cluster.pipeline.sink.sending import write_rows

NEW = {"dropRepetitions": "true", "subscribe": "orders"}


async def written(namesrv: str, first: int, end: int, *, attempt: int = 0) -> None:
    """Rows of one task."""
    options = sink_options({"nameServer": namesrv, "topic": "orders"})
    batch = batch_of(value=[b"%d" % number for number in range(first, end)])
    assert await write_rows(options, RowIds("q", 1, 0), iter([batch]), attempt) == end - first
    await known(namesrv, "orders")


def numbers(found):
    return sorted(int(row["value"]) for row in found)


async def test_repeated_rows_come_once_and_those_without_an_id_always(cluster):
    await cluster.start("a")
    await send(cluster.namesrv, "orders", b"100", b"100")
    await written(cluster.namesrv, 0, 30)
    await written(cluster.namesrv, 0, 50)
    assert len(await rows(cluster.namesrv, subscribe="orders")) == 82
    wanted = [*range(50), 100, 100]
    assert numbers(await rows(cluster.namesrv, **NEW)) == wanted
    assert numbers(await rows(cluster.namesrv, minPartitions="40", **NEW)) == wanted


async def test_a_short_look_back_keeps_some_and_loses_none(cluster):
    await cluster.start("a")
    await written(cluster.namesrv, 0, 30)
    await written(cluster.namesrv, 0, 30)
    found = numbers(await rows(cluster.namesrv, repetitionsLookBack="2", **NEW))
    assert set(found) == set(range(30))
    assert len(found) > 30


async def test_a_stream_drops_what_an_earlier_batch_gave(cluster):
    """Also after a restart; but a query that began behind the first copies gives the repetitions."""
    await cluster.start("a")
    early = Query({"nameServer": cluster.namesrv, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "7", **NEW})
    await written(cluster.namesrv, 0, 30)
    assert numbers(await in_thread(early.available)) == list(range(30))
    late = Query({"nameServer": cluster.namesrv, **NEW})
    assert await in_thread(late.available) == []
    await written(cluster.namesrv, 20, 40, attempt=1)
    assert numbers(await in_thread(early.available)) == list(range(30, 40))
    assert numbers(await in_thread(late.available)) == list(range(20, 40))
    await written(cluster.namesrv, 20, 40, attempt=1)
    assert await in_thread(early.available) == []
    assert await in_thread(late.available) == []


async def test_the_option_can_be_switched_on_later(cluster):
    """From then on, what that query reads is given once; nothing before counts."""
    await cluster.start("a")
    plain = {"nameServer": cluster.namesrv, "startingOffsets": "earliest", "subscribe": "orders"}
    query = Query(plain)
    await written(cluster.namesrv, 0, 10)
    assert numbers(await in_thread(query.available)) == list(range(10))
    assert "first" not in json.loads(query.planned[-1])
    query.options = plain | NEW
    await written(cluster.namesrv, 0, 20, attempt=1)
    assert numbers(await in_thread(query.available)) == list(range(20))
    await written(cluster.namesrv, 0, 20, attempt=2)
    assert await in_thread(query.available) == []
