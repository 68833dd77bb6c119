"""Tens of thousands of strangers knock at the HA port, while a slave follows and producers wait for it.

At RocketMQ each connection costs two threads and a buffer of 1 MiB until it ends.
"""

import gc
import os
import sys
from pathlib import Path

import psutil
import pytest
import trio
from structlog.testing import capture_logs

from tests.ha.services import master_at, slave_at, until
from tests.helpers import RecordingSink, put

KNOCK = Path(__file__).with_name("knock.py")
COUNT = int(os.environ.get("TWINLOG_FLOOD", "12000"))  # A hundred thousand take a minute of a busy machine.
BURST = 50


def _sockets() -> int:
    return len(psutil.Process().net_connections())


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_flood_of_strangers(tmp_path):
    """Memory, tasks and descriptors are what they were; each message is acknowledged by the slave meanwhile."""
    async with master_at(tmp_path) as master, slave_at(tmp_path) as slave:
        slave.ha.set_master(master.address)
        await until(lambda: len(master.ha.group_transfer.slaves) == 1)
        sink, sent, done = RecordingSink(), 0, trio.Event()
        await _knock(master.port, 3 * BURST)
        await until(lambda: not master.ha.connection_admission.pending.connections)
        gc.collect()
        memory, tasks, sockets = psutil.Process().memory_info().rss, _tasks(), _sockets()

        async def flood() -> None:
            await _knock(master.port, COUNT)
            done.set()

        with capture_logs() as lines:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood)
                while not done.is_set():
                    master.ha.group_transfer.wait(put(master.store, b"x"), sink, b"frame")
                    sent += 1
                    with trio.fail_after(3):  # slaveTimeout
                        while len(sink.answered) < sent:
                            assert sink.refused == []
                            await trio.sleep(0.001)
                    await trio.sleep(0.01)  # A quick machine is done with all strangers in half a second.
        assert sent > 10
        await until(lambda: not master.ha.connection_admission.pending.connections)
        gc.collect()
        assert (_tasks(), _sockets()) == (tasks, sockets)
        assert psutil.Process().memory_info().rss - memory < 8 << 20
        assert slave.ha.client.statistics().connections == 1
        assert len(master.ha.statistics().connections) == 1
        assert len(lines) < 50


async def _knock(port: int, count: int) -> None:
    await trio.run_process([sys.executable, str(KNOCK), str(port), str(count), str(BURST)])


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living
