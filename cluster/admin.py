"""Every operation a person can ask for, as typed async functions on frozen results; CLI and HTTP only render them.

What is not known is None, never 0. Offsets and sizes in bytes unless the name says messages; times in seconds.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import frozen

from cluster import bundle, role_admin, role_history, role_repair
from cluster.broker.role_messages import ChangeResult
from cluster.client.api import ClientApi
from cluster.client.consumer import Consumer, ReceivedMessage
from cluster.client.producer import OutgoingMessage, Producer, SendResult
from cluster.client.start import From, FromTime
from cluster.client.subscription import Sql
from cluster.config_admin import ConfigAdmin
from cluster.config_file import ConfigError
from cluster.cross_views import Crosscheck
from cluster.crosscheck import crosscheck
from cluster.explanation import Explanation, explain_member, find_member
from cluster.facts import ClusterFacts
from cluster.finding import Finding, Level
from cluster.gather import ask_members, gather
from cluster.group_admin import GroupAdmin
from cluster.health import examine
from cluster.health_member import Limits
from cluster.live_diff import LiveDiffReport, live_diff
from cluster.members import Member, MemberList, NoMemberError, issues_of
from cluster.offset_admin import OffsetAdmin
from cluster.peeking import MessageAdmin
from cluster.remoting.command import RemotingCommand
from cluster.remoting.errors import RemotingError
from cluster.role_admin import Prepared, RoleGroup, RoleOrder, Tell
from cluster.role_history import History
from cluster.role_repair import PreparedRepair, Progress, RepairResult
from cluster.role_views import notes_of
from cluster.topic_admin import TopicAdmin
from cluster.waiting import Condition

if TYPE_CHECKING:
    import ssl

    from cluster.contexts import Context

T = TypeVar("T")


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

    @property
    def topics(self) -> TopicAdmin:
        return TopicAdmin(self.api)

    @property
    def groups(self) -> GroupAdmin:
        return GroupAdmin(self.api)

    @property
    def offsets(self) -> OffsetAdmin:
        return OffsetAdmin(self.api)

    @property
    def messages(self) -> MessageAdmin:
        return MessageAdmin(self.api)

    @property
    def config(self) -> ConfigAdmin:
        return ConfigAdmin(self.api)

    async def list_members(self) -> MemberList:
        """Ask the name server who there is, then each of them how it is. Raises RemotingError without a name server."""
        groups = await self.api.cluster()
        facts = await ask_members(self.api, groups)
        members = tuple(each.member for each in facts)
        return MemberList(members, tuple(issues_of(groups, members)), notes_of(facts))

    async def watch_members(self, seconds: float, show: Callable[[MemberList], None]) -> None:
        """Show the members now and every so many seconds, for ever. Raises RemotingError when the first time fails."""
        gone: Callable[[str], MemberList] = lambda why: MemberList((), (f"no name server answers: {why}",))  # noqa: E731
        await watch(self.list_members, seconds, lambda found: show(gone(found) if isinstance(found, str) else found))

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

    async def bundle(self, logs: Path | None) -> tuple[bundle.Part, ...]:
        """What a support case needs, in parts; see cluster/bundle.py."""
        asked: dict[str, tuple[str, Callable[[], Awaitable[Any]]]] = {
            "list.json": ("members, roles, offsets, lag: twinlog list", self.list_members),
            "check.json": ("what is wrong: twinlog check", lambda: self.check(Limits())),
            "history.json": ("who was the master, since when, why: twinlog history", lambda: self.history(None)),
            "topics.json": ("names, queues and counts of topics", lambda: self.topics.summaries(all_topics=True)),
            "groups.json": ("names and lag of consumer groups", lambda: self.groups.summaries(all_groups=True)),
        }
        return await bundle.collect(self.api, asked, logs)

    async def history(self, group: str | None) -> History:
        """Who was the master, since when, why, and at what cost."""
        return await role_history.history(self.api, group)

    # ---- Data

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
        tags: str | Sql = "*",
        group: str | None = None,
        start: From | FromTime | int | None = None,
        follow: bool = False,
    ) -> None:
        """Deliver the topic's messages until `deliver` returns False or, without `follow`, all are read."""
        await Consumer(self.api, topic, deliver, tags=tags, group=group, start=start).run(follow=follow)


async def watch(ask: Callable[[], Awaitable[T]], seconds: float, show: Callable[[T | str], None]) -> None:
    """Ask now and every so many seconds, for ever, and show each answer; a later failure is shown in words.

    Raises RemotingError when the first time fails.
    """
    show(await ask())
    while True:
        await trio.sleep(seconds)
        try:
            show(await ask())
        except RemotingError as error:
            show(str(error))


@asynccontextmanager
async def open_admin(
    namesrv: tuple[str, ...], *, timeout_ms: int = 3000, context: "Context | None" = None
) -> AsyncIterator[Admin]:
    """An Admin with a client of its own, for as long as the block lasts; it signs with the user's or the context's credentials.

    Raises ConfigError and OSError for credentials and certificates that cannot be used.
    """
    from cluster.credentials import own_signer
    from cluster.remoting.client import RemotingClient

    if context is None:
        client = RemotingClient(sign=own_signer())
    else:
        client = RemotingClient(sign=_signer_of(context), tls=_tls_of(context))
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield Admin(ClientApi(client, namesrv, timeout_ms))
        nursery.cancel_scope.cancel()


def _signer_of(context: "Context") -> Callable[[RemotingCommand], None] | None:
    from cluster.credentials import own_signer, read_credentials_file
    from cluster.remoting.signing import make_signer

    if context.credentials is None:
        return own_signer()
    credentials = read_credentials_file(context.credentials)
    if credentials is None:
        raise ConfigError(
            f"{context.credentials} has no accessKey and secretKey, and the context {context.name} names it"
        )
    return make_signer(credentials)


def _tls_of(context: "Context") -> "ssl.SSLContext | None":
    if not context.tls:
        return None
    from cluster.remoting.tls import client_context
    from cluster.remoting.tls_config import TlsConfig

    checked = context.trust is not None
    return client_context(TlsConfig(test_mode=not checked, auth_server=checked, client_trust=context.trust))
