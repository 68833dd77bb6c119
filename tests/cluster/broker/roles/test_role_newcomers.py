"""Members of other machines: who is new may follow and join though there is a record already, under its own address."""

import socket

import orjson
import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from tests.cluster.broker.helpers import Client, make_broker
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.group.registration import Master
from twinlog.cluster.broker.peers.role_messages import encode
from twinlog.cluster.broker.roles.joining import UNREGISTERED_MAX
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.ha.election.group_record import first_record, with_member
from twinlog.ha.election.voter import LeaseReply, LeaseRequest
from twinlog.ha.policy.admission import parse_allowed
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupMember
from twinlog.store.util.plain import from_plain

NEWCOMER = "127.0.0.9"


def member(ip: str, broker_id: int) -> GroupMember:
    return GroupMember(address=f"{ip}:10911", ha_address=f"{ip}:10912", broker_id=broker_id, name=ip)


@pytest.fixture
async def master(tmp_path, nursery):
    """Of a group of three whose record is in force."""
    broker = make_broker(tmp_path, listen_port=free_broker_port(), role=BrokerRole.ASYNC_MASTER)
    await nursery.start(broker.run)
    first = first_record(broker.group.me(), member("127.0.0.7", 1), 1, BrokerRole.ASYNC_MASTER)
    record = evolve(with_member(first, member("127.0.0.8", 2)), before=None, loss_free_from=0)
    await broker.roles.member.durable.save(evolve(broker.roles.member.state_or_first(), group=record, before=None))
    assert broker.roles.counted_members() is not None
    return broker


def register(broker, *ips: str) -> None:
    """As a name server's answer has it."""
    broker.registration.members = list(ips)
    broker.group.members_changed()


def asked_for_the_log(broker, ip: str) -> socket.socket:
    port = int(broker.settings.ha_address.rpartition(":")[2])
    sock = socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(ip, 0))
    sock.sendall(bytes(8))
    sock.setblocking(False)
    return sock


async def test_a_new_slave_is_given_the_log_and_does_not_count(master):
    register(master, "127.0.0.7", "127.0.0.8", NEWCOMER)
    with asked_for_the_log(master, NEWCOMER), trio.fail_after(5):
        while not (served := [c for c in master.ha.statistics().connections if c.address.startswith(NEWCOMER)]):
            await trio.sleep(0.01)
    assert not served[0].counted
    assert "127.0.0.10" in master.ha.connection_admission.rules.why_not("127.0.0.10")
    assert not master.ha.connection_admission.rules.admits("127.0.0.10")


async def test_a_new_slave_joins_by_following(master):
    register(master, "127.0.0.7", "192.0.2.9")
    assert await joins(master, "192.0.2.9:4711", "192.0.2.9", "192.0.2.9")


async def joins(master, connection: str, ip: str, ha_ip: str, **more: str) -> bool:
    client = Client(master)
    client.connection.remote_address = connection
    reply = await client.ask_async(
        RequestCode.GET_BROKER_EPOCH, b"", twinlogMember=f"{ip}:10911", twinlogHaAddress=f"{ha_ip}:10912", **more
    )
    assert reply.code == ResponseCode.SUCCESS
    return f"{ip}:10911" in {
        *master.roles.joining.pending,
        *(each.address for each in master.roles.member.group.members),
    }


async def test_a_new_slave_that_asks_before_its_master_has_heard_of_it_joins_then(master):
    """It registers, asks who its master is, and follows, all within a moment; it asks once."""
    address = "192.0.2.9:10911"
    assert not await joins(master, "192.0.2.9:4711", "192.0.2.9", "192.0.2.9")
    master.group.found_members({1: "127.0.0.7:10911"})
    assert not master.roles.joining.pending
    master.group.found_members({1: "127.0.0.7:10911", 3: address})
    assert address in master.roles.joining.pending


async def test_who_asks_early_under_the_address_of_another_does_not_join_then(master):
    assert not await joins(master, "192.0.2.66:4711", "192.0.2.9", "192.0.2.9")
    master.group.found_members({3: "192.0.2.9:10911"})
    assert not master.roles.joining.pending


async def test_many_that_ask_early_are_not_all_remembered(master):
    for number in range(UNREGISTERED_MAX + 1):
        assert not await joins(master, f"192.0.2.{number}:4711", f"192.0.2.{number}", f"192.0.2.{number}")
    master.group.found_members({3: "192.0.2.0:10911", 4: "192.0.2.1:10911"})
    assert [*master.roles.joining.pending] == ["192.0.2.1:10911"]


