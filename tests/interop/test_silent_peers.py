"""Masters that send what a slave cannot take, or nothing at all: a real RocketMQ slave hangs, ours says so and leaves.

The master is a socket in this test. Intervals are scaled down: 0.3 s for heartbeats, 2 s for silence.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.interop.strangers import FRAME_HEADER, REPORT, receive
from tests.support.clients.remoting import request
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from tests.support.process_group.ports import HOST
from tests.support.waiting import wait_for

SILENCE = 2.0  # Seconds. Well above the second after which a RocketMQ slave looks at its clock.
SETTINGS = {**TEST_SETTINGS, "haSendHeartbeatInterval": "300", "haHousekeepingInterval": str(int(SILENCE * 1000))}
MEMBER_STATUS = 20001
BUFFER_SIZE = 4 << 20  # Of a RocketMQ slave: a frame that is larger, header included, never becomes whole.


class FakeMaster:
    """Listens like an HA port; the tests say what it sends."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self.listener.getsockname()[1]}"

    def wait_for_slave(self) -> socket.socket:
        """The newest connection; those that came and went before are closed."""
        self.listener.settimeout(0.01)
        with suppress(TimeoutError):
            while True:
                self.listener.accept()[0].close()
        self.listener.settimeout(60)
        slave, _ = self.listener.accept()
        slave.settimeout(20)
        return slave


@pytest.fixture(scope="module")
def slaves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[FakeMaster, BrokerProcess]]]:
    """A real slave of 4.9.7 and one of ours, each behind a master of its own."""
    root = tmp_path_factory.mktemp("silent")
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        found: dict[str, tuple[FakeMaster, BrokerProcess]] = {}
        for name, program in (("real", rocketmq), ("ours", twinlog)):
            master = FakeMaster()
            stack.callback(master.listener.close)
            settings = {**SETTINGS, "haMasterAddress": master.address}
            slave: BrokerProcess = program.Broker(
                root / name, namesrv, role="SLAVE", broker_name=name, settings=settings
            )
            super(BrokerProcess, slave).start()
            stack.callback(slave.kill)
            found[name] = (master, slave)
        yield found


@pytest.fixture(scope="module")
def real_slave(slaves: dict[str, tuple[FakeMaster, BrokerProcess]]) -> Iterator[socket.socket]:
    """One connection of the 4.9.7 slave for all tests: it would wait for 5 s before the next."""
    with slaves["real"][0].wait_for_slave() as connection:
        yield connection


def last_error(slave: BrokerProcess) -> str:
    _, body = request(slave.address, MEMBER_STATUS)
    return json.loads(body)["master"]["lastError"] or ""


def reports_for(connection: socket.socket, seconds: float) -> list[int]:
    """What the slave reports within this time; -2 when it closes."""
    reports = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = receive(connection, REPORT.size)
        if len(data) < REPORT.size:
            return [*reports, -2]
        reports.extend(REPORT.unpack(data))
    return reports


def test_a_silent_master(slaves: dict[str, tuple[FakeMaster, BrokerProcess]], real_slave: socket.socket) -> None:
    """As behind a cable that was pulled, or a process that is stopped. The 4.9.7 slave looks at its own writes and stays."""
    assert reports_for(real_slave, 2 * SILENCE)[-1] == 0
    master, slave = slaves["ours"]
    with master.wait_for_slave() as connection:
        began = time.monotonic()
        assert reports_for(connection, 3 * SILENCE)[-1] == -2
        assert time.monotonic() - began < 2 * SILENCE
    wait_for(lambda: "silent" in last_error(slave), "the reason in the status", timeout_s=5)


def test_a_frame_that_is_larger_than_a_slave_can_take(
    slaves: dict[str, tuple[FakeMaster, BrokerProcess]], real_slave: socket.socket
) -> None:
    """What haTransferBatchSize above 4 MiB - 12 does: the 4.9.7 slave fills its buffer, and heartbeats for ever."""
    frame = FRAME_HEADER.pack(0, BUFFER_SIZE) + bytes(BUFFER_SIZE)
    real_slave.settimeout(2)
    with suppress(TimeoutError):  # It takes 4 MiB of it; the rest waits.
        real_slave.sendall(frame)
    real_slave.settimeout(20)
    assert set(reports_for(real_slave, 1.5 * SILENCE)) == {0}
    master, slave = slaves["ours"]
    with master.wait_for_slave() as connection:
        assert reports_for(connection, 0.1)[-1] == 0
        with suppress(OSError):
            connection.sendall(frame)
        assert reports_for(connection, 2 * SILENCE)[-1] == -2
    wait_for(lambda: f"{BUFFER_SIZE} bytes" in last_error(slave), "the reason in the status", timeout_s=5)
    assert "haTransferBatchSize" in last_error(slave)
