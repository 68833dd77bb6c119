"""Asks the cluster for all viewers together: once a second while anybody looks, every five seconds otherwise."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.roles import RoleError
from twinlog.cluster.admin.topic_views import NoTopicError
from twinlog.cluster.dashboard.last_audit import audit_section, read_report
from twinlog.cluster.dashboard.model.events import merged, of_history
from twinlog.cluster.dashboard.model.memory import Memory
from twinlog.cluster.dashboard.model.snapshot import Look
from twinlog.cluster.dashboard.view.html import Markup
from twinlog.cluster.dashboard.view.page import PageState
from twinlog.cluster.http.kept_admin import OpenAdmin
from twinlog.cluster.http.server.errors import HttpError
from twinlog.cluster.observe.consumption import LagReport
from twinlog.cluster.observe.gather import gather
from twinlog.cluster.observe.health import examine
from twinlog.cluster.observe.health_member import Limits
from twinlog.cluster.observe.refusals import words_of
from twinlog.cluster.remoting.errors import RemotingError

log = structlog.get_logger(__name__)

LOOK_SECONDS, IDLE_SECONDS = 1.0, 5.0
EXTRAS_SECONDS = (
    5.0  # Consumer groups cost a request for each topic, so they are asked less often, and only for viewers.
)
TOPICS_MAX = 200


@define(eq=False)
class Watcher:
    """run() has to run. `state` is what the page shows now; `news` is set, and made anew, with every look."""

    open_admin: OpenAdmin
    namesrv: tuple[str, ...]
    audit_directory: Path | None = None
    can_change: bool = False
    clock: Callable[[], float] = time.time
    memory: Memory = field(factory=Memory)
    state: PageState = field(init=False)
    news: trio.Event = field(factory=trio.Event, init=False)
    _viewers: int = field(default=0, init=False)
    _wanted: trio.Event = field(factory=trio.Event, init=False)
    _lag: LagReport | None = field(default=None, init=False)
    _topics: tuple[str, ...] = field(default=(), init=False)
    _audit: Markup = field(default=Markup(""), init=False)
    _epochs: dict[str, int] = field(factory=dict, init=False)
    _looked: float = field(default=float("-inf"), init=False)  # On trio's clock.
    _said: str = field(default="", init=False)  # The last error that was logged.
    _one_at_a_time: trio.Lock = field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.state = PageState(look=Look(at=self.clock(), namesrv=self.namesrv, problem="nobody was asked yet"))

    async def run(self) -> None:
        """Look until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._extras)
            while True:
                self._wanted = trio.Event()
                await self.look(older_than=0.0)
                with trio.move_on_at(self._looked + (LOOK_SECONDS if self._viewers else IDLE_SECONDS)):
                    await self._until_somebody_comes()

    async def _until_somebody_comes(self) -> None:
        if self._viewers:
            await trio.sleep_forever()
        await self._wanted.wait()
        await trio.sleep_until(self._looked + LOOK_SECONDS)

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Somebody looks, for as long as the block lasts."""
        self._viewers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._viewers -= 1

    async def look(self, *, older_than: float = LOOK_SECONDS) -> PageState:
        """Ask the cluster now, unless somebody else has within `older_than` seconds."""
        async with self._one_at_a_time:
            if trio.current_time() - self._looked > older_than:
                look = await self._ask()
                self._looked = trio.current_time()
                self._show(look)
        return self.state

    async def _ask(self) -> Look:
        try:
            async with self.open_admin() as admin:
                facts = await gather(admin.api, thorough=False)
            return self.memory.take(facts, examine(facts, Limits()), self.namesrv, self.clock())
        except RemotingError as error:
            return self.memory.fail(f"no name server answers ({words_of(error)})", self.namesrv, self.clock())
        except HttpError as error:
            return self.memory.fail(error.why or error.what, self.namesrv, self.clock())
        except Exception as error:  # Anybody may register, and say anything: that must not end the dashboard.
            self._not_understood(error)
            return self.memory.fail("what a member says cannot be understood", self.namesrv, self.clock())

    def _not_understood(self, error: Exception) -> None:
        if self._said != (said := repr(error)):
            self._said = said
            log.exception("what a member says cannot be understood")

    def _show(self, look: Look | None = None) -> None:
        self.state = PageState(
            look=look or self.state.look,
            events=self.memory.events,
            lag=self._lag,
            audit=self._audit,
            topics=self._topics,
            can_change=self.can_change,
        )
        self.news.set()
        self.news = trio.Event()

    async def _extras(self) -> None:
        """What changes slowly: who was master before, consumers, topics, the last audit."""
        while True:
            if self.memory.last is not None:
                await self._ask_extras()
                report = await trio.to_thread.run_sync(read_report, self.audit_directory)
                self._audit = audit_section(report, self.audit_directory, self.state.look)
                self._show()
            await trio.sleep(EXTRAS_SECONDS if self.memory.last is not None else 0.2)

    async def _ask_extras(self) -> None:
        look = self.state.look
        epochs = {group.name: max((m.member.epoch or 0 for m in group.members), default=0) for group in look.groups}
        news = {name: epoch for name, epoch in epochs.items() if self._epochs.get(name) != epoch}
        if look.problem is not None or not (news or self._viewers):
            return
        try:
            async with self.open_admin() as admin:
                await self._histories(admin, news)
                if self._viewers:
                    await self._consumers(admin)
        except (RemotingError, HttpError, NoTopicError) as error:
            log.debug("not told", why=str(error))
        except Exception as error:
            self._not_understood(error)

    async def _histories(self, admin: Admin, news: dict[str, int]) -> None:
        """Of groups with an epoch that is new."""
        for name, epoch in news.items():
            try:
                told = await admin.history(name)
            except RoleError:  # Nobody has one: RocketMQ's brokers.
                told = None
            self._epochs[name] = epoch
            if told is not None:
                self.memory.events = merged(self.memory.events, of_history(told))

    async def _consumers(self, admin: Admin) -> None:
        before, self._lag = self._lag, await admin.groups.lag(None)
        if before is not None:
            from twinlog.cluster.observe.consumption import with_change

            self._lag = with_change(before, self._lag)
        topics = await admin.topics.summaries()
        self._topics = tuple(each.name for each in topics[:TOPICS_MAX])


def sample_now(look: Look) -> dict[str, object]:
    """The newest sample, as series.columns() has them."""
    from twinlog.cluster.dashboard.model.memory import sample_of
    from twinlog.cluster.dashboard.model.series import columns

    return columns([sample_of(evolve(look))])
