"""Probes of the addresses that the others tell members: `twinlog doctor` asks for them, in request 20001.

Only addresses in the group's record are tried, each of them once in KEPT_SECONDS, whoever asks how often: nobody can use a member
to look for open ports.
"""

import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio
from attrs import define, field

from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.client import connect_reason, connect_tcp
from twinlog.cluster.remoting.errors import RemotingTimeoutError
from twinlog.cluster.remoting.member_status import ReachStatus
from twinlog.cluster.remoting.streams import close_now
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.store.role_file import GroupMember

KEPT_SECONDS = 5.0
PROBE_SECONDS_MAX = 1.5


@define(eq=False)
class Reach:
    """`others`: the other members of the record. `history`: asks who is at an address, and for how long at most.

    The time limit is the question's own: one that is late tells the client that a connection may lead to where nobody is.
    """

    others: Callable[[], Iterable[GroupMember]]
    history: Callable[[str, int], Awaitable[PeerHistory | None]]
    _found: tuple[ReachStatus, ...] = field(default=(), init=False)
    _at: float = field(default=float("-inf"), init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    async def look(self) -> tuple[ReachStatus, ...]:
        """Try all addresses, or return what was found a moment ago. Takes PROBE_SECONDS_MAX for each kind of port at most."""
        async with self._lock:
            if trio.current_time() >= self._at + KEPT_SECONDS:
                self._found = tuple(await in_parallel(self._probes()))
                self._at = trio.current_time()
            return self._found

    def _probes(self) -> Iterable[Callable[[], Awaitable[ReachStatus]]]:
        for each in self.others():
            yield partial(self._requests, each)
            yield partial(self._replication, each)

    async def _replication(self, other: GroupMember) -> ReachStatus:
        """Connect and close without sending: neither RocketMQ nor twinlog takes that for a slave."""
        result, why = await _connects(other.ha_address)
        return ReachStatus(
            member_id=other.id, name=other.name, use="replication", address=other.ha_address, result=result, why=why
        )

    async def _requests(self, other: GroupMember) -> ReachStatus:
        address, found = other.member_address or other.address, None
        result, why = await _connects(address)
        if result == "reached":
            try:
                history = await self.history(address, round(PROBE_SECONDS_MAX * 1000))
                found = history.member if history is not None else None  # RocketMQ says no more.
                is_other = found not in (None, other.id)
                result, why = ("another member", f"{found} answers") if is_other else ("reached", None)
            except HAPeerError as error:
                result, why = "no answer", str(error)
                if isinstance(error.__cause__, RemotingTimeoutError):
                    result, why = "timed out", "it takes connections, and does not answer"
        return ReachStatus(
            member_id=other.id, name=other.name, use="requests", address=address, result=result, why=why, found=found
        )


async def _connects(address: str) -> tuple[str, str | None]:
    with trio.move_on_after(PROBE_SECONDS_MAX):
        try:
            await close_now(await connect_tcp(address))
            return "reached", None
        except socket.gaierror as error:
            return "name unknown", error.strerror or str(error)
        except (OSError, ValueError) as error:
            return "refused", connect_reason(error)
    return "timed out", f"no connection within {PROBE_SECONDS_MAX:g} s"
