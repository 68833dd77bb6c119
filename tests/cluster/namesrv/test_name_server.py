"""The name server over loopback, with RemotingClient."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from tests.cluster.namesrv.registrations import HERE, A, B, registration
from tests.support.process_group.ports import free_port
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ROCKETMQ, RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.cluster.remoting.request import handlers_of

Ask = Callable[..., Awaitable[RemotingCommand]]


@pytest.fixture
def config() -> NamesrvConfig:
    return NamesrvConfig(kv_config_path=None, listen_port=0)


@pytest.fixture
async def namesrv(nursery, config) -> tuple[NameServer, str]:
    server = NameServer(config, HERE)
    port = await nursery.start(server.run)
    return server, f"127.0.0.1:{port}"


@pytest.fixture
async def ask(nursery, namesrv) -> Ask:
    """Send a request over the connection that a test uses for all of them."""
    client = RemotingClient()
    await nursery.start(client.run)

    async def ask(code: int, body: bytes = b"", *, version: int = 409, **ext: object) -> RemotingCommand:
        command = RemotingCommand(
            code, ext={name: str(value) for name, value in ext.items()}, body=body, version=version
        )
        return await client.request(namesrv[1], command)

    return ask


async def test_register_and_route(ask):
    master = await ask(103, **registration())
    assert (master.code, master.ext, master.body) == (0, {}, b"")
    slave = await ask(103, **registration(1, B))
    assert slave.ext == {"masterAddr": A, "haServerAddr": A.replace("10911", "10912")}
    text = (
        '{"brokerDatas":[{"brokerAddrs":{%s0%s:"192.0.2.11:10911",%s1%s:"192.0.2.12:10911"},"brokerName":"broker-a",'
        '"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    standard, bare = text.replace("%s", '"').encode(), text.replace("%s", "").encode()
    assert (await ask(105, topic="T1")).body == standard
    assert (await ask(105, topic="T1", version=401)).body == standard
    assert (await ask(105, topic="T1", version=400)).body == bare
    assert (await ask(105, topic="T1", version=1, acceptStandardJsonOnly="true")).body == standard
    cluster = await ask(106)
    assert cluster.body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"192.0.2.11:10911",1:"192.0.2.12:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


async def test_clients_outside_are_told_another_host(nursery, config):
    """And only they: members, and clients inside, go on with what the brokers announce."""
    outside = attrs.evolve(config, outside_listen_port=free_port(), outside_address="gate.example")
    server = NameServer(outside, HERE)
    inside_port = await nursery.start(server.run)
    client = RemotingClient()
    await nursery.start(client.run)

    async def told(port: int, code: int, **ext: str) -> bytes:
        return bytes((await client.request(f"127.0.0.1:{port}", RemotingCommand(code, ext=ext, version=409))).body)

    given = registration()
    body = given.pop("body")
    command = RemotingCommand(103, ext={name: str(value) for name, value in given.items()}, body=body)
    assert (await client.request(f"127.0.0.1:{inside_port}", command)).code == 0
    for code, ext in ((105, {"topic": "T1"}), (106, {}), (304, {})):
        inside = await told(inside_port, code, **ext)
        assert A.encode() in inside
        assert await told(outside.outside_listen_port, code, **ext) == inside.replace(A.encode(), b"gate.example:10911")


@pytest.mark.parametrize("address", ["", "127.0.0.1:10911", "two words", "http://gate"])
def test_an_address_outside_is_a_host(address):
    with pytest.raises(ValueError, match="outside_address"):
        NamesrvConfig(outside_address=address)


async def test_an_unknown_topic(ask):
    answer = await ask(105, topic="T9")
    assert (answer.code, answer.ext) == (ResponseCode.TOPIC_NOT_EXIST, None)
    assert answer.remark == "No topic route info in name server for the topic: T9"


async def test_binary_headers_are_answered_in_kind(nursery, namesrv):
    client = RemotingClient()
    await nursery.start(client.run)
    command = RemotingCommand(105, ext={"topic": "T9"}, serialize_type=ROCKETMQ)
    answer = await client.request(namesrv[1], command)
    assert (answer.code, answer.serialize_type) == (ResponseCode.TOPIC_NOT_EXIST, ROCKETMQ)


async def test_an_unknown_request_is_answered(ask):
    """RocketMQ's 4.9 name server sends no response, and its clients wait for their time limit."""
    answer = await ask(31999)
    assert (answer.code, answer.remark) == (
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        " request type 31999 not supported",
    )


