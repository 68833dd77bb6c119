"""Operations for users, as typed async functions with frozen results; CLI and HTTP only render them.

Unknown values are None, never 0. Offsets and sizes in bytes unless the name says messages; times in seconds.
Each operation imports its modules when it is called, so that a command starts with its own modules only.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from attrs import frozen

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.store.util.progress import Progress

if TYPE_CHECKING:
    import ssl

    from twinlog.cluster.admin.bundle import Part
    from twinlog.cluster.admin.config import ConfigAdmin
    from twinlog.cluster.admin.groups import GroupAdmin
    from twinlog.cluster.admin.messages import MessageAdmin
    from twinlog.cluster.admin.offsets import OffsetAdmin
    from twinlog.cluster.admin.repair import PreparedRepair, RepairResult
    from twinlog.cluster.admin.roles import ChangeOutcome, History, OnChange, Prepared, RoleGroup, RoleOrder
    from twinlog.cluster.admin.sending import Destination
    from twinlog.cluster.admin.topics import TopicAdmin
    from twinlog.cluster.admin.waiting import Condition
    from twinlog.cluster.client.consume.topic_reader import ReceivedMessage
    from twinlog.cluster.client.messages import OutgoingMessage
    from twinlog.cluster.client.producer import SendResult
    from twinlog.cluster.client.subscription import From, FromTime, Sql
    from twinlog.cluster.config.contexts import Context
    from twinlog.cluster.observe.cross_check import Crosscheck
    from twinlog.cluster.observe.explain import Explanation
    from twinlog.cluster.observe.findings import CheckResult
    from twinlog.cluster.observe.live_diff import LiveDiffReport
    from twinlog.cluster.observe.members import ClusterFacts, MemberList
    from twinlog.cluster.observe.rules import LagLimits
    from twinlog.store.util.progress import Progress


@frozen
class Admin:
    """The operations, over one client."""

    api: ClientApi

    @property
    def topics(self) -> "TopicAdmin":
        from twinlog.cluster.admin.topics import TopicAdmin

        return TopicAdmin(self.api)

    @property
    def groups(self) -> "GroupAdmin":
        from twinlog.cluster.admin.groups import GroupAdmin

        return GroupAdmin(self.api)

    @property
    def offsets(self) -> "OffsetAdmin":
        from twinlog.cluster.admin.offsets import OffsetAdmin

        return OffsetAdmin(self.api)

    @property
    def messages(self) -> "MessageAdmin":
        from twinlog.cluster.admin.messages import MessageAdmin

        return MessageAdmin(self.api)

    @property
    def config(self) -> "ConfigAdmin":
        from twinlog.cluster.admin.config import ConfigAdmin

        return ConfigAdmin(self.api)

    async def list_members(self) -> "MemberList":
        """Ask the name server for the members, then each member for its status. Raises RemotingError without a name server."""
        from twinlog.cluster.observe.gather import ask_members
        from twinlog.cluster.observe.members import MemberList, issues_of
        from twinlog.cluster.observe.role_views import notes_of

        groups = await self.api.cluster()
        facts = await ask_members(self.api, groups)
        members = tuple(each.member for each in facts)
        return MemberList(members, tuple(issues_of(groups, members)), notes_of(facts))

    async def watch_members(self, seconds: float, show: "Callable[[MemberList], None]") -> None:
        """Show the members now and every `seconds`, without end. Raises RemotingError when the first request fails."""
        from twinlog.cluster.admin.waiting import watch
        from twinlog.cluster.observe.members import MemberList

        def shown(found: MemberList | str) -> None:
            show(MemberList((), (f"no name server answers: {found}",)) if isinstance(found, str) else found)

        await watch(self.list_members, seconds, shown)

    async def explain(self, name: str) -> "Explanation | None":
        """Explain a member by name or address; None if there is none. Raises RemotingError without a name server."""
        from twinlog.cluster.observe.explain import explain_member, find_member
        from twinlog.cluster.observe.gather import gather

        facts = await gather(self.api, thorough=True)
        found = find_member(facts, name)
        return explain_member(facts, found) if found is not None else None

    async def check(self, limits: "LagLimits") -> "CheckResult":
        """Check the cluster for a monitoring system. Raises RemotingError without a name server."""
        from twinlog.cluster.observe.findings import CheckResult, Level
        from twinlog.cluster.observe.gather import gather
        from twinlog.cluster.observe.rules import examine

        facts = await gather(self.api, thorough=False)
        findings = examine(facts, limits)
        worst = findings[0].level if findings else Level.NOTE
        members = tuple(each.member for each in facts.members)
        return CheckResult(level="ok" if worst is Level.NOTE else worst.value, findings=findings, members=members)

    async def diagnose(self, others: tuple[str, ...] = ()) -> "ClusterFacts":
        """Gather all facts for `examine`; `others` are brokers to ask besides the registered ones."""
        from twinlog.cluster.observe.gather import gather

        return await gather(self.api, thorough=True, others=others)

    async def wait(
        self, condition: "Condition", on_change: Callable[[list[str]], None], *, poll_seconds: float
    ) -> None:
        """Return once the condition holds; `on_change` is called with what is missing whenever that changes."""
        from twinlog.cluster.observe.gather import gather

        reported: list[str] | None = None
        while True:
            try:
                missing = condition.missing(await gather(self.api, thorough=False))
            except RemotingError as error:
                missing = [f"no name server answers: {error}"]
            if missing != reported:
                on_change(missing)
                reported = missing
            if not missing:
                return
            await trio.sleep(poll_seconds)

    async def crosscheck(
        self, *, last_bytes: int, progress: Callable[[str], None] = lambda _what: None
    ) -> "Crosscheck":
        """Compare what every member sees of every other. Raises RemotingError without a name server."""
        from twinlog.cluster.observe.cross_check import crosscheck

        return await crosscheck(self.api, last_bytes=last_bytes, progress=progress)

    async def live_diff(
        self, left: str, right: str, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> "LiveDiffReport":
        """Compare the logs of two running brokers, each named as list_members() does, or HOST:PORT.

        Raises NoMemberError, and RemotingError when one of them cannot be asked.
        """
        from twinlog.cluster.observe.live_diff import live_diff
        from twinlog.cluster.observe.members import NoMemberError

        named = [name for name in (left, right) if ":" not in name]
        members = {each.name: each.address for each in (await self.list_members()).members} if named else {}
        for name in named:
            if name not in members:
                raise NoMemberError(name)
        sides = [(name, members.get(name, name)) for name in (left, right)]
        return await live_diff(self.api, sides[0], sides[1], progress)

    # ---- Roles

    async def prepare_role_change(self, order: "RoleOrder") -> "Prepared":
        """Plan a switchover or failover, with its candidate. Raises RoleError, NoMemberError and RemotingError."""
        from twinlog.cluster.admin import roles as role_admin

        return await role_admin.prepare(self.api, order)

    async def change_role(self, prepared: "Prepared", on_change: "OnChange") -> "ChangeOutcome":
        """Carry the change out; `on_change` is called with its progress. Raises RoleError and RemotingError."""
        from twinlog.cluster.admin import roles as role_admin

        return await role_admin.carry_out(self.api, prepared, on_change)

    async def schedule_switchover(self, order: "RoleOrder", at_ms: int | None) -> "RoleGroup":
        """Schedule a switchover for a time of the clock; None cancels it."""
        from twinlog.cluster.admin import roles as role_admin

        return await role_admin.schedule(self.api, order, at_ms)

    async def pause_roles(self, group: str | None, *, for_seconds: float | None, reason: str) -> "RoleGroup":
        """Pause role changes in a group, for so many seconds or until resume_roles()."""
        from twinlog.cluster.admin import roles as role_admin

        return await role_admin.pause(self.api, group, for_seconds=for_seconds, reason=reason)

    async def resume_roles(self, group: str | None) -> "RoleGroup":
        """Allow role changes again."""
        from twinlog.cluster.admin import roles as role_admin

        return await role_admin.resume(self.api, group)

    async def prepare_rewind(self, member: str, accept_data_loss: int | None) -> "PreparedRepair":
        """Plan what is cut from the log of a slave. Raises RoleError, NoMemberError and RemotingError."""
        from twinlog.cluster.admin import repair as role_repair

        return await role_repair.prepare_rewind(self.api, member, accept_data_loss)

    async def prepare_reinit(self, member: str) -> "PreparedRepair":
        """Plan what is put aside for a slave that starts with an empty log."""
        from twinlog.cluster.admin import repair as role_repair

        return await role_repair.prepare_reinit(self.api, member)

    async def repair(self, prepared: "PreparedRepair", *, timeout_seconds: float, progress: Progress) -> "RepairResult":
        """Carry the repair out, until the slave has caught up with its master."""
        from twinlog.cluster.admin import repair as role_repair

        return await role_repair.repair(self.api, prepared, timeout_seconds=timeout_seconds, progress=progress)

    async def bundle(self, logs: Path | None) -> "tuple[Part, ...]":
        """Collect a support bundle, in parts; see cluster/admin/bundle.py."""
        from twinlog.cluster.admin.bundle import collect
        from twinlog.cluster.observe.rules import LagLimits

        asked: dict[str, tuple[str, Callable[[], Awaitable[Any]]]] = {
            "list.json": ("members, roles, offsets, lag: twinlog list", self.list_members),
            "check.json": ("findings: twinlog check", partial(self.check, LagLimits())),
            "history.json": ("masters, since when, why: twinlog history", partial(self.history, None)),
            "topics.json": ("names, queues and counts of topics", partial(self.topics.summaries, all_topics=True)),
            "groups.json": ("names and lag of consumer groups", partial(self.groups.summaries, all_groups=True)),
        }
        return await collect(self.api, asked, logs)

    async def history(self, group: str | None) -> "History":
        """History of a group's masters: since when, why, and at what cost."""
        from twinlog.cluster.admin import roles as role_admin

        return await role_admin.history(self.api, group)

    # ---- Data

    async def send(
        self,
        messages: "AsyncIterator[OutgoingMessage]",
        on_sent: "Callable[[SendResult, int], None]",
        *,
        to: "Destination | None" = None,
        rate: float | None = None,
        batch: int = 1,
    ) -> int:
        """Send messages in order; report each result with its number of messages. See cluster/admin/sending.py."""
        from twinlog.cluster.admin.sending import send_messages

        return await send_messages(self.api, messages, on_sent, to=to, rate=rate, batch=batch)

    async def consume(
        self,
        topic: str,
        deliver: "Callable[[ReceivedMessage], bool]",
        *,
        tags: "str | Sql" = "*",
        group: str | None = None,
        start: "From | FromTime | int | None" = None,
        follow: bool = False,
    ) -> None:
        """Deliver the topic's messages until `deliver` returns False or, without `follow`, all are read."""
        from twinlog.cluster.client.consume.topic_reader import Consumer

        await Consumer(self.api, topic, deliver, tags=tags, group=group, start=start).run(follow=follow)


