"""Elections of a group: who begins one, who would win, and what became of earlier ones. Frozen values; made by failover.py."""

from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

What = Literal["suspected", "heard", "begun", "won", "given up"]


@frozen(kw_only=True)
class MemberElections:
    """One member's part. Counts are since its start."""

    member: str
    mode: str = field(metadata={"doc": "off, members or etcd, as this member's record says"})
    suspects: bool = field(metadata={"doc": "it takes its master for dead"})
    why: str | None = field(metadata={"doc": "what it waits for, while it suspects its master"})
    tried: int = field(metadata={"doc": "elections that it began"})
    won: int
    given_up: int
    why_given_up: str | None = field(metadata={"doc": "the last one"})


@frozen(kw_only=True)
class Successor:
    """Standing of a member as the next master. `rank` 0: it would be next; null: `against` says why not."""

    member: str
    rank: int | None
    against: str


@frozen(kw_only=True)
class GroupFailover:
    """A group with a record: who begins a failover there, and whether one could succeed."""

    group: str
    mode: str = field(metadata={"doc": "off: a person begins a failover; members, etcd: they elect by themselves"})
    successors: tuple[Successor, ...] = field(metadata={"doc": "the next master first; empty: nobody can tell"})
    nobody: str | None = field(
        metadata={"doc": "why nobody could be elected now; null: somebody could, or it is not known"}
    )
    holds_off: bool = field(metadata={"doc": "there were many elections, and the next one waits"})
    members: tuple[MemberElections, ...]

    @property
    def next(self) -> str | None:
        """The member that would be elected."""
        return next((each.member for each in self.successors if each.rank == 0), None) if self.nobody is None else None

    @property
    def suspected_by(self) -> tuple[str, ...]:
        """Members that take their master for dead."""
        return tuple(each.member for each in self.members if each.suspects)

    @property
    def disagreeing(self) -> Mapping[str, str]:
        """Modes by member, where they are not the same; else empty."""
        modes = {each.member: each.mode for each in self.members}
        return modes if len(set(modes.values())) > 1 else {}


@frozen
class ElectionNews:
    """Something that happened: a member suspects or hears its master, or an election began, was won or given up."""

    group: str
    member: str
    what: What
    why: str | None
