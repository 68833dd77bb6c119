"""`twinlog standalone`: a name server and one broker in one process, for tests and containers."""

from collections.abc import Sequence
from pathlib import Path

import click
import trio

from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.broker.wiring import make_broker
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.settings import load_broker, member_options, print_configuration
from twinlog.cluster.cli.run.up_plan import LOOPBACK, Port
from twinlog.cluster.config.config_file import Configuration
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.sidecar import http_sidecar
from twinlog.cluster.http.source import source_of_broker
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import StoreConfig

QUEUES = 4
# Below the file, variables and options. A container's own host name and IP say nothing to clients outside.
DEFAULTS = {"brokerName": "broker-a", "brokerIP1": LOOPBACK, "httpEnable": "false"}


@click.command(
    "standalone",
    epilog=examples(
        "twinlog standalone",
        "twinlog standalone --topic orders --set storePathRootDir=./store",
        "docker run -p 9876:9876 -p 20911:10911 twinlog:dev standalone --address 127.0.0.1:20911",
    ),
)
@member_options
@click.option("--port", type=click.IntRange(1, 65535), default=9876, show_default=True, help="Port of the name server.")
@click.option(
    "--address",
    metavar="HOST[:PORT]",
    help="Where clients reach the broker, if not at 127.0.0.1 and listenPort: what a container publishes.",
)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Create a topic at the start; repeatable.")
def standalone(
    config: Path | None,
    overrides: tuple[str, ...],
    print_only: bool,
    until_stdin_closes: bool,
    port: int,
    address: str | None,
    topics: tuple[str, ...],
) -> None:
    """Run a name server and one broker in one process, without slaves: for tests, and as a container.

    The broker's keys are those of `twinlog broker`, in the file and in variables, too. It tells clients 127.0.0.1 unless
    --address or brokerIP1 say otherwise, and HTTP is off unless httpEnable=true. Prints one line
    `ready namesrv=HOST:PORT broker=HOST:PORT` when a client can send. SIGTERM or Ctrl-C stops it cleanly.
    """
    configuration = load_broker(config, (*_told(address), *overrides), namesrv=f"{LOOPBACK}:{port}", defaults=DEFAULTS)
    if print_only:
        print_configuration(configuration)
        return
    _run(configuration, config, port, topics, until_stdin_closes=until_stdin_closes)


def _told(address: str | None) -> list[str]:
    """Return the settings that announce the address."""
    if address is None:
        return []
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):  # No port, or an IPv6 address in brackets.
        return [f"brokerIP1={address}"]
    return [f"brokerIP1={host}", f"brokerPort1={port}"]


def _run(
    configuration: Configuration,
    config_file: Path | None,
    namesrv_port: int,
    topics: Sequence[str],
    *,
    until_stdin_closes: bool,
) -> None:
    set_up_log(for_good=True)
    config, server_config = configuration.of(BrokerConfig), configuration.of(ServerConfig)
    http, http_port = configuration.of(HttpConfig), configuration.of(HttpConfig).port(config.listen_port, 3)

    async def serve(say_ready: SayReady) -> None:
        tls = configuration.of(TlsConfig)
        namesrv = NameServer(NamesrvConfig(listen_port=namesrv_port, kv_config_path=None), server_config, None, tls)
        broker = make_broker(
            config,
            configuration.of(StoreConfig),
            configuration.of(HAConfig),
            server_config,
            acl_config=configuration.of(AclConfig),
            tls_config=tls,
            etcd_config=configuration.of(EtcdConfig),
            config_file=config_file,
        )
        speak_for(broker.status.log_fields)
        source = source_of_broker(broker)
        async with http_sidecar(source, http, http_port), trio.open_nursery() as nursery:
            await nursery.start(namesrv.run)
            await nursery.start(broker.run)
            await broker.registration.registered.wait()
            await _create(broker, topics)
            source.serves()
            say_ready(f"namesrv={server_config.bind_address}:{namesrv_port} broker={broker.address}")

    port = config.listen_port
    ports = (
        Port(namesrv_port, "--port, the name server"),
        Port(port, "listenPort"),
        Port(port - 2, "the fast port, listenPort - 2"),
        Port(configuration.of(HAConfig).listen_port or port + 1, "haListenPort"),
        Port(http_port, "httpListenPort"),
    )
    run_service(serve, server_config.bind_address, ports, until_stdin_closes=until_stdin_closes)


async def _create(broker: Broker, topics: Sequence[str]) -> None:
    """Create the topics that are missing, and return when the name server knows them."""
    table = broker.tables.topics
    missing = [topic for topic in topics if table.select(topic) is None]
    for topic in missing:
        table.update(TopicConfig(topic, QUEUES, QUEUES))
    if missing:
        await broker.registration.register_all()
