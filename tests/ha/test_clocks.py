"""A wall clock that leaps changes nothing in replication: no slave is dropped, no producer refused or kept waiting.

RocketMQ measures silence by the wall clock: a leap of 20 s forward closes healthy connections, one back stops heartbeats.
"""

import ast
import itertools
import time
from pathlib import Path

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

import twinlog.ha
from tests.helpers import RecordingSink, open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import PutStatus

# When a master was heard last; since when no slave is there; since when one is away, in a file that outlives a restart.
FOR_PEOPLE = {"disconnected_slaves.py": 1, "client.py": 1, "group_transfer.py": 2}


@pytest.mark.parametrize("leap", [3600, -3600])
async def test_the_wall_clock_leaps(autojump_clock, nursery, tmp_path, monkeypatch, leap):
    """Back and forth, each time that somebody looks."""
    leaps, real, real_ns = itertools.cycle([leap, 0]), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + next(leaps))
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + next(leaps) * 10**9)
    store = open_store(tmp_path / "master", role=BrokerRole.SYNC_MASTER)
    service, sink = HAService(store, HAConfig(), tuple, lambda: None), RecordingSink()
    service.members_changed(["10.0.0.1"])
    nursery.start_soon(service.group_transfer.run)
    ours, slave = memory_stream_pair()
    nursery.start_soon(service.serve, StreamTransport(ours), "10.0.0.1:5000", "10.0.0.1")
    await slave.send_all(ACK.pack(0))
    for number in range(1, 13):  # A minute without a message: heartbeats each 5 s, both ways.
        assert await slave.receive_some() == BATCH_HEADER.pack(0, 0)
        assert trio.current_time() == pytest.approx(number * 5)
        await slave.send_all(ACK.pack(0))
    end = put(store, b"x")
    service.group_transfer.wait(end, sink, b"released")
    await slave.receive_some()
    await slave.send_all(ACK.pack(end))
    await wait_all_tasks_blocked()
    assert sink.answered == [b"released"]
    service.group_transfer.wait(put(store, b"y"), sink, b"refused")
    began = trio.current_time()
    while not sink.refused:
        await trio.sleep(0.1)
    assert sink.refused == [(b"refused", PutStatus.FLUSH_SLAVE_TIMEOUT)]
    assert trio.current_time() - began == pytest.approx(3, abs=0.2)
    await trio.sleep(30)  # Silence: 20 s after its last report the slave is dropped, no later.
    assert service.statistics().connections == ()
    nursery.cancel_scope.cancel()


def test_only_what_people_read_comes_from_the_wall_clock():
    """Any other use of it in twinlog.ha/ is a mistake."""
    found = {}
    for path in Path(twinlog.ha.__file__).parent.rglob("*.py"):
        names = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        uses = [name for name in names if name in ("time.time", "time.time_ns")]
        if uses:
            found[path.name] = len(uses)
    assert found == FOR_PEOPLE
