"""A broker asks witnesses, and answers them, over loopback."""

import orjson
import pytest
import trio

from tests.cluster.broker.helpers import make_broker
from tests.cluster.fake_rocketmq import RocketMQ, serve_rocketmq
from tests.support.process_group.ports import free_broker_port, free_port
from twinlog.cluster.broker.roles import witnesses
from twinlog.cluster.broker.roles.witnesses import Witnesses
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.ha.config import HAConfig
from twinlog.ha.election.witness import objection
from twinlog.store.role import BrokerRole

HERE = ServerConfig(bind_address="127.0.0.1")


def witnesses_of(root, client: RemotingClient, *addresses: str, name: str = "broker-a") -> Witnesses:
    slave = make_broker(root, role=BrokerRole.SLAVE, broker_name=name, namesrv_addr=";".join(addresses))
    return Witnesses(slave.settings, client)


@pytest.fixture
async def client(nursery) -> RemotingClient:
    client = RemotingClient()
    await nursery.start(client.run)
    return client


async def test_a_name_server_of_ours_asks_the_master(nursery, tmp_path, client):
    """A broker that serves says so, and its epoch; one that is fenced says that it does not; one that is gone is not heard."""
    port = await nursery.start(NameServer(NamesrvConfig(kv_config_path=None, listen_port=0), HERE).run)
    namesrv = f"127.0.0.1:{port}"
    ask = witnesses_of(tmp_path / "slave", client, namesrv).ask
    async with trio.open_nursery() as process:
        master = make_broker(
            tmp_path / "master",
            server=HERE,
            role=BrokerRole.SYNC_MASTER,
            listen_port=free_broker_port(),
            namesrv_addr=namesrv,
        )
        await process.start(master.run)
        with trio.fail_after(5):
            await master.registration.registered.wait()
        (reply,) = await ask()
        assert (reply.address, reply.hears) == (namesrv, True)
        assert reply.why == f"hears the master {master.address}, which serves in epoch 0"
        await trio.sleep(0.25)
        await master.roles.member.fence_older("its disk is full")
        (reply,) = await ask()
        assert (reply.hears, reply.why) == (
            False,
            f"hears {master.address}, which serves nobody in epoch 0: its disk is full",
        )
        (other,) = await witnesses_of(tmp_path / "other", client, namesrv, name="broker-b").ask()
        assert (other.hears, other.why) == (None, "knows no member of the group")
        process.cancel_scope.cancel()


MEMBERS = {"broker-a": {"brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}}}
NO_MASTER = {"broker-a": {"brokerAddrs": {"1": "10.0.0.2:10911"}}}


def registry(table: dict) -> RocketMQ:
    return RocketMQ({106: (0, orjson.dumps({"brokerAddrTable": table}))})


async def test_a_name_server_of_rocketmq_says_who_is_registered(nursery, tmp_path, client, monkeypatch):
    """One that has no master registered is believed once it had the time to hear of it."""
    monkeypatch.setattr("twinlog.ha.election.witness.ALL_REGISTERED_MS", 200)
    addresses = [await serve_rocketmq(nursery, registry(table)) for table in (MEMBERS, NO_MASTER, {})]
    ask = witnesses_of(tmp_path, client, *addresses).ask
    assert [reply.hears for reply in await ask()] == [True, None, None]
    await trio.sleep(0.25)
    replies = await ask()
    assert [reply.hears for reply in replies] == [True, False, None]
    assert objection(replies) == f"{addresses[0]} {replies[0].why}"


async def test_who_does_not_answer_is_no_witness(nursery, tmp_path, client, monkeypatch):
    """All are asked at once: a name server that is silent delays nobody. 4.9's is silent to what it does not know."""
    monkeypatch.setattr(witnesses, "ANSWER_MS_MAX", 700)
    hanging = [await serve_rocketmq(nursery, RocketMQ(refuses=False)) for _ in range(3)]
    earlier = registry(MEMBERS)
    earlier.refuses = False
    refused = f"127.0.0.1:{free_port()}"
    ask = witnesses_of(tmp_path, client, *hanging, await serve_rocketmq(nursery, earlier), refused).ask
    started = trio.current_time()
    replies = await ask()
    assert trio.current_time() - started < 3 * 0.7, "One after the other would take longer"
    assert [reply.hears for reply in replies] == [None, None, None, True, None]
    assert replies[0].why == f"gives no answer: {hanging[0]}: no answer to request 106 within 700 ms"
    assert "Connection refused" in replies[-1].why


def test_the_key_goes_before_the_brokers_name_servers(tmp_path):
    """Members ask those that they register with, unless they are told others."""
    options = {"role": BrokerRole.SLAVE, "namesrv_addr": "10.0.0.8:9876"}
    assert witnesses.witnesses_of(make_broker(tmp_path / "0", **options).settings) == ("10.0.0.8:9876",)
    config = HAConfig(auto_failover_witness="10.0.0.9:9876; witness:9876;10.0.0.9:9876")
    named = make_broker(tmp_path / "1", ha_config=config, **options)
    assert witnesses.witnesses_of(named.settings) == ("10.0.0.9:9876", "witness:9876")
    assert isinstance(named.roles.elector.witnesses, Witnesses)


@pytest.mark.parametrize(
    "text", ["witness", "10.0.0.9:", "10.0.0.9:port", "a b:9876", "http://witness:9876", "::1:9876"]
)
def test_a_witness_is_an_address(text):
    """A start with anything else is refused, with the key: it would be found out when the master is dead."""
    with pytest.raises(ValueError, match="addresses of name servers"):
        HAConfig(auto_failover_witness=f"10.0.0.9:9876;{text}")
    assert HAConfig(auto_failover_witness="10.0.0.9:9876; [::1]:9876;witness.example:9876;")
