"""Wiring of a broker: that the parts which belong together are the same ones. Tests of processors make their parts by hand."""

import attrs
import pytest

from tests.cluster.broker.helpers import make_broker, opened
from twinlog.cluster.broker import wiring
from twinlog.cluster.remoting.tls.config import TlsConfig, TlsMode


@pytest.fixture
async def client(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        yield client


def options(client) -> dict[str, str]:
    """The configuration that request 26 shows."""
    return dict(line.split("=", 1) for line in client.ask(26).body.decode().splitlines())


async def test_the_ha_port_is_next_to_the_main_port(client):
    """On a broker, as the wiring chooses the port; request 26 shows the one in force."""
    assert options(client)["haListenPort"] == "10912"


async def test_services_with_a_copy_get_the_new_value(client):
    """On a broker, as a change must reach the services that it runs."""
    body = b"transactionCheckInterval=200\ntransactionTimeOut=7\ntransactionCheckMax=3\nflushDelayOffsetInterval=300\n"
    body += (
        b"longPollingEnable=false\nautoCreateSubscriptionGroup=false\nflushIntervalCommitLog=50\nmaxMsgsNumBatch=9\n"
    )
    assert (await client.ask_async(25, body)).code == 0
    broker = client.broker
    assert broker.transactions.interval_ms == 200
    assert (broker.transactions.rules.timeout_ms, broker.transactions.rules.check_max) == (7, 3)
    assert broker.schedule.flush_interval_ms == 300
    assert broker.held_pulls.scan_seconds == 1.0
    assert broker.tables.groups.find("made-up") is None
    assert broker.store.flusher.config.flush_interval_commit_log_ms == 50
    assert broker.store.index.config.max_msgs_num_batch == 9


async def test_producers_are_answered_by_the_new_configuration(client):
    """On a broker, as a change of one processor must reach its SendProcessor."""
    broker = client.broker
    assert (await client.ask_async(25, b"traceOn=false")).code == 0
    assert broker.send._answer_fields["TRACE_ON"] == "false"


async def test_the_permission_is_told_to_name_servers_and_obeyed(client):
    """On a broker, as registration and pulls must read the settings that request 25 changes."""
    broker = client.broker
    version = broker.tables.topics.version
    assert (await client.ask_async(25, b"brokerPermission=2")).code == 0
    assert broker.tables.topics.version != version
    assert broker.registration.settings.config.broker_permission == 2
    fields = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0}
    assert client.ask(11, **fields, commitOffset=0, suspendTimeoutMillis=0, subVersion=0).code == 16


@pytest.mark.parametrize("mode", TlsMode)
@pytest.mark.parametrize("enable", [None, False, True])
async def test_tls_is_shown_as_it_is_in_use(tmp_path, mode, enable):
    """On a broker, as its wiring decides whether its own requests use TLS.

    RocketMQ's `useTLS` is about those: `tls.enable` decides, else whether it takes TLS only.
    """
    broker = make_broker(tmp_path / "b")
    tls = TlsConfig(mode=mode, enable=enable)
    async with opened(wiring.make_broker(broker.config, broker.store.config, tls_config=tls)) as client:
        shown = options(client)
        assert shown["useTLS"] == ("true" if client.broker.remoting.tls is not None else "false")
        assert (shown["useTLS"] == "true") == (mode is TlsMode.enforcing if enable is None else enable)
        assert shown["tls.server.mode"] == mode.value


@pytest.mark.parametrize(
    ("config", "name_server", "member"),
    [
        ({}, False, False),
        ({"members": True}, False, True),
        ({"members": True, "enable": True}, True, True),
        ({"members": True, "enable": False, "mode": TlsMode.enforcing}, False, True),
    ],
)
async def test_one_option_makes_requests_to_members_tls_ones(tmp_path, config, name_server, member):
    """On a broker, as its wiring knows which addresses are name servers: these may be RocketMQ's, without TLS."""
    made = make_broker(tmp_path / "b")
    own = attrs.evolve(made.config, namesrv_addr="127.0.0.1:9876;127.0.0.2:9876")
    broker = wiring.make_broker(own, made.store.config, tls_config=TlsConfig(**config))
    tls = broker.remoting.tls
    used = [tls is not None and await tls(address) is not None for address in ("127.0.0.2:9876", "127.0.0.2:10911")]
    assert used == [name_server, member]
