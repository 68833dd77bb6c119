"""Running an operation of `Admin` from a command: its client, Ctrl-C, its errors."""

import signal
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from twinlog.cluster.admin.admin import Admin, open_admin
from twinlog.cluster.cli.common.errors import explained
from twinlog.cluster.cli.common.logging_setup import ERROR, set_up_log
from twinlog.cluster.cli.common.which_cluster import chosen_context, chosen_secret_file
from twinlog.cluster.client.api import name_servers
from twinlog.cluster.remoting.names import split_address

T = TypeVar("T")


async def until_interrupted(work: Awaitable[T]) -> T:
    """Await `work`; on Ctrl-C cancel it and raise KeyboardInterrupt.

    Python itself would raise KeyboardInterrupt anywhere, even between two steps that belong together.
    """
    if threading.current_thread() is not threading.main_thread():  # Only the main thread receives signals.
        return await work
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def cancel_at_signal() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(cancel_at_signal)
            result = await work
            nursery.cancel_scope.cancel()
            return result
    raise KeyboardInterrupt


def run_admin(namesrv: str, operation: Callable[[Admin], Awaitable[T]]) -> T:
    """Run one operation with a client of its own. Raises CliError for problems that the user can solve."""
    set_up_log(ERROR)  # Failures are reported as the error of the command.

    addresses = name_servers(namesrv)
    if not addresses:
        raise click.UsageError("--namesrv is empty: expected HOST:PORT, or several separated by ;")
    for address in addresses:
        try:
            split_address(address)
        except ValueError:
            raise click.UsageError(f"--namesrv {address}: expected HOST:PORT, or several separated by ;") from None
    chosen, secret_file = chosen_context(), chosen_secret_file()

    async def main() -> T:
        async with open_admin(addresses, context=chosen, secret_file=secret_file) as admin:
            return await until_interrupted(operation(admin))

    with explained(addresses):
        return trio.run(main)