@asynccontextmanager
async def open_admin(
    namesrv: tuple[str, ...], *, timeout_ms: int = 3000, context: "Context | None" = None
) -> AsyncIterator[Admin]:
    """An Admin with a client of its own, for as long as the block lasts; it signs with the user's or the context's credentials.

    Raises ConfigError and OSError for credentials and certificates that cannot be used.
    """
    client = client_for(context)
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield Admin(ClientApi(client, namesrv, timeout_ms))
        nursery.cancel_scope.cancel()


def client_for(context: "Context | None") -> RemotingClient:
    """Make a client; the context has precedence over the environment.

    Raises ConfigError and OSError for credentials and certificates that cannot be used.
    """
    return RemotingClient(sign=_signer_of(context), tls=_tls_of(context))


def _signer_of(context: "Context | None") -> "Callable[[RemotingCommand], None] | None":
    from twinlog.cluster.config.credentials import own_signer, read_credentials_file
    from twinlog.cluster.config.properties_file import ConfigError
    from twinlog.cluster.remoting.signing import make_signer

    if context is None or context.credentials is None:
        return own_signer()
    credentials = read_credentials_file(context.credentials)
    if credentials is None:
        raise ConfigError(
            f"{context.credentials} has no accessKey and secretKey, and the context {context.name} names it"
        )
    return make_signer(credentials)


def _tls_of(context: "Context | None") -> "ssl.SSLContext | None":
    if context is None or not context.tls:
        if not os.environ.get("TWINLOG_TLS"):  # Nearly always: then nothing is imported for it.
            return None
        from twinlog.cluster.config.tls_file import own_tls

        return own_tls()
    from twinlog.cluster.remoting.tls.config import TlsConfig
    from twinlog.cluster.remoting.tls.contexts import client_context

    checked = context.trust is not None
    return client_context(TlsConfig(auth_server=checked, client_trust=context.trust))
