"""Messages between members about roles, and their JSON.

The types of the log's histories, of promises and of leases lie in ha/ and store/; here are those of the verbs that people use.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import orjson
from attrs import frozen

from twinlog.ha.election.role_change import Verb
from twinlog.ha.election.votes import Judgement
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import DecidedBy, EpochEntry, check_history
from twinlog.store.role_file import AutoFailover
from twinlog.store.util.plain import from_plain, to_plain

StepWord = Literal["to do", "doing", "done", "failed"]
Op = Literal[
    "check", "start", "state", "hold", "release", "rewind", "reinit", "pause", "resume", "schedule", "auto-failover"
]
Plain = dict[str, Any]  # A JSON object.


class RoleRefusedError(Exception):
    """Rules forbid it: one line of text for each. Nothing was changed."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


@frozen(kw_only=True)
class ChangeRequest:
    """Request for a role change. The candidate carries it out."""

    verb: Verb
    candidate: str
    reason: str = ""
    accept_data_loss: int | Literal["unknown"] | None = None
    timeout_ms: int = 30_000
    dry_run: bool = False
    decided_by: DecidedBy = "person"


@frozen(kw_only=True)
class StepState:
    """One step of the plan, and its progress."""

    number: int
    name: str
    text: str
    state: StepWord


@frozen(kw_only=True)
class ChangeResult:
    """Result of a role change. `kept`: the members that keep what was given up; `not_following`: those that do not follow yet."""

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
    """A candidate asks the master to pause writes for `ms`."""

    epoch: int
    candidate: str
    ms: float


@frozen(kw_only=True)
class PausedMaster:
    """State of a master in a write pause, final while that lasts. `tail_digest`: of bytes `tail_start` to the end."""

    end_offset: int
    min_offset: int
    offsets: Mapping[str, Any]
    delay_offsets: Mapping[int, int]
    topics: Mapping[str, Any]
    groups: Mapping[str, Any]
    tail_start: int = 0
    tail_digest: str = ""  # "": not reported.


@frozen(kw_only=True)
class RewindRequest:
    """Request to cut a member's log to what its master's history has of it."""

    accept_data_loss: int | None = None
    dry_run: bool = False


@frozen(kw_only=True)
class ReinitRequest:
    """Request to replace a member's log by its master's."""

    dry_run: bool = False


@frozen(kw_only=True)
class PauseRequest:
    """Request to pause role changes and automatic actions for `for_ms`, or until they are resumed."""

    for_ms: int | None = None
    reason: str = ""


@frozen(kw_only=True)
class AutoFailoverRequest:
    """Request to change who begins a failover in this group."""

    mode: AutoFailover


@frozen(kw_only=True)
class ScheduleRequest:
    """Request for a switchover at a wall clock time; None: cancel it."""

    at_ms: int | None
    candidate: str = ""
    reason: str = ""


NOT_ALLOWED = "is no member of this group, and haAllowedSlaves does not name it"
VERSION = 1  # Of the object under `twinlog`.


def encode(value: object) -> bytes:
    """The body of a message."""
    return orjson.dumps(to_plain(value))


def epoch_list(entries: Sequence[EpochEntry], max_offset: int) -> list[dict[str, int]]:
    """RocketMQ's list of epochs: the last one ends where the log does."""
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
    """Parse the answer to 1007; None: it is not a twinlog member's. Raises ValueError."""
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
