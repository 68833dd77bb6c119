"""`twinlog namesrv`: a name server as a process."""

from pathlib import Path

import click
import trio

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import set_up_log, speak_for
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.settings import load_namesrv, member_options, print_configuration
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.cluster.config.config_file import Configuration
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

    run_namesrv(configuration, config_file=config, until_stdin_closes=until_stdin_closes)


def run_namesrv(
    configuration: Configuration, *, config_file: Path | None = None, until_stdin_closes: bool = False
) -> None:
    """Serve until stopped. Changes over the network are saved in `config_file`. Raises CliError for a port in use."""
    set_up_log(for_good=True)

    config, server_config = configuration.of(NamesrvConfig), configuration.of(ServerConfig)
    http, http_port = configuration.of(HttpConfig), configuration.of(HttpConfig).port(config.listen_port, 2)

    async def serve(say_ready: SayReady) -> None:
        namesrv = NameServer(config, server_config, config_file, configuration.of(TlsConfig))
        speak_for(lambda: {"member": f"namesrv-{config.listen_port}"})
        source = source_of_namesrv(namesrv)
        async with http_sidecar(source, http, http_port), trio.open_nursery() as nursery:
            port = await nursery.start(namesrv.run)
            source.serves(port)
            say_ready(f"namesrv={server_config.bind_address}:{port}")

    ports = (Port(config.listen_port, "listenPort"), Port(http_port, "httpListenPort"))
    run_service(serve, server_config.bind_address, ports, until_stdin_closes=until_stdin_closes)
