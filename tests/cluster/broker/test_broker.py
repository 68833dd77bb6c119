"""Whole brokers on real sockets: a name server, a SYNC_MASTER and its SLAVE in one process."""

import socket

import pytest
import trio
from structlog.testing import capture_logs

from tests.cluster.broker.helpers import SlowFile, heartbeat, make_broker
from tests.support.group.loopback import cluster as cluster
from tests.support.group.loopback import until
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.tables.writer import TableWriter
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.store.config import BrokerRole
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message


async def test_a_message_is_acknowledged_once_the_slave_has_it(cluster):
    """And the slave serves it, and has the master's topics, groups and offsets."""
    master, _ = await cluster.start("broker-a-0", BrokerRole.SYNC_MASTER)
    slave, _ = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    await until(lambda: any(each.counted for each in master.ha.statistics().connections))
    answer = await cluster.send(master)
    assert answer.code == 0
    assert slave.store.max_offset == master.store.max_offset
    await cluster.ask(master, 15, consumerGroup="G", topic="T1", queueId=0, commitOffset=1)
    slave.slave_sync.master_address = None
    slave.slave_sync.set_master(master.address)  # Now, not in ten seconds.
    await until(lambda: slave.tables.offsets.query("G", "T1", 0) == 1)
    assert slave.tables.topics.table == master.tables.topics.table
    pulled = await cluster.pull(slave)
    assert pulled.code == 0
    assert decode_message(pulled.body).body == b"hello"
    refused = await cluster.send(slave)
    assert refused.code == 14


async def test_held_pulls_on_a_slave_are_woken_by_replication(cluster):
    master, _ = await cluster.start("broker-a-0", BrokerRole.SYNC_MASTER)
    slave, _ = await cluster.start("broker-a-1", BrokerRole.SLAVE)
    await until(lambda: any(each.counted for each in master.ha.statistics().connections))
    await cluster.send(master)
    await until(
        lambda: slave.tables.topics.select("T1") or slave.slave_sync.set_master(None) or _sync_again(slave, master)
    )
    answers = []

    async def wait():
        answers.append(await cluster.pull(slave, offset=1, sysFlag=6))

    cluster.nursery.start_soon(wait)
    await until(lambda: len(slave.held_pulls) == 1)
    await cluster.send(master, b"second")
    await until(lambda: answers, 2)
    assert decode_message(answers[0].body).body == b"second"


def _sync_again(slave, master):
    slave.slave_sync.set_master(master.address)


async def test_without_a_slave_a_sync_master_says_so(cluster):
    master, _ = await cluster.start("broker-a-0", BrokerRole.SYNC_MASTER)
    answer = await cluster.send(master)
    assert answer.code == 11
    assert "no slave" in answer.remark


async def test_a_clean_stop_leaves_everything_for_the_next_start(cluster):
    """The name server forgets the broker at once; messages, topics, groups and offsets are there again."""
    broker, running = await cluster.start("broker-a-0")
    await cluster.send(broker)
    await cluster.ask(broker, 34, heartbeat("T1"))
    await cluster.ask(broker, 15, consumerGroup="G", topic="T1", queueId=0, commitOffset=1)
    await cluster.send(broker, b"late", properties="DELAY\x011")
    await running.stop()
    info = await cluster.client.request(cluster.namesrv, RemotingCommand(106))
    assert fastjson.loads(info.body)["brokerAddrTable"] == {}
    assert not (cluster.root / "broker-a-0" / "abort").exists()
    again, _ = await cluster.start("broker-a-0")
    assert again.tables.topics.table == broker.tables.topics.table
    assert again.tables.groups.table == broker.tables.groups.table
    assert again.tables.offsets.query("G", "T1", 0) == 1
    assert decode_message((await cluster.pull(again)).body).body == b"hello"
    await until(lambda: again.store.queue("T1", 0).max_offset == 2)


async def test_the_fast_port_serves_all_but_pulls(cluster):
    broker, _ = await cluster.start("broker-a-0")
    await cluster.send(broker)
    host, _, port = broker.address.rpartition(":")
    request = RemotingCommand(30, ext={"topic": "T1", "queueId": "0"})
    answer = await cluster.client.request(f"{host}:{int(port) - 2}", request)
    assert answer.ext == {"offset": "1"}
    answer = await cluster.client.request(f"{host}:{int(port) - 2}", RemotingCommand(11))
    assert (answer.code, answer.remark) == (3, " request type 11 not supported")


async def test_consumers_are_told_when_others_come_and_go(cluster):
    told = []
    listener = RemotingClient(on_request=lambda _address, command: told.append(command))
    await cluster.nursery.start(listener.run)
    broker, _ = await cluster.start("broker-a-0")
    beat = fastjson.dumps(heartbeat("T1"))
    await listener.request(broker.address, RemotingCommand(34, body=beat))
    await until(lambda: len(told) == 1)
    assert (told[0].code, told[0].ext) == (40, {"consumerGroup": "G"})
    with trio.CancelScope() as other_scope:
        other = RemotingClient()
        async with trio.open_nursery() as nursery:
            await nursery.start(other.run)
            beat = fastjson.dumps(heartbeat("T1", client_id="c2"))
            await other.request(broker.address, RemotingCommand(34, body=beat))
            await until(lambda: len(told) == 2)
            other_scope.cancel()
    await until(lambda: len(told) == 3)


