"""Admin operations for HTTP: one Admin for all requests of a loop, with time limits, and errors as HTTP responses."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.cluster.admin.admin import Admin, open_admin
from twinlog.cluster.admin.errors import explain
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.http.server.responses import HttpError
from twinlog.cluster.user_errors import innermost

log = structlog.get_logger(__name__)

OpenAdmin = Callable[[], AbstractAsyncContextManager[Admin]]


@define(eq=False)
class KeptAdmin:
    """`namesrv` gives the addresses to ask, as they are at the time. run() has to run."""

    namesrv: Callable[[], tuple[str, ...]]
    secret_file: Path | None = None
    _admin: Admin | None = field(default=None, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Admin]:
        """The Admin. Raises HttpError when there cannot be one."""
        addresses = self.namesrv()
        if not addresses:
            raise HttpError(
                status=503,
                what="No name server is known here.",
                why="This broker's configuration has no namesrvAddr.",
                next_step="Set namesrvAddr, or ask a name server's HTTP port.",
            )
        async with self._lock:
            if self._admin is None:
                self._admin = await self._made()
        yield self._admin if self._admin.api.namesrv == addresses else self._for(self._admin, addresses)

    async def _made(self) -> Admin:
        assert self._nursery is not None, "run() has to run"
        try:
            admin: Admin = await self._nursery.start(self._keep)
        except (ConfigError, OSError) as error:
            raise HttpError(
                status=503,
                what="The cluster cannot be asked from here.",
                why=str(error),
                next_step="Mend the credentials or certificates that this process uses.",
            ) from error
        return admin

    async def _keep(self, *, task_status: trio.TaskStatus[Admin]) -> None:
        is_there = False
        try:
            async with open_admin(self.namesrv(), secret_file=self.secret_file) as admin:
                is_there = True
                task_status.started(admin)
                await trio.sleep_forever()
        except Exception:
            if not is_there:
                raise
            log.exception("the client of HTTP has ended; the next request makes another")
        finally:
            self._admin = None

    @staticmethod
    def _for(admin: Admin, addresses: tuple[str, ...]) -> Admin:
        return Admin(ClientApi(admin.api.client, addresses, admin.api.timeout_ms))


ASK_SECONDS_MAX = 20.0


@asynccontextmanager
async def asking(open_admin: OpenAdmin, seconds_max: float = ASK_SECONDS_MAX) -> AsyncIterator[Admin]:
    """The Admin for a block. Raises HttpError for all that a user can resolve."""
    try:
        with trio.fail_after(seconds_max):
            async with open_admin() as admin:
                yield admin
    except HttpError:
        raise
    except trio.TooSlowError as error:
        raise HttpError(
            status=504,
            what=f"No answer within {seconds_max:g} s.",
            why="A member or name server is slow.",
            next_step="See who with: GET /v1/cluster",
        ) from error
    except Exception as error:
        found = http_error(error)
        if found is None:
            raise
        raise found from error


def http_error(error: BaseException) -> HttpError | None:
    """The answer for an error, in the sentences of the command line; None: a bug."""
    inner = innermost(error)
    if isinstance(inner, HttpError):
        return inner
    found = explain(inner, ())
    if found is None:
        return None
    return HttpError(status=found.http_status, what=found.what, why=found.why, next_step=found.next_step)
