"""Says whether this name server hears a group's master (20008), for members that must not take being alone for its death.

The process that registered as master is asked on the connection on which it registered: there is no other way by which it may
not be reached, no address to be tried for somebody, and no rights that are needed. One that hangs does not answer; one that died
is not registered any more. A master is asked once at a time, and an answer is kept for a moment, whoever asks how often.
"""

from weakref import WeakKeyDictionary

import orjson
import trio
from attrs import define, evolve, field

from twinlog.cluster.namesrv.route_info import RouteInfoManager
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingTimeoutError
from twinlog.cluster.remoting.headers.members import HearsMaster
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.ha.election.witness import MasterAnswer, WitnessReport
from twinlog.store.util.plain import from_plain

ANSWER_MS_MAX = 700
KEPT_SECONDS = 0.2
WHY_MAX = 500  # Characters: anybody may register.


@define(eq=False)
class _Question:
    """To the master of one group, on one connection."""

    answer: MasterAnswer | None = None
    why_silent: str = ""
    done: trio.Event = field(factory=trio.Event, init=False)
    answered_at: float = field(default=0.0, init=False)

    @property
    def is_of_use(self) -> bool:
        """True while it is asked, and a moment longer."""
        return not self.done.is_set() or trio.current_time() < self.answered_at + KEPT_SECONDS


@define(eq=False)
class Witness:
    """Asks the masters in `routes`."""

    routes: RouteInfoManager
    started_at: float = 0.0
    _asked: "WeakKeyDictionary[Connection, dict[str, _Question]]" = field(factory=WeakKeyDictionary, init=False)

    async def report(self, header: HearsMaster) -> WitnessReport:
        """Report what is known of a group, and what its master answers now. Takes ANSWER_MS_MAX at most."""
        group = self.routes.brokers.get(header.broker_name)
        members = len(group.addresses) if group is not None and group.cluster == header.cluster_name else 0
        master = group.addresses.get(MASTER_ID) if group is not None and members else None
        up_ms = round((trio.current_time() - self.started_at) * 1000)
        connection = self.routes.live[master].connection if master is not None and master in self.routes.live else None
        if not isinstance(connection, Connection):
            return WitnessReport(up_ms=up_ms, members=members)
        heard_ms = round((trio.current_time() - connection.last_received) * 1000)
        asked = await self._ask(connection, header)
        return WitnessReport(
            up_ms=up_ms,
            members=members,
            master=master,
            heard_ms=heard_ms,
            answer=asked.answer,
            why_silent=asked.why_silent,
        )

    async def _ask(self, connection: Connection, header: HearsMaster) -> _Question:
        questions = self._asked.setdefault(connection, {})
        if (known := questions.get(header.broker_name)) is not None and known.is_of_use:
            await known.done.wait()
            return known
        asked = questions[header.broker_name] = _Question()
        try:
            answer = await connection.call(header.command(), ANSWER_MS_MAX)
            if answer.code == ResponseCode.SUCCESS:
                answered = from_plain(MasterAnswer, orjson.loads(answer.body))
                asked.answer = evolve(answered, why=answered.why[:WHY_MAX])
            else:  # A broker that does not know the request, as RocketMQ's, is there, and registered.
                asked.answer = MasterAnswer(serves=None)
        except (RemotingTimeoutError, RemotingConnectError) as error:
            is_late = isinstance(error, RemotingTimeoutError)
            asked.why_silent = f"no answer within {ANSWER_MS_MAX} ms" if is_late else "its connection has ended"
        except ValueError:
            asked.why_silent = "its answer is of no known form"
        finally:
            asked.answered_at = trio.current_time()
            asked.done.set()
        return asked
