"""Passes clients' requests on to the member that is master now, and its answers back.

All of them go over one stream in the order in which they came, so each client's own order is kept as long as the master is the
same. Answers come back in any order, by their opaque numbers. A request that cannot be passed on is refused, one that was and has
no answer is given up, each with a code of its own that RocketMQ's producers try again after. Passed-on requests say for whom they
are and how often they were passed on, so that none can run in a circle.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio
from attrs import define, field, frozen

from twinlog.cluster.remoting.client import Sign, connect_tcp
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RemotingError, RemotingProtocolError
from twinlog.store.record.message import host_bytes

log = structlog.get_logger(__name__)

FROM, HOPS = "twinlogFrom", "twinlogHops"
HOPS_MAX = 3
ANSWER_SECONDS_MAX, CONNECT_SECONDS_MAX, IDLE_SECONDS = 3.0, 1.0, 10.0
UNSENT_BYTES_MAX = 64 << 20
_SCAN_SECONDS = 0.25
_READ_SIZE = 256 * 1024
_OPAQUE_MASK = 0x7FFFFFFF


def refuse(connection: Connection, command: RemotingCommand, why: str) -> None:
    """Nothing was done. Answer with a code after which producers try another queue or try again."""
    _answer(connection, command, ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")


def give_up(connection: Connection, command: RemotingCommand, why: str) -> None:
    """Nobody here knows what was done. Producers try again after this code as well, and are not told that nothing is stored."""
    _answer(connection, command, ResponseCode.SYSTEM_ERROR, f"{why}; it may have carried this out, or may yet")


def _answer(connection: Connection, command: RemotingCommand, code: ResponseCode, remark: str) -> None:
    if not command.is_oneway:
        # The map must be there: the Java client reads it without looking.
        connection.send(RemotingCommand.response_to(command, code, remark=remark, ext={}))


@frozen(eq=False)
class _Passed:
    """A request that waits for its answer. `taken`: to be called when that says that the master did it."""

    connection: Connection
    command: RemotingCommand
    deadline: float
    taken: Callable[[], None] | None


@define(eq=False)
class _Link:
    """One stream to one master. Ends when it breaks, is not needed for a while, or was told to finish and has."""

    address: str
    connect: Callable[[str], Awaitable[trio.abc.Stream]]
    over: bool = field(default=False, init=False)  # It takes nothing more.
    unsent_bytes: int = field(default=0, init=False)
    _is_open: bool = field(default=False, init=False)  # Since then the master may have heard of what waits.
    _outbox: list[bytes] = field(factory=list, init=False)
    _passed: dict[int, _Passed] = field(factory=dict, init=False)  # By our opaque numbers, the oldest first.
    _filled: trio.Event = field(factory=trio.Event, init=False)

    @property
    def waiting(self) -> int:
        """How many wait for an answer."""
        return len(self._passed)

    def pass_on(self, frame: bytes, opaque: int, passed: _Passed | None) -> None:
        """Send soon. `passed`: who waits for the answer with that number, if anybody does."""
        if passed is not None:
            self._passed[opaque] = passed
        self._outbox.append(frame)
        self.unsent_bytes += len(frame)
        self._filled.set()

    async def run(self) -> None:
        """Until it is over; whoever waits then is refused, or given up."""
        reason = f"this member stops, and had not heard from the master {self.address}"
        try:
            reason = await self._carry()
        finally:
            self.over = True
            end = give_up if self._is_open else refuse
            for passed in self._passed.values():
                end(passed.connection, passed.command, reason)

    async def _carry(self) -> str:
        """Connect, pass on, and say why that is over."""
        try:
            with trio.fail_after(CONNECT_SECONDS_MAX):
                stream = await self.connect(self.address)
        except (OSError, ValueError, trio.TooSlowError) as error:
            log.warning("the master cannot be reached, requests for it are refused", peer=self.address, why=str(error))
            return f"the master {self.address} cannot be reached"
        self._is_open = True
        try:
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                nursery.start_soon(self._expire, nursery.cancel_scope)
                await self._read(stream)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, RemotingError) as group:
            log.warning("the connection to the master was lost", peer=self.address, why=str(group.exceptions[0]))
        return f"the connection to the master {self.address} was lost"

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            await self._filled.wait()
            data, self._outbox, self._filled = b"".join(self._outbox), [], trio.Event()
            await stream.send_all(data)
            self.unsent_bytes -= len(data)

    async def _read(self, stream: trio.abc.Stream) -> None:
        reader = FrameReader()
        while data := await stream.receive_some(_READ_SIZE):
            self._hand_on([decode(frame) for frame in reader.feed(data)])

    def _hand_on(self, answers: list[RemotingCommand]) -> None:
        """One write for each client, however many answers it gets."""
        waiting = [(self._passed.pop(answer.opaque, None), answer) for answer in answers if answer.is_response]
        clients = {passed.connection for passed, _ in waiting if passed is not None}
        for connection in clients:
            connection.cork()
        for passed, answer in waiting:
            if passed is None:
                continue  # It came too late.
            if passed.taken is not None and answer.code == ResponseCode.SUCCESS:
                passed.taken()
            if not passed.command.is_oneway:
                answer.opaque = passed.command.opaque
                passed.connection.send(answer)
        for connection in clients:
            connection.uncork()

    async def _expire(self, scope: trio.CancelScope) -> None:
        """Give up what is late; leave when nothing was under way for a while, or nothing more is to come."""
        needed_at = trio.current_time()
        while True:
            await trio.sleep(_SCAN_SECONDS)
            now = trio.current_time()
            for opaque in [opaque for opaque, passed in self._passed.items() if passed.deadline <= now]:
                late = self._passed.pop(opaque)
                give_up(late.connection, late.command, f"the master {self.address} did not answer in time")
            if self._passed or self.unsent_bytes:
                needed_at = now
            elif self.over or now >= needed_at + IDLE_SECONDS:
                self.over = True
                scope.cancel()


@define(eq=False)
class Forwarder:
    """Passes on to one master at a time, by a stream that is open while there is something to pass on.

    sign: where requests are checked before they come here. A client's own signature is void: fields were added.
    """

    connect: Callable[[str], Awaitable[trio.abc.Stream]] = connect_tcp
    sign: Sign | None = field(default=None, kw_only=True)
    _address: str = field(default="", init=False)
    _link: _Link | None = field(default=None, init=False)
    _opaque: int = field(default=0, init=False)
    _nursery: trio.Nursery | None = field(default=None, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; then whatever waits is refused."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    @property
    def waiting(self) -> int:
        """How many requests wait for the master's answer; those that another master was asked before are not counted."""
        return self._link.waiting if self._link is not None else 0

    def aim(self, address: str) -> None:
        """Pass on to this member from now on. What another one was asked before, that one still answers."""
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
        """Pass on, or refuse. Never waits.

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
        """None: this does not run."""
        if self._nursery is None:
            return None
        if self._link is None or self._link.over:
            self._link = _Link(self._address, self.connect)
            self._nursery.start_soon(self._link.run)
        return self._link


def _with(
    command: RemotingCommand, opaque: int, ext: dict[str, str] | None, body: bytes | memoryview
) -> RemotingCommand:
    """The same command with these, in a quarter of the time that attrs.evolve takes."""
    fixed = (command.remark, command.version, command.language, command.serialize_type)
    return RemotingCommand(command.code, opaque, command.flag, ext, body, *fixed)


def is_host(text: str) -> bool:
    """Whether a record can say that it was born there: an IP and a port."""
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
