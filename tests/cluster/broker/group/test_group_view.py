"""Addresses at which a member is reached: what clients are told is not always the one for members."""

from attrs import evolve

from tests.cluster.broker.helpers import make_broker
from twinlog.cluster.broker.group.registration import Master
from twinlog.ha.election.group_record import first_record
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember


def member(**addresses: str) -> GroupMember:
    return GroupMember(ha_address="192.0.2.2:10912", broker_id=1, name="b", id="id-b", codes=("1",), **addresses)


async def test_a_member_is_reached_where_it_tells_members_and_then_where_clients_do(tmp_path):
    broker = make_broker(tmp_path, broker_ip1="198.51.100.1", broker_ip2="192.0.2.1", listen_port=10911)
    broker._load_role()
    ways, roles = broker.group.ways_to, broker.roles
    assert ways("198.51.100.2:10911") == ("198.51.100.2:10911",)
    me, b = roles.member.me(), member(address="198.51.100.2:30911", member_address="192.0.2.2:10911")
    assert (me.address, me.member_address, me.ha_address) == (
        "198.51.100.1:10911",
        "192.0.2.1:10911",
        "192.0.2.1:10912",
    )
    await roles.member.durable.save(
        evolve(roles.member.state_or_first(), group=first_record(me, b, 2, BrokerRole.SYNC_MASTER))
    )
    assert ways("198.51.100.2:30911") == ("192.0.2.2:10911", "198.51.100.2:30911")
    assert ways("198.51.100.2:30909") == ("192.0.2.2:10909", "198.51.100.2:30909"), "the fast port lies two below"
    moved = member(address="198.51.100.2:30911", member_address="192.0.2.7:10911")
    roles.joining.pending[moved.id] = moved
    assert ways("198.51.100.2:30911")[0] == "192.0.2.7:10911", "from where it asks now"


def test_a_master_of_which_only_name_servers_tell(tmp_path):
    """As clients reach it; one below the HA port, as with haMasterAddress; and there at the port of clients."""
    broker = make_broker(tmp_path, role=BrokerRole.SLAVE, broker_id=1)
    broker._load_role()
    broker.registration.master = Master("198.51.100.2:30911", "192.0.2.2:20912")
    assert broker.group.ways_to("198.51.100.2:30911") == ("198.51.100.2:30911", "192.0.2.2:20911", "192.0.2.2:30911")
    broker.registration.master = Master("192.0.2.2:10911", "192.0.2.2:10912")
    assert broker.group.ways_to("192.0.2.2:10911") == ("192.0.2.2:10911",)


def test_a_member_with_one_address_tells_no_other(tmp_path):
    broker = make_broker(tmp_path, broker_ip1="192.0.2.1", listen_port=10911)
    assert (broker.group.me().address, broker.group.me().member_address) == ("192.0.2.1:10911", "")


def test_published_ports_are_told_with_their_addresses(tmp_path):
    ports = {"broker_port1": 30911, "broker_port2": 20911, "ha_port": 20912}
    broker = make_broker(tmp_path, broker_ip1="198.51.100.1", broker_ip2="192.0.2.1", listen_port=10911, **ports)
    me = broker.group.me()
    assert (me.address, me.member_address, me.ha_address) == (
        "198.51.100.1:30911",
        "192.0.2.1:20911",
        "192.0.2.1:20912",
    )
    broker.settings.set_ports(10911, 10912)
    assert broker.group.me() == me
