"""Forwards clients' requests to the present master, and its answers back.

All go over one stream in the order of arrival, so each client's order is kept as long as the master is the same. Answers return
in any order, by their opaque numbers. A request that cannot be forwarded is refused, one that was and has no answer is given up,
each with a code of its own after which RocketMQ's producers retry. Forwarded requests name their client and count their hops, so
that none runs in a circle.
"""

from collections.abc import Callable

import structlog
import trio
from attrs import define, field, frozen

from twinlog.cluster.remoting.client import Connect, Sign, connect_tcp
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RemotingError, RemotingProtocolError
from twinlog.cluster.remoting.streams import Stream
from twinlog.store.record.message import host_bytes

log = structlog.get_logger(__name__)

FROM, HOPS = "twinlogFrom", "twinlogHops"
HOPS_MAX = 3
ANSWER_SECONDS_MAX, CONNECT_SECONDS_MAX, IDLE_SECONDS = 3.0, 2.0, 10.0
UNSENT_BYTES_MAX = 64 << 20
_SCAN_SECONDS = 0.25
_READ_SIZE = 256 * 1024
_OPAQUE_MASK = 0x7FFFFFFF


def refuse(connection: Connection, command: RemotingCommand, why: str) -> None:
    """Refuse a request that was not carried out, with a code after which producers retry, or try another queue."""
    _answer(connection, command, ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")


def give_up(connection: Connection, command: RemotingCommand, why: str) -> None:
    """Give up a request with an unknown result. Producers retry after this code, too; it does not say that nothing was stored."""
    _answer(connection, command, ResponseCode.SYSTEM_ERROR, f"{why}; it may have carried this out, or may yet")


def _answer(connection: Connection, command: RemotingCommand, code: ResponseCode, remark: str) -> None:
    if not command.is_oneway:
        # The Java client reads the map without a check for null.
        connection.send(RemotingCommand.response_to(command, code, remark=remark, ext={}))


@frozen(eq=False)
class _Passed:
    """A forwarded request without an answer yet. `taken`: called once the master has carried it out."""

    connection: Connection
    command: RemotingCommand
    deadline: float
    taken: Callable[[], None] | None


@define(eq=False)
class _Link:
    """One stream to one master. Ends when it breaks, is idle for a while, or is over and has no request left."""

    address: str
    connect: Connect
    over: bool = field(default=False, init=False)  # It accepts no more requests.
    unsent_bytes: int = field(default=0, init=False)
    _is_open: bool = field(default=False, init=False)  # From then on the master may have got requests.
    _outbox: list[bytes] = field(factory=list, init=False)
    passed: dict[int, _Passed] = field(
        factory=dict, init=False
    )  # Without an answer, by our opaque numbers; the oldest first.
    _filled: trio.Event = field(factory=trio.Event, init=False)

    def pass_on(self, frame: bytes, opaque: int, passed: _Passed | None) -> None:
        """Send soon. `passed`: the request that gets the answer with that number, if any."""
        if passed is not None:
            self.passed[opaque] = passed
        self._outbox.append(frame)
        self.unsent_bytes += len(frame)
        self._filled.set()

    async def run(self) -> None:
        """Run until it is over; requests without an answer are refused, or given up."""
        reason = f"this member stops, and had not heard from the master {self.address}"
        try:
            reason = await self._carry()
        finally:
            self.over = True
            end = give_up if self._is_open else refuse
            for passed in self.passed.values():
                end(passed.connection, passed.command, reason)

    async def _carry(self) -> str:
        """Connect, forward, and return why it ended."""
        try:
            with trio.fail_after(CONNECT_SECONDS_MAX):
                stream = await self.connect(self.address)
        except (OSError, ValueError, trio.TooSlowError) as error:
            log.warning("master not reachable: requests for it are refused", peer=self.address, why=str(error))
            return f"the master {self.address} cannot be reached"
        self._is_open = True
        try:
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                nursery.start_soon(self._expire, nursery.cancel_scope)
                await self._read(stream)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, RemotingError) as group:
            log.warning("connection to the master lost", peer=self.address, why=str(group.exceptions[0]))
        return f"the connection to the master {self.address} was lost"

    async def _write(self, stream: Stream) -> None:
        while True:
            await self._filled.wait()
            data, self._outbox, self._filled = b"".join(self._outbox), [], trio.Event()
            await stream.send_all(data)
            self.unsent_bytes -= len(data)

    async def _read(self, stream: Stream) -> None:
        reader = FrameReader()
        while data := await stream.receive_some(_READ_SIZE):
            self._hand_on([decode(frame) for frame in reader.feed(data)])

    def _hand_on(self, answers: list[RemotingCommand]) -> None:
        """Return answers, in one write for each client."""
        waiting = [(self.passed.pop(answer.opaque, None), answer) for answer in answers if answer.is_response]
        clients = {passed.connection for passed, _ in waiting if passed is not None}
        for connection in clients:
            connection.cork()
        for passed, answer in waiting:
            if passed is None:
                continue  # The request was given up.
            if passed.taken is not None and answer.code == ResponseCode.SUCCESS:
                passed.taken()
            if not passed.command.is_oneway:
                answer.opaque = passed.command.opaque
                passed.connection.send(answer)
        for connection in clients:
            connection.uncork()

    async def _expire(self, scope: trio.CancelScope) -> None:
        """Give up late requests; end when idle for a while, or over."""
        needed_at = trio.current_time()
        while True:
            await trio.sleep(_SCAN_SECONDS)
            now = trio.current_time()
            for opaque in [opaque for opaque, passed in self.passed.items() if passed.deadline <= now]:
                late = self.passed.pop(opaque)
                give_up(late.connection, late.command, f"the master {self.address} did not answer in time")
            if self.passed or self.unsent_bytes:
                needed_at = now
            elif self.over or now >= needed_at + IDLE_SECONDS:
                self.over = True
                scope.cancel()


