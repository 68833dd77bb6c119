"""Slaves in metrics keep their names while connections come and go, and whoever leaves goes on lagging."""

import pytest
import trio
from attrs import evolve

from cluster.broker.names import member_name
from cluster.broker.slave_kinds import SlaveKind
from cluster.metrics.replicas import NAMED_AFTER_SECONDS, replicas
from ha.statistics import HAConnectionStatistics
from store.config import BrokerRole
from tests.cluster.broker.helpers import make_broker, opened, put


def connected(broker, address: str, ack_offset: int, *, seconds: float = 60.0) -> HAConnectionStatistics:
    """As a master tells of a slave that came so many seconds ago."""
    return HAConnectionStatistics(
        address=address,
        state="streaming",
        request_offset=0,
        sent_offset=ack_offset,
        ack_offset=ack_offset,
        admitted=True,
        counted=True,
        in_sync=True,
        suspended=False,
        stalled=False,
        reason="",
        transferred_bytes_per_second=0.0,
        connected_since=trio.current_time() - seconds,
        lag_bytes=max(broker.store.max_offset - ack_offset, 0),
        lag_seconds=0.0,
    )


def shown(broker, *connections: HAConnectionStatistics) -> dict[str, tuple[bool, int | None]]:
    """Whether each is connected, and its lag in bytes."""
    found = replicas(broker, evolve(broker.ha.statistics(), connections=connections))
    return {each.name: (each.connected, each.lag_bytes) for each in found}


async def test_a_slave_of_twinlog_has_its_own_name_over_any_connection(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        for address in ("10.0.0.1:5001", "10.0.0.1:6002"):
            broker.slave_kinds.kinds = {address: SlaveKind(directory="broker-a-7", broker_id=1)}
            assert shown(broker, connected(broker, address, 0, seconds=1)) == {"broker-a-7": (True, 0)}


async def test_a_slave_of_rocketmq_is_called_by_its_ip(tmp_path):
    """After a while in which one of twinlog would have said its name; two of one IP are told apart."""
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        new = connected(broker, "10.0.0.1:5001", 0, seconds=NAMED_AFTER_SECONDS / 2)
        assert shown(broker, new) == {}
        assert shown(broker, connected(broker, "10.0.0.1:5001", 0)) == {"10.0.0.1": (True, 0)}
    async with opened(make_broker(tmp_path)) as client:
        two = [connected(client.broker, f"10.0.0.1:{port}", 0) for port in (5001, 5002)]
        assert shown(client.broker, *two).keys() == {"10.0.0.1:5001", "10.0.0.1:5002"}


async def test_slaves_that_share_an_ip_leave_no_names_behind(tmp_path):
    """Their names have ports, which are new each time: remembered, each reconnection would leave a slave that lags for ever."""
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        assert shown(broker, connected(broker, "10.0.0.1:5001", 0)).keys() == {"10.0.0.1"}
        for port in (5002, 5003):
            two = [connected(broker, f"10.0.0.1:{each}", 0) for each in (5001, port)]
            assert shown(broker, *two).keys() == {"10.0.0.1:5001", f"10.0.0.1:{port}"}


async def test_who_asked_for_nothing_is_no_replica(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        assert shown(client.broker, connected(client.broker, "10.0.0.1:5001", -1)) == {}


async def test_whoever_left_goes_on_lagging(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        first = put(broker).end_offset
        broker.slave_kinds.kinds = {"10.0.0.1:5001": SlaveKind(directory="broker-a-1", broker_id=1)}
        assert shown(broker, connected(broker, "10.0.0.1:5001", first)) == {"broker-a-1": (True, 0)}
        end = put(broker).end_offset
        assert shown(broker) == {"broker-a-1": (False, end - first)}
        (gone,) = replicas(broker, broker.ha.statistics())
        assert (gone.lag_messages, gone.in_sync) == (1, False)


async def test_a_master_that_resigned_tells_of_nobody(tmp_path):
    """The new one does."""
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        assert shown(broker, connected(broker, "10.0.0.1:5001", 0)) == {"10.0.0.1": (True, 0)}
        broker.store.config = evolve(broker.store.config, broker_role=BrokerRole.SLAVE)
        assert shown(broker) == {}


@pytest.mark.parametrize(
    ("directory", "name"), [("broker-a-3", "broker-a-3"), ("store", "broker-a-1"), ("broker-b-0", "broker-a-1")]
)
def test_only_a_directory_that_is_called_so_names_a_member(directory, name):
    assert member_name("broker-a", 1, directory) == name
