"""`twinlog list`: the status of the members."""

from collections.abc import Sequence

import click

from twinlog.cluster.cli.common.group import examples
from twinlog.cluster.cli.common.options import document_option, namesrv_option, watch_option
from twinlog.cluster.cli.common.pages import Block, Page, screen, show
from twinlog.cluster.cli.common.render import Column, count, yes_no
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.observe.members import Member, MemberList
from twinlog.cluster.text import rate, seconds, size


def member_columns(members: Sequence[Member]) -> list[Column]:
    """Return the columns of the table of members, also for `twinlog up`."""
    have_changed = any(member.epoch for member in members)  # Until the first role change all are in epoch 0.

    return [
        Column("MEMBER", lambda m: m.name),
        Column("ADDRESS", lambda m: m.address, spare=1),
        Column("ROLE", lambda m: m.role),
        Column("STATE", lambda m: m.state),
        Column("EPOCH", lambda m: m.epoch, right=True, spare=4, wide=not have_changed),
        Column("WRITTEN", lambda m: m.written_offset, count, right=True),
        Column("FLUSHED", lambda m: m.flushed_offset, count, right=True, wide=True),
        Column("CONFIRMED", lambda m: m.confirmed_offset, count, right=True, spare=2),
        Column("LAG", lambda m: m.lag_bytes, size, right=True),
        Column("BEHIND", lambda m: m.lag_seconds, seconds, right=True, spare=3),
        Column("RATE", lambda m: m.rate_bytes_per_second, rate, right=True),
        Column("CLUSTER", lambda m: m.cluster, wide=True),
        Column("GROUP", lambda m: m.group, wide=True),
        Column("ID", lambda m: m.broker_id, right=True, wide=True),
        Column("HA ADDRESS", lambda m: m.ha_address, wide=True),
        Column("FOR MEMBERS", lambda m: m.member_address, wide=True),
        Column("HA TLS", lambda m: m.ha_tls, yes_no, wide=True),
        Column("ACKS", lambda m: m.ack_policy, wide=True),
        Column("MEMBER ID", lambda m: m.member_id, wide=True),
        Column("SECRET", lambda m: m.secret_ids, _secret, wide=True),
    ]


def _secret(ids: tuple[str, ...]) -> str:
    """The group secret that signs, and in parentheses what else is accepted."""
    return " ".join([*ids[:1], *(f"({id})" for id in ids[1:])]) or "none"


@click.command(
    "list",
    epilog=examples(
        "twinlog list", "twinlog list -w 5", "twinlog list -n 10.0.0.1:9876 -o json | jq '.members[].lag_bytes'"
    ),
)
@namesrv_option
@watch_option
@document_option(MemberList)
def list_members(namesrv: str, watch_seconds: float | None, fmt: str) -> None:
    """Show the role, the state and the lag of each member.

    WRITTEN is the end of its log in bytes, CONFIRMED the part that as many members have as the acknowledgement policy requires.
    LAG and BEHIND are what a slave has not acknowledged yet, in bytes and in time. A dash means unknown.
    """
    if watch_seconds is None:
        show(run_admin(namesrv, lambda admin: admin.list_members()), fmt, page_of)
        return
    seconds = watch_seconds
    with screen(fmt, page_of) as put:
        run_admin(namesrv, lambda admin: admin.watch_members(seconds, put))


def page_of(found: MemberList) -> Page:
    """Return the table of members with notes and issues."""
    table = Block(None, member_columns(found.members), found.members)
    return Page((table,), found.notes, found.issues, has_lines_in_tsv=True)
