"""What replication asks another member on its remoting port, as a Protocol.

`cluster/broker/peers/ha_peer.py` asks over remoting, tests bring small ones. A peer may be a twinlog member, which compares by
digest, or a RocketMQ broker, which answers requests 28 and 33 only.
"""

from typing import Protocol

from attrs import frozen

from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.integrity.range_digests import RangeDigests
from twinlog.store.role_file import GroupMember, GroupRecord

__all__ = ["Peer", "PeerHistory", "PeerLog", "RangeDigests"]


@frozen(kw_only=True)
class PeerLog:
    """What a member says of its log. Offsets and sizes in bytes; the log holds `min_offset` up to `max_offset`."""

    is_twinlog: bool
    min_offset: int
    max_offset: int
    boot_ms: int = 0  # Wall clock of its start: another one means that it was restarted. 0: not told.
    file_size: int | None = None  # None: not told.
    is_master: bool | None = None  # None: not told.


@frozen(kw_only=True)
class PeerHistory:
    """What a twinlog member says of its log's history and of its role. `id`: the epoch that its log ends in."""

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


class Peer(Protocol):
    """Another member. Every call raises HAPeerError when it gives no answer that can be used."""

    async def log(self) -> PeerLog:
        """What it holds now."""

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests | None:
        """Digests of its bytes `start` to `end`, which must lie in its log; None: it is no twinlog member and has none."""

    async def record(self, phy_offset: int) -> bytes | None:
        """The record that begins at an offset, as it is stored; None when none does. RocketMQ's request 33."""

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        """Its log's history; `me`: who asks, to follow it. None: it is no twinlog member."""
