"""A slave that asks its master for its log's place before it follows, and pairs of logs that have parted."""

import os
from pathlib import Path

import trio
from attrs import define, field
from trio.testing import memory_stream_pair

from tests.helpers import StorePeer, log_bytes, open_store, put, replicate, rocketmq_master
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.service import HAService
from twinlog.ha.slave.client import HAClient
from twinlog.ha.wire.transport import Transport
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore

FILE_SIZE = 16_384


@define(eq=False)
class Master:
    """A store and how it is reached: its HA port, and its remoting port as `peer`."""

    store: MessageStore
    peer: StorePeer
    nursery: trio.Nursery
    is_up: bool = True
    connections: int = 0
    streams: list[trio.StapledStream] = field(factory=list)

    async def break_connections(self) -> None:
        while self.streams:
            await self.streams.pop().aclose()

    async def connect(self, _address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        if not self.is_up:
            raise HAConnectionLostError("cannot connect: refused")
        self.connections += 1
        ours, theirs = memory_stream_pair()
        self.streams.append(theirs)
        if self.peer.is_twinlog:
            ha = HAService(self.store, HAConfig(), lambda: ("slave",), lambda: None)
            ha.members_changed(("slave",))
            self.nursery.start_soon(ha.serve, StreamTransport(theirs), "slave:1", "slave")
        else:
            self.nursery.start_soon(rocketmq_master, self.store, theirs)
        return StreamTransport(ours)


def master_of(nursery: trio.Nursery, store: MessageStore, *, is_twinlog: bool = True) -> Master:
    return Master(store, StorePeer(store, is_twinlog), nursery)


def slave_with(tmp_path: Path, data: bytes) -> MessageStore:
    store = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    replicate(store, data)
    store.appended.append(store.dispatch_pending)
    return store


def follow(nursery: trio.Nursery, store: MessageStore, master: Master, **config: object) -> HAClient:
    client = HAClient(store, HAConfig(**config), master.connect, lambda _address: master.peer)
    client.set_master("master:10912")
    nursery.start_soon(client.run)
    return client


def bodies(count: int, size: int = 500) -> list[bytes]:
    return [os.urandom(size) for _ in range(count)]


@define
class Pair:
    """A master's log, and a slave's that parts from it at `common`."""

    master: MessageStore
    slave: MessageStore
    common: int


def parted(tmp_path: Path, *, common: int = 60, own: int = 40, others: int = 0) -> Pair:
    """The master wrote `common` messages, then `own`, lost these in a crash, and wrote `others`."""
    before = open_store(tmp_path / "before", file_size=FILE_SIZE)
    first = bodies(common)
    at = put(before, *first) if common else 0
    shared = log_bytes(before)
    put(before, *bodies(own))
    after = open_store(tmp_path / "master", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    replicate(after, shared)
    slave = slave_with(tmp_path, log_bytes(before))
    master = open_again_as_master(tmp_path, after)
    if others:
        put(master, *bodies(others))
    return Pair(master, slave, at)


def open_again_as_master(tmp_path: Path, store: MessageStore) -> MessageStore:
    store._release()
    return open_store(tmp_path / "master", file_size=FILE_SIZE)
