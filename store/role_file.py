"""Durable role state of a member: its role, promised epoch and group. ROOT/twinlog/role.

    twinlog-role 2 CRC32HEX
    {"role": "SLAVE", "brokerId": 1, "promised": {"epoch": 4, "winner": "m3f9a0c1b2d4e"}, "group": {...}, ...}

Created when a twinlog master first sees a slave that votes; without it broker.conf decides. A promised epoch counts once it
is here, durably: from then on the member serves no older one.

Version 1, of twinlog 0.2 and older, names members by their addresses. It is written as long as all members have the address by
which they are named, so that the group may go back to that version; later the older twinlog refuses the file.
"""

from pathlib import Path
from typing import Literal

from attrs import Factory, field, frozen

from twinlog.store.epoch_file import EpochId
from twinlog.store.role import BrokerRole
from twinlog.store.util.checked_file import decode_checked, encode_checked, load_checked
from twinlog.store.util.plain import from_plain, to_plain
from twinlog.store.util.sync import save_durably

NAME, VERSION, VERSION_OF_ADDRESSES = "role", 2, 1

# Who begins a failover: a person, or the members by themselves; etcd: these, and etcd keeps the group's record.
AutoFailover = Literal["off", "members", "etcd"]


@frozen(kw_only=True)
class GroupMember:
    """A store directory of one brokerName, and where its process is now."""

    address: str  # HOST:PORT of its remoting server, as it was last reported. It may change.
    ha_address: str
    broker_id: int
    name: str  # For people: the name of its directory.
    votes: bool = True  # False: a RocketMQ slave, which acknowledges and cannot promise.
    # Who it is: twinlog/member. A RocketMQ slave, and a member of twinlog 0.2 or older, is named by its address.
    id: str = field(default=Factory(lambda self: self.address, takes_self=True))
    codes: tuple[
        str, ...
    ] = ()  # Its register codes; in a record the last one that its master has seen. twinlog 0.2 has none.
    member_address: str = ""  # Of its remoting server for other members, where that is another one than for clients.

    @property
    def code(self) -> str:
        """The register code of the last start that is known."""
        return self.codes[-1] if self.codes else ""

    @property
    def label(self) -> str:
        """Name and address, for people."""
        return self.address if self.name in ("", self.address) else f"{self.name} ({self.address})"


@frozen(kw_only=True)
class Pause:
    """No role changes, no automatic cuts. `until_ms` is the master's wall clock; None: until it is taken back."""

    until_ms: int | None
    reason: str


@frozen(kw_only=True)
class GroupRecord:
    """The members and rules of a group. Only its master changes it: one change at a time, version + 1, its own epoch's number."""

    version: int
    members: tuple[GroupMember, ...]
    acks_needed: int  # Members, the master included, that must hold a message before SEND_OK.
    master_role: BrokerRole
    paused: Pause | None = None
    epoch: int = 0  # Of the master that wrote this version.
    before: "GroupRecord | None" = None  # The version that it changed, and that may be in force still; so on backwards.
    # Acknowledgements of others than these members are all below this byte. None: others count, or did.
    loss_free_from: int | None = None
    auto_failover: AutoFailover | None = None  # None: no master has set it yet.
    candidate: str = ""  # Id of who has begun `epoch` in etcd; "": its master wrote this.
    in_sync: tuple[str, ...] = ()  # Ids of those that hold all that is acknowledged. Only where etcd keeps the record.

    def member(self, id: str) -> GroupMember | None:
        """The member with this id."""
        return next((member for member in self.members if member.id == id), None)

    def find(self, text: str) -> GroupMember | None:
        """The member that a person means: by its id, address or name; None when no member, or several, have it."""
        found = [member for member in self.members if text in (member.id, member.address)]
        found = found or [member for member in self.members if text == member.name]
        return found[0] if len(found) == 1 else None

    def address_of(self, id: str) -> str:
        """The address of a member; its id, if it is none."""
        member = self.member(id)
        return member.address if member is not None else id

    def label(self, id: str) -> str:
        """Name and address of a member, for people; its id, if it is none."""
        member = self.member(id)
        return member.label if member is not None else id

    @property
    def voters(self) -> frozenset[str]:
        """Ids of the members that vote."""
        return frozenset(member.id for member in self.members if member.votes)

    @property
    def is_in_etcd(self) -> bool:
        """True if etcd keeps the record: a version is in force once it is there."""
        return self.auto_failover == "etcd"

    @property
    def electors(self) -> frozenset[str]:
        """Ids of the members whose acknowledgements and promises count: those in sync where etcd keeps the record, else all."""
        return frozenset(self.in_sync) if self.is_in_etcd else frozenset(member.id for member in self.members)

    @property
    def acks_in_force(self) -> int:
        """Number of these, the master included, that must hold a message: no more than are in sync where etcd knows who is."""
        needed = max(self.acks_needed, 1)
        return min(needed, len(self.in_sync)) if self.is_in_etcd else needed

    @property
    def names_addresses(self) -> bool:
        """True while each member is named by its present address, as twinlog 0.2 expects."""
        return all(member.id == member.address for member in self.members)


@frozen(kw_only=True)
class Change:
    """A change of roles under way here."""

    verb: str
    epoch: int
    candidate: str
    reason: str
    forced: bool
    started_ms: int
    step: str


@frozen(kw_only=True)
class Scheduled:
    """A switchover for later."""

    at_ms: int
    candidate: str
    reason: str


@frozen(kw_only=True)
class RoleState:
    """Everything about its role that a member must know after a crash."""

    role: BrokerRole  # A master's only while the last entry of its history is its promised epoch.
    broker_id: int
    promised: EpochId
    group: GroupRecord | None
    whole: bool = True  # False: it may lack bytes that it once acknowledged, until it has caught up again.
    clean: bool = False  # The last stop was one, not a crash.
    boot_id: str = ""  # Of the machine, at the last save.
    change: Change | None = None
    scheduled: Scheduled | None = None
    before: GroupRecord | None = None  # The record that `group` replaces, until enough voters have the new one.
    told_confirmed: int = 0  # Consumers were shown everything below; kept at a clean stop and with each save.
    address: str = ""  # Of this member, at the last save: twinlog 0.2 takes the file of another one for a copy's.
    member: str = ""  # Id of the member whose file this is; "": twinlog 0.2 wrote it last.


def encode_role(state: RoleState) -> bytes:
    """The reverse of decode_role."""
    records = [record for record in (state.group, state.before) if record is not None]
    is_old = all(record.names_addresses for record in records)
    return encode_checked(NAME, VERSION_OF_ADDRESSES if is_old else VERSION, to_plain(state))


def decode_role(raw: bytes) -> RoleState:
    """The state in a file. Raises ValueError when it is damaged, or of a later version."""
    version = (
        VERSION_OF_ADDRESSES if raw.startswith(b"twinlog-%s %d " % (NAME.encode(), VERSION_OF_ADDRESSES)) else VERSION
    )
    return from_plain(RoleState, decode_checked(NAME, version, raw))


def load_role(side: Path) -> RoleState | None:
    """The saved state; None without a file. Raises StoreDirectoryError."""
    return load_checked(side / NAME, decode_role)


def save_role(side: Path, state: RoleState) -> None:
    """Replace the file, durably. May block: run it in a thread. Raises OSError: the member is fenced then."""
    save_durably(side / NAME, encode_role(state))
