"""Output of `twinlog up`: the ready line, then a live table on a terminal, or one line for each change elsewhere.

Pure functions make the lines from two lists of members.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio
from attrs import evolve

from twinlog.cluster.admin.admin import Admin, open_admin
from twinlog.cluster.admin.roles import unsettled
from twinlog.cluster.cli import common
from twinlog.cluster.cli.common.pages import Page, drawn
from twinlog.cluster.cli.common.render import Column
from twinlog.cluster.cli.members import page_of
from twinlog.cluster.cli.run.up_plan import BrokerPlan, UpPlan
from twinlog.cluster.observe.members import Member, MemberList
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.text import rate, seconds, size
from twinlog.cluster.user_errors import UserError

STARTING_POLL_SECONDS, POLL_SECONDS = 0.05, 1.0
SLOW_START_SECONDS = 10.0
HAND_OVER_SECONDS = 1.0
NO_CORES: Mapping[str, int] = {}

Say = Callable[[str], None]


async def watch(
    plan: UpPlan,
    say: Say,
    *,
    dashboard_url: str,
    token_file: str,
    elections: str,
    on_ready: Callable[[], None],
    hands_to_etcd: bool = False,
) -> None:
    """Print the ready line when all are ready, then their status; until cancelled. Empty texts: there is none."""
    async with open_admin((plan.namesrv.address,), timeout_ms=1000) as admin:
        members = await until_ready(plan, admin, say)
        page = f" dashboard={dashboard_url}" if dashboard_url else ""
        print(f"ready namesrv={plan.namesrv.address}{page}", flush=True)
        on_ready()
        if token_file:
            say(f"role changes from {dashboard_url} need the token in {token_file}")
        if elections:
            say(elections)
        async with trio.open_nursery() as nursery:
            if hands_to_etcd:
                for group in plan.groups:
                    nursery.start_soon(_hand_to_etcd, group, admin, say)
            await (_live(plan, admin, members) if sys.stderr.isatty() else _lines(plan, admin, members, say))


async def _hand_to_etcd(group: str, admin: Admin, say: Say) -> None:
    """Until etcd keeps a group's record: also that of a group that began without."""
    told, slow_at = "", trio.current_time() + SLOW_START_SECONDS
    while True:
        try:
            listed = await admin.list_members()
            if any(each.group == group for each in listed.in_sync_sets):
                say(f"{group}: etcd keeps its record")
                return
            if any(each.group == group and each.mode != "etcd" for each in listed.failovers):
                await admin.roles.set_auto_failover(group, "etcd")
        except (RemotingError, UserError) as error:
            if trio.current_time() > slow_at and str(error) != told:
                told = str(error)
                say(f"{group}: its record is not in etcd yet: {told}")
        await trio.sleep(HAND_OVER_SECONDS)


async def until_ready(plan: UpPlan, admin: Admin, say: Say) -> MemberList:
    """Wait until all serve or follow, and any slave could take over; name the others every 10 s."""
    slow_at = trio.current_time() + SLOW_START_SECONDS
    while True:
        members = await ask(plan, admin)
        missing = not_ready(plan, members.members) or await _unsettled(plan, admin)
        if not missing:
            return members
        if trio.current_time() > slow_at:
            slow_at = trio.current_time() + SLOW_START_SECONDS
            say(f"still waiting: {'; '.join(missing)}. Logs are in {plan.directory / 'logs'}")
        await trio.sleep(STARTING_POLL_SECONDS)


async def _unsettled(plan: UpPlan, admin: Admin) -> list[str]:
    """Reasons why a slave might be refused as the next master."""
    reasons = []
    for group in plan.groups:
        try:
            reasons += await unsettled(admin.api, group)
        except (RemotingError, UserError) as error:
            reasons.append(f"{group}: {error}")
    return reasons


async def ask(plan: UpPlan, admin: Admin) -> MemberList:
    """Return every planned member in the plan's order, unregistered ones as `starting`."""
    try:
        found = await admin.list_members()
    except RemotingError as error:
        found = MemberList((), (f"the name server at {plan.namesrv.address} does not answer: {error}",))
    return evolve(found, members=planned(plan, found.members))


async def _lines(plan: UpPlan, admin: Admin, before: MemberList, say: Say) -> None:
    cores = cores_of(plan)
    for member in before.members:
        say(line_of(member, cores))
    while True:
        await trio.sleep(POLL_SECONDS)
        now = await ask(plan, admin)
        for line in changes(before.members, now.members, cores):
            say(line)
        before = now


