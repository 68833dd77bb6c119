"""`twinlog namesrv`: a name server as a process."""

from pathlib import Path

import click
import trio

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.settings import load_namesrv, member_options, print_configuration
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.sidecar import http_sidecar
from twinlog.cluster.http.source import source_of_namesrv
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.tls.config import TlsConfig


@click.command("namesrv", epilog=examples("twinlog namesrv", "twinlog namesrv -c namesrv.conf --port 9876"))
@member_options
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; overrides the file.")
def namesrv(
    config: Path | None, overrides: tuple[str, ...], print_only: bool, until_stdin_closes: bool, port: int | None
) -> None:
    """Run a name server.

    Prints one line `ready namesrv=HOST:PORT` when it serves. SIGTERM or Ctrl-C stops it cleanly, a second signal at once.
    """
    configuration = load_namesrv(config, overrides, port=port)
    if print_only:
        print_configuration(configuration)
        return
    set_up_log(for_good=True)
    own, server_config = configuration.of(NamesrvConfig), configuration.of(ServerConfig)
    http, http_port = configuration.of(HttpConfig), configuration.of(HttpConfig).port(own.listen_port, 2)

    async def serve(say_ready: SayReady) -> None:
        namesrv = NameServer(own, server_config, config, configuration.of(TlsConfig))
        speak_for(lambda: {"member": f"namesrv-{own.listen_port}"})
        source = source_of_namesrv(namesrv)
        async with http_sidecar(source, http, http_port), trio.open_nursery() as nursery:
            bound = await nursery.start(namesrv.run)
            source.serves(bound)
            say_ready(f"namesrv={server_config.bind_address}:{bound}")

    ports = [Port(own.listen_port, "listenPort"), Port(http_port, "httpListenPort")]
    if own.outside_listen_port:
        ports.append(Port(own.outside_listen_port, "outsideListenPort"))
    run_service(serve, server_config.bind_address, ports, until_stdin_closes=until_stdin_closes)
