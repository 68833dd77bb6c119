"""Plan of a role change: its steps, and the next one. No I/O.

Each step is done or not by the state of disks and memory: a change that is started again after a crash, here or elsewhere,
continues where it stopped. A dry run shows the same list that is run. Its order makes it safe: votes, the winner's own entry, its
role, memory, the other members, the name servers; each durable before the next begins.
"""

from collections.abc import Mapping
from typing import Literal

from attrs import frozen

from twinlog.ha.election.epochs import key_of, last_of
from twinlog.ha.election.voter import VoteReply
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.role_file import RoleState

Verb = Literal["switchover", "failover", "restart"]
StepName = Literal["check", "hold", "level", "promise", "take", "serve", "register", "report"]

_ORDERS: dict[Verb, tuple[StepName, ...]] = {
    "switchover": ("check", "hold", "level", "promise", "take", "serve", "register", "report"),
    "failover": ("check", "promise", "level", "take", "serve", "register", "report"),
    "restart": ("check", "promise", "level", "take", "serve", "register", "report"),
}


@frozen
class Step:
    """One step; `where`: the member that carries it out, as plan() names it."""

    number: int
    name: StepName
    text: str
    where: str


@frozen(kw_only=True)
class ChangeSnapshot:
    """Progress of a change. `epoch` 0: nothing was checked yet. `elected`: the votes suffice, or the loss was accepted."""

    verb: Verb
    own: str  # Its id, like those below.
    old_master: str
    members: tuple[str, ...]
    epoch: int
    state: RoleState
    entries: tuple[EpochEntry, ...]
    max_offset: int
    dispatched_offset: int
    held_end: int | None = None
    caught_up: bool = False  # With the master in its write pause: bytes, and tables, saved.
    answers: Mapping[str, VoteReply]
    elected: bool = False
    serving: bool = False
    registered: bool = False
    following: frozenset[str] = frozenset()
    reported: bool = False

    @property
    def id(self) -> EpochId:
        """The name of the epoch that begins."""
        return EpochId(self.epoch, self.own)

    @property
    def last(self) -> EpochEntry:
        """The epoch that the own log ends in."""
        return last_of(self.entries, self.max_offset)

    @property
    def has_entry(self) -> bool:
        """True if the epoch has begun, durably."""
        return self.entries[-1].id == self.id

    @property
    def has_role(self) -> bool:
        """True if this member is its master, durably."""
        return self.has_entry and self.state.role is not BrokerRole.SLAVE and self.state.promised == self.id


def plan(verb: Verb, own: str, old_master: str, members: tuple[str, ...]) -> tuple[Step, ...]:
    """All steps of a change that makes `own` master. Members are named as they shall be in texts."""
    others = ", ".join(address for address in members if address != own) or "nobody"
    texts: dict[StepName, tuple[str, str]] = {
        "check": (own, f"ask {others} for their logs and promised epochs; nothing changes"),
        "hold": (old_master, f"{old_master} pauses writes, and stops the tasks of a master"),
        "level": (
            own,
            f"catch up with {old_master}, byte for byte, and take its tables"
            if verb == "switchover"
            else "fill all queues from the log",
        ),
        "promise": (own, f"collect votes, durably: {old_master if verb == 'switchover' else own} first"),
        "take": (own, "begin the epoch at the end of the log, and become its master, durably"),
        "serve": (own, f"serve; {others} follow"),
        "register": (own, "register as master at the name servers"),
        "report": (own, "report who follows, and the length of the write pause"),
    }
    return tuple(Step(number, name, texts[name][1], texts[name][0]) for number, name in enumerate(_ORDERS[verb], 1))


def next_step(now: ChangeSnapshot) -> Step | None:
    """The first step that is not done; None at the end."""
    steps = plan(now.verb, now.own, now.old_master, now.members)
    promised = now.has_entry or (now.epoch > 0 and now.state.promised == now.id and now.elected)
    is_filled = now.dispatched_offset >= now.max_offset
    done: dict[StepName, bool] = {
        "check": now.epoch > 0,
        "hold": promised or now.held_end is not None,
        "level": now.has_entry or (is_filled and (now.verb != "switchover" or promised or now.caught_up)),
        "promise": promised,
        "take": now.has_role,
        "serve": now.serving,
        "register": now.registered,
        "report": now.reported,
    }
    return next((step for step in steps if not done[step.name]), None)


def next_epoch(state: RoleState, entries: tuple[EpochEntry, ...], answers: Mapping[str, VoteReply], own: str) -> int:
    """The epoch number to ask votes for: above all promised ones. An own epoch that has begun, and in which nothing was written
    yet, is continued, unless the log has lost its start.
    """
    known = [state.promised.epoch, *(answer.promised.epoch for answer in answers.values())]
    known += [entries[-1].epoch, *(answer.entries[-1].epoch for answer in answers.values())]
    begun = entries[-1].id == state.promised and state.promised.winner == own and state.role is BrokerRole.SLAVE
    if own in answers:
        begun = begun and entries[-1].start_offset == answers[own].max_offset
    return state.promised.epoch if begun and max(known) == state.promised.epoch else max(known) + 1


def check_invariants(now: ChangeSnapshot) -> None:
    """Assert the order of steps and the choice of the winner, after every step."""
    assert now.entries[-1].epoch <= now.state.promised.epoch, "an entry without its vote"
    if now.state.role is not BrokerRole.SLAVE:
        assert now.entries[-1].id == now.state.promised, "a master's role without its own entry"
    if now.has_entry:
        start = now.entries[-1].start_offset
        assert now.state.promised.epoch >= now.epoch, "an entry before its vote"
        assert start <= now.max_offset, "an epoch begins behind the log's end"
        if now.entries[-1].kind not in ("forced", "switchover"):
            key = key_of(now.entries[:-1] or now.entries, start)
            assert all(answer.key <= key for answer in _whole_votes(now)), "a voter holds more"
    assert now.has_role or not now.serving, "serves without its role"
    assert now.serving or not now.registered, "registered without serving"


def _whole_votes(now: ChangeSnapshot) -> list[VoteReply]:
    """Votes of members that lost nothing. One that follows already has the new entry itself."""
    return [
        answer
        for answer in now.answers.values()
        if answer.granted and answer.whole and answer.promised == now.id and answer.entries[-1].id != now.id
    ]
