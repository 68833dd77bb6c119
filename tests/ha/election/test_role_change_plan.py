"""The steps of a role change: cut after each thing that is durable, and begun again, it comes to the same end."""

import pytest
from attrs import define, evolve, field

from tests.ha.voters import named
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.group_record import with_ids_swapped
from twinlog.ha.election.role_change import (
    ChangeSnapshot,
    StepName,
    Verb,
    check_invariants,
    next_epoch,
    next_step,
    plan,
)
from twinlog.ha.election.voter import VoteReply, VoteRequest, decide_vote
from twinlog.ha.election.votes import may_take
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

MEMBERS = tuple(GroupMember(address=name, ha_address=name, broker_id=n, name=name) for n, name in enumerate("abc"))
GROUP = GroupRecord(version=1, members=MEMBERS, acks_needed=2, master_role=BrokerRole.SYNC_MASTER)
OWN = EpochEntry(epoch=1, winner="a", start_offset=0)
END = 90
VERBS: tuple[Verb, ...] = ("switchover", "failover", "restart")


class CutError(Exception):
    """The candidate dies here."""


@define
class Disk:
    """What a member has durably, and is cut before or after the change of a number."""

    state: RoleState
    entries: tuple[EpochEntry, ...] = (FIRST, OWN)

    @classmethod
    def of(cls, address: str) -> "Disk":
        role = BrokerRole.SYNC_MASTER if address == "a" else BrokerRole.SLAVE
        return cls(RoleState(role=role, broker_id="abc".index(address), promised=OWN.id, group=GROUP))


@define
class Candidate:
    """Carries a change out as a shell does; what a crash takes begins anew with each run."""

    verb: Verb
    own: str
    disks: dict[str, Disk]
    cut_at: int
    saves: int = 0
    epoch: int = 0
    answers: dict[str, VoteReply] = field(factory=dict)
    flags: dict[str, bool] = field(factory=dict)
    held_end: int | None = None
    seen: list[StepName] = field(factory=list)

    def save(self, address: str, **changes: object) -> None:
        if self.saves == self.cut_at:
            raise CutError
        self.saves += 1
        for name, value in changes.items():
            setattr(self.disks[address], name, value)

    @property
    def snapshot(self) -> ChangeSnapshot:
        disk = self.disks[self.own]
        return ChangeSnapshot(
            verb=self.verb,
            own=self.own,
            old_master="a",
            members=("a", "b", "c"),
            epoch=self.epoch,
            state=disk.state,
            entries=disk.entries,
            max_offset=END,
            dispatched_offset=END,
            held_end=self.held_end,
            answers=self.answers,
            caught_up=self.flags.get("level", False),
            **{name: self.flags.get(name, False) for name in ("elected", "serving", "registered", "reported")},
        )

    def run(self) -> None:
        while (step := next_step(self.snapshot)) is not None:
            self.seen.append(step.name)
            getattr(self, step.name)()
            check_invariants(self.snapshot)

    def ask(self, address: str, *, dry_run: bool = False, expects_end: int | None = None) -> VoteReply:
        disk = self.disks[address]
        asked = VoteRequest(epoch=self.epoch or 1 << 30, candidate=self.own, dry_run=dry_run, expects_end=expects_end)
        state, answer = decide_vote(disk.state, disk.entries, 0, END, self.held_end, asked, named(address))
        if state is not None:
            self.save(address, state=state)
        return answer

    def check(self) -> None:
        disk = self.disks[self.own]
        answers = {address: self.ask(address, dry_run=True) for address in self.disks}
        self.epoch = next_epoch(disk.state, disk.entries, answers, self.own)

    def hold(self) -> None:
        self.held_end = END

    def level(self) -> None:
        self.flags["level"] = True

    def promise(self) -> None:
        first = "a" if self.verb == "switchover" else self.own
        is_master = self.disks["a"].state.role is not BrokerRole.SLAVE
        expects = END if self.verb == "switchover" and is_master else None
        self.answers = {first: self.ask(first, expects_end=expects)}
        self.answers |= {address: self.ask(address) for address in sorted(self.disks, key=lambda a: a != self.own)}
        assert may_take(GROUP, self.own, self.answers, None).may
        self.flags["elected"] = True

    def take(self) -> None:
        disk = self.disks[self.own]
        assert disk.state.promised == (self.epoch, self.own)
        if disk.entries[-1].id != disk.state.promised:
            entry = EpochEntry(epoch=self.epoch, winner=self.own, start_offset=END, kind="failover")
            self.save(self.own, entries=with_entry(disk.entries, entry))
            check_invariants(self.snapshot)
        record = with_ids_swapped(GROUP, self.own, self.epoch)
        self.save(self.own, state=evolve(disk.state, role=BrokerRole.SYNC_MASTER, broker_id=0, group=record))

    def serve(self) -> None:
        self.flags["serving"] = True

    def register(self) -> None:
        self.flags["registered"] = True

    def report(self) -> None:
        self.flags["reported"] = True


