"""Who was the master of a group, since when, and at what cost."""

from functools import partial

from attrs import field, frozen

from twinlog.cluster.admin.roles import RoleError, RoleGroup, choose_group
from twinlog.cluster.broker.peers.role_json import read_history
from twinlog.cluster.client.api.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import EpochEntry


@frozen(kw_only=True)
class Reign:
    """One epoch. Members by name, or by address when nobody knows their name any more."""

    epoch: int
    start_offset: int
    old: str = field(metadata={"doc": "the master before"})
    new: str
    kind: str
    reason: str
    at_ms: int = field(metadata={"doc": "0: not known"})
    lost_bytes: int | None = field(metadata={"doc": "of what was acknowledged; null: not known"})


@frozen(kw_only=True)
class History:
    """The history of a group's log, as the member tells it that was in the newest epoch. The first comes first."""

    group: str
    told_by: str
    reigns: tuple[Reign, ...]


async def history(api: ClientApi, group: str | None) -> History:
    """Ask every member. Raises RoleError when none of them tells."""
    found = await choose_group(api, group)
    ours = [each.member for each in found.members if each.is_twinlog]
    told = await in_parallel(partial(log_history, api, member.address) for member in ours)
    # The longest log of the newest epoch: whoever lags may not have heard of the last master yet.
    known = [
        (log.entries[-1].epoch, log.max_offset, member.name, log.entries)
        for member, log in zip(ours, told, strict=True)
        if log is not None
    ]
    if not known:
        raise RoleError(f"No member of {found.name} tells its history.", "See who is there with: twinlog list")
    _, _, name, epochs = max(known)
    return History(group=found.name, told_by=name, reigns=tuple(_reign(found, entry) for entry in epochs))


async def log_history(api: ClientApi, address: str) -> PeerHistory | None:
    """What a member says of its log; None when it does not answer, or not in a form that we know."""
    try:
        return read_history(await api.epochs(address))
    except (RemotingError, ValueError):
        return None


def _reign(group: RoleGroup, entry: EpochEntry) -> Reign:
    return Reign(
        epoch=entry.epoch,
        start_offset=entry.start_offset,
        old=group.named([entry.old] if entry.old else []),
        new=group.named([entry.winner] if entry.winner else []),
        kind=entry.kind,
        reason=entry.reason,
        at_ms=entry.at_ms,
        lost_bytes=entry.lost_bytes,
    )
