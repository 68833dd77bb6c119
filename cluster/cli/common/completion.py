"""`twinlog completion`: lets the shell complete commands, options and names."""

import sys

import click

from twinlog.cluster.cli.common.options import examples

_WHERE = {
    "bash": 'eval "$(twinlog completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(twinlog completion zsh)" in ~/.zshrc, after compinit',
    "fish": "twinlog completion fish > ~/.config/fish/completions/twinlog.fish",
}


@click.command(
    "completion",
    short_help="Let the shell complete commands and names.",
    epilog=examples(
        'eval "$(twinlog completion bash)"',
        "twinlog completion fish > ~/.config/fish/completions/twinlog.fish",
    ),
)
@click.argument("shell", type=click.Choice(tuple(_WHERE)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what SHELL has to run so that it completes twinlog's commands and options, and the names of topics, groups and
    members where a name server answers within 0.3 s.
    """
    from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

    kinds: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
    click.echo(kinds[shell](context.find_root().command, {}, "twinlog", "_TWINLOG_COMPLETE").source())
    if sys.stdout.isatty():
        click.echo(f"To have it always: {_WHERE[shell]}", err=True)
