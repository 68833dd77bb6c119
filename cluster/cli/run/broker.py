"""`twinlog broker`: a broker as a process."""

from pathlib import Path

import click
import trio

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.wiring import make_broker
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.settings import load_broker, member_options, print_configuration
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.cluster.config.config_file import Configuration
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.sidecar import http_sidecar
from twinlog.cluster.http.source import source_of_broker
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import StoreConfig

REGISTER_SECONDS_MAX = 5  # A broker also serves without its name server.


@click.command(
    "broker", epilog=examples("twinlog broker -c broker.conf -n 127.0.0.1:9876", "twinlog broker -c broker.conf -p")
)
@member_options
@click.option(
    "-n", "--namesrv", metavar="HOST:PORT", help="Name servers, separated by ; (overrides namesrvAddr of the file)."
)
def broker(
    config: Path | None, overrides: tuple[str, ...], print_only: bool, until_stdin_closes: bool, namesrv: str | None
) -> None:
    """Run a broker: a master, or a slave that follows one.

    Reads RocketMQ's broker.conf. Variables such as TWINLOG_BROKER_NAME override the file, options override both. Prints one
    line `ready broker=NAME address=HOST:PORT` when it serves and is registered. SIGTERM or Ctrl-C stops it cleanly, a second
    signal at once.
    """
    configuration = load_broker(config, overrides, namesrv=namesrv)
    if print_only:
        print_configuration(configuration)
        return

    run_broker(configuration, config_file=config, until_stdin_closes=until_stdin_closes)


def run_broker(
    configuration: Configuration, *, config_file: Path | None = None, until_stdin_closes: bool = False
) -> None:
    """Serve until stopped. Changes over the network are saved in `config_file`.

    Raises CliError for a port in use and a store that cannot be opened.
    """
    set_up_log(for_good=True)

    config, ha_config = configuration.of(BrokerConfig), configuration.of(HAConfig)
    server_config = configuration.of(ServerConfig)
    http, http_port = configuration.of(HttpConfig), configuration.of(HttpConfig).port(config.listen_port, 3)

    async def serve(say_ready: SayReady) -> None:
        broker = make_broker(
            config,
            configuration.of(StoreConfig),
            ha_config,
            server_config,
            acl_config=configuration.of(AclConfig),
            tls_config=configuration.of(TlsConfig),
            etcd_config=configuration.of(EtcdConfig),
            config_file=config_file,
        )
        speak_for(broker.status.log_fields)
        source = source_of_broker(broker)
        async with http_sidecar(source, http, http_port), trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            if config.name_servers:
                with trio.move_on_after(REGISTER_SECONDS_MAX):
                    await broker.registration.registered.wait()
            source.serves()
            name = f"broker={config.broker_name}-{broker.config.broker_id}"
            say_ready(f"{name} address={broker.address}", lambda: _in_a_line(broker.status.member()))

    port = config.listen_port
    ports = (
        Port(port, "listenPort"),
        Port(port - 2, "the fast port, listenPort - 2"),
        Port(ha_config.listen_port or port + 1, "haListenPort"),
        Port(http_port, "httpListenPort"),
    )
    run_service(serve, server_config.bind_address, ports, until_stdin_closes=until_stdin_closes)


def _in_a_line(status: MemberStatus) -> str:
    """Return the state of a broker in one line, for `systemctl status`."""
    epoch = f"epoch {status.epoch.epoch}" if status.epoch is not None else ""
    return ", ".join(part for part in (str(status.role), str(status.state), epoch) if part)
