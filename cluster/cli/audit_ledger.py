"""`twinlog audit --incremental`: one run on a ledger, or a service that makes them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
import trio
from attrs import frozen

from twinlog.cluster.cli.common.errors import PARTIAL, USAGE, CliError, UserError, sentence
from twinlog.cluster.cli.common.progress import progress
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport
from twinlog.cluster.pipeline.ledger import text
from twinlog.cluster.pipeline.ledger.claims import OtherLedgerError
from twinlog.cluster.pipeline.ledger.directories import run_directories
from twinlog.cluster.pipeline.ledger.files import Ledger, LedgerError, opened
from twinlog.cluster.pipeline.ledger.live import run_live
from twinlog.cluster.pipeline.ledger.reporting import report_of
from twinlog.cluster.pipeline.ledger.service import AuditService
from twinlog.cluster.pipeline.ledger.values import RunResult
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.text import day_and_clock
from twinlog.ha.errors import HAPeerError
from twinlog.store.errors import StoreError
from twinlog.store.util.progress import Progress, no_progress

INSTALL = "Install it with: scripts/setup --spark, or pip install pyarrow"
_PASSING = (UserError, RemotingError, HAPeerError, LedgerError, StoreError, OSError)


@frozen(kw_only=True)
class LedgerRuns:
    """Request of a command. `after_run`: called with the report of each run."""

    members: tuple[str, ...]
    namesrv: str
    is_live: bool
    directory: Path
    full_pass_ms: int
    after_run: Callable[[AuditReport], None]

    def once(self) -> AuditReport:
        """One run."""
        with self._opened() as ledger, progress("audit") as show:
            if self.is_live:
                report = run_admin(self.namesrv, lambda admin: self._live(ledger, admin.api, show))
            else:
                report = self._directories(ledger, show)
        self.after_run(report)
        return report

    def go_on(self, every_seconds: float) -> None:
        """Runs until a signal, one line each."""
        with self._opened() as ledger:
            if self.is_live:
                run_admin(self.namesrv, lambda admin: self._serve(ledger, every_seconds, admin.api))
            else:
                trio.run(self._serve, ledger, every_seconds)

    async def _serve(self, ledger: Ledger, every_seconds: float, api: ClientApi | None = None) -> None:
        async def run() -> str:
            if api is not None:
                report = await self._live(ledger, api, is_stopped=service.is_stopped)
            else:
                work = partial(self._directories, ledger, is_stopped=service.is_stopped)
                report = await trio.to_thread.run_sync(work)
            self.after_run(report)
            assert report.ledger is not None
            return text.line(report.ledger, report.seconds)

        def say(words: str) -> None:
            click.echo(f"{day_and_clock(time.time())} {words}")

        service = AuditService(every_seconds, run, say, _PASSING)
        await service.serve()

    def _directories(
        self, ledger: Ledger, show: Progress = no_progress, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> AuditReport:
        state = ledger.state()
        result, stores = run_directories(state, self.members, self.full_pass_ms, show, is_stopped=is_stopped)
        return _added(ledger, result, [store.to_member() for store in stores])

    async def _live(
        self,
        ledger: Ledger,
        api: ClientApi,
        show: Progress = no_progress,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> AuditReport:
        state = ledger.state()
        result, asked = await run_live(api, state, self.members, self.full_pass_ms, show, is_stopped=is_stopped)
        members = [each.to_member(is_master=number == 0) for number, each in enumerate(asked)]
        return _added(ledger, result, members)

    @contextmanager
    def _opened(self) -> Iterator[Ledger]:
        """The ledger. Raises CliError where it, or the members, cannot be used."""
        if find_spec("pyarrow") is None:
            raise CliError("A ledger needs pyarrow, which is not installed.", "", INSTALL, exit_code=USAGE)
        try:
            with opened(self.directory) as ledger:
                yield ledger
        except (LedgerError, OtherLedgerError) as error:
            raise CliError("The ledger cannot be used.", str(error), exit_code=USAGE) from error
        except OSError as error:
            step = f"Make room for {self.directory}, or name another directory."
            raise CliError("The run is not in the ledger.", sentence(error), step, exit_code=PARTIAL) from error


def _added(ledger: Ledger, result: RunResult, members: Sequence[AuditedMember]) -> AuditReport:
    ledger.add(result, version("twinlog"))
    return report_of(result, members)
