"""Operations for users, as typed async functions with frozen results; CLI and HTTP only render them.

Unknown values are None, never 0. Offsets and sizes in bytes unless the name says messages; times in seconds.
The packages `operations` and `observe` import a module at its first use, so that a command starts with its own modules only.
"""

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from attrs import define, frozen

from twinlog.cluster import admin as operations
from twinlog.cluster import observe
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.service import Service
from twinlog.cluster.config.contexts import Context
from twinlog.cluster.config.credentials import own_signer, read_credentials_file
from twinlog.cluster.config.group_secret import GroupSecret, read_secrets
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.member_auth import OwnProof
from twinlog.cluster.remoting.signing import make_signer

if TYPE_CHECKING:
    from twinlog.cluster.client.messages import OutgoingMessage, ReceivedMessage
    from twinlog.cluster.client.producer import SendResult
    from twinlog.cluster.client.subscription import From, FromTime, Sql


ADMIN = "admin"  # Sender of role changes that no member asks for.
SECRET_FILE = "TWINLOG_HA_SECRET_FILE"


@frozen
class Admin:
    """The operations, over one client."""

    api: ClientApi

    @property
    def topics(self) -> "operations.topics.TopicAdmin":
        return operations.topics.TopicAdmin(self.api)

    @property
    def groups(self) -> "operations.groups.GroupAdmin":
        return operations.groups.GroupAdmin(self.api)

    @property
    def offsets(self) -> "operations.offsets.OffsetAdmin":
        return operations.offsets.OffsetAdmin(self.api)

    @property
    def messages(self) -> "operations.messages.MessageAdmin":
        return operations.messages.MessageAdmin(self.api)

    @property
    def config(self) -> "operations.config.ConfigAdmin":
        return operations.config.ConfigAdmin(self.api)

    @property
    def roles(self) -> "operations.roles.RoleAdmin":
        return operations.roles.RoleAdmin(self.api)

    @property
    def repairs(self) -> "operations.repair.RepairAdmin":
        return operations.repair.RepairAdmin(self.api)

    async def list_members(self) -> "observe.members.MemberList":
        """Ask the name server for the members, then each member for its status. Raises RemotingError without a name server."""
        groups = await self.api.cluster()
        facts = await observe.gather.ask_members(self.api, groups)
        members = tuple(each.member for each in facts)
        failovers = observe.failover.failovers_of(facts)
        sets = observe.in_sync.in_sync_sets(facts)
        notes = (
            *observe.role_views.notes_of(facts),
            *observe.failover.notes(failovers),
            *observe.in_sync.remarks(sets),
        )
        issues = tuple(observe.members.issues_of(groups, members))
        return observe.members.MemberList(members, issues, notes, failovers, sets)

    async def watch_members(self, seconds: float, show: "Callable[[observe.members.MemberList], None]") -> None:
        """Show the members now and every `seconds`, without end. Raises RemotingError when the first request fails."""

        def shown(found: observe.members.MemberList | str) -> None:
            if isinstance(found, str):
                found = observe.members.MemberList((), (f"no name server answers: {found}",))
            show(found)

        await operations.waiting.watch(self.list_members, seconds, shown)

    async def explain(self, name: str) -> "observe.explain.Explanation | None":
        """Explain a member by name or address; None if there is none. Raises RemotingError without a name server."""
        facts = await observe.gather.gather(self.api, thorough=True)
        found = facts.find(name)
        return observe.explain.explain_member(facts, found) if found is not None else None

    async def check(self, limits: "observe.rules.LagLimits") -> "observe.findings.CheckResult":
        """Check the cluster for a monitoring system. Raises RemotingError without a name server."""
        facts = await observe.gather.gather(self.api, thorough=False)
        findings = observe.rules.examine(facts, limits)
        worst = findings[0].level if findings else observe.findings.Level.NOTE
        members = tuple(each.member for each in facts.members)
        return observe.findings.CheckResult(
            level="ok" if worst is observe.findings.Level.NOTE else worst.value, findings=findings, members=members
        )

    async def diagnose(self, others: tuple[str, ...] = ()) -> "observe.members.ClusterFacts":
        """Gather all facts for `examine`; `others` are brokers to ask besides the registered ones."""
        return await observe.gather.gather(self.api, thorough=True, others=others)

    async def wait(
        self, condition: "operations.waiting.Condition", on_change: Callable[[list[str]], None], *, poll_seconds: float
    ) -> None:
        """Return once the condition holds; `on_change` is called with what is missing whenever that changes."""
        reported: list[str] | None = None
        while True:
            try:
                missing = condition.missing(await observe.gather.gather(self.api, thorough=False))
            except RemotingError as error:
                missing = [f"no name server answers: {error}"]
            if missing != reported:
                on_change(missing)
                reported = missing
            if not missing:
                return
            await anyio.sleep(poll_seconds)

    async def crosscheck(
        self, *, last_bytes: int, progress: Callable[[str], None] = lambda _what: None
    ) -> "observe.cross_check.Crosscheck":
        """Compare what every member sees of every other. Raises RemotingError without a name server."""
        return await observe.cross_check.crosscheck(self.api, last_bytes=last_bytes, progress=progress)

    async def live_diff(
        self, left: str, right: str, progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> "observe.live_diff.LiveDiffReport":
        """Compare the logs of two running brokers, each named as list_members() does, or HOST:PORT.

        Raises NoMemberError, and RemotingError when one of them cannot be asked.
        """
        named = [name for name in (left, right) if ":" not in name]
        members = {each.name: each.address for each in (await self.list_members()).members} if named else {}
        for name in named:
            if name not in members:
                raise observe.members.NoMemberError(name)
        sides = [(name, members.get(name, name)) for name in (left, right)]
        return await observe.live_diff.live_diff(self.api, sides[0], sides[1], progress)

    async def bundle(self, logs: Path | None) -> "tuple[operations.bundle.Part, ...]":
        """Collect a support bundle, in parts; see cluster/admin/bundle.py."""
        asked: dict[str, tuple[str, Callable[[], Awaitable[Any]]]] = {
            "list.json": ("members, roles, offsets, lag: twinlog list", self.list_members),
            "check.json": ("findings: twinlog check", partial(self.check, observe.rules.LagLimits())),
            "history.json": ("masters, since when, why: twinlog history", partial(self.roles.history, None)),
            "topics.json": ("names, queues and counts of topics", partial(self.topics.summaries, all_topics=True)),
            "groups.json": ("names and lag of consumer groups", partial(self.groups.summaries, all_groups=True)),
        }
        return await operations.bundle.collect(self.api, asked, logs)

    # ---- Data

    async def send(
        self,
        messages: "AsyncIterator[OutgoingMessage]",
        on_sent: "Callable[[SendResult, int], None]",
        *,
        to: "operations.sending.Destination | None" = None,
        rate: float | None = None,
        batch: int = 1,
    ) -> int:
        """Send messages in order; report each result with its number of messages. See cluster/admin/sending.py."""
        return await operations.sending.send_messages(self.api, messages, on_sent, to=to, rate=rate, batch=batch)

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
    namesrv: tuple[str, ...],
    *,
    timeout_ms: int = 3000,
    context: Context | None = None,
    secret_file: Path | None = None,
) -> AsyncIterator[Admin]:
    """An Admin with a client of its own, for as long as the block lasts; it signs with the user's or the context's credentials,
    and role changes with a group secret.

    Raises ConfigError and OSError for credentials and certificates that cannot be used; an error of the block as it is.
    """
    async with _Connections(client_for(context, secret_file)) as connections:
        yield Admin(ClientApi(connections.client, namesrv, timeout_ms))