async def test_who_is_not_named_is_no_member(master):
    master.settings.ha_config = evolve(master.settings.ha_config, members=f"{master.address};127.0.0.7:10911")
    register(master, "127.0.0.7", "192.0.2.9")
    assert not master.ha.connection_admission.rules.admits("192.0.2.9")
    assert not await joins(master, "192.0.2.9:4711", "192.0.2.9", "192.0.2.9")


@pytest.mark.parametrize(("ip", "ha_ip"), [("192.0.2.66", "192.0.2.9"), ("192.0.2.9", "192.0.2.66")])
async def test_nobody_joins_under_the_address_of_another(master, ip, ha_ip):
    register(master, "127.0.0.7", "192.0.2.9")
    with capture_logs() as lines:
        assert not await joins(master, "192.0.2.9:4711", ip, ha_ip)
        assert not await joins(master, "192.0.2.9:4711", ip, ha_ip)
    assert [(line["peer"], line["comes_from"]) for line in lines] == [(f"{ip}:10911", "192.0.2.9")], "said once"


async def test_nobody_sends_members_to_the_address_of_another(master):
    register(master, "127.0.0.7", "192.0.2.9")
    assert not await joins(master, "192.0.2.9:4711", "192.0.2.9", "192.0.2.9", twinlogMemberAddress="192.0.2.66:10911")
    assert await joins(master, "192.0.2.9:4711", "192.0.2.9", "192.0.2.9", twinlogMemberAddress="192.0.2.9:20911")


async def test_a_slave_of_two_networks_tells_its_end_in_the_other(master):
    """Else its new master looks for ten seconds for somebody to ask about its log. Not an end that it does not announce."""
    master.ha.connection_admission.rules.allowed = parse_allowed("192.0.2.0/24")[0]
    client = Client(master)
    client.connection.remote_address = "192.0.2.9:4711"
    for end, is_told in (("198.51.100.9:5000", True), ("203.0.113.9:5000", False)):
        ends = {"twinlogHaAddress": "198.51.100.9:10912", "twinlogHaEnd": end}
        await client.ask_async(RequestCode.GET_BROKER_EPOCH, b"", twinlogMember="192.0.2.9:10911", **ends)
        assert (await master.slave_peers.find(end, 77) is None) is is_told


async def test_a_newcomer_changes_no_roles_before_it_is_a_member(master):
    register(master, "127.0.0.7", "192.0.2.9")
    client = Client(master)
    client.connection.remote_address = "192.0.2.9:4711"
    reply = await client.ask_async(RequestCode.TWINLOG_ROLE_CHANGE, b"{}")
    assert reply.code == ResponseCode.NO_PERMISSION


async def test_a_slave_without_record_answers_its_master(tmp_path, nursery):
    """Else the first record of two machines would never come into force."""
    slave = make_broker(tmp_path, listen_port=free_broker_port(), role=BrokerRole.SLAVE)
    await nursery.start(slave.run)
    slave.registration.master = Master("192.0.2.1:10911", "192.0.2.1:10912")
    client = Client(slave)
    client.connection.remote_address = "192.0.2.1:4711"
    reply = await client.ask_async(RequestCode.TWINLOG_LEASE, b"{}")
    assert reply.code == ResponseCode.INVALID_PARAMETER
    client.connection.remote_address = "192.0.2.2:4711"
    reply = await client.ask_async(RequestCode.TWINLOG_LEASE, b"{}")
    assert reply.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(("named", "is_believed"), [("192.0.2.7:10911", True), ("192.0.2.66:10911", False)])
async def test_another_master_is_believed_at_the_address_that_it_asks_from(master, named, is_believed):
    """It has the same epoch, and moved; the record has it elsewhere."""
    moved, roles = member("192.0.2.8", 2), master.roles
    record = with_member(first_record(master.group.me(), member("192.0.2.7", 1), 1, BrokerRole.ASYNC_MASTER), moved)
    promised = EpochId(1, roles.member.own)
    await roles.member.durable.save(evolve(roles.member.state_or_first(), group=record, before=None, promised=promised))
    assert roles.member.is_serving
    ask = LeaseRequest(
        id=EpochId(1, moved.id),
        address=named,
        ha_address=named.replace("11", "12"),
        entries=roles.member.durable.entries,
        max_offset=0,
        confirmed_offset=0,
        group=record,
        boot_ms=1,
        member=moved.id,
    )
    client = Client(master)
    client.connection.remote_address = "192.0.2.7:4711"
    reply = await client.ask_async(RequestCode.TWINLOG_LEASE, encode(ask))
    assert not from_plain(LeaseReply, orjson.loads(reply.body)).accepted
    assert roles.joining.address_of(moved.id) == (named if is_believed else moved.address)
