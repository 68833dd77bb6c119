"""Stores and their replication over loopback and in real time: for tests of the listener, its limits and real sockets.

Everything else of a group is tested in virtual time, without sockets: `tests.support.group`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import trio
from attrs import define

from tests.helpers import open_store
from twinlog.ha.config import HAConfig
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK
from twinlog.ha.wire.tls import HATls
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore

FILE_SIZE = 16_384


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something has become true."""
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.002)


@define(eq=False)
class Member:
    """A store and its replication, which can be stopped and started again."""

    store: MessageStore
    ha: HAService
    port: int = 0
    asked: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask_members(self) -> None:
        self.asked += 1


@asynccontextmanager
async def member(
    root: Path,
    *,
    slaves: tuple[str, ...] = ("127.0.0.1",),
    port: int = 0,
    role: BrokerRole,
    secure: HATls | None = None,
    **config: int | str,
) -> AsyncIterator[Member]:
    store = open_store(root, file_size=FILE_SIZE, role=role)
    ha_config = HAConfig(listen_host="127.0.0.1", listen_port=port, **config)
    found = Member(store, HAService(store, ha_config, lambda: slaves, lambda: found.ask_members(), tls=secure))
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        found.port = await nursery.start(found.ha.run)
        yield found
        nursery.cancel_scope.cancel()
    await store.close()


def master_at(tmp_path: Path, **options: object) -> AbstractAsyncContextManager[Member]:
    return member(tmp_path / "master", role=BrokerRole.SYNC_MASTER, **options)


def slave_at(tmp_path: Path, name: str = "slave", **options: object) -> AbstractAsyncContextManager[Member]:
    return member(tmp_path / name, role=BrokerRole.SLAVE, **options)


async def connect(member: Member, *reports: int, ip: str | None = None) -> trio.SocketStream:
    """A peer that connects from this IP of loopback and reports."""
    stream = await trio.open_tcp_stream("127.0.0.1", member.port, local_address=ip)
    await stream.send_all(b"".join(map(ACK.pack, reports)))
    return stream
