"""The acknowledgement policy of a whole broker: from broker.conf to what producers and people are told."""

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import memory_stream_pair

from tests.cluster.broker.helpers import Client, make_broker, put
from tests.support.stream_transport import StreamTransport
from twinlog.cluster.broker.peers.slave_peers import SlaveKind
from twinlog.cluster.config.config_file import Setting, configure
from twinlog.cluster.remoting import fastjson
from twinlog.ha.config import AckMode, HAConfig
from twinlog.ha.master.connection import HAConnection
from twinlog.store.config import BrokerRole


def configured(**settings: str) -> HAConfig:
    found = configure([HAConfig], [Setting(key, value, "broker.conf:1") for key, value in settings.items()])
    assert found.without_effect == ()
    return found.of(HAConfig)


def sync_master(root: Path, **settings: str) -> Client:
    broker = make_broker(root, role=BrokerRole.SYNC_MASTER, ha_config=configured(**settings))
    broker.store.load()
    return Client(broker)


def join(client: Client, *acks: int) -> list[HAConnection]:
    """Slaves that are registered, each with what it holds."""
    broker, transfer, slaves = client.broker, client.broker.ha.group_transfer, []
    transfer.members_changed([f"10.0.0.{number}" for number in range(1, 1 + len(acks))])
    for number, ack in enumerate(acks, 1):
        stream, ip = StreamTransport(memory_stream_pair()[0]), f"10.0.0.{number}"
        slaves.append(HAConnection(stream, f"{ip}:5000", ip, broker.store, transfer, broker.settings.ha_config))
        broker.ha._connections[slaves[-1]] = trio.CancelScope()
        transfer.join(slaves[-1], ack)
    return slaves


def policy_of(client: Client) -> dict:
    return fastjson.loads(client.ask(20001).body)["policy"]


def test_rocketmqs_keys_are_ours():
    config = configured(
        inSyncReplicas="3",
        minInSyncReplicas="2",
        enableAutoInSyncReplicas="true",
        allAckInSyncStateSet="true",
        haMaxGapNotInSync="1000",
        haMaxTimeSlaveNotCatchup="2000",
        haFlowControlEnable="true",
        maxHaTransferByteInSecond="5000",
        haAckMode="flushed",
    )
    assert attrs.astuple(config.ack_rule) == (3, 2, True, True)
    assert (config.limits.gap_max, config.limits.level_seconds_max) == (1000, 2.0)
    assert (config.flow_control_enable, config.max_transfer_byte_in_second) == (True, 5000)
    assert config.ack_mode is AckMode.flushed
    assert configured(haSlaveFallbehindMax="500", haMaxGapNotInSync="1000").limits.gap_max == 500


def test_what_is_not_said_is_one_slave():
    """RocketMQ 4.9's meaning of SYNC_MASTER; 5.3.3's default asks none."""
    config = configured()
    assert attrs.astuple(config.ack_rule) == (2, 1, False, False)
    assert config.ack_mode is AckMode.written


@pytest.mark.parametrize(("replicas", "confirmed"), [("1", 100), ("2", 80), ("3", 30), ("4", 0)])
async def test_confirmed_is_what_enough_members_hold(tmp_path, replicas, confirmed):
    client = sync_master(tmp_path, inSyncReplicas=replicas)
    put(client.broker)
    end = client.broker.store.max_offset
    join(client, end * 30 // 100, end * 80 // 100)
    assert client.broker.group.confirmed_offset() == end * confirmed // 100
    await client.broker.store.close()


async def test_strict_from_the_file_to_the_producer(tmp_path):
    """minInSyncReplicas=2: refused while the slave is away, level and words say what is in force."""
    client = sync_master(tmp_path, minInSyncReplicas="2")
    transfer = client.broker.ha.group_transfer
    assert transfer.refusal is not None
    found = policy_of(client)
    assert found["words"] == "never: messages are refused, minInSyncReplicas=2 (1 of 1 in sync)"
    assert ["messages are refused" in warning for warning in found["warnings"]] == [True]
    (slave,) = join(client, 0)
    assert transfer.refusal is None
    assert (policy_of(client)["inSync"], policy_of(client)["members"]) == (2, 2)
    assert policy_of(client)["level"] == "L2 replicas, written, strict"
    assert policy_of(client)["warnings"] == []
    transfer.leave(slave)
    assert transfer.refusal is not None
    await client.broker.store.close()


async def test_an_explicit_1_is_obeyed_and_shouted(tmp_path):
    client = sync_master(tmp_path, inSyncReplicas="1")
    found = policy_of(client)
    assert (found["level"], found["words"]) == (
        "L0 async",
        "in the master's memory, and no slave is asked (1 of 1 in sync)",
    )
    assert ["inSyncReplicas=1" in warning for warning in found["warnings"]] == [True]
    await client.broker.store.close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (None, "held by one slave"),  # RocketMQ's, or not asked yet.
        (SlaveKind(), "verified by one slave"),
        (SlaveKind(flushes=True), "on the disk of one slave"),
    ],
)
async def test_what_a_slave_says_of_itself_is_in_the_words(tmp_path, kind, words):
    client = sync_master(tmp_path)
    broker = client.broker
    (slave,) = join(client, 0)
    broker.slave_kinds.kinds = {slave.address: kind} if kind is not None else {}
    assert policy_of(client)["words"] == f"in the master's memory and {words} (2 of 2 in sync)"
    await broker.store.close()
