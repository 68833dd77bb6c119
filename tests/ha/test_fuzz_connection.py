"""Whatever a peer sends: another slave's state stays as it is, no ack exceeds what was sent, no exception escapes."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from tests.helpers import open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.service import HAService
from twinlog.ha.statistics import HAConnectionStatistics
from twinlog.ha.wire.protocol import ACK, ReportReader
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore

FILE_SIZE = 16_384
EXTREMES = [-(2**63), -(2**62), -2, -1, 0, 1, 2**31, 2**32, 2**62, 2**63 - 1]

# Reports near the places that matter: "end" stands for the log's end, "sent" for what was sent to this peer.
PLACES = st.tuples(st.sampled_from(["zero", "sent", "end", "min"]), st.integers(-2, 2))
REPORTS = st.one_of(st.sampled_from(EXTREMES), st.integers(-(2**63), 2**63 - 1), PLACES)
ACTIONS = st.one_of(
    st.tuples(st.just("reports"), st.lists(REPORTS, min_size=1, max_size=4)),
    st.tuples(st.just("bytes"), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 6.0, 15.0])),
    st.tuples(st.just("put"), st.integers(1, 3000)),
    st.tuples(st.just("read"), st.just(1 << 16)),
)
ENDINGS = st.sampled_from(["stay", "half-close", "close", "deaf"])


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_reports_do_not_depend_on_where_they_are_cut(data, cuts):
    whole, pieces = ReportReader(), ReportReader()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = [offset for start, end in pairwise(places) for offset in pieces.feed(data[start:end])]
    assert found == whole.feed(data)
    assert len(found) == len(data) // ACK.size


@define(eq=False)
class Peer:
    """One end of a stream, as from this IP."""

    ha: HAService
    store: MessageStore
    address: str
    stream: trio.StapledStream = field(init=False)

    def start(self, nursery: trio.Nursery) -> None:
        ours, self.stream = memory_stream_pair()
        nursery.start_soon(self.ha.serve, StreamTransport(ours), self.address, self.address.partition(":")[0])

    @property
    def seen(self) -> HAConnectionStatistics | None:
        return next((each for each in self.ha.statistics().connections if each.address == self.address), None)

    async def report(self, *reports: int | tuple[str, int]) -> None:
        await self.send(b"".join(ACK.pack(min(self._offset(each), 2**63 - 1)) for each in reports))

    def _offset(self, report: int | tuple[str, int]) -> int:
        if isinstance(report, int):
            return report
        sent = self.seen.sent_offset if self.seen else 0
        places = {"zero": 0, "end": self.store.max_offset, "min": self.store.min_offset, "sent": sent}
        return places[report[0]] + report[1]

    async def send(self, data: bytes) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # It may have been thrown out.
            await self.stream.send_all(data)
        await wait_all_tasks_blocked()

    async def read(self) -> bytes:
        data = b""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError), trio.move_on_after(0.001):
            while piece := await self.stream.receive_some(1 << 16):
                data += piece
        return data

    async def end(self, how: str) -> None:
        if how == "half-close":
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.stream.send_eof()
        elif how == "close":
            await self.stream.aclose()
        elif how == "deaf":  # It takes no more bytes, but goes on talking.
            self.stream.receive_stream.close()
        await wait_all_tasks_blocked()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, max_size=8), ENDINGS, st.lists(ACTIONS, max_size=2))
def test_a_hostile_peer_harms_nobody(tmp_path_factory, actions, ending, after):
    with TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as root:
        trio.run(_play, Path(root), [*actions, ending, *after], clock=MockClock(autojump_threshold=0))


async def _play(root: Path, actions: list[Any]) -> None:
    store = open_store(root, file_size=FILE_SIZE, role=BrokerRole.SYNC_MASTER)
    put(store, *[b"x" * 1000] * 20)
    store.commit_log.files.files.pop(0).delete()  # So that there is something below the first byte.
    ha = HAService(store, HAConfig(), tuple, lambda: None)
    ha.members_changed(["10.0.0.1", "10.0.0.2"])
    async with trio.open_nursery() as nursery:
        honest, hostile = Peer(ha, store, "10.0.0.1:5000"), Peer(ha, store, "10.0.0.2:666")
        honest.start(nursery)
        held = store.min_offset + 500
        await honest.report(0)
        await honest.read()
        await honest.report(held)
        hostile.start(nursery)
        for action in actions:
            await _act(hostile, action)
            _check(ha, store, held)
            await honest.report(held)  # Its sign of life.
            await honest.read()
        assert honest.seen is not None
        end = put(store, b"the last one")
        await honest.read()
        await honest.report(end)
        assert ha.group_transfer.push2_slave_max_offset == end
        nursery.cancel_scope.cancel()
    assert ha.statistics().connections == ()
    assert ha.group_transfer.push2_slave_max_offset == 0
    await store.close()


async def _act(peer: Peer, action: Any) -> None:
    match action:
        case str():
            await peer.end(action)
        case "reports", reports:
            await peer.report(*reports)
        case "bytes", data:
            await peer.send(data)
        case "wait", seconds:
            await trio.sleep(seconds)
        case "put", size:
            put(peer.store, b"p" * size)
            await wait_all_tasks_blocked()
        case "read", _:
            await peer.read()


def _check(ha: HAService, store: MessageStore, held: int) -> None:
    shown = {each.address: each for each in ha.statistics().connections}
    honest = shown["10.0.0.1:5000"]
    assert (honest.ack_offset, honest.request_offset, honest.counted) == (held, 0, True)
    for each in shown.values():
        assert -1 <= each.request_offset <= each.ack_offset <= max(each.sent_offset, each.request_offset)
        assert each.sent_offset <= store.max_offset
    hostile = shown.get("10.0.0.2:666")
    assert held <= ha.group_transfer.push2_slave_max_offset <= max(held, hostile.sent_offset if hostile else 0)