def run(verb: Verb, own: str, disks: dict[str, Disk], cut_at: int = 1 << 30) -> Candidate:
    candidate = Candidate(verb, own, disks, cut_at)
    candidate.run()
    return candidate


def ends_well(disks: dict[str, Disk], own: str) -> None:
    disk = disks[own]
    assert disk.entries[:2] == (FIRST, OWN)
    assert len(disk.entries) == 3
    assert disk.entries[-1].id == disk.state.promised
    assert (disk.entries[-1].start_offset, disk.state.role, disk.state.broker_id) == (END, BrokerRole.SYNC_MASTER, 0)
    assert {disks[other].state.promised for other in disks} == {disk.state.promised}
    masters = [address for address in disks if disks[address].state.role is not BrokerRole.SLAVE]
    assert masters == [own]


@pytest.mark.parametrize("verb", VERBS)
def test_the_steps_run_in_the_order_of_the_plan(verb):
    disks = {address: Disk.of(address) for address in "abc"}
    candidate = run(verb, "b", disks)
    steps = plan(verb, "b", "a", ("a", "b", "c"))
    done_before = {"level"} if verb != "switchover" else set()  # All queues are filled already.
    assert candidate.seen == [step.name for step in steps if step.name not in done_before]
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.text and step.where for step in steps)
    ends_well(disks, "b")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("again", ["b", "a", "c"])
@pytest.mark.parametrize("cut_at", range(5))
def test_cut_anywhere_and_begun_again_it_ends_the_same(verb, again, cut_at):
    """By the same candidate, by the old master, or by another."""
    disks = {address: Disk.of(address) for address in "abc"}
    with pytest.raises(CutError):
        run(verb, "b", disks, cut_at)
    begun = len(disks["b"].entries) == 3
    if again != "b" and begun:
        return  # The candidate has the greatest key then: nobody else may take over, see below.
    run("failover" if again != "b" else verb, again, disks)
    ends_well(disks, again)


def test_an_epoch_that_has_begun_is_gone_on_with():
    """Its entry is there, its role is not: the promises are still good, and are not asked for again."""
    disks = {address: Disk.of(address) for address in "abc"}
    with pytest.raises(CutError):
        run("failover", "b", disks, 4)
    assert disks["b"].entries[-1].id == EpochId(2, "b")
    answers = {
        address: decide_vote(
            disk.state, disk.entries, 0, END, None, VoteRequest(epoch=9, candidate="c", dry_run=True), named(address)
        )[1]
        for address, disk in disks.items()
    }
    assert not may_take(GROUP, "c", answers, None).may
    candidate = run("failover", "b", disks)
    assert "promise" not in candidate.seen
    assert disks["b"].entries[-1].id == EpochId(2, "b")


def snapshot(**changes: object) -> ChangeSnapshot:
    candidate = Candidate("failover", "b", {address: Disk.of(address) for address in "abc"}, 1 << 30)
    candidate.run()
    return evolve(candidate.snapshot, **changes)


def test_an_epoch_that_begins_behind_the_logs_end_is_not_gone_on_with():
    """The log lost the place: another number, and another entry."""
    now = snapshot()
    state = evolve(now.state, role=BrokerRole.SLAVE)
    assert next_epoch(state, now.entries, {}, "b") == 2
    short = evolve(now.answers["b"], max_offset=END - 1)
    assert next_epoch(state, now.entries, {"b": short}, "b") == 3


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"entries": (FIRST, OWN)}, "a master's role without its own entry"),
        ({"max_offset": END - 1}, "begins behind the log's end"),
        ({"state": evolve(Disk.of("b").state, promised=EpochId(1, "a"))}, "an entry without its vote"),
        ({"state": evolve(Disk.of("b").state, promised=EpochId(2, "b"))}, "serves without its role"),
        ({"serving": False}, "registered without serving"),
    ],
)
def test_what_must_never_be_is_found(what, why):
    check_invariants(snapshot())
    with pytest.raises(AssertionError, match=why):
        check_invariants(snapshot(**what))


def test_a_promiser_that_holds_more_is_found():
    now = snapshot()
    more = evolve(now.answers["c"], max_offset=END + 1)
    with pytest.raises(AssertionError, match="a voter holds more"):
        check_invariants(evolve(now, answers={**now.answers, "c": more}))
    check_invariants(evolve(now, answers={**now.answers, "c": evolve(more, whole=False)}))
