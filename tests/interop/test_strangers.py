"""Anybody may connect to a master's HA port. What comes of it at RocketMQ 4.9.7 and 5.3.3, and at ours.

The tests of one master follow each other: the last one leaves RocketMQ 4.9.7 acknowledging for ever.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.interop.strangers import (
    FILE_SIZE,
    FLUSH_SLAVE_TIMEOUT,
    FRAME_HEADER,
    OK,
    SLAVE_NOT_AVAILABLE,
    begin_log_at,
    connect,
    receive,
    send_message,
    set_option,
)
from tests.support.clients.remoting import request
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from tests.support.waiting import wait_for

SETTINGS = {**TEST_SETTINGS, "slaveTimeout": "1000", "haSendHeartbeatInterval": "300"}
OWN_SETTINGS = {**SETTINGS, "haAdmissionTimeout": "500", "haAllowedSlaves": "127.0.0.8"}
MEMBER_STATUS = 20001
AT_ONCE = 0.5  # Seconds; slaveTimeout is 1 s.


class Masters:
    """SYNC_MASTERs without any slave, whose logs begin at 1 MiB."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        namesrv = stack.enter_context(twinlog.NameServer(root / "namesrv")).address
        self.members: dict[str, BrokerProcess] = {
            version: rocketmq.Broker(
                root / version,
                namesrv,
                role="SYNC_MASTER",
                broker_name=f"real-{version}",
                version=version,
                settings=SETTINGS,
            )
            for version in (jars.VERSION, jars.VERSION_5)
        }
        self.members["ours"] = twinlog.Broker(
            root / "ours", namesrv, role="SYNC_MASTER", broker_name="ours", settings=OWN_SETTINGS
        )
        for member in self.members.values():
            begin_log_at(member.commit_log, FILE_SIZE)
            super(BrokerProcess, member).start()  # All at once; then wait for each.
            stack.callback(member.kill)
        for member in self.members.values():
            wait_for_start(member)


def wait_for_start(member: BrokerProcess) -> None:
    def answers() -> bool:
        try:
            return send_message(member.address)[0] in (OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT)
        except OSError:
            return False

    member.wait_until(answers, "an answer to a producer", timeout_s=90)


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    with ExitStack() as stack:
        yield Masters(tmp_path_factory.mktemp("strangers"), stack).members


@pytest.fixture
def ours(masters: dict[str, BrokerProcess]) -> BrokerProcess:
    return masters["ours"]


@pytest.fixture(params=[jars.VERSION, jars.VERSION_5])
def real(masters: dict[str, BrokerProcess], request: pytest.FixtureRequest) -> BrokerProcess:
    return masters[request.param]


@pytest.fixture
def real_4(masters: dict[str, BrokerProcess]) -> BrokerProcess:
    return masters[jars.VERSION]


@pytest.fixture
def real_5(masters: dict[str, BrokerProcess]) -> BrokerProcess:
    return masters[jars.VERSION_5]


def refused(member: BrokerProcess) -> dict[str, Any]:
    """What our member tells of refused connections."""
    _, body = request(member.address, MEMBER_STATUS)
    status = json.loads(body)
    return {**status["refused"], "last": status["refusedLast"]}


def test_a_stranger_reads_every_message_of_rocketmq(real: BrokerProcess) -> None:
    """Eight zero bytes are all that it takes."""
    with connect(real.ha_port, 0) as stranger:
        size = 0
        while size == 0:  # A heartbeat.
            phy_offset, size = FRAME_HEADER.unpack(receive(stranger, FRAME_HEADER.size))
        assert phy_offset == FILE_SIZE
        assert b"a secret" in receive(stranger, size)


def test_a_stranger_reads_nothing_of_ours(ours: BrokerProcess) -> None:
    """It is held while the name server is asked, and refused with a reason."""
    before = refused(ours)["stranger"]
    began = time.monotonic()
    with connect(ours.ha_port, 0) as stranger:
        assert receive(stranger, 1) == b""
    assert 0.4 < time.monotonic() - began < 5
    now = refused(ours)
    assert now["stranger"] == before + 1
    assert now["last"][-1]["why"].startswith("127.0.0.9 is not the IP of a registered slave of this broker group")


def test_a_sync_master_of_5_acknowledges_without_a_slave_by_default(real_5: BrokerProcess, ours: BrokerProcess) -> None:
    """Since 5.0 inSyncReplicas is 1 unless it is set: the master alone. 4.9 and ours refuse at once."""
    assert send_message(real_5.address)[0] == OK
    code, seconds = send_message(ours.address)
    assert (code, seconds < AT_ONCE) == (SLAVE_NOT_AVAILABLE, True)