async def test_bad_requests_change_nothing(ask):
    await ask(103, **registration())
    before = (await ask(106)).body
    bad = registration(1, B)
    for changes, reason in (
        ({"bodyCrc32": 1}, "crc32 not match"),
        ({"brokerAddr": "nowhere"}, "is not host:port"),
        ({"brokerId": "x"}, "the custom field <brokerId> is not a number"),
        ({"body": b"{", "bodyCrc32": 0}, "cannot be read"),
        ({"clusterName": "Other"}, "is registered in cluster DefaultCluster"),
    ):
        answer = await ask(103, **{**bad, **changes})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert reason in answer.remark
    del bad["brokerName"]
    assert (await ask(103, **bad)).remark == "the custom field <brokerName> is null"
    assert (await ask(106)).body == before


async def test_a_broker_leaves(ask):
    await ask(103, **registration())
    assert (await ask(104, brokerName="broker-a", brokerAddr=A, clusterName="DefaultCluster", brokerId=0)).code == 0
    assert (await ask(105, topic="T1")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_is_dropped_with_its_connection(nursery, namesrv, ask):
    server, address = namesrv
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as own:
            broker = RemotingClient()
            await own.start(broker.run)
            fields = registration()
            body = fields.pop("body")
            command = RemotingCommand(103, ext={name: str(value) for name, value in fields.items()}, body=body)
            await broker.request(address, command)
            assert (await ask(105, topic="T1")).code == 0
            scope.cancel()
    while server.routes.live:
        await trio.lowlevel.checkpoint()
    assert (await ask(105, topic="T1")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_silent_broker_is_dropped_and_its_connection_closed(nursery, namesrv, autojump_clock):
    """After 120 s without registration, even if it sends other requests all the time."""
    server, address = namesrv
    client = RemotingClient()
    await nursery.start(client.run)
    fields = registration()
    body = fields.pop("body")
    await client.request(address, RemotingCommand(103, ext={k: str(v) for k, v in fields.items()}, body=body))
    for _ in range(11):
        await trio.sleep(10)
        await client.request(address, RemotingCommand(106))
    assert server.routes.live
    await trio.sleep(25)
    assert not server.routes.live
    while client.addresses:
        await trio.lowlevel.checkpoint()


async def test_data_versions(ask):
    four = {"brokerName": "broker-a", "brokerAddr": A, "clusterName": "DefaultCluster", "brokerId": 0}
    unknown = await ask(322, b'{"counter":1,"timestamp":5}', **four)
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    await ask(103, **registration())
    same = await ask(322, b'{"counter":1,"timestamp":5}', **four)
    assert (same.ext, json.loads(bytes(same.body))) == ({"changed": "false"}, {"counter": 1, "timestamp": 5})
    newer = await ask(322, b'{"counter":2,"stateVersion":0,"timestamp":6}', **four)
    assert (newer.ext, json.loads(bytes(newer.body))) == ({"changed": "true"}, {"counter": 1, "timestamp": 5})


async def test_lists_and_permissions(ask):
    await ask(103, **registration(topics=("T1", "T2")))

    async def topics(code: int, **ext: object) -> list[str]:
        return json.loads(bytes((await ask(code, **ext)).body))["topicList"]

    assert await topics(206) == ["T1", "T2"]
    assert await topics(224, cluster="DefaultCluster") == ["T1", "T2"]
    assert await topics(224, cluster="x") == []
    assert [await topics(code) for code in (311, 312, 313)] == [[], [], []]
    system = json.loads(bytes((await ask(304)).body))
    assert system == {"brokerAddr": A, "topicList": ["DefaultCluster", "broker-a"]}
    assert (await ask(205, brokerName="broker-a")).ext == {"wipeTopicCount": "2"}
    assert b'"perm":4' in (await ask(105, topic="T1")).body.tobytes()
    assert (await ask(327, brokerName="broker-a")).ext == {"addTopicCount": "2"}
    assert b'"perm":6' in (await ask(105, topic="T1")).body.tobytes()
    assert (await ask(216, topic="T1")).code == 0
    assert await topics(206) == ["T2"]


async def test_kv_configuration(ask):
    assert (await ask(101, namespace="N", key="k")).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(219, namespace="N")).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(100, namespace="N", key="k", value="v")).code == 0
    assert (await ask(101, namespace="N", key="k")).ext == {"value": "v"}
    assert (await ask(219, namespace="N")).body == b'{"table":{"k":"v"}}'
    assert (await ask(102, namespace="N", key="k")).code == 0
    assert (await ask(102, namespace="N", key="k")).code == 0
    assert (await ask(101, namespace="N", key="k")).code == ResponseCode.QUERY_NOT_FOUND
    assert (await ask(219, namespace="N")).body == b'{"table":{}}'


