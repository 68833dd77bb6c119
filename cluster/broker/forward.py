"""Passes clients' requests on to the member that is master now, and its answers back.

All of them go over one stream in the order in which they came, so each client's own order is kept. Answers come back in any
order, by their opaque numbers. A request that cannot be answered is refused with a code that RocketMQ's producers try again
after. Passed-on requests say for whom they are and how often they were passed on, so that none can run in a circle.
"""

from collections.abc import Awaitable, Callable

import attrs
import structlog
import trio
from attrs import define, field, frozen

from cluster.remoting.client import connect_tcp
from cluster.remoting.codes import ResponseCode
from cluster.remoting.command import FrameReader, RemotingCommand, decode, encode
from cluster.remoting.connection import Connection
from cluster.remoting.errors import RemotingError, RemotingProtocolError

log = structlog.get_logger(__name__)

FROM, HOPS = "twinlogFrom", "twinlogHops"
HOPS_MAX = 3
ANSWER_SECONDS_MAX, CONNECT_SECONDS_MAX, IDLE_SECONDS = 3.0, 1.0, 10.0
UNSENT_BYTES_MAX = 64 << 20
_SCAN_SECONDS = 0.25
_READ_SIZE = 256 * 1024
_OPAQUE_MASK = 0x7FFFFFFF


def refuse(connection: Connection, command: RemotingCommand, why: str) -> None:
    """Answer with a code after which producers try another queue or try again."""
    if not command.is_oneway:
        # The map must be there: the Java client reads it without looking.
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        connection.send(RemotingCommand.response_to(command, code, remark=f"service not available now: {why}", ext={}))


@frozen(eq=False)
class _Passed:
    """A request that waits for its answer."""

    connection: Connection
    command: RemotingCommand
    deadline: float


@define(eq=False)
class Forwarder:
    """One stream to one master, open while there is something to pass on."""

    connect: Callable[[str], Awaitable[trio.abc.Stream]] = connect_tcp
    answered: Callable[[], None] = lambda: None  # At each answer of the master.
    _address: str = field(default="", init=False)
    _outbox: list[bytes] = field(factory=list, init=False)
    _outbox_size: int = field(default=0, init=False)
    _passed: dict[int, _Passed] = field(factory=dict, init=False)  # By our opaque numbers, the oldest first.
    _opaque: int = field(default=0, init=False)
    _filled: trio.Event = field(factory=trio.Event, init=False)
    _link: trio.CancelScope | None = field(default=None, init=False)

    def aim(self, address: str) -> None:
        """Pass on to this member from now on. What another one was asked is refused."""
        if address == self._address:
            return
        if self._address:
            self._give_up(f"{self._address} is not the master any more")
        self._address = address
        if self._link is not None:
            self._link.cancel()

    def forward(self, connection: Connection, command: RemotingCommand) -> None:
        """Pass on, or refuse. Never waits."""
        ext = dict(command.ext or {})
        hops = _hops(ext)
        if hops >= HOPS_MAX or self._outbox_size > UNSENT_BYTES_MAX:
            refuse(connection, command, "no member takes it" if hops >= HOPS_MAX else "too much is to be passed on")
            return
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        ext[HOPS] = str(hops + 1)
        if not hops:
            ext[FROM] = connection.remote_address
        try:
            frame = encode(attrs.evolve(command, opaque=self._opaque, ext=ext))
        except RemotingProtocolError as error:
            refuse(connection, command, str(error))
            return
        if not command.is_oneway:
            deadline = trio.current_time() + ANSWER_SECONDS_MAX
            self._passed[self._opaque] = _Passed(connection, attrs.evolve(command, body=b"", ext=None), deadline)
        self._outbox.append(frame)
        self._outbox_size += len(frame)
        self._filled.set()

    async def run(self) -> None:
        """Until cancelled; then whatever waits is refused."""
        try:
            while True:
                await self._filled.wait()
                address = self._address
                with trio.CancelScope() as self._link:
                    self._give_up(await self._carry(address))
                self._link = None
        finally:
            self._give_up("this member stops")

    async def _carry(self, address: str) -> str:
        """Connect, pass on, and say why that is over."""
        try:
            with trio.fail_after(CONNECT_SECONDS_MAX):
                stream = await self.connect(address)
        except (OSError, ValueError, trio.TooSlowError) as error:
            log.warning("the master cannot be reached, requests for it are refused", address=address, error=str(error))
            return f"the master {address} cannot be reached"
        reason = f"nothing was passed on to {address} for a while"
        try:
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream)
                nursery.start_soon(self._expire)
                await self._read(stream)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, RemotingError) as group:
            reason = f"the connection to {address} was lost: {group.exceptions[0]}"
            log.warning("the connection to the master was lost", address=address, error=str(group.exceptions[0]))
        return reason

    async def _write(self, stream: trio.abc.Stream) -> None:
        while True:
            await self._filled.wait()
            data, self._outbox = b"".join(self._outbox), []
            self._outbox_size, self._filled = 0, trio.Event()
            await stream.send_all(data)

    async def _read(self, stream: trio.abc.Stream) -> None:
        """Hand answers on until the master ends the stream or nothing is under way for a while."""
        reader = FrameReader()
        data: bytes | bytearray = b"-"
        while data:
            with trio.move_on_after(IDLE_SECONDS) as scope:
                data = await stream.receive_some(_READ_SIZE)
                self._hand_on([decode(frame) for frame in reader.feed(data)])
            if scope.cancelled_caught and not self._passed and not self._outbox:
                return

    def _hand_on(self, answers: list[RemotingCommand]) -> None:
        """One write for each client, however many answers it gets."""
        waiting = [(self._passed.pop(answer.opaque, None), answer) for answer in answers if answer.is_response]
        clients = {passed.connection for passed, _ in waiting if passed is not None}
        for connection in clients:
            connection.cork()
        for passed, answer in waiting:
            if passed is not None:  # Else it came too late.
                answer.opaque = passed.command.opaque
                passed.connection.send(answer)
        for connection in clients:
            connection.uncork()
        if clients:
            self.answered()

    async def _expire(self) -> None:
        while True:
            now = trio.current_time()
            late = [opaque for opaque, passed in self._passed.items() if passed.deadline <= now]
            for opaque in late:
                passed = self._passed.pop(opaque)
                refuse(passed.connection, passed.command, f"the master {self._address} did not answer in time")
            await trio.sleep(_SCAN_SECONDS)

    def _give_up(self, why: str) -> None:
        passed, self._passed = self._passed, {}
        self._outbox, self._outbox_size, self._filled = [], 0, trio.Event()
        for one in passed.values():
            refuse(one.connection, one.command, why)


def _hops(ext: dict[str, str]) -> int:
    try:
        return max(0, int(ext.get(HOPS, "0")))
    except ValueError:
        return HOPS_MAX
