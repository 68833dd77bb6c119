"""`twinlog dashboard`: a web page about a cluster."""

from pathlib import Path

import click
import trio

from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.logging_setup import set_up_log
from twinlog.cluster.cli.common.options import namesrv_option, secret_file_option
from twinlog.cluster.cli.common.which_cluster import chosen_context, chosen_secret_file
from twinlog.cluster.cli.run.service import SayReady, run_service
from twinlog.cluster.cli.run.up_plan import Port
from twinlog.cluster.client.api import name_servers
from twinlog.cluster.dashboard.app import DashboardConfig, run_dashboard
from twinlog.cluster.http.server.tokens import TokenFileError, Tokens
from twinlog.cluster.remoting.names import split_address

DEFAULT_LISTEN = "127.0.0.1:9877"


@click.command(
    "dashboard",
    epilog=examples(
        "twinlog dashboard",
        "twinlog dashboard -n 10.0.0.1:9876 --listen 127.0.0.1:8080",
        "twinlog dashboard --token-file ~/.twinlog-token      allow role changes from the page",
    ),
)
@namesrv_option
@secret_file_option
@click.option("--listen", metavar="HOST:PORT", default=DEFAULT_LISTEN, show_default=True, help="Address to serve on.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of tokens, one on each line, that permit role changes from the page.  [default: read-only]",
)
@click.option(
    "--audit",
    "audit_directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Show the report that `twinlog audit --out DIR` wrote there.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="A host name with dots that browsers may use for it; repeatable.",
)
@click.option("--listen-fd", type=int, hidden=True, help="Serve on this socket, which already listens at --listen.")
@click.option("--until-stdin-closes", is_flag=True, hidden=True, help="Stop when the parent process ends.")
def dashboard(
    namesrv: str,
    listen: str,
    token_file: Path | None,
    audit_directory: Path | None,
    allow_hosts: tuple[str, ...],
    listen_fd: int | None,
    until_stdin_closes: bool,
) -> None:
    """Serve a web page that shows whether the data is safe, and which members are behind, by how much and for how long.

    Prints one line `ready dashboard=http://HOST:PORT` when it serves. It polls the cluster once a second for all viewers
    together, every five seconds without viewers. SIGTERM or Ctrl-C stops it.
    """
    try:
        host, port = split_address(listen)
    except ValueError:
        raise click.UsageError(f"--listen {listen}: expected HOST:PORT") from None
    try:
        if token_file is not None:
            Tokens(token_file).read()  # A bad file is reported now, not when a token is typed.
    except TokenFileError as error:
        raise CliError(f"The token file {error}.", exit_code=USAGE) from error
    addresses = name_servers(namesrv)
    if not addresses:
        raise click.UsageError("--namesrv is empty: expected HOST:PORT, or several separated by ;")
    config = DashboardConfig(
        namesrv=addresses,
        host=host,
        port=port,
        token_file=token_file,
        audit_directory=audit_directory,
        allow_hosts=allow_hosts,
        context=chosen_context(),
        secret_file=chosen_secret_file(),
        listen_fd=listen_fd,
    )
    set_up_log(for_good=True)

    async def serve(say_ready: SayReady) -> None:
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(run_dashboard, config)
            say_ready(f"dashboard=http://{f'[{host}]' if ':' in host else host}:{bound}")

    run_service(serve, host, (Port(port, "the dashboard"),), until_stdin_closes=until_stdin_closes)
