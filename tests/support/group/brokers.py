"""Whole brokers in one process and in virtual time, without sockets: remoting over memory streams, replication over lines.

A broker can be killed (what it wrote stays, as after kill -9), stopped and started again, as what its directory says.
"""

from pathlib import Path
from typing import Any

import trio
from attrs import define, field
from trio.testing import memory_stream_pair

from tests.cluster.broker.helpers import Client, FakeConnection, make_broker, settle
from tests.support.group.group import until
from tests.support.group.line import Line
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.group.registration import Master
from twinlog.cluster.broker.peers.role_messages import ChangeRequest, ChangeState
from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.wire.transport import StreamTransport, Transport
from twinlog.store.config import BrokerRole

PORT = 10911


@define(eq=False, repr=False)
class BrokerMember:
    """One broker. `broker` and `client`, which calls its handlers, are those of its last start."""

    group: "Brokers"
    name: str
    ip: str
    role: BrokerRole
    root: Path
    options: dict[str, Any]
    broker: Broker = field(init=False)
    client: Client = field(init=False)
    up: bool = False
    _serving: trio.Nursery = field(init=False)
    _scope: trio.CancelScope = field(init=False)
    _ended: trio.Event = field(init=False)

    @property
    def address(self) -> str:
        return f"{self.ip}:{PORT}"

    async def start(self) -> None:
        await self.group.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        broker = self.broker = make_broker(self.root, role=self.role, broker_ip1=self.ip, listen_port=0, **self.options)
        broker.settings.set_ports(PORT, PORT + 1)
        broker.remoting.connect = self._connect
        broker.ha.client.connect = self._follow
        self._ended = trio.Event()
        broker.load_tables()
        broker.store.load()
        broker._load_role()
        self.client = Client(broker)
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as self._serving:
                start, start_soon = self._serving.start, self._serving.start_soon
                for service in (broker.store, broker.remoting, broker.ha, broker.role_services.tasks):
                    await start(service.run)
                await broker.role_services.begin(broker.roles.member.role_state())
                for service in (broker.held_pulls, broker.gate, broker.roles, broker.roles.joining):
                    start_soon(service.run)
                start_soon(broker._watch_record)
                await settle()
                self.up = True
                task_status.started()
                if broker.is_slave:  # As a name server tells it.
                    broker.group.master_changed(Master(self.group.first.address, f"{self.group.first.ip}:{PORT + 1}"))
                await trio.sleep_forever()
        self._ended.set()

    async def kill(self) -> None:
        """As kill -9 does; tables that were written lately are on the disk, the others not."""
        await self._end()
        self.broker.store._release()

    async def stop(self) -> None:
        """As SIGTERM does."""
        with trio.CancelScope(shield=True):
            await self.broker._stop()
        await self._end()
        await self.broker.store.close()
        self.broker.roles.member.durable.note_clean_stop()

    async def _end(self) -> None:
        self.up = False
        self._scope.cancel()
        await self._ended.wait()

    async def _connect(self, address: str) -> trio.abc.Stream:
        host, _, port = address.rpartition(":")
        other = self.group.at(host)
        if other is None or int(port) not in (PORT, PORT - 2):
            raise OSError(f"{address}: connection refused")
        ours, theirs = memory_stream_pair()
        other._serving.start_soon(other._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        reader, turn = FrameReader(), trio.Lock()
        async with stream, trio.open_nursery() as nursery:
            async for data in stream:
                for frame in reader.feed(data):
                    nursery.start_soon(self._answer, stream, decode(bytes(frame)), turn)
            nursery.cancel_scope.cancel()

    async def _answer(self, stream: trio.abc.Stream, command: RemotingCommand, turn: trio.Lock) -> None:
        handler = self.client.table[command.code]
        try:
            header = decode_header(handler.header, command.ext or {})
            reply = handler.function(handler.owner, header, Request(FakeConnection(), command))
            if hasattr(reply, "__await__"):
                reply = await reply
        except RequestError as error:
            reply = Reply(error.code, error.remark)
        body = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        answer = RemotingCommand.response_to(command, reply.code, remark=reply.remark, ext=reply.ext, body=body)
        async with turn:
            await stream.send_all(encode(answer))

    async def _follow(self, address: str) -> Transport:
        other = self.group.at(address.rpartition(":")[0])
        if other is None:
            raise HAConnectionLostError("cannot connect: connection refused")
        ours, theirs = Line().connect()
        other._serving.start_soon(other.broker.ha.serve, StreamTransport(theirs), f"{self.ip}:40000", self.ip)
        return StreamTransport(ours)

    @property
    def words(self) -> tuple[str, str]:
        """What it is, and why."""
        return self.broker.roles.member.status()

    async def change(self, verb: str, **more: Any) -> ChangeState:
        """Carry out a role change with this member as the candidate."""
        roles = self.broker.roles
        await roles.start(ChangeRequest(verb=verb, candidate=self.address, **more))
        await until(lambda: not roles.state().running, f"the end of the {verb}")
        return roles.state()


@define(eq=False, repr=False)
class Brokers:
    """All members. `first` is the one that a name server names as master to slaves that know no better."""

    nursery: trio.Nursery
    root: Path
    members: list[BrokerMember] = field(factory=list)

    def add(self, role: BrokerRole, **options: Any) -> BrokerMember:
        """A member that is not running yet."""
        number = len(self.members)
        options.setdefault("broker_id", number)
        member = BrokerMember(self, f"m{number}", f"10.0.0.{number + 1}", role, self.root / f"m{number}", options)
        self.members.append(member)
        return member

    @property
    def first(self) -> BrokerMember:
        return self.members[0]

    def at(self, ip: str) -> BrokerMember | None:
        return next((each for each in self.members if each.ip == ip and each.up), None)
