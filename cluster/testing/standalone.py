"""A name server and a broker in one process, which takes less time and memory than two: the server of the fixture `rocketmq`.

    python -P -m twinlog.cluster.testing.entry standalone --namesrv-port N --set listenPort=M --set KEY=VALUE ...

Prints one line `ready namesrv=HOST:PORT broker=HOST:PORT`.
"""

import click
import trio

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.wiring import make_broker
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.settings import load_broker
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import StoreConfig


@click.command()
@click.option("--namesrv-port", type=int, required=True)
@click.option("--set", "overrides", multiple=True)
def standalone(namesrv_port: int, overrides: tuple[str, ...]) -> None:
    """Run both until stdin closes."""
    set_up_log(for_good=True)
    server = ServerConfig(bind_address="127.0.0.1")
    namesrv_config = NamesrvConfig(listen_port=namesrv_port, kv_config_path=None)
    address = f"{server.bind_address}:{namesrv_port}"
    configuration = load_broker(None, overrides, namesrv=address, environment={})
    config = configuration.of(BrokerConfig)

    async def serve(say_ready: SayReady) -> None:
        namesrv = NameServer(namesrv_config, server, None, TlsConfig())
        broker = make_broker(
            config,
            configuration.of(StoreConfig),
            configuration.of(HAConfig),
            configuration.of(ServerConfig),
            acl_config=configuration.of(AclConfig),
            tls_config=configuration.of(TlsConfig),
        )
        speak_for(broker.status.log_fields)
        async with trio.open_nursery() as nursery:
            await nursery.start(namesrv.run)
            await nursery.start(broker.run)
            await broker.registration.registered.wait()
            say_ready(f"namesrv={address} broker={broker.address}")

    port = config.listen_port
    ports = (
        Port(namesrv_port, "the name server"),
        Port(port, "the broker"),
        Port(port - 2, "its fast port"),
        Port(port + 1, "its HA port"),
    )
    run_service(serve, server.bind_address, ports, until_stdin_closes=True)
