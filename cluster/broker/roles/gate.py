"""Write gate: requests that change something pass, wait, or are forwarded while this member's role changes.

    open        requests pass: the member does what its role says (a slave stores nothing)
    holding     write pause of a switchover: requests are kept, in order, until the new master is known
    forwarding  another member is master: requests go to it and its answers come back, until clients know it
    closed      this member may not serve as a master: every request is refused

Held requests are carried out here by open(), forwarded by forward_to(), refused by shut(). At its time limit `holding` becomes
`closed`, and `forwarding` becomes `open`. Handlers ask the gate only when
it is not open, so that it costs one comparison per read.
"""

import functools
import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Literal, Protocol, TypeVar

import structlog
import trio
from attrs import define, field, frozen

from twinlog.cluster.broker.roles.forward import FROM, Forwarder, is_host, refuse
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.names import ip_of
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.role_file import RoleState

log = structlog.get_logger(__name__)

GateState = Literal["open", "holding", "forwarding", "closed"]
HELD_BYTES_MAX = 64 << 20
FORWARD_AT_ONCE = 100  # Some milliseconds of work.
GRACE_SECONDS = 0.25  # The write pause ends at its deadline; this is for one that does not.

Header = TypeVar("Header")


@frozen(eq=False)
class _Held:
    """A held request: `carry_out` does it here, `taken` is called when the master has done it."""

    connection: Connection
    command: RemotingCommand
    carry_out: Callable[[], None]
    taken: Callable[[], None] | None


@define(eq=False)
class Gate:
    """`role_state`: the members of its group are trusted to forward requests. `run` supervises time limits and the link."""

    role_state: Callable[[], RoleState | None] = lambda: None
    ips_of: Callable[[str], Collection[str]] = lambda address: (ip_of(address),)  # Of HOST:PORT.
    forwarder: Forwarder = field(factory=Forwarder)
    state: GateState = field(default="open", init=False)
    why: str = field(default="", init=False)  # As text; empty while it is open.
    _held: deque[_Held] = field(factory=deque, init=False)
    _held_bytes: int = field(default=0, init=False)
    _until: float = field(default=math.inf, init=False)  # When the state ends by itself.
    _changed: trio.Event = field(factory=trio.Event, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Supervise until cancelled; nothing is forwarded while this does not run."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.forwarder.run)
            task_status.started()
            while True:
                while self._held and self.state == "forwarding":
                    await trio.lowlevel.checkpoint()
                    self._forward_some()
                with trio.move_on_at(self._until) as scope:
                    await self._changed.wait()
                if scope.cancelled_caught:
                    self._expire()

    # Called by role changes

    def close_for(self, deadline: float) -> None:
        """Hold requests from now on. `deadline`: by then the caller opens, forwards or shuts, in trio's time."""
        self._become("holding", "a switchover is under way", deadline + GRACE_SECONDS)

    def open(self) -> None:
        """Let requests pass, held ones first."""
        self._become("open", "", math.inf)
        while self._held:
            held = self._take_held()
            try:
                held.carry_out()
            except Exception as error:  # One failing request must not block the others.
                peer = held.connection.remote_address
                log.exception("held request failed", code=held.command.code, peer=peer)
                refuse(held.connection, held.command, f"{type(error).__name__}: {error}")

    def forward_to(self, address: str, seconds: float) -> None:
        """Forward held and new requests to the new master; open after so many seconds."""
        self._become("forwarding", f"the master is {address}", trio.current_time() + seconds)
        self.forwarder.aim(address)
        self._forward_some()  # run() sees to the rest: the stream that confirms all this must not stand still meanwhile.

    def _forward_some(self) -> None:
        for _ in range(min(FORWARD_AT_ONCE, len(self._held))):
            self._pass_on(self._take_held())

    def shut(self, why: str) -> None:
        """Refuse held and new requests."""
        self._become("closed", why, math.inf)
        while self._held:
            held = self._take_held()
            refuse(held.connection, held.command, why)

    def _become(self, state: GateState, why: str, until: float) -> None:
        if (state, why) != (self.state, self.why):
            log.info("write gate", state=state, was=self.state, why=why or None)
        self.state, self.why, self._until = state, why, until
        self._changed.set()
        self._changed = trio.Event()

    def _expire(self) -> None:
        if self.state == "holding":
            self.shut("the switchover was not finished in time, and the master is not known here")
        elif self.state == "forwarding":
            self.open()

    def _take_held(self) -> _Held:
        held = self._held.popleft()
        self._held_bytes -= _size(held.command)
        return held

    # Called by handlers

    def takes(
        self,
        connection: Connection,
        command: RemotingCommand,
        carry_out: Callable[[], None],
        *,
        taken: Callable[[], None] | None = None,
    ) -> bool:
        """True: the gate answers this request, possibly by carrying it out later. The command is kept as it is now.

        taken: to be called if it was passed on, once the master says that it has done it.
        """
        if self.state == "open":
            return False
        if not isinstance(command.body, bytes):
            command.body = bytes(command.body)  # The frame lies in a buffer that is used again.
        asked = _Held(connection, command, carry_out, taken)
        if self.state == "holding" or (self.state == "forwarding" and self._held):  # In the order of arrival.
            self._hold(asked)
        elif self.state == "forwarding":
            self._pass_on(asked)
        else:
            refuse(connection, command, self.why)
        return True

    def _pass_on(self, asked: _Held) -> None:
        connection = asked.connection
        by_member = self._is_member(connection)
        self.forwarder.forward(connection, asked.command, by_member=by_member, taken=asked.taken)

    def _hold(self, asked: _Held) -> None:
        size = _size(asked.command)
        if self._held_bytes + size > HELD_BYTES_MAX:
            why = f"{self.why}, and {self._held_bytes} bytes of requests wait for its end"
            refuse(asked.connection, asked.command, why)
            return
        self._held.append(asked)
        self._held_bytes += size

    def original_client(self, connection: Connection, command: RemotingCommand) -> str | None:
        """The client for which another member forwarded this request; None: it came from the client itself."""
        reported = (command.ext or {}).get(FROM)
        return reported if reported is not None and is_host(reported) and self._is_member(connection) else None

    def _is_member(self, connection: Connection) -> bool:
        state = self.role_state()
        group = state.group if state is not None else None
        members, ip = group.members if group is not None else (), ip_of(connection.remote_address)
        return any(ip in (*self.ips_of(each.address), *self.ips_of(each.member_address)) for each in members)


class _Gated(Protocol):
    @property
    def gate(self) -> Gate: ...


P = TypeVar("P", bound=_Gated)


def gated(
    handler: Callable[[P, Header, Request], Reply | None],
    *,
    taken: Callable[[P, Header], None] | None = None,
) -> Callable[..., Reply | None]:
    """Decorator of a handler whose requests go through the gate. `taken`: for what was passed on, once the master has done it."""

    @functools.wraps(handler)
    def ask_gate(processor: P, header: Header, request: Request) -> Reply | None:
        gate = processor.gate
        if gate.state != "open" and gate.takes(
            request.connection,
            request.command,
            lambda: request.answer_with(lambda: handler(processor, header, request)),
            taken=functools.partial(taken, processor, header) if taken is not None else None,
        ):
            return None
        return handler(processor, header, request)

    return ask_gate


def _size(command: RemotingCommand) -> int:
    return len(command.body) + sum(len(value) for value in (command.ext or {}).values())
