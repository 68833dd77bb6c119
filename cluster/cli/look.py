"""Commands that look: how the members of a cluster are."""

from typing import TYPE_CHECKING

import click

from cluster.cli.options import document_option, examples, namesrv_option, run_admin

if TYPE_CHECKING:
    from cluster.cli.render import Column


def member_columns() -> "list[Column]":
    """The table of members, here and in the live table of `twinlog up`."""
    from cluster.cli.render import Column, count, rate, seconds, size

    return [
        Column("MEMBER", lambda m: m.name),
        Column("ADDRESS", lambda m: m.address, spare=1),
        Column("ROLE", lambda m: m.role),
        Column("STATE", lambda m: m.state),
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
        Column("ACKS", lambda m: m.ack_policy, wide=True),
    ]


@click.command(
    "list",
    short_help="Show how each member is.",
    epilog=examples("twinlog list", "twinlog list -n 10.0.0.1:9876 -o json | jq '.members[].lag_bytes'"),
)
@namesrv_option
@document_option("cluster.members:MemberList")
def list_members(namesrv: str, fmt: str) -> None:
    """Show each member: its role, what it does, and how far it is behind its master.

    WRITTEN is the end of its log in bytes; CONFIRMED is how much of it exists as often as producers were promised.
    LAG and BEHIND are what a slave has not acknowledged, in bytes and in time. A dash: not known.
    """
    found = run_admin(namesrv, lambda admin: admin.list_members())

    from cluster.cli.render import json_document, table

    if fmt == "json":
        json_document(members=found.members, issues=found.issues)
        return
    table(member_columns(), found.members, fmt)
    for issue in found.issues:
        click.echo(f"issue: {issue}", err=fmt == "tsv")