@define(eq=False)
class Forwarder:
    """Forwards to one master at a time, over a stream that is open while there are requests.

    sign: where requests are checked before they come here. A client's own signature is void: fields were added.
    """

    connect: Connect = connect_tcp
    sign: Sign | None = field(default=None, kw_only=True)
    _address: str = field(default="", init=False)
    _link: _Link | None = field(default=None, init=False)
    _opaque: int = field(default=0, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise the stream until cancelled; then requests without an answer are refused."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    @property
    def waiting(self) -> int:
        """Number of requests without an answer of the present master yet."""
        return len(self._link.passed) if self._link is not None else 0

    def aim(self, address: str) -> None:
        """Forward to this member from now on. A master before it still answers its own requests."""
        if address != self._address and self._link is not None:
            self._link.over, self._link = True, None
        self._address = address

    def forward(
        self,
        connection: Connection,
        command: RemotingCommand,
        *,
        by_member: bool = False,
        taken: Callable[[], None] | None = None,
    ) -> None:
        """Forward, or refuse. Never waits.

        by_member: a member did so before, and says for whom. taken: to be called once the master has done it, oneway or not.
        """
        ext = dict(command.ext or {})
        if not by_member:
            ext.pop(HOPS, None)
        hops, link = _hops(ext), self._open_link()
        if link is None or hops >= HOPS_MAX or link.unsent_bytes > UNSENT_BYTES_MAX:
            refuse(connection, command, "no member takes it" if hops >= HOPS_MAX else "too much is to be passed on")
            return
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        ext[HOPS] = str(hops + 1)
        if not hops or not is_host(ext.get(FROM, "")):
            ext[FROM] = connection.remote_address
        try:
            ours = _with(command, self._opaque, ext, command.body)
            if taken is not None:
                ours.flag &= ~ONEWAY  # The master is to say so.
            if self.sign is not None:
                self.sign(ours)
            frame = encode(ours)
        except RemotingProtocolError as error:
            refuse(connection, command, str(error))
            return
        passed = None
        if taken is not None or not command.is_oneway:
            asked = _with(command, command.opaque, None, b"")  # Not the body, which may be long.
            passed = _Passed(connection, asked, trio.current_time() + ANSWER_SECONDS_MAX, taken)
        link.pass_on(frame, self._opaque, passed)

    def _open_link(self) -> _Link | None:
        """The stream; None while run() is not active."""
        if self._nursery is None:
            return None
        if self._link is None or self._link.over:
            self._link = _Link(self._address, self.connect)
            self._nursery.start_soon(self._link.run)
        return self._link


def _with(
    command: RemotingCommand, opaque: int, ext: dict[str, str] | None, body: bytes | memoryview
) -> RemotingCommand:
    """The same command with these values: four times as fast as attrs.evolve."""
    fixed = (command.remark, command.version, command.language, command.serialize_type)
    return RemotingCommand(command.code, opaque, command.flag, ext, body, *fixed)


def is_host(text: str) -> bool:
    """True if a record can name it as its born host: an IP and a port."""
    try:
        host_bytes(text)
    except (ValueError, OverflowError):
        return False
    return True


def _hops(ext: dict[str, str]) -> int:
    try:
        return max(0, int(ext.get(HOPS, "0")))
    except ValueError:
        return HOPS_MAX
