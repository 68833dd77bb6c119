"""Members under host names: who they are counts by the IPs that the names have now."""

import socket

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from tests.cluster.broker.helpers import Client, make_broker
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker import broker as broker_module
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.ha.election.group_record import first_record, with_member
from twinlog.ha.policy.admission import parse_allowed
from twinlog.store.config import BrokerRole
from twinlog.store.record.message import host_text
from twinlog.store.role_file import GroupMember


def member(host: str, broker_id: int, *codes: str) -> GroupMember:
    return GroupMember(
        address=f"{host}:10911",
        ha_address=f"{host}:10912",
        broker_id=broker_id,
        name=host,
        id=f"id-{host}",
        codes=codes,
    )


@pytest.fixture
def names():
    return {"me": ["127.0.0.1"], "b": ["192.0.2.2"], "c": ["192.0.2.3"], "rocket": ["192.0.2.4"], "new": ["192.0.2.9"]}


def with_names(broker, names):
    async def look_up(host):
        await trio.lowlevel.checkpoint()
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return tuple(names[host])

    broker.settings.hosts.look_up = look_up
    return broker


@pytest.fixture
async def master(tmp_path, nursery, names):
    """A member called `me`, whose record has twinlog members at b and c, and a RocketMQ slave at `rocket`."""
    broker = with_names(make_broker(tmp_path, listen_port=free_broker_port(), broker_ip1="me"), names)
    await nursery.start(broker.run)
    record = first_record(broker.roles.member.me(), member("b", 1, "1"), 1, BrokerRole.ASYNC_MASTER)
    for each in (member("c", 2, "1"), member("rocket", 3)):
        record = with_member(record, each)
    state = broker.roles.member.state_or_first()
    record = evolve(record, before=None, loss_free_from=0)
    await broker.roles.member.durable.save(evolve(state, group=record, before=None))
    broker.group.members_changed()
    return broker


async def until(is_so) -> None:
    with trio.fail_after(10):
        while not is_so():
            await trio.sleep(0.05)


async def asked(broker, ip: str, code: RequestCode, body: bytes = b"{}", **fields: str) -> int:
    client = Client(broker)
    client.connection.remote_address = f"{ip}:4711"
    return (await client.ask_async(code, body, **fields)).code


async def test_messages_get_the_ip_of_the_own_name(master, names):
    assert host_text(master.settings.store_host).startswith("127.0.0.1:")
    assert master.settings.address.startswith("me:"), "what others are told"
    names["me"] = ["192.0.2.77"]
    await until(lambda: host_text(master.settings.store_host).startswith("192.0.2.77:"))
    names["me"] = ["fd00::7"]
    await until(lambda: host_text(master.settings.store_host).startswith("[fd00::7]:"))


async def test_a_name_that_nobody_here_knows_keeps_no_member_from_its_start(tmp_path, nursery, names, monkeypatch):
    monkeypatch.setattr(broker_module, "OWN_HOST_SECONDS_MAX", 0.2)
    monkeypatch.setattr(broker_module, "own_ip", lambda: "192.0.2.55")
    broker = with_names(make_broker(tmp_path, listen_port=free_broker_port(), broker_ip1="outside.example"), names)
    with capture_logs() as lines:
        await nursery.start(broker.run)
    (said,) = [line for line in lines if "cannot resolve" in line["event"]]
    assert (said["brokerIP1"], said["why"], said["own_ip"]) == ("outside.example", "no such name", "192.0.2.55")
    names["outside.example"] = ["192.0.2.8"]
    await until(lambda: host_text(broker.settings.store_host).startswith("192.0.2.8:"))


async def test_a_member_asks_from_the_ip_that_its_name_has_now(master, names):
    """Also in the moment after it came back with another one."""
    await until(lambda: master.settings.hosts.ips("b"))
    assert await asked(master, "192.0.2.2", RequestCode.TWINLOG_LEASE) == ResponseCode.INVALID_PARAMETER
    assert await asked(master, "192.0.2.6", RequestCode.TWINLOG_LEASE) == ResponseCode.NO_PERMISSION
    names["b"] = ["192.0.2.6"]
    await trio.sleep(0.3)
    assert await asked(master, "192.0.2.6", RequestCode.TWINLOG_LEASE) == ResponseCode.INVALID_PARAMETER
    assert await asked(master, "192.0.2.2", RequestCode.TWINLOG_LEASE) == ResponseCode.NO_PERMISSION


async def test_a_rocketmq_slave_counts_under_the_ip_of_its_name(master, names):
    rules = master.ha.connection_admission.rules
    await until(lambda: rules.registered == ("192.0.2.4", "id-b", "id-c"))
    names["rocket"] = ["192.0.2.5"]
    await until(lambda: rules.registered == ("192.0.2.5", "id-b", "id-c"))
    assert rules.admits("192.0.2.5")
    assert not rules.admits("192.0.2.4")


@pytest.mark.parametrize(("ip", "joins"), [("192.0.2.9", True), ("192.0.2.66", False)])
async def test_a_new_slave_joins_under_its_name_from_the_ip_of_this_name(master, ip, joins):
    master.registration.members = ["192.0.2.9", "192.0.2.66"]
    master.group.members_changed()
    fields = {"twinlogMember": "new:10911", "twinlogHaAddress": "new:10912"}
    assert await asked(master, ip, RequestCode.GET_BROKER_EPOCH, b"", **fields) == ResponseCode.SUCCESS
    names = {*master.roles.joining.pending, *(each.address for each in master.roles.member.group.members)}
    assert ("new:10911" in names) is joins


async def test_a_host_name_may_be_allowed(master, names):
    rules = master.ha.connection_admission.rules
    rules.allowed, rules.allowed_names = parse_allowed("10.0.0.0/8, new")
    assert not rules.is_allowed("192.0.2.9"), "it was not looked up yet"
    await until(lambda: rules.is_allowed("192.0.2.9"))
    assert "10.0.0.0/8, new" in rules.why_not("192.0.2.10")
    names["new"] = ["192.0.2.10"]
    await until(lambda: rules.is_allowed("192.0.2.10"))
    assert not rules.is_allowed("192.0.2.9")


async def test_requests_that_a_member_passes_on_name_their_client(master):
    client = Client(master)
    await until(lambda: master.settings.hosts.ips("b"))
    for ip, is_member in (("192.0.2.2", True), ("192.0.2.66", False)):
        client.connection.remote_address = f"{ip}:4711"
        assert master.gate._is_member(client.connection) is is_member


@pytest.mark.parametrize("host", ["10.0.0.300", "a b", "-a", "a:1"])
def test_what_is_no_host_is_refused(tmp_path, host):
    with pytest.raises(ValueError, match="the IP or the name of a host"):
        make_broker(tmp_path, broker_ip1=host)