async def test_a_registration_is_answered_with_the_ordered_topics(ask):
    await ask(100, namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:4")
    answer = await ask(103, **registration())
    assert answer.body == b'{"table":{"T1":"broker-a:4"}}'
    await ask(102, namespace="ORDER_TOPIC_CONFIG", key="T1")
    assert (await ask(103, **registration())).body == b'{"table":{}}'
    assert "orderTopicConf" not in fastjson.loads((await ask(105, topic="T1")).body)


@pytest.mark.parametrize("config", [NamesrvConfig(kv_config_path=None, listen_port=0, order_message_enable=True)])
async def test_routes_carry_the_order_where_that_is_enabled(ask):
    await ask(100, namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:4")
    await ask(103, **registration(topics=("T1", "T2")))
    assert fastjson.loads((await ask(105, topic="T1")).body)["orderTopicConf"] == "broker-a:4"
    assert "orderTopicConf" not in fastjson.loads((await ask(105, topic="T2")).body)


async def test_the_configuration_is_shown(ask):
    lines = bytes((await ask(319)).body).decode().splitlines()
    assert "listenPort=0" in lines
    assert "orderMessageEnable=false" in lines
    assert "kvConfigPath=" in lines


async def test_an_unreadable_kv_file_stops_the_start(tmp_path: Path):
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    with pytest.raises(ValueError, match="kvConfig"):
        await NameServer(NamesrvConfig(kv_config_path=path), HERE).run()


async def test_a_busy_port_is_an_error(namesrv, config):
    with pytest.raises(OSError, match="in use"):
        await NameServer(attrs.evolve(config, listen_port=int(namesrv[1].split(":")[1])), HERE).run()


async def test_when_it_ends_its_connections_end(nursery, config):
    server = NameServer(config, HERE)
    client = RemotingClient()
    await nursery.start(client.run)
    async with trio.open_nursery() as own:
        address = f"127.0.0.1:{await own.start(server.run)}"
        await client.request(address, RemotingCommand(106))
        own.cancel_scope.cancel()
    while client.addresses:
        await trio.lowlevel.checkpoint()
    with pytest.raises(RemotingConnectError, match="refused"):
        await client.request(address, RemotingCommand(106))


async def test_every_request_of_4_9_name_servers_has_a_handler(namesrv):
    table = handlers_of(namesrv[0])
    wanted = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
    of_5, ours = {217, 901, 904}, {20008}
    assert {int(code) for code in table} == wanted | of_5 | ours


async def test_zones_and_other_fields_of_5_x_are_passed_over(ask):
    await ask(103, enableActingMaster="true", heartbeatTimeoutMillis="", **registration())
    plain = await ask(105, topic="T1")
    zoned = await ask(
        105, topic="T1", __ZONE_NAME="north", __ZONE_MODE="true", ns="n", nsd="false", oway="false", lo="x"
    )
    assert zoned.body == plain.body


async def test_unit_topics(ask):
    table = {
        name: {"perm": 6, "readQueueNums": 1, "topicSysFlag": flag, "writeQueueNums": 1}
        for name, flag in (("Plain", 0), ("Unit", 1), ("Sub", 2), ("Both", 3))
    }
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 5}, "topicConfigTable": table}
    fields = registration()
    fields |= {"body": json.dumps({"topicConfigSerializeWrapper": wrapper}).encode(), "bodyCrc32": 0}
    await ask(103, **fields)

    async def topics(code: int) -> list[str]:
        return json.loads(bytes((await ask(code)).body))["topicList"]

    assert await topics(311) == ["Unit", "Both"]
    assert await topics(312) == ["Sub", "Both"]
    assert await topics(313) == ["Sub"]


