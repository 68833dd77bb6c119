"""What members say to each other about roles, and what role changes need of the rest of a broker, as Protocols.

The types of the log's histories, of promises and of leases lie in ha/ and store/; here are those of the verbs that people use.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol

import orjson
from attrs import frozen

from twinlog.ha.election.role_change import Verb
from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest
from twinlog.ha.election.votes import Judgement
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import EpochEntry, check_history
from twinlog.store.role_file import GroupMember, RoleState
from twinlog.store.util.plain import from_plain, to_plain

StepWord = Literal["to do", "doing", "done", "failed"]
Op = Literal["check", "start", "state", "hold", "release", "rewind", "reinit", "pause", "resume", "schedule"]
Plain = dict[str, Any]  # A JSON object.


class RoleRefusedError(Exception):
    """A rule speaks against it: one line for each, for people. Nothing was changed."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


@frozen(kw_only=True)
class ChangeRequest:
    """A role change that somebody wants. The candidate carries it out."""

    verb: Verb
    candidate: str
    reason: str = ""
    accept_data_loss: int | Literal["unknown"] | None = None
    timeout_ms: int = 30_000
    dry_run: bool = False


@frozen(kw_only=True)
class StepState:
    """One step of the plan, and how far it is."""

    number: int
    name: str
    text: str
    state: StepWord


@frozen(kw_only=True)
class ChangeResult:
    """What became of it. `kept` names where other members keep what was given up, `not_following` who is not there yet."""

    epoch: int
    winner: str
    start_offset: int
    pause_ms: float | None
    lost_bytes: int | None
    kept: tuple[str, ...]
    not_following: tuple[str, ...]


@frozen(kw_only=True)
class ChangeState:
    """The role change that runs here, or the last one. `refused`: `error` says which rule spoke against it."""

    running: bool
    steps: tuple[StepState, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    result: ChangeResult | None = None
    error: str = ""
    refused: bool = False


@frozen(kw_only=True)
class WritePauseRequest:
    """A candidate asks the master to take no writes for `ms`."""

    epoch: int
    candidate: str
    ms: float


@frozen(kw_only=True)
class PausedMaster:
    """What a master that holds has: final, because nothing can change it now. `tail_digest`: of bytes `tail_start` to the end."""

    end_offset: int
    min_offset: int
    offsets: Mapping[str, Any]
    delay_offsets: Mapping[int, int]
    topics: Mapping[str, Any]
    groups: Mapping[str, Any]
    tail_start: int = 0
    tail_digest: str = ""  # "": not told.


@frozen(kw_only=True)
class RewindRequest:
    """This member's log is to be cut to what its master's history has of it."""

    accept_data_loss: int | None = None
    dry_run: bool = False


@frozen(kw_only=True)
class ReinitRequest:
    """This member's log is to begin anew, with its master's."""

    dry_run: bool = False


@frozen(kw_only=True)
class PauseRequest:
    """No role change and nothing automatic for `for_ms`, or until it is resumed."""

    for_ms: int | None = None
    reason: str = ""


@frozen(kw_only=True)
class ScheduleRequest:
    """A switchover at a time of the wall clock; None: not any more."""

    at_ms: int | None
    candidate: str = ""
    reason: str = ""


STRANGER = "is no member of this group, and haAllowedSlaves does not name it"  # Who may not ask at all hears this.


class MemberCalls(Protocol):
    """Questions to the member at an address. Each raises HAPeerError when there is no answer that can be used."""

    async def promise(self, address: str, ask: VoteRequest) -> VoteReply:
        """20005."""

    async def lease(self, address: str, ask: LeaseRequest, *, timeout_ms: float) -> LeaseReply:
        """20004."""

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        """20006. RoleRefusedError when the member refuses."""

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        """1007; None: no member of twinlog's."""


class RoleEffects(Protocol):
    """What a role means for the other parts of a broker. All of them may be called again, for a role that is there already."""

    async def hold(self, deadline: float) -> PausedMaster:
        """Hold back what writes, end the master's own services, wait until no producer waits for slaves.

        After `deadline`, a time of trio's clock, all goes on as before unless the member resigned. Raises TimeoutError.
        """

    def release(self) -> None:
        """Let what is held back go on here."""

    async def take_tables(self, held: PausedMaster | None) -> None:
        """Save what the old master handed over; None: nothing was."""

    async def serve_as_master(self, state: RoleState) -> None:
        """Take messages, run a master's services, register as id 0."""

    async def serve_as_slave(self, state: RoleState, master: PeerHistory | None) -> None:
        """Take no messages, follow `master`, None: nobody yet; register under the state's id."""

    async def fence(self, why: str) -> None:
        """Nothing is served in a role any more: no writes, no acknowledgement, no registration as id 0. Returns once it is so."""

    async def pull_offsets(self, addresses: tuple[str, ...]) -> None:
        """Take consumers' offsets of other members by max; those that do not answer are left out."""


VERSION = 1  # Of what is said under `twinlog`.


def encode(value: object) -> bytes:
    """A body."""
    return orjson.dumps(to_plain(value))


def epoch_list(entries: Sequence[EpochEntry], max_offset: int) -> list[dict[str, int]]:
    """RocketMQ's: the last epoch ends where the log does."""
    ends = [*(after.start_offset for _, after in pairwise(entries)), max_offset]
    return [
        {"epoch": entry.epoch, "startOffset": entry.start_offset, "endOffset": end}
        for entry, end in zip(entries, ends, strict=True)
    ]


def history_body(history: PeerHistory, *, cluster: str, name: str, broker_id: int, more: Mapping[str, Any]) -> bytes:
    """The answer to 1007."""
    ours = to_plain(history)
    ours["epochs"] = ours.pop("entries")
    return orjson.dumps(
        {
            "clusterName": cluster,
            "brokerName": name,
            "brokerId": broker_id,
            "epochList": epoch_list(history.entries, history.max_offset),
            "maxOffset": history.max_offset,
            "twinlog": {"version": VERSION, **ours, **more},
        }
    )


def read_history(body: bytes | memoryview) -> PeerHistory | None:
    """Out of the answer to 1007; None: it is not a twinlog member's. Raises ValueError."""
    answer = orjson.loads(body)
    said = answer.get("twinlog") if isinstance(answer, dict) else None
    if not isinstance(said, dict):
        return None
    if said.get("version") != VERSION:
        raise ValueError(f"its version of epochs is {said.get('version')}, ours {VERSION}")
    history = from_plain(PeerHistory, said | {"entries": said.get("epochs")})
    check_history(history.entries)
    if history.entries[-1].id != history.id:
        raise ValueError(f"its history does not end with epoch {history.id.epoch}")
    return history
