"""Durable role state of a member: its role, promised epoch and group. ROOT/twinlog/role.

    twinlog-role 1 CRC32HEX
    {"role": "SLAVE", "brokerId": 1, "promised": {"epoch": 4, "winner": "10.0.0.2:10911"}, "group": {...}, ...}

Created when a twinlog master first sees a slave that votes; without it broker.conf decides. A promised epoch counts once it
is here, durably: from then on the member serves no older one.
"""

from pathlib import Path

from attrs import frozen

from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.util.checked_file import decode_checked, encode_checked, load_checked, save_checked, unreadable
from twinlog.store.util.plain import from_plain, to_plain

NAME, VERSION = "role", 1


@frozen(kw_only=True)
class GroupMember:
    """A process of one brokerName. Its address is its identity: with another one it is a new member."""

    address: str  # HOST:PORT of its remoting server.
    ha_address: str
    broker_id: int
    name: str
    votes: bool = True  # False: a RocketMQ slave, which acknowledges and cannot promise.


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

    def member(self, address: str) -> GroupMember | None:
        """The member with this address."""
        return next((member for member in self.members if member.address == address), None)

    @property
    def voters(self) -> frozenset[str]:
        """Addresses of the members that vote."""
        return frozenset(member.address for member in self.members if member.votes)


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
    whole: bool = (
        True  # False: it may lack bytes that it once acknowledged, until it has caught up with its master again.
    )
    clean: bool = False  # The last stop was one, not a crash.
    boot_id: str = ""  # Of the machine, at the last save.
    change: Change | None = None
    scheduled: Scheduled | None = None
    before: GroupRecord | None = (
        None  # The record that `group` takes the place of, until enough voters have the new one.
    )
    told_confirmed: int = 0  # Consumers were shown everything below; kept at a clean stop and with each save.
    address: str = (
        ""  # Of this member. In a copy of the directory, used to start another member, the file does not count.
    )


def encode_role(state: RoleState) -> bytes:
    """The reverse of decode_role."""
    return encode_checked(NAME, VERSION, to_plain(state))


def decode_role(raw: bytes) -> RoleState:
    """The state in a file. Raises ValueError when it is damaged."""
    return from_plain(RoleState, decode_checked(NAME, VERSION, raw))


def load_role(side: Path, address: str = "") -> RoleState | None:
    """The saved state; None without a file, or when it is of another member than that at `address`.

    The address is not compared when its port is chosen at each start (0). Raises StoreDirectoryError.
    """
    raw = load_checked(side / NAME)
    try:
        state = None if raw is None else decode_role(raw)
    except ValueError as error:
        raise unreadable(side / NAME, error) from error
    is_known = bool(address) and not address.endswith(":0")
    return None if state is not None and is_known and state.address not in ("", address) else state


def save_role(side: Path, state: RoleState) -> None:
    """Replace the file, durably. May block: run it in a thread. Raises OSError: the member is fenced then."""
    save_checked(side / NAME, encode_role(state))