async def test_a_topic_goes_from_one_cluster_and_stays_in_the_other(ask):
    await ask(103, **registration())
    await ask(103, **{**registration(0, B), "brokerName": "broker-b", "clusterName": "Other"})
    assert (await ask(216, topic="T1", clusterName="nowhere")).code == 0
    assert len(fastjson.loads((await ask(105, topic="T1")).body)["queueDatas"]) == 2
    await ask(216, topic="T1", clusterName="Other")
    assert [q["brokerName"] for q in fastjson.loads((await ask(105, topic="T1")).body)["queueDatas"]] == ["broker-a"]
    await ask(216, topic="T1", clusterName="")
    assert (await ask(105, topic="T1")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_address_to_ask_for_system_topics_is_a_masters(ask):
    await ask(103, **registration(1, B))
    assert json.loads(bytes((await ask(304)).body))["brokerAddr"] == B
    await ask(103, **registration())
    assert json.loads(bytes((await ask(304)).body))["brokerAddr"] == A


async def test_topics_are_registered_by_themselves(ask):
    """217 of 5.x: mqadmin registers a topic that no broker has registered."""
    await ask(103, **registration())
    share = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 2}
    body = json.dumps({"brokerDatas": [], "queueDatas": [share]}).encode()
    assert (await ask(217, body, topic="T2")).code == 0
    assert fastjson.loads((await ask(105, topic="T2")).body)["queueDatas"] == [share]
    strange = json.dumps({"queueDatas": [share, {**share, "brokerName": "nobody"}]}).encode()
    refused = await ask(217, strange, topic="T3")
    assert (refused.code, refused.remark) == (1, "topic T3: broker nobody is not registered")
    assert (await ask(105, topic="T3")).code == ResponseCode.TOPIC_NOT_EXIST
    for bad in (b"", b"[]", b'{"queueDatas":[1]}', b'{"queueDatas":[{"brokerName":"broker-a","perm":99}]}'):
        assert (await ask(217, bad, topic="T3")).code == 1


async def test_members_of_a_group(ask):
    """901, a request of 5.x brokers."""
    await ask(103, **registration())
    await ask(103, **registration(1, B))
    answer = await ask(901, clusterName="DefaultCluster", brokerName="broker-a")
    assert answer.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"192.0.2.11:10911",1:"192.0.2.12:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
    )
    nobody = await ask(901, clusterName="Other", brokerName="broker-a")
    assert nobody.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"broker-a","cluster":"Other"}}'


async def test_heartbeats_of_5_x_keep_a_broker_that_wants_to_be_dropped_soon(namesrv, ask, autojump_clock):
    """904 counts as a heartbeat, and heartbeatTimeoutMillis is the longest time without one."""
    server = namesrv[0]
    await ask(103, heartbeatTimeoutMillis=15_000, **registration())
    name = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 0, "maxOffset": 7}
    for _ in range(5):
        await trio.sleep(10)
        assert (await ask(904, brokerAddr=A, **name)).code == 0
    assert (await ask(904, brokerAddr=B, **name)).code == 0
    assert list(server.routes.live) == [A]
    await trio.sleep(30)
    assert not server.routes.live