async def _live(plan: UpPlan, admin: Admin, members: MemberList) -> None:
    console = common.drawing.Console(stderr=True)
    with common.drawing.Live(console=console, auto_refresh=False) as live:  # auto_refresh would be a thread.
        while True:
            live.update(_renderable(plan, members, live.console.width), refresh=True)
            await trio.sleep(POLL_SECONDS)
            members = await ask(plan, admin)


def _renderable(plan: UpPlan, members: MemberList, width: int) -> Any:
    where = f"name server {plan.namesrv.address}  data {plan.directory}  Ctrl-C stops"
    page = page_with_cores(page_of(members), cores_of(plan))
    return common.drawing.Group(*drawn(page, "pretty", width), common.drawing.Text(where, style="dim"))


# ---- Pure parts


def elections_of(plan: UpPlan, overrides: Mapping[str, str]) -> str:
    """Say that groups begin with electing another master by themselves; "" where a person does."""
    begun = "etcd" if plan.etcd is not None else "members" if any(broker.elects for broker in plan.brokers) else "off"
    if (mode := overrides.get("autoFailover", begun)) == "off":
        return ""
    alone = ", and goes on with the members that are left" if mode == "etcd" else ""
    return (
        f"groups begin with autoFailover={mode}: one whose master stays away elects another one by itself{alone}."
        " To see or change that: twinlog auto-failover"
    )


def planned(plan: UpPlan, found: Sequence[Member]) -> tuple[Member, ...]:
    """Return the plan's members as found, else as `starting`; then members that are not in the plan."""
    by_address = {member.address: member for member in found}
    own = [by_address.pop(broker.address, _starting(broker)) for broker in plan.brokers]
    return (*own, *by_address.values())


def _starting(broker: BrokerPlan) -> Member:
    return Member(
        name=broker.name,
        cluster="",
        group=broker.group,
        broker_id=broker.broker_id,
        address=broker.address,
        role="slave" if broker.broker_id else "master",
        state="starting",
    )


def not_ready(plan: UpPlan, members: Sequence[Member]) -> list[str]:
    """Return the reasons why the plan is not ready yet, one for each member.

    A master must serve and count each of its slaves as in sync (an asynchronous one counts none: there the state of the slaves is
    enough), a slave must follow. Roles are as the members report them: they change, the plan does not.
    """
    by_address = {member.address: member for member in members}
    reasons = []
    synchronous = {broker.group for broker in plan.brokers if broker.role == "SYNC_MASTER"}
    for broker in plan.brokers:
        member = by_address[broker.address]
        slaves = sum(other.group == broker.group for other in plan.brokers) - 1
        if member.state not in FOLLOWING_OR_SERVING:
            reasons.append(f"{broker.name} is {member.state}")
        elif broker.group in synchronous and member.role == "master" and (member.slaves_counted or 0) < slaves:
            reasons.append(f"{broker.name} counts {member.slaves_counted or 0} of {slaves} slaves")
    return reasons


FOLLOWING_OR_SERVING = ("serving", "streaming", "catching up")


def cores_of(plan: UpPlan) -> dict[str, int]:
    """Return the cores of members that --pin binds, by address."""
    return {broker.address: broker.core for broker in plan.brokers if broker.core is not None}


def page_with_cores(page: Page, cores: Mapping[str, int]) -> Page:
    """Return the page of members with a column CORE at its end; as it is without cores."""
    if not cores:
        return page
    (table,) = page.blocks
    column = Column("CORE", lambda member: cores.get(member.address), right=True)
    return evolve(page, blocks=(evolve(table, columns=(*table.columns, column)),))


def changes(before: Sequence[Member], now: Sequence[Member], cores: Mapping[str, int] = NO_CORES) -> list[str]:
    """Return one line for each member whose role or state has changed."""
    old = {member.address: (member.name, member.role, member.state) for member in before}
    return [
        line_of(member, cores) for member in now if old.get(member.address) != (member.name, member.role, member.state)
    ]


def line_of(member: Member, cores: Mapping[str, int] = NO_CORES) -> str:
    """Format a member in one line, without unknown values."""
    parts = [member.name, member.role, member.state]
    if member.address in cores:
        parts.append(f"core {cores[member.address]}")
    if member.written_offset is not None:
        parts.append(f"offset {member.written_offset}")
    if member.lag_bytes is not None:
        behind = f" ({seconds(member.lag_seconds)})" if member.lag_seconds is not None else ""
        parts.append(f"lag {size(member.lag_bytes)}{behind}")
    if member.rate_bytes_per_second is not None:
        parts.append(f"rate {rate(member.rate_bytes_per_second)}")
    if member.reason:
        parts.append(f"because {member.reason}")
    return "  ".join(parts)