async def test_a_broken_table_is_named_before_anything_is_served(tmp_path):
    broker = make_broker(tmp_path)
    broker.tables.offsets_writer.file.save('{"offsetTable":')
    with pytest.raises(StoreDirectoryError, match=r"consumerOffset\.json"):
        await broker.run()


async def test_a_stop_while_the_store_is_loading(tmp_path, monkeypatch):
    """Recovery may take long enough for somebody to change their mind."""
    load, scope = MessageStore.load, trio.CancelScope()

    def load_slowly(store):
        load(store)
        trio.from_thread.run_sync(scope.cancel)

    monkeypatch.setattr(MessageStore, "load", load_slowly)
    with trio.fail_after(5), scope:
        await make_broker(tmp_path, listen_port=0).run()
    assert scope.cancelled_caught
    assert not (tmp_path / "abort").exists()


async def test_a_stop_that_goes_wrong_is_an_end_too(tmp_path, monkeypatch):
    broker = make_broker(tmp_path, listen_port=0)

    async def save(_writer):
        raise RuntimeError("a bug")

    monkeypatch.setattr(TableWriter, "save", save)

    async def start_and_stop():
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            nursery.cancel_scope.cancel()

    with trio.fail_after(5), pytest.raises(BaseExceptionGroup) as raised:
        await start_and_stop()
    assert raised.group_contains(RuntimeError)


async def test_a_service_that_fails_ends_the_broker_without_a_wait(tmp_path, monkeypatch):
    """There is nobody left who could answer producers; stored is what was stored."""

    async def fail(broker):
        await trio.sleep(0.1)
        broker.store.flusher.wait(1 << 40, None, b"never answered")
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Broker, "_sample", fail)
    broker = make_broker(tmp_path, listen_port=free_broker_port())
    with trio.fail_after(4), pytest.raises(BaseExceptionGroup) as caught:
        await broker.run()
    assert caught.group_contains(RuntimeError, match="a mistake of ours")
    assert not (tmp_path / "abort").exists()


async def test_a_stop_tells_name_servers_before_it_closes_held_pulls(cluster):
    """Whoever is closed asks a name server at once, and should not be sent back here."""
    master, running = await cluster.start("broker-a-0")
    assert (await cluster.send(master)).code == 0
    seen = []

    async def pull():
        with pytest.raises(RemotingConnectError):
            await cluster.pull(master, 1, sysFlag=6, suspendTimeoutMillis=20_000)
        answer = await cluster.client.request(cluster.namesrv, RemotingCommand(106))
        seen.append(master.address.encode() in bytes(answer.body))

    cluster.nursery.start_soon(pull)
    await until(lambda: len(master.held_pulls))
    await running.stop()
    await until(lambda: seen)
    assert seen == [False]


async def test_a_stop_waits_for_topics_that_answers_wait_for(cluster):
    """The message is stored: its producer should not have to send it again."""
    master, running = await cluster.start("broker-a-0")
    file = master.tables.topics_writer.file = SlowFile(cluster.root / "topics.json")
    answers = []

    async def send():
        try:
            answers.append((await cluster.send(master, topic="New")).code)
        except RemotingConnectError as error:
            answers.append(error)

    cluster.nursery.start_soon(send)
    await until(lambda: master.tables.topics_writer.waiting)
    running.scope.cancel()
    with trio.move_on_after(0.3):
        await running.ended.wait()
    assert answers == []
    file.go.release(10)
    await running.stop()
    assert answers == [0]


async def test_a_busy_port_is_an_error_and_leaves_no_socket(cluster):
    port = free_broker_port()
    for busy in (port, port - 2, port + 1):
        with socket.create_server(("0.0.0.0", busy)):
            with pytest.raises(BaseExceptionGroup) as raised:
                await make_broker(cluster.root / str(busy), listen_port=port).run()
            assert raised.group_contains(OSError)


def test_a_master_has_id_0_and_a_slave_has_not(tmp_path):
    assert make_broker(tmp_path, broker_id=5).config.broker_id == 0
    with pytest.raises(ValueError, match="brokerId=0"):
        make_broker(tmp_path, role=BrokerRole.SLAVE, broker_id=0)


@pytest.mark.parametrize(
    ("role", "namesrv", "said"),
    [
        (BrokerRole.SYNC_MASTER, "", True),
        (BrokerRole.SYNC_MASTER, "127.0.0.1:9", False),
        (BrokerRole.SLAVE, "", False),
    ],
)
async def test_a_master_that_no_slave_can_follow_says_so(tmp_path, role, namesrv, said):
    """Without a name server nobody is registered, so that only haAllowedSlaves are left."""
    broker = make_broker(tmp_path, role=role, listen_port=free_broker_port(), namesrv_addr=namesrv)
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            nursery.cancel_scope.cancel()
    events = [line for line in lines if "only slaves in haAllowedSlaves may follow" in line["event"]]
    assert [line["haAllowedSlaves"] for line in events] == (["none"] if said else [])
