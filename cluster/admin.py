"""Every operation a person can ask for, as typed async functions on frozen results; CLI and HTTP only render them.

What is not known is None, never 0. Offsets and sizes in bytes unless the name says messages; times in seconds.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio
from attrs import frozen

from cluster import role_admin, role_history, role_repair
from cluster.broker.role_messages import ChangeResult
from cluster.client.api import ClientApi, QueueOffsets
from cluster.client.consumer import Consumer, From, ReceivedMessage
from cluster.client.parallel import in_parallel
from cluster.client.producer import OutgoingMessage, Producer, SendResult
from cluster.client.route import MessageQueue, QueueData
from cluster.cross_views import Crosscheck
from cluster.crosscheck import crosscheck
from cluster.explanation import Explanation, explain_member, find_member
from cluster.facts import ClusterFacts
from cluster.finding import Finding, Level
from cluster.gather import ask_members, gather
from cluster.health import examine
from cluster.health_member import Limits
from cluster.live_diff import LiveDiffReport, live_diff
from cluster.members import Member, MemberList, NoMemberError, issues_of
from cluster.remoting.errors import RemotingError
from cluster.role_admin import Prepared, RoleGroup, RoleOrder, Tell
from cluster.role_history import History
from cluster.role_repair import PreparedRepair, Progress, RepairResult
from cluster.role_views import notes_of
from cluster.waiting import Condition

# Topics that RocketMQ makes for itself. Source: TopicValidator, MixAll (4.9.8).
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
SYSTEM_PREFIXES = ("rmq_sys_", "%RETRY%", "%DLQ%")


@frozen(kw_only=True)
class TopicSummary:
    """One topic over all broker groups. Offsets count messages, summed over queues; None: no answer."""

    name: str
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: str
    min_offset_sum: int | None
    max_offset_sum: int | None
    messages: int | None
    last_update_ms: int | None  # When the last message was stored.


@frozen
class TopicList:
    """Every topic that was asked for."""

    topics: tuple[TopicSummary, ...]


@frozen(kw_only=True)
class CheckResult:
    """The state of a whole cluster for a monitoring system. `level` is that of the worst finding, "ok" without any."""

    level: str
    findings: tuple[Finding, ...]
    members: tuple[Member, ...]


@frozen
class Admin:
    """The operations, over one client."""

    api: ClientApi

    async def list_members(self) -> MemberList:
        """Ask the name server who there is, then each of them how it is. Raises RemotingError without a name server."""
        groups = await self.api.cluster()
        facts = await ask_members(self.api, groups)
        members = tuple(each.member for each in facts)
        return MemberList(members, tuple(issues_of(groups, members)), notes_of(facts))

    async def watch_members(self, seconds: float, show: Callable[[MemberList], None]) -> None:
        """Show the members now and every so many seconds, for ever. Raises RemotingError when the first time fails."""
        show(await self.list_members())
        while True:
            await trio.sleep(seconds)
            try:
                show(await self.list_members())
            except RemotingError as error:
                show(MemberList((), (f"no name server answers: {error}",)))

    async def explain(self, name: str) -> Explanation | None:
        """One member by name or address; None when nobody is called so. Raises RemotingError without a name server."""
        facts = await gather(self.api, thorough=True)
        found = find_member(facts, name)
        return explain_member(facts, found) if found is not None else None

    async def check(self, limits: Limits) -> CheckResult:
        """What a monitoring system should know now. Raises RemotingError without a name server."""
        facts = await gather(self.api, thorough=False)
        findings = examine(facts, limits)
        worst = findings[0].level if findings else Level.NOTE
        members = tuple(each.member for each in facts.members)
        return CheckResult(level="ok" if worst is Level.NOTE else worst.value, findings=findings, members=members)

    async def diagnose(self, others: tuple[str, ...] = ()) -> ClusterFacts:
        """All that can be found out, for `examine` to judge; `others` are brokers to ask besides the registered ones."""
        return await gather(self.api, thorough=True, others=others)

    async def wait(self, condition: Condition, on_change: Callable[[list[str]], None], *, poll_seconds: float) -> None:
        """Return once the condition holds; `on_change` is told what is missing whenever that changes."""
        told: list[str] | None = None
        while True:
            try:
                missing = condition.missing(await gather(self.api, thorough=False))
            except RemotingError as error:
                missing = [f"no name server answers: {error}"]
            if missing != told:
                on_change(missing)
                told = missing
            if not missing:
                return
            await trio.sleep(poll_seconds)

    async def crosscheck(self, *, last_bytes: int, tell: Callable[[str], None] = lambda _what: None) -> Crosscheck:
        """What every member sees of every other, and whether it fits together. Raises RemotingError without a name server."""
        return await crosscheck(self.api, last_bytes=last_bytes, tell=tell)

    async def live_diff(
        self, left: str, right: str, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> LiveDiffReport:
        """Compare the logs of two running brokers, each named as list_members() does, or HOST:PORT.

        Raises NoMemberError, and RemotingError when one of them cannot be asked.
        """
        named = [name for name in (left, right) if ":" not in name]
        members = {each.name: each.address for each in (await self.list_members()).members} if named else {}
        for name in named:
            if name not in members:
                raise NoMemberError(name)
        sides = [(name, members.get(name, name)) for name in (left, right)]
        return await live_diff(self.api, sides[0], sides[1], progress)

    # ---- Roles

    async def prepare_role_change(self, order: RoleOrder) -> Prepared:
        """What a switchover or failover would do, and by whom. Raises RoleError, NoMemberError and RemotingError."""
        return await role_admin.prepare(self.api, order)

    async def change_role(self, prepared: Prepared, tell: Tell) -> ChangeResult:
        """Carry it out; `tell` hears how far it is. Raises RoleError and RemotingError."""
        return await role_admin.carry_out(self.api, prepared, tell)

    async def schedule_switchover(self, order: RoleOrder, at_ms: int | None) -> RoleGroup:
        """Let it happen at a time, by the clock; None: not any more."""
        return await role_admin.schedule(self.api, order, at_ms)

    async def pause_roles(self, group: str | None, *, for_seconds: float | None, reason: str) -> RoleGroup:
        """Allow no role changes in a group, for so long or until resume_roles()."""
        return await role_admin.pause(self.api, group, for_seconds=for_seconds, reason=reason)

    async def resume_roles(self, group: str | None) -> RoleGroup:
        """Allow them again."""
        return await role_admin.resume(self.api, group)

    async def prepare_rewind(self, member: str, accept_data_loss: int | None) -> PreparedRepair:
        """What would be cut from the log of a slave. Raises RoleError, NoMemberError and RemotingError."""
        return await role_repair.prepare_rewind(self.api, member, accept_data_loss)

    async def prepare_reinit(self, member: str) -> PreparedRepair:
        """What would be put aside for a slave to begin anew."""
        return await role_repair.prepare_reinit(self.api, member)

    async def repair(self, prepared: PreparedRepair, *, timeout_seconds: float, progress: Progress) -> RepairResult:
        """Carry it out, until the slave is level with its master."""
        return await role_repair.repair(self.api, prepared, timeout_seconds=timeout_seconds, progress=progress)

    async def history(self, group: str | None) -> History:
        """Who was the master, since when, why, and at what cost."""
        return await role_history.history(self.api, group)

    # ---- Data

    async def list_topics(self, *, all_topics: bool = False) -> tuple[TopicSummary, ...]:
        """Every topic, those of RocketMQ itself only with `all_topics`. Raises RemotingError without a name server."""
        groups = await self.api.cluster()
        own = {name for group in groups for name in (group.cluster, group.broker_name)}
        names = [name for name in await self.api.topics() if all_topics or not is_system_topic(name, own)]
        found = await in_parallel(partial(self._topic, name) for name in names)
        return tuple(topic for topic in found if topic is not None)

    async def _topic(self, name: str) -> TopicSummary | None:
        route = await self.api.topic_route(name)
        if route is None:
            return None
        addresses = [broker.find(0) for broker in route.brokers.values()]
        tables = await in_parallel(partial(self._stats, address, name) for address in addresses if address)
        return summary_of(name, route.queue_data, tables)

    async def _stats(self, address: str, topic: str) -> Mapping[MessageQueue, QueueOffsets] | None:
        try:
            return await self.api.topic_stats(address, topic)
        except RemotingError:
            return None

    async def send(self, messages: "AsyncIterator[OutgoingMessage]", on_sent: Callable[[SendResult], None]) -> int:
        """Send them one after the other, report each answer, return how many there were. Raises RemotingError."""
        producer, count = Producer(self.api), 0
        async for message in messages:
            on_sent(await producer.send(message))
            count += 1
        return count

    async def consume(
        self,
        topic: str,
        deliver: Callable[[ReceivedMessage], bool],
        *,
        tags: str = "*",
        group: str | None = None,
        start: From | int | None = None,
        follow: bool = False,
    ) -> None:
        """Deliver the topic's messages until `deliver` returns False or, without `follow`, all are read."""
        await Consumer(self.api, topic, deliver, tags=tags, group=group, start=start).run(follow=follow)


