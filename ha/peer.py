"""Protocols of another member, asked on its remoting port, and of this member's own role.

`cluster/broker/peers/ha_peer.py` asks over remoting, tests bring small ones. A peer may be a twinlog member, which compares by
digest, or a RocketMQ broker, which answers requests 28 and 33 only.
"""

from collections.abc import Sequence
from typing import Protocol

from attrs import Factory, field, frozen

from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.integrity.digest import RangeDigests
from twinlog.store.role_file import GroupMember, GroupRecord


@frozen(kw_only=True)
class PeerLog:
    """A member's report of its log. Offsets and sizes in bytes; the log holds `min_offset` up to `max_offset`."""

    is_twinlog: bool
    min_offset: int
    max_offset: int
    boot_ms: int = 0  # Wall clock of its start: another one means that it was restarted. 0: not reported.
    file_size: int | None = None  # None: not reported.
    is_master: bool | None = None  # None: not reported.


@frozen(kw_only=True)
class PeerHistory:
    """A twinlog member's report of its log's history and of its role. `id`: the epoch that its log ends in; `member`: its id."""

    id: EpochId
    entries: tuple[EpochEntry, ...]
    promised: EpochId
    role: BrokerRole  # A master's only if it serves as one.
    group: GroupRecord | None
    min_offset: int
    max_offset: int
    boot_ms: int
    address: str  # HOST:PORT of its remoting server.
    ha_address: str
    whole: bool = True
    member: str = field(default=Factory(lambda self: self.address, takes_self=True))
    codes: tuple[str, ...] = ()  # Its register codes.
    member_address: str = ""  # See GroupMember.
    only_tls: bool = False  # Its HA port takes no plaintext connections.
    ticket: int | None = None  # Tells its HA port who asked; see ha/master/tickets.py.


class Peer(Protocol):
    """Another member. Every call raises HAPeerError when it gives no answer that can be used."""

    async def log(self) -> PeerLog:
        """Its log, as it is now."""

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests | None:
        """Digests of its bytes `start` to `end`, which must lie in its log; None: it is no twinlog member and has none."""

    async def record(self, phy_offset: int) -> bytes | None:
        """The record that begins at an offset, as it is stored; None when none does. RocketMQ's request 33."""

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        """Its log's history; `me`: who asks, to follow it. None: it is no twinlog member."""


class OwnRole(Protocol):
    """This member's own role and history; every answer is current. `cluster/broker/roles` implements it."""

    def epochs(self) -> Sequence[EpochEntry]:
        """The history of its log."""

    def promised(self) -> EpochId:
        """The promised epoch: masters of older ones are neither served nor followed."""

    @property
    def group(self) -> GroupRecord | None:
        """Its group's record; None without one."""

    def me(self) -> GroupMember | None:
        """Itself, as a member of its group."""

    @property
    def clock_ahead_ms(self) -> int:
        """Milliseconds by which its clock is ahead of the master's, by which a pause ends."""

    async def adopt(self, master: PeerHistory) -> None:
        """Save a master's history as its own, before anything is acknowledged to it. Raises HAError: not now."""

    async def suspect_tail(self, why: str) -> None:
        """Save, before it happens, that acknowledged bytes may be about to go."""


class NoRole:
    """A member of a group without a record."""

    group: GroupRecord | None = None
    clock_ahead_ms = 0

    def epochs(self) -> Sequence[EpochEntry]:
        """Only the first epoch."""
        return (FIRST,)

    def promised(self) -> EpochId:
        """Nothing."""
        return FIRST.id

    def me(self) -> GroupMember | None:
        """Unknown."""
        return None

    async def adopt(self, master: PeerHistory) -> None:
        """Nothing is saved."""

    async def suspect_tail(self, why: str) -> None:
        """Nothing is saved."""


NO_ROLE: OwnRole = NoRole()
