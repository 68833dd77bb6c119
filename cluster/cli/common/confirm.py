"""Before something is changed that does not come back: who is asked, and how."""

import sys

import click

from twinlog.cluster.cli.common.errors import REFUSED, CliError

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
_CHANGES = "twinlog.changes"


def _note_changes(context: click.Context, _parameter: click.Parameter, dry_run: bool) -> bool:
    context.meta[_CHANGES] = not dry_run
    return dry_run


dry_run_option = click.option(
    "--dry-run", is_flag=True, callback=_note_changes, help="Show what would be done, and change nothing."
)


def may_have_changed(context: click.Context) -> bool:
    """Whether the command is one that has --dry-run, without it."""
    return bool(context.meta.get(_CHANGES))


def need_yes(is_given: bool, what: str) -> None:
    """A usage error where nobody can be asked."""
    if not is_given and not sys.stdin.isatty():
        raise click.UsageError(f"this {what}, and there is no terminal to ask at: add --yes, or --dry-run")


def confirm(name: str, kind: str, what: str, yes: bool) -> None:
    """Have the name of what is changed typed, unless `yes`; the cluster's is shown. Raises CliError."""
    if yes:
        return
    from twinlog.cluster.cli.common.which_cluster import cluster_words

    question = f"{what}{cluster_words()}. To go on, type the {kind}'s name ({name})"
    typed = click.prompt(question, err=True, default="", show_default=False)
    if typed.strip() != name:
        raise CliError("Nothing was changed.", f"{typed!r} is not the {kind}'s name.", exit_code=REFUSED)