@asynccontextmanager
async def open_admin(namesrv: tuple[str, ...], *, timeout_ms: int = 3000) -> AsyncIterator[Admin]:
    """An Admin with a client of its own, for as long as the block lasts."""
    from cluster.credentials import own_signer
    from cluster.remoting.client import RemotingClient

    client = RemotingClient(sign=own_signer())
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield Admin(ClientApi(client, namesrv, timeout_ms))
        nursery.cancel_scope.cancel()


def summary_of(
    name: str, queue_data: tuple[QueueData, ...], tables: list[Mapping[MessageQueue, QueueOffsets] | None]
) -> TopicSummary:
    """One line of `topic list`, from the route and each broker's offsets (None: no answer)."""
    offsets = [each for table in tables if table is not None for each in table.values()]
    known = None not in tables
    return TopicSummary(
        name=name,
        brokers=tuple(data.broker_name for data in queue_data),
        read_queues=sum(data.read_queues for data in queue_data),
        write_queues=sum(data.write_queues for data in queue_data),
        perm="/".join(sorted({data.perm_text for data in queue_data})),
        min_offset_sum=sum(each.min_offset for each in offsets) if known else None,
        max_offset_sum=sum(each.max_offset for each in offsets) if known else None,
        messages=sum(each.max_offset - each.min_offset for each in offsets) if known else None,
        last_update_ms=max((each.last_update_ms for each in offsets if each.last_update_ms), default=None),
    )


def is_system_topic(name: str, own_names: set[str]) -> bool:
    """Made by RocketMQ itself: fixed names, retry and dead letter topics, one named like each broker and cluster."""
    return (
        name in SYSTEM_TOPICS
        or name in own_names
        or name.startswith(SYSTEM_PREFIXES)
        or (name.endswith("_REPLY_TOPIC") and name.removesuffix("_REPLY_TOPIC") in own_names)
    )
