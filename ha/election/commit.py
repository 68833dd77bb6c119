"""Commit of a version of the group's record: who decides that it is in force. No I/O.

    members   it is in force once so many voters keep it that the version before elects nobody without it (group_record.py)
    etcd      it is in force once it is in etcd, put there in the place of the version before

The second way needs a store outside of the members that answers three things as one machine would: a read shows what was written
last, a swap writes only where nobody else has written since, and what was written stays. RecordKeeper says just that. Whatever
else happens is an outage: nobody relies on either result of a swap that was not answered. It may still happen, until another
swap has taken its place, so its proposer asks for the same again until one of both is there.
"""

from typing import Protocol

from attrs import frozen

from twinlog.ha.election.group_record import is_newer
from twinlog.ha.election.in_sync_set import floor_of
from twinlog.ha.errors import HAError
from twinlog.store.role_file import GroupRecord


class KeeperError(HAError):
    """The keeper gave no answer to rely on. This is an outage, and never means that somebody else was first."""


class KeeperSilentError(KeeperError):
    """No answer: what was asked has certainly not happened."""


class ResultUnknownError(KeeperError):
    """No answer: the swap may have happened, or may happen yet."""


class KeeperRefusedError(KeeperError):
    """The keeper, or what it holds, must not be used: its text says why, and what to do."""


@frozen(kw_only=True)
class KeptRecord:
    """The record as the keeper holds it. `revision` 0: it holds none, and never did, or lost it."""

    record: GroupRecord | None = None
    revision: int = 0
    master: str = ""  # Id of the member that said there lately that it serves; "": nobody did.


@frozen(kw_only=True)
class KeeperView:
    """The word of a member about its keeper. `cluster`: its id, by which members see that they ask the same; `why`: the reason
    why it cannot be relied on, "" where it can.
    """

    cluster: str
    why: str


class RecordKeeper(Protocol):
    """Keeps the record of one group. Each call raises KeeperError."""

    @property
    def cluster(self) -> str:
        """The keeper's id, as it was answered last; "": it has not answered yet."""

    async def read(self) -> KeptRecord:
        """Return what was written last, by anybody."""

    async def swap(self, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        """Put `record` in the place of `before`, and return what is held then: another record where that was first."""

    async def announce(self, master: str, seconds: float) -> None:
        """Tell for so many seconds that this member serves as the master. Nothing safe depends on it."""

    async def aclose(self) -> None:
        """Close its connections; raises nothing."""


def why_refused(kept: KeptRecord, own: GroupRecord | None) -> str:
    """Reason why a member must not use what the keeper holds, by what the member has durably; "" when it may."""
    if own is None or not own.is_in_etcd:
        return ""
    floor = floor_of(own)
    if not floor.is_in_etcd:  # It was handed to etcd, and that is not known to be in force.
        return ""
    if kept.record is None:
        return (
            f"etcd holds no record of this group, and held version {floor.version} of epoch {floor.epoch}: its data was lost, "
            "or another etcd or etcdPrefix is asked. Next: see that it is the right one; to begin anew there: twinlog "
            "auto-failover etcd"
        )
    if is_newer(floor, kept.record) and (floor.epoch, floor.version) != (kept.record.epoch, kept.record.version):
        return (
            f"etcd holds version {kept.record.version} of epoch {kept.record.epoch}, and this member has version {floor.version} "
            f"of epoch {floor.epoch}: its data was restored from a backup. Next, to begin anew there: twinlog auto-failover etcd"
        )
    return ""
