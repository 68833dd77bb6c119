"""Slaves in metrics keep their names while connections come and go, and whoever leaves goes on lagging."""

import pytest
import trio
from attrs import evolve

from tests.cluster.broker.helpers import make_broker, opened, put
from twinlog.cluster.broker.peers.slave_peers import SlaveKind
from twinlog.cluster.metrics.replicas import FORGOTTEN_AFTER_SECONDS, NAMED_AFTER_SECONDS, replicas
from twinlog.cluster.remoting.names import member_name
from twinlog.ha.statistics import HAConnectionStatistics
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState


def connected(broker, address: str, ack_offset: int, *, seconds: float = 60.0) -> HAConnectionStatistics:
    """As a master tells of a slave that came so many seconds ago."""
    return HAConnectionStatistics(
        address=address,
        member="",
        tls=False,
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


def with_member(broker, *ids: int, ip: str = "10.0.0.1") -> None:
    """Give it a group's record with slaves of these ids, all at one IP."""
    members = (
        evolve(broker.roles.member.me(), broker_id=0, name="broker-a-0"),
        *(
            GroupMember(
                address=f"{ip}:{10911 + each}",
                ha_address=f"{ip}:{20911 + each}",
                broker_id=each,
                name=f"broker-a-{each}",
            )
            for each in ids
        ),
    )
    record = GroupRecord(version=1, members=members, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
    role, promised = BrokerRole.SYNC_MASTER, EpochId(1, broker.roles.member.own)
    broker.roles.member.durable.state = RoleState(
        role=role, broker_id=0, promised=promised, group=record, address=broker.address
    )


async def test_a_member_that_answers_nothing_has_its_name_from_the_moment_it_connects(tmp_path):
    """A slave that is frozen before it could say who it is was called by its IP, for ever beside its own name."""
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        with_member(broker, 1)
        for seconds in (0, NAMED_AFTER_SECONDS * 2):
            assert shown(broker, connected(broker, "10.0.0.1:5001", 0, seconds=seconds)) == {"broker-a-1": (True, 0)}


async def test_the_last_one_of_an_ip_is_known_by_who_the_others_are(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        with_member(broker, 1, 2)
        two = [connected(broker, f"10.0.0.1:{port}", 0, seconds=0) for port in (5001, 5002)]
        assert {each: each_connected for each, (each_connected, _) in shown(broker, *two).items()} == {
            "broker-a-1": False,
            "broker-a-2": False,
        }
        broker.slave_kinds.kinds = {"10.0.0.1:5001": SlaveKind(directory="broker-a-2", broker_id=2)}
        assert shown(broker, *two) == {"broker-a-1": (True, 0), "broker-a-2": (True, 0)}


async def test_a_slave_that_falls_silent_keeps_its_name(tmp_path):
    """It is asked every 5 s, and does not answer while it is frozen."""
    async with opened(make_broker(tmp_path)) as client:
        broker, slave = client.broker, connected(client.broker, "10.0.0.1:5001", 0)
        broker.slave_kinds.kinds = {"10.0.0.1:5001": SlaveKind(directory="broker-a-7", broker_id=1)}
        assert shown(broker, slave).keys() == {"broker-a-7"}
        broker.slave_kinds.kinds = {}
        assert shown(broker, slave).keys() == {"broker-a-7"}


@pytest.mark.parametrize("address", ["10.0.0.1:5001", "10.0.0.1:6002"])
async def test_what_was_known_by_its_ip_becomes_the_member(tmp_path, address):
    """Over the same connection, or the next one."""
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        assert shown(broker, connected(broker, "10.0.0.1:5001", 0)).keys() == {"10.0.0.1"}
        put(broker)
        broker.slave_kinds.kinds = {address: SlaveKind(directory="broker-a-7", broker_id=1)}
        assert shown(broker, connected(broker, address, 0)).keys() == {"broker-a-7"}


async def test_whoever_left_is_forgotten_after_a_while_unless_it_is_a_member(tmp_path, autojump_clock):
    async with opened(make_broker(tmp_path)) as client:
        broker = client.broker
        assert shown(broker, connected(broker, "10.0.0.1:5001", 0)).keys() == {"10.0.0.1"}
        await trio.sleep(FORGOTTEN_AFTER_SECONDS - 1)
        assert shown(broker) == {"10.0.0.1": (False, 0)}
        await trio.sleep(2)
        assert shown(broker) == {}
        with_member(broker, 1)
        assert shown(broker, connected(broker, "10.0.0.1:5001", 0)) == {"broker-a-1": (True, 0)}
        await trio.sleep(FORGOTTEN_AFTER_SECONDS * 2)
        assert shown(broker) == {"broker-a-1": (False, 0)}
