"""A member that is a whole broker: remoting over memory streams, replication over lines, and no name server."""

import trio
from trio.testing import memory_stream_pair

from tests.cluster.broker.helpers import Client, FakeConnection, make_broker, settle
from tests.support.group.group import PORT, Member
from twinlog.cluster.broker.group.registration import Master
from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import decode_header
from twinlog.cluster.remoting.request import Reply, Request


class Brokers:
    """The parts of a broker. `client` calls its handlers. Slaves that know no better hear that the first member is master."""

    has_roles = True

    def __init__(self, member: Member) -> None:
        self.member = member
        options = {"broker_id": member.number, **member.options}
        broker = make_broker(member.root, role=member.role, broker_ip1=member.ip, listen_port=0, **options)
        broker.settings.set_ports(PORT, PORT + 1)
        broker.remoting.connect = self._connect
        broker.ha.client.connect = member.follow
        broker.load_tables()
        broker.store.load()
        broker._load_role()
        self.broker, self.client = broker, Client(broker)
        self.store, self.ha, self.roles = broker.store, broker.ha, broker.roles

    async def start(self, nursery: trio.Nursery) -> None:
        broker, first = self.broker, self.member.group.first
        for service in (broker.store, broker.remoting, broker.ha, broker.role_services.tasks):
            await nursery.start(service.run)
        await broker.role_services.begin(broker.roles.member.role_state())
        for service in (broker.held_pulls, broker.gate, broker.roles, broker.roles.joining):
            nursery.start_soon(service.run)
        nursery.start_soon(broker._watch_record)
        await settle()
        if broker.is_slave:
            broker.group.master_changed(Master(first.address, first.ha_address))

    async def stop(self) -> None:
        await self.broker._stop()

    async def _connect(self, address: str) -> trio.abc.Stream:
        host, _, port = address.rpartition(":")
        other = self.member.group.at(f"{host}:{PORT}")
        if other is None or int(port) not in (PORT, PORT - 2):
            raise OSError(f"{address}: connection refused")
        ours, theirs = memory_stream_pair()
        other.serving.start_soon(other.parts._serve, theirs)
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
            reply = handler.function(header, Request(FakeConnection(), command))
            if hasattr(reply, "__await__"):
                reply = await reply
        except RequestError as error:
            reply = Reply(error.code, error.remark)
        async with turn:
            await stream.send_all(b"".join(reply.frame(command)))
