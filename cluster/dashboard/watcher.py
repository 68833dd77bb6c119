"""Watcher of the cluster for all viewers: refreshes every second while the page is open somewhere, otherwise every 5 seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.roles import RoleError
from twinlog.cluster.admin.topics import NoTopicError
from twinlog.cluster.dashboard.model.events import merged, of_history
from twinlog.cluster.dashboard.model.memory import Memory
from twinlog.cluster.dashboard.model.snapshot import ClusterSnapshot, Mark
from twinlog.cluster.dashboard.view.html import Markup, facts, join, mark, tag
from twinlog.cluster.dashboard.view.page import PageState
from twinlog.cluster.dashboard.view.tables import command
from twinlog.cluster.http.admin import OpenAdmin
from twinlog.cluster.http.server.responses import HttpError
from twinlog.cluster.observe.consumption import with_change
from twinlog.cluster.observe.gather import error_text, gather
from twinlog.cluster.observe.rules import LagLimits, examine
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.text import count, day_and_clock, seconds, size
from twinlog.store.util.text import counted

log = structlog.get_logger(__name__)

REFRESH_SECONDS, IDLE_SECONDS = 1.0, 5.0
# Consumer groups cost a request for each topic, so they are asked less often, and only for viewers.
EXTRAS_SECONDS = 5.0
TOPICS_MAX = 200


@define(eq=False)
class Watcher:
    """Keeps `state`, the content of the page, up to date while run() runs; `news` is set, and replaced, with every refresh."""

    open_admin: OpenAdmin
    namesrv: tuple[str, ...]
    audit_directory: Path | None = None
    can_change: bool = False
    clock: Callable[[], float] = time.time
    memory: Memory = field(factory=Memory)
    state: PageState = field(init=False)
    news: trio.Event = field(factory=trio.Event, init=False)
    viewers: int = field(default=0, init=False)
    _wanted: trio.Event = field(factory=trio.Event, init=False)
    _epochs: dict[str, int] = field(factory=dict, init=False)
    _refreshed_at: float = field(default=float("-inf"), init=False)  # On trio's clock.
    _last_error: str = field(default="", init=False)  # The last error that was logged.
    _one_at_a_time: trio.Lock = field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.state = PageState(
            snapshot=ClusterSnapshot(at=self.clock(), namesrv=self.namesrv, problem="nobody was asked yet"),
            can_change=self.can_change,
        )

    async def run(self) -> None:
        """Refresh until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._extras)
            while True:
                self._wanted = trio.Event()
                await self.refresh(older_than=0.0)
                with trio.move_on_at(self._refreshed_at + (REFRESH_SECONDS if self.viewers else IDLE_SECONDS)):
                    await self._until_somebody_comes()

    async def _until_somebody_comes(self) -> None:
        if self.viewers:
            await trio.sleep_forever()
        await self._wanted.wait()
        await trio.sleep_until(self._refreshed_at + REFRESH_SECONDS)

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Count a viewer for as long as the block lasts."""
        self.viewers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self.viewers -= 1

    async def refresh(self, *, older_than: float = REFRESH_SECONDS) -> PageState:
        """Ask the cluster now, unless somebody else has within `older_than` seconds."""
        async with self._one_at_a_time:
            if trio.current_time() - self._refreshed_at > older_than:
                snapshot = await self._ask()
                self._refreshed_at = trio.current_time()
                self._show(evolve(self.state, snapshot=snapshot))
        return self.state

    async def _ask(self) -> ClusterSnapshot:
        try:
            async with self.open_admin() as admin:
                facts = await gather(admin.api, thorough=False)
            return self.memory.take(facts, examine(facts, LagLimits()), self.namesrv, self.clock())
        except RemotingError as error:
            return self.memory.fail(f"no name server answers ({error_text(error)})", self.namesrv, self.clock())
        except HttpError as error:
            return self.memory.fail(error.why or error.what, self.namesrv, self.clock())
        except Exception as error:  # A member may register and answer anything: that must not end the dashboard.
            self._not_understood(error)
            return self.memory.fail("the status of a member cannot be read", self.namesrv, self.clock())

    def _not_understood(self, error: Exception) -> None:
        if self._last_error != (said := repr(error)):
            self._last_error = said
            log.exception("status of a member cannot be read")

    def _show(self, state: PageState) -> None:
        self.state = evolve(state, events=self.memory.events)
        self.news.set()
        self.news = trio.Event()

    async def _extras(self) -> None:
        """Slowly changing parts: earlier masters, consumers, topics, the last audit."""
        while True:
            if self.memory.last is not None:
                await self._ask_extras()
                report = await trio.to_thread.run_sync(read_report, self.audit_directory)
                audit = audit_section(report, self.audit_directory, self.state.snapshot)
                self._show(evolve(self.state, audit=audit))
            await trio.sleep(EXTRAS_SECONDS if self.memory.last is not None else 0.2)

    async def _ask_extras(self) -> None:
        snapshot = self.state.snapshot
        epochs = {group.name: max((m.member.epoch or 0 for m in group.members), default=0) for group in snapshot.groups}
        news = {name: epoch for name, epoch in epochs.items() if self._epochs.get(name) != epoch}
        if snapshot.problem is not None or not (news or self.viewers):
            return
        try:
            async with self.open_admin() as admin:
                await self._histories(admin, news)
                if self.viewers:
                    await self._consumers(admin)
        except (RemotingError, HttpError, NoTopicError) as error:
            log.debug("consumer groups and topics cannot be read", why=str(error))
        except Exception as error:
            self._not_understood(error)

    async def _histories(self, admin: Admin, news: dict[str, int]) -> None:
        """Read the histories of groups with a new epoch."""
        for name, epoch in news.items():
            with suppress(RoleError):  # RocketMQ's brokers have no history.
                self.memory.events = merged(self.memory.events, of_history(await admin.roles.history(name)))
            self._epochs[name] = epoch

    async def _consumers(self, admin: Admin) -> None:
        lag = await admin.groups.lag(None)
        if self.state.lag is not None:
            lag = with_change(self.state.lag, lag)
        topics = await admin.topics.summaries()
        self.state = evolve(self.state, lag=lag, topics=tuple(each.name for each in topics[:TOPICS_MAX]))


BYTES_MAX = 16 << 20
STALE_SECONDS = 7 * 86_400
VERDICTS: dict[str, tuple[Mark, str]] = {
    "equal": ("ok", "equal, every byte that was compared"),
    "samples-equal": ("ok", "equal, every record that was sampled"),
    "divergent": ("bad", "divergent"),
    "incomplete": ("warn", "equal as far as it could be read"),
}


def read_report(directory: Path | None) -> dict[str, Any] | str | None:
    """The report; a sentence where there is one that cannot be read; None without one."""
    if directory is None:
        return None
    path = directory / "report.json"
    try:
        if path.stat().st_size > BYTES_MAX:
            return f"{path} is too large to be shown here"
        report = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    return report if isinstance(report, dict) and "verdict" in report else f"{path} is no report of twinlog audit"


def audit_section(report: dict[str, Any] | str | None, directory: Path | None, snapshot: ClusterSnapshot) -> Markup:
    """The last audit in a few lines, or how to make one."""
    if isinstance(report, str):
        return join(
            tag("p", mark("warn"), f"{report[0].upper()}{report[1:]}.", class_="quiet"), _how(directory, snapshot)
        )
    if report is None:
        return join(tag("p", "No audit yet that the dashboard knows of.", class_="quiet"), _how(directory, snapshot))
    of, words = VERDICTS.get(str(report["verdict"]), ("none", str(report["verdict"])))
    at = float(report.get("started_ms") or 0) / 1000
    age = max(0.0, time.time() - at)
    names = ", ".join(str(each.get("name")) for each in report.get("members") or ())
    compared = max((each.get("compared_bytes") or 0 for each in report.get("members") or ()), default=0)
    found = len(report.get("findings") or ()) + (report.get("findings_left_out") or 0)
    rows = (
        ("Result", join(mark(of), words)),
        ("When", f"{day_and_clock(at)}, {seconds(age)} ago"),
        ("Compared", f"{size(compared)} of {names}"),
        ("Found", counted(found, "thing", "things")),
        *_proved(report.get("ledger")),
    )
    return join(facts(rows), _how(directory, snapshot) if age > STALE_SECONDS or of != "ok" else None)


def _proved(ledger: Any) -> Iterator[tuple[str, str]]:
    """Standing by the ledger of an audit with --incremental."""
    if isinstance(ledger, dict) and isinstance(ledger.get("proved_to"), int):
        oldest = float(ledger.get("oldest_proof_ms") or 0) / 1000
        age = seconds(max(0.0, time.time() - oldest))
        yield "Proved", f"equal up to offset {count(ledger['proved_to'])}; oldest proof {age} ago"


def _how(directory: Path | None, snapshot: ClusterSnapshot) -> Markup:
    group = snapshot.groups[0] if snapshot.groups else None
    names = " ".join(each.member.name for each in group.members) if group else "MASTER SLAVE"
    out = f" --out {directory}" if directory is not None else " --out DIR"
    hint = None if directory is not None else tag("p", "Shown here with: twinlog dashboard --audit DIR", class_="quiet")
    return join(command(f"twinlog audit --live {names}{out}"), hint)