def test_a_silent_stranger_makes_producers_of_4_wait(real_4: BrokerProcess, ours: BrokerProcess) -> None:
    """It counts as a slave from its connect on: "no slave" at once becomes a timeout for each message."""
    for member in real_4, ours:
        code, seconds = send_message(member.address)
        assert (code, seconds < AT_ONCE) == (SLAVE_NOT_AVAILABLE, True)
    with connect(real_4.ha_port), connect(ours.ha_port):
        time.sleep(0.2)
        code, seconds = send_message(real_4.address)
        assert (code, seconds >= 1) == (FLUSH_SLAVE_TIMEOUT, True)
        code, seconds = send_message(ours.address)
        assert (code, seconds < AT_ONCE) == (SLAVE_NOT_AVAILABLE, True)


def test_a_request_for_deleted_bytes(real: BrokerProcess, ours: BrokerProcess) -> None:
    """RocketMQ sends heartbeats for ever, and nobody knows; ours closes, and its status says why."""
    with connect(real.ha_port, 100) as slave:
        for _ in range(3):
            assert FRAME_HEADER.unpack(receive(slave, FRAME_HEADER.size)) == (100, 0)
    before = refused(ours)["below_min"]
    with connect(ours.ha_port, 100, ip="127.0.0.8") as slave:
        assert receive(slave, 1) == b""
    now = refused(ours)
    assert now["below_min"] == before + 1
    assert (now["last"][-1]["ip"], now["last"][-1]["cause"]) == ("127.0.0.8", "below_min")


def test_what_a_connection_costs(real: BrokerProcess, ours: BrokerProcess) -> None:
    """Two threads each at RocketMQ, and no limit. Ours makes no thread, and keeps no more than 16 of one IP."""
    before, ours_before = psutil.Process(real.pid).num_threads(), psutil.Process(ours.pid).num_threads()
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(connect(real.ha_port))
            stack.enter_context(connect(ours.ha_port))
        wait_for(lambda: psutil.Process(real.pid).num_threads() >= before + 390, "two threads for each connection")
        assert psutil.Process(ours.pid).num_threads() <= ours_before + 2
        kept = [
            each for each in psutil.Process(ours.pid).net_connections() if each.raddr and each.raddr[0] == "127.0.0.9"
        ]
        assert len(kept) <= 16


def test_a_forged_ack_is_believed_by_5(real_5: BrokerProcess, ours: BrokerProcess) -> None:
    """Although it is told to wait for a slave: one report of 2^62 acknowledges all messages to come."""
    set_option(real_5.address, "inSyncReplicas", "2")
    assert send_message(real_5.address)[0] == FLUSH_SLAVE_TIMEOUT
    with connect(real_5.ha_port, 1 << 62):
        wait_for(lambda: send_message(real_5.address)[0] == OK, "an OK without a slave")
    with connect(ours.ha_port, 1 << 62):
        time.sleep(0.2)
        assert send_message(ours.address)[0] == SLAVE_NOT_AVAILABLE
    with connect(ours.ha_port, 1 << 62, ip="127.0.0.8") as allowed:  # Not even from a slave's own IP.
        assert receive(allowed, 1) == b""
        assert send_message(ours.address)[0] == SLAVE_NOT_AVAILABLE
    assert refused(ours)["last"][-1]["cause"] == "over_max"


def test_a_forged_ack_poisons_4_for_life(real_4: BrokerProcess, ours: BrokerProcess) -> None:
    """The forger has left; an empty slave that has acknowledged nothing is enough for an OK at once."""
    with connect(real_4.ha_port, 1 << 62):
        time.sleep(0.2)
    wait_for(lambda: send_message(real_4.address)[0] == SLAVE_NOT_AVAILABLE, "the forger to be gone")
    with connect(real_4.ha_port, 0) as empty_slave:
        assert receive(empty_slave, 1)
        code, seconds = send_message(real_4.address)
        assert (code, seconds < AT_ONCE) == (OK, True)
    with connect(ours.ha_port, 1 << 62, ip="127.0.0.8") as forger:
        assert receive(forger, 1) == b""
    with connect(ours.ha_port, 0, ip="127.0.0.8") as empty_slave:
        assert receive(empty_slave, 1)
        assert send_message(ours.address)[0] == FLUSH_SLAVE_TIMEOUT