@define(eq=False)
class _Connections(Service):
    client: RemotingClient

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        await self.client.run(task_status=task_status)


def client_for(context: Context | None, secret_file: Path | None = None) -> RemotingClient:
    """Make a client; `secret_file` has precedence over the context, the context over the environment.

    Raises ConfigError and OSError for credentials and certificates that cannot be used.
    """
    of_context = context.secret_file if context is not None else None
    path = secret_file or of_context or os.environ.get(SECRET_FILE)
    proof = OwnProof(partial(_signing, Path(path)), lambda: ADMIN, lambda: False) if path else None
    return RemotingClient(sign=_signer_of(context), tls=_tls_of(context), proof=proof)


def _signing(path: Path) -> GroupSecret:
    """The secret that signs now: most commands send nothing that is signed, and need no file that can be read."""
    return read_secrets(path.expanduser())[0]


def _signer_of(context: Context | None) -> Callable[[RemotingCommand], None] | None:
    if context is None or context.credentials is None:
        return own_signer()
    credentials = read_credentials_file(context.credentials)
    if credentials is None:
        raise ConfigError(
            f"{context.credentials} has no accessKey and secretKey, and the context {context.name} names it"
        )
    return make_signer(credentials)


def _tls_of(context: Context | None) -> ssl.SSLContext | None:
    by_context = context is not None and context.tls
    if not by_context and not os.environ.get("TWINLOG_TLS"):  # Nearly always: then nothing is imported for it.
        return None
    from twinlog.cluster.config.tls_file import own_tls, trusting_tls

    return trusting_tls(context.trust) if context is not None and context.tls else own_tls()