async def test_the_configuration_changes_while_it_runs(namesrv, ask):
    server = namesrv[0]
    assert (await ask(318, b"orderMessageEnable=true\nscanNotActiveBrokerInterval=2000\n")).code == 0
    assert server.config.order_message_enable
    lines = bytes((await ask(319)).body).decode().splitlines()
    assert {"orderMessageEnable=true", "scanNotActiveBrokerInterval=2000"} <= set(lines)
    assert (await ask(318)).code == 0  # Nothing asked for, nothing changed.


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"kvConfigPath=/etc/passwd", 16, "Can not update config in black list."),
        (b"orderMessageEnable=true\nconfigStorePath=/tmp/x", 16, "Can not update config in black list."),
        (b"rocketmqHome=/", 16, "Can not update config in black list."),
        (b"configBlackList=", 16, "Can not update config in black list."),
        (b"bindAddress=0.0.0.0", 16, "bindAddress cannot be changed while the name server runs"),
        (b"tls.server.mode=disabled", 16, "tls.server.mode cannot be changed while the name server runs"),
        (b"serverWorkerThreads=9", 16, "serverWorkerThreads is not an option of name servers"),
        (b"listenPort=1", 16, "listenPort cannot be changed while the name server runs"),
        (b"orderMessageEnable=maybe", 1, "orderMessageEnable=maybe: expected true or false"),
        (b"scanNotActiveBrokerInterval=1", 1, "scanNotActiveBrokerInterval=1: expected 1000 to 3600000"),
        (b"brokerNotActiveTimeoutMillis=59999", 1, "brokerNotActiveTimeoutMillis=59999: expected 60000 to 86400000"),
        (b"brokerNotActiveTimeoutMillis=x", 1, "brokerNotActiveTimeoutMillis=x: expected a whole number"),
        (b"\xff", 1, "not UTF-8"),
    ],
)
async def test_what_must_not_change_does_not(namesrv, ask, body, code, reason):
    server = namesrv[0]
    before = server.config
    answer = await ask(318, body)
    assert answer.code == code
    assert reason in answer.remark
    assert server.config is before


async def test_a_changed_interval_is_not_waited_for(namesrv, ask, autojump_clock):
    server = namesrv[0]
    assert (await ask(318, b"scanNotActiveBrokerInterval=3600000\nbrokerNotActiveTimeoutMillis=60000")).code == 0
    await trio.sleep(11)  # It waits for an hour now.
    assert (await ask(103, **registration())).code == 0
    assert (await ask(318, b"scanNotActiveBrokerInterval=1000")).code == 0
    await trio.sleep(65)
    assert not server.routes.live


async def test_a_changed_configuration_is_kept_in_its_file(nursery, tmp_path, config):
    """Comments, unknown keys and the order of lines stay; the next start reads the new values."""
    path = tmp_path / "namesrv.conf"
    path.write_text("# ours\nlistenPort=9876\norderMessageEnable = false\n")
    server = NameServer(config, HERE, config_file=path)
    port = await nursery.start(server.run)
    client = RemotingClient()
    await nursery.start(client.run)
    body = b"orderMessageEnable=true\nbrokerNotActiveTimeoutMillis=60000\n"
    answer = await client.request(f"127.0.0.1:{port}", RemotingCommand(318, body=body))
    assert answer.code == 0
    text = path.read_text()
    assert text == "# ours\nlistenPort=9876\norderMessageEnable=true\nbrokerNotActiveTimeoutMillis=60000\n"
    path.unlink()
    path.mkdir()
    answer = await client.request(f"127.0.0.1:{port}", RemotingCommand(318, body=b"orderMessageEnable=false\n"))
    assert answer.code == 1  # What cannot be kept is not changed.
    assert server.config.order_message_enable


async def test_several_name_servers_know_nothing_of_one_another(nursery, config):
    """mqadmin and brokers send to each of them; an entry that only one received is unknown to the other."""
    client = RemotingClient()
    await nursery.start(client.run)
    ports = [await nursery.start(NameServer(config, HERE).run) for _ in range(2)]
    one, two = (f"127.0.0.1:{port}" for port in ports)
    fields = {"namespace": "N", "key": "k", "value": "v"}
    assert (await client.request(one, RemotingCommand(100, ext=fields))).code == 0
    assert (await client.request(two, RemotingCommand(101, ext=fields))).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("code", [1001, 1002, 1005, 1006, 1009, 1010, 1011])
async def test_requests_to_a_controller_are_told_that_there_is_none(ask, code):
    answer = await ask(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (
        answer.remark
        == f" request type {code} not supported: there is no controller; roles change with twinlog switchover"
    )
