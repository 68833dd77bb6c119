"""What must hold where members elect by themselves. Who heard whom is what arrived, and not what members say of it.

E1  nobody begins while a serving master is heard, and nobody votes who has heard it all the time
E2  whoever could be elected is, in the end, without a person
E3  what failed is not tried again at once, and a group that flaps holds off
E4  where the own vote alone elects, nobody begins whom nobody answers, or while a witness hears the master
E5  nobody begins while its record says that a person decides, or is paused; nor by the vote of one whose record says so
E6  nothing is given up but what is configured, and known, where the master alone had to hold it
E7  the best candidate begins first
"""

from collections import deque
from typing import TYPE_CHECKING

import trio
from attrs import define, field, frozen

from tests.simulation.ledger import Violation
from tests.simulation.name_server import IP
from twinlog.ha.election.election import AUTOMATIC
from twinlog.ha.election.group_record import needed
from twinlog.store.epoch_file import EpochEntry

if TYPE_CHECKING:
    from tests.simulation.role_ledger import RoleMessage
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember
    from twinlog.cluster.broker.peers.role_messages import ChangeRequest
    from twinlog.cluster.broker.roles.change import RoleChange
    from twinlog.ha.election.voter import LeaseReply, LeaseRequest
    from twinlog.store.role_file import GroupRecord

HEARD = 4.4  # Seconds: haLeaseMs and a round of leases fit in, autoFailoverAfterMs does not.
ASKED = 5.0  # What others answered is not older.
RANKED = 1.1  # Who is not the first begins no sooner after it heard its master last: its process may be found to be gone at once.
WINDOW = 600.0
CLEAR = 5.0


@frozen
class Contact:
    """A member heard a serving master; `still`: how long it had stood still by then."""

    at: float
    of: str
    still: float


@define(eq=False)
class Run:
    """An automatic failover of one life of a member."""

    at: float
    starts: int
    serving: dict[str, float]  # Who served then, and since when.
    ended_at: float | None = None
    error: str = ""


