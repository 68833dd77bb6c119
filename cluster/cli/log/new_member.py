"""`twinlog log new-member`: makes a new member of a copied store directory."""

from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, need_yes, yes_option
from twinlog.cluster.cli.common.render import print_answer
from twinlog.cluster.cli.log.directory import (
    directory_argument,
    directory_options,
    opened,
    options_of,
    say,
    user_errors,
)
from twinlog.store.offline.new_member import NewMemberReport, make_new_member, plan_new_member


@click.command(
    "new-member",
    epilog=examples("twinlog log new-member ~/copy --dry-run", "twinlog log new-member ~/copy --yes"),
)
@directory_argument
@click.option("--dry-run", is_flag=True, help="Show what would be done without changing anything.")
@yes_option
@directory_options
@document_option(NewMemberReport)
def new_member(directory: Path, dry_run: bool, yes: bool, fmt: str, **options: Any) -> None:
    """Give a copied store directory an id of its own, so that it takes part in a group as a new member.

    Its broker must be stopped. The votes and the role that were copied are removed; the log, its history and the configuration
    stay. At its next start broker.conf says which role it has: brokerRole=SLAVE for one that is to follow.
    """
    with opened(directory, **options) as store:
        report = plan_new_member(store)
    if not dry_run and report.has_files:
        if not yes and report.process_id is None:
            what = f"the identity of {report.root}, {report.old_id or 'which cannot be read'}"
            need_yes(yes, "replaces the identity of a member")
            click.confirm(f"Replace {what}?", abort=True, err=True)
        with user_errors():
            report = make_new_member(directory.expanduser(), options_of(**options))
    print_answer(report, fmt, _show)


def _show(report: NewMemberReport, fmt: str) -> None:
    if not report.has_files:
        say(f"nothing to do: {report.root} has no id yet, and gets one at its next start", fmt)
        return
    old = report.old_id or "an id that cannot be read"
    of_group = f" of {report.old_group}" if report.old_group else ""
    role = f", {report.old_role}" if report.old_role else ""
    if report.new_id is None:
        say(f"would give up  {old}{of_group}{role}", fmt)
        if report.process_id is not None:
            say(f"but first      stop the broker, process {report.process_id}", fmt)
        return
    say(f"was  {old}{of_group}{role}", fmt)
    say(f"is   {report.new_id}, which no group knows yet", fmt)
    say("Its broker.conf says its role at the next start: brokerRole=SLAVE for one that is to follow", fmt)
