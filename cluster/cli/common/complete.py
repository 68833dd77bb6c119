"""Completion in the shell: names from a name server or a broker, if it answers in time.

Every command refers to these functions, but few runs call them: what they need is imported at its first use.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from twinlog.cluster import admin as operations
from twinlog.cluster import client, observe
from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.which_cluster import DEFAULT_NAMESRV, chosen_context

SECONDS_MAX = 0.3  # Longer would be felt while typing.


def _completes(
    ask: "Callable[[operations.admin.Admin, bool], Awaitable[Iterable[str]]]",
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Make a completion function of one that asks for names; it has none when there is no answer in time.

    The flag of `ask` says whether the first letters were typed.
    """

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        import trio

        async def main() -> list[str]:
            async with operations.admin.open_admin(
                addresses, timeout_ms=round(SECONDS_MAX * 1000), context=chosen_context()
            ) as admin:
                with trio.move_on_after(SECONDS_MAX):
                    found = await ask(admin, bool(incomplete))
                    return sorted(name for name in found if name.startswith(incomplete))
            return []

        addresses = client.api.name_servers(context.params.get("namesrv") or DEFAULT_NAMESRV)
        try:
            return trio.run(main)
        except Exception:  # The command itself will report the problem when it runs.
            return []

    return complete


@_completes
async def topics(admin: "operations.admin.Admin", is_typed: bool) -> Iterable[str]:
    """Topics; RocketMQ's internal ones only when their first letters were typed."""
    found = await admin.api.topics()
    return [each for each in found if is_typed or not operations.topics.is_system_topic(each, set())]


@_completes
async def groups(admin: "operations.admin.Admin", is_typed: bool) -> Iterable[str]:
    """Consumer groups; RocketMQ's internal ones only when their first letters were typed."""
    found: set[str] = set()
    for target in observe.gather.readers(await admin.api.cluster()):
        found |= set(await observe.requests.group_configs(admin.api, target.address))
    return [each for each in found if is_typed or not operations.groups.is_system_group(each)]


@_completes
async def members(admin: "operations.admin.Admin", _is_typed: bool) -> Iterable[str]:
    """Names of members."""
    found = client.api.addresses_of(await admin.api.cluster())
    return [f"{group.broker_name}-{broker_id}" for group, broker_id, _ in found]


@_completes
async def brokers(admin: "operations.admin.Admin", _is_typed: bool) -> Iterable[str]:
    """Names of broker groups."""
    return [group.broker_name for group in await admin.api.cluster()]


def options(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Configuration keys of brokers and name servers, with their meaning."""
    return [
        CompletionItem(key, help=each.meaning)
        for key, each in operations.options.all_options().items()
        if key.startswith(incomplete)
    ]


_WHERE = {
    "bash": 'eval "$(twinlog completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(twinlog completion zsh)" in ~/.zshrc, after compinit',
    "fish": "twinlog completion fish > ~/.config/fish/completions/twinlog.fish",
}


@click.command(
    "completion",
    epilog=examples(
        'eval "$(twinlog completion bash)"',
        "twinlog completion fish > ~/.config/fish/completions/twinlog.fish",
    ),
)
@click.argument("shell", type=click.Choice(tuple(_WHERE)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, and the names of topics, groups and members.

    Names are completed only when a name server answers within 0.3 s.
    """
    kinds: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    click.echo(kinds[shell](context.find_root().command, {}, "twinlog", "_TWINLOG_COMPLETE").source())
    if sys.stdout.isatty():
        click.echo(f"To enable it for every shell: {_WHERE[shell]}", err=True)