@define(eq=False)
class ElectionBook:
    """All that a check needs to know of what was before."""

    world: "RoleWorld"
    runs: dict[str, list[Run]] = field(factory=dict)
    won: list[tuple[float, EpochEntry]] = field(factory=list)
    _contacts: dict[str, deque[Contact]] = field(factory=dict)
    _denied_at: dict[str, float] = field(factory=dict)  # When a master said that it does not serve.
    _no_members_since: dict[str, float] = field(factory=dict)  # Since when a record on a disk says that nobody elects.
    _names_away_since: float | None = None

    # What members hear

    def leased(self, member: "RoleMember", ask: "LeaseRequest", answer: "LeaseReply") -> None:
        """A master asked for its lease."""
        if not ask.serves:
            self._denied_at[member.name] = trio.current_time()
        elif answer.accepted:
            asker = next((each for each in self.world.role_members if each.broker_address == ask.address), None)
            if asker is not None:
                contact = Contact(trio.current_time(), asker.name, member.stood_still)
                self._contacts.setdefault(member.name, deque(maxlen=30)).append(contact)

    def _last(self, member: "RoleMember") -> Contact | None:
        known = self._contacts.get(member.name)
        last = known[-1] if known else None
        for stream, of in member.streams:
            if stream.read_at > (last.at if last is not None else 0.0):
                last = Contact(stream.read_at, of, member.stood_still)
        return last

    def look(self) -> None:
        """Every half second."""
        now = trio.current_time()
        for member in self.world.role_members:
            group = _group(member)
            if group is None or group.auto_failover in AUTOMATIC:
                self._no_members_since.pop(member.name, None)
            else:
                self._no_members_since.setdefault(member.name, now)
        is_up = self.world.name_server.up
        self._names_away_since = None if is_up else self._names_away_since or now

    # When one begins

    def begins(self, member: "RoleMember", ask: "ChangeRequest") -> None:
        """Raises Violation."""
        now, group = trio.current_time(), _group(member)
        masters = [
            each for each in self.world.role_members if each.up and each.writable and not _is_stuck(each, member)
        ]
        serving = {each.name: each.serves_since for each in masters}
        before = [run for run in self.runs.get(member.name, []) if run.starts == member.starts]
        self.runs.setdefault(member.name, []).append(Run(now, member.starts, serving))
        self.world.trace(f"{member.name} begins by itself: {ask.verb}")
        if group is None or group.auto_failover not in AUTOMATIC:
            raise Violation(f"E5: {member.name} elects, and its record says {group and group.auto_failover}")
        if paused := member.service.member.paused():
            raise Violation(f"E5: {member.name} elects, and {paused}")
        self._not_too_often(member, before, now)
        if ask.verb == "restart":  # A master for itself: nothing else changes.
            return
        last = self._last(member)
        if last is not None:
            self._not_heard(member, last, serving)
            self._not_before_a_better_one(member, group, last, before)
        if self.world.in_etcd.record is not None:
            self.world.in_etcd.begins(member, serving)
        elif needed(group) <= 1 and not group.is_in_etcd:
            self._not_alone(member, serving, now)

    def _not_heard(self, member: "RoleMember", last: Contact, serving: dict[str, float]) -> None:
        listened = trio.current_time() - last.at - (member.stood_still - last.still)
        if serving.get(last.of, 1e9) <= last.at and listened < HEARD:
            raise Violation(f"E1: {member.name} elects, and heard {last.of}, which serves, {listened:.1f} s ago")

    def _not_too_often(self, member: "RoleMember", before: list[Run], now: float) -> None:
        failed = 0
        for run in reversed(before):
            if not run.error:
                break
            failed += 1
        last, state = self._last(member), member.durable_role()
        ended = before[-1].ended_at if before else None
        is_same = state is not None and state.promised.winner == member.identity
        if failed and ended is not None and is_same and (last is None or last.at < before[-1].at):
            least = min(2.0 ** (failed - 1), 30.0) if failed < 9 else 30.0
            if now < ended + 0.95 * least:
                raise Violation(f"E3: {member.name} tries again {now - ended:.2f} s after its attempt {failed} failed")
        if any(event.kind == "clock" for event in self.world.plan.events):
            return  # Elections before a start are dated by it.
        ids = {entry.id for entry in member.durable_epochs()}
        seen = [at for at, entry in self.won if entry.id in ids and entry.kind != "restart" and now < at + WINDOW - 1]
        if len(seen) >= 3 and now < (until := seen[-1] + min(5.0 * 2 ** (len(seen) - 3), 120.0) - 0.3):
            raise Violation(f"E3: {member.name} elects {until - now:.1f} s too soon: there were {len(seen)} elections")

    def _not_alone(self, member: "RoleMember", serving: dict[str, float], now: float) -> None:
        asked = member.service.elector.asked
        others = set(asked.answers) - {member.identity} if asked is not None else set()
        if others:
            return
        network, names = self.world.network, self.world.name_server
        links = (network.link(member.ip, IP), network.link(IP, member.ip))
        is_cut = any(link.cut and link.changed_at < now - CLEAR for link in links)
        are_away = not names.up and self._names_away_since is not None and self._names_away_since < now - CLEAR
        if is_cut or are_away:
            raise Violation(f"E4: {member.name} elects, and nobody answers it, not even a witness")
        for name, since in serving.items():
            other = self.world.member(name)
            is_heard = network.clear_since(other.ip, IP) < now - CLEAR and other.held is None
            is_known = name in names.known and getattr(names, "ids", {}).get(name) == 0
            if other is not member and since < now - CLEAR and is_heard and is_known and names.up:
                raise Violation(f"E4: {member.name} elects, and the name server hears {name}")

    def _not_before_a_better_one(
        self, member: "RoleMember", group: "GroupRecord", last: Contact, before: list[Run]
    ) -> None:
        now = trio.current_time()
        denied = self._denied_at.get(member.name, -1.0) > now - 10
        if now >= last.at + RANKED or denied or (before and before[-1].error):
            return
        ids = {each.id: -each.broker_id for each in group.members}
        old = {entry.old for at, entry in self.won if now < at + WINDOW}
        in_etcd = self.world.in_etcd.record
        electors = in_etcd.electors if in_etcd is not None else group.voters
        for other in self.world.role_members:
            state = other.durable_role()
            is_able = (
                other is not member and other.name != last.of and other.up and other.held is None
                and other.changed_at < now - CLEAR and self.world.network.clear_since(member.ip, other.ip) < now - CLEAR
                and state is not None and state.whole and state.group is not None
                and {other.identity, member.identity} <= group.voters & electors and other.identity not in old
                and other.stands_since < now - 2 * CLEAR
            )  # fmt: skip
            if is_able and (other.key[1:], ids[other.identity]) > (member.key[1:], ids[member.identity]):
                raise Violation(
                    f"E7: {member.name} elects {now - last.at:.2f} s after it heard its master: before {other.name}"
                )

    def ended(self, member: "RoleMember", change: "RoleChange") -> None:
        """It failed, or did not."""
        run = self.runs[member.name][-1]
        run.ended_at, run.error = trio.current_time(), change.error
        self.world.trace(f"{member.name} elected: {change.error[:120] or 'won'}")

    # When one has won

    def began(self, member: "RoleMember", entry: EpochEntry, lost: "list[RoleMessage]") -> None:
        """An epoch begins. Raises Violation."""
        if entry.decided_by != "group":
            return
        self.won.append((trio.current_time(), entry))
        group, config = _group(member), member.config
        if entry.kind == "forced" or lost:
            size = sum(each.end - each.phy_offset for each in lost)
            may = group is not None and group.acks_needed <= 1 and entry.lost_bytes is not None
            if not may or max(size, entry.lost_bytes or 0) > config.max_loss:
                raise Violation(f"E6: {member.name} gave up {entry.lost_bytes} bytes, {size} of them acknowledged")
        run, change = self.runs.get(member.name, [None])[-1], member.service._change
        if run is None or run.starts != member.starts or change is None or entry.kind == "restart":
            return
        for each in change.survey.answers.values():
            voter = next((one for one in self.world.role_members if one.identity == each.member), None)
            if each.granted and voter is not None and voter is not member:
                self._did_not_hear(member, voter, run)

    def _did_not_hear(self, member: "RoleMember", voter: "RoleMember", run: Run) -> None:
        if run.serving.get(voter.name, 1e9) < run.at - ASKED:
            raise Violation(f"E1: {member.name} was elected by {voter.name}, which served")
        # Else etcd's word counts, and voters may not have heard of it yet.
        is_by_members = self.world.in_etcd.record is None
        if is_by_members and self._no_members_since.get(voter.name, 1e9) < run.at - ASKED - 1:
            raise Violation(f"E5: {member.name} was elected by {voter.name}, whose record says that nobody elects")
        if voter.stands_since > run.at - 2 * ASKED:
            return
        known = self._contacts.get(voter.name, ())
        times = [each.at for each in known if run.at - ASKED - HEARD <= each.at <= run.at]
        masters = {each.of for each in known if each.at in times}
        if len(masters) != 1 or run.serving.get(*masters, 1e9) > times[0] or times[0] > run.at - ASKED:  # type: ignore[call-overload]
            return
        if max(after - at for at, after in zip(times, [*times[1:], run.at], strict=True)) < HEARD:
            raise Violation(f"E1: {member.name} was elected by {voter.name}, which heard {masters} all the time")


def _is_stuck(master: "RoleMember", member: "RoleMember") -> bool:
    """True if the member promised the master's number to another winner, and has more: only a newer number can unite them."""
    state, own = member.durable_role(), master.durable_epochs()[-1].id
    is_rival = state is not None and state.promised.epoch == own.epoch and state.promised != own
    return is_rival and member.key[1:] > master.key[1:]


def _group(member: "RoleMember") -> "GroupRecord | None":
    state = member.durable_role()
    return state.group if state is not None else None
