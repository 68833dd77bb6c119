"""Identity and role files of a member, for `log info` and `log verify`: id, epochs and promised epoch. A damaged file is
reported, not raised.
"""

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from twinlog.store.epoch_file import NAME as EPOCHS
from twinlog.store.epoch_file import EpochEntry, load_epochs
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.member_file import NAME as MEMBER
from twinlog.store.member_file import check_is_one_member, load_member
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Severity, doc
from twinlog.store.role_file import NAME as ROLE
from twinlog.store.role_file import load_role


@frozen(kw_only=True)
class MemberInfo:
    """The identity of the member whose directory this is."""

    id: str | None = doc("by which its group knows it")
    made_ms: int | None
    made_address: str | None = doc("HOST:PORT that it had when the id was made")
    group: str | None = doc("brokerName of its group; null: it was in none with a record yet")
    cluster: str | None
    error: str | None


@frozen(kw_only=True)
class EpochInfo:
    """One epoch: from `start_offset` on the log has what its winner wrote."""

    epoch: int
    winner: str = doc("id of the member that was master")
    winner_label: str = doc('its name and address then, for people; "": not known')
    start_offset: int
    began_ms: int
    kind: str = doc("first, switchover, failover, forced or restart")
    reason: str
    old_master: str
    lost_bytes: int | None = doc("acknowledged bytes given up for it; null: unknown")


@frozen(kw_only=True)
class HistoryInfo:
    """The masters that wrote this log."""

    epochs: tuple[EpochInfo, ...]
    error: str | None


@frozen(kw_only=True)
class RoleInfo:
    """The role and the promised epoch of this member."""

    role: str | None
    broker_id: int | None
    promised_epoch: int | None = doc("it serves and follows no older one")
    promised_winner: str | None = doc("id of a member")
    promised_winner_label: str | None = doc("its name, and the last address that is known")
    is_whole: bool | None = doc("false: it may lack messages that it once acknowledged")
    error: str | None


def member_info(side: Path) -> MemberInfo | None:
    """The identity of the member; None without the file."""
    try:
        member = load_member(side)
    except StoreDirectoryError as error:
        return MemberInfo(id=None, made_ms=None, made_address=None, group=None, cluster=None, error=str(error))
    if member is None:
        return None
    return MemberInfo(
        id=member.id,
        made_ms=member.made_ms,
        made_address=member.made_address or None,
        group=member.group or None,
        cluster=member.cluster or None,
        error=None,
    )


def history_info(side: Path) -> HistoryInfo | None:
    """The epochs of the log; None without the file. Raises OSError."""
    if not (side / EPOCHS).exists():
        return None
    try:
        return HistoryInfo(epochs=tuple(map(_epoch_info, load_epochs(side))), error=None)
    except StoreDirectoryError as error:
        return HistoryInfo(epochs=(), error=str(error))


def role_info(side: Path) -> RoleInfo | None:
    """The saved role; None without the file."""
    try:
        state = load_role(side)
    except StoreDirectoryError as error:
        return RoleInfo(
            role=None,
            broker_id=None,
            promised_epoch=None,
            promised_winner=None,
            promised_winner_label=None,
            is_whole=None,
            error=str(error),
        )
    if state is None:
        return None
    winner = state.promised.winner
    return RoleInfo(
        role=state.role.value,
        broker_id=state.broker_id,
        promised_epoch=state.promised.epoch,
        promised_winner=winner,
        promised_winner_label=state.group.label(winner) if state.group is not None else winner,
        is_whole=state.whole,
        error=None,
    )


def _epoch_info(entry: EpochEntry) -> EpochInfo:
    return EpochInfo(
        epoch=entry.epoch,
        winner=entry.winner,
        winner_label=entry.winner_label,
        start_offset=entry.start_offset,
        began_ms=entry.at_ms,
        kind=entry.kind,
        reason=entry.reason,
        old_master=entry.old,
        lost_bytes=entry.lost_bytes,
    )


def check_role_files(directory: StoreDirectory, log_end: int | None) -> Iterator[Finding]:
    """Findings about unreadable role files, and epochs behind the log's end; `log_end` None: unknown."""
    side = directory.root / "twinlog"
    try:
        epochs = load_epochs(side)
    except StoreDirectoryError as error:
        yield Finding(kind=FindingKind.ROLE_FILE, file=directory.relative(side / EPOCHS), message=str(error))
        epochs = ()
    late = next((entry for entry in epochs if log_end is not None and entry.start_offset > log_end), None)
    if late is not None and not directory.is_running:
        yield Finding(
            kind=FindingKind.ROLE_FILE,
            severity=Severity.WARNING,
            file=directory.relative(side / EPOCHS),
            phy_offset=late.start_offset,
            message=f"epoch {late.epoch} begins behind the end of the log: a cut was not finished, or the log lost its tail. "
            "A slave repairs this at its next start; a master asks the others before it continues",
            expected=f"<= {log_end}",
            actual=late.start_offset,
        )
    state = None
    try:
        state = load_role(side)
    except StoreDirectoryError as error:
        yield Finding(kind=FindingKind.ROLE_FILE, file=directory.relative(side / ROLE), message=str(error))
    try:
        member = load_member(side)
        if member is not None and state is not None:
            check_is_one_member(side, member.id, state.member)
    except StoreDirectoryError as error:
        yield Finding(kind=FindingKind.ROLE_FILE, file=directory.relative(side / MEMBER), message=str(error))
