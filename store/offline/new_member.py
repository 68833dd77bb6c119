"""Makes a new member of a copied store directory: another id, and neither vote nor role. The log and its history stay.

The new id comes first, the old role goes second: in between the two files name two members, and no broker starts on that.
"""

import os
import time
from pathlib import Path

from attrs import evolve, frozen

from twinlog.store.member_file import make_id, new_member, save_member
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.finding import doc
from twinlog.store.offline.role_info import member_info, role_info
from twinlog.store.role_file import NAME as ROLE
from twinlog.store.util.sync import remove_durably, take_lock


@frozen(kw_only=True)
class NewMemberReport:
    """A directory that begins anew as a member."""

    root: str
    has_files: bool = doc("false: it has no id and no role, and gets a new id at its next start")
    old_id: str | None = doc("the id that it gives up; null: it has none that can be read")
    old_group: str | None = doc("brokerName of the group that knows that id; null: not known")
    old_role: str | None = doc(
        "the role that it gives up, ASYNC_MASTER, SYNC_MASTER or SLAVE; null: none that can be read"
    )
    process_id: int | None = doc("of the broker that has it open now: stop that first")
    new_id: str | None = doc("null: nothing was changed")


def plan_new_member(directory: StoreDirectory) -> NewMemberReport:
    """Report what would be given up."""
    side = directory.root / "twinlog"
    member, role = member_info(side), role_info(side)
    return NewMemberReport(
        root=str(directory.root.absolute()),
        has_files=member is not None or role is not None,
        old_id=member.id if member is not None else None,
        old_group=member.group if member is not None else None,
        old_role=role.role if role is not None else None,
        process_id=directory.lock_holder,
        new_id=None,
    )


def make_new_member(root: Path, options: DirectoryOptions) -> NewMemberReport:
    """Give a stopped store's directory a new id, and remove its role. Raises StoreLockedError while a broker has it open,
    StoreDirectoryError, OSError: run it again then.
    """
    lock = take_lock(root / "lock")
    try:
        with StoreDirectory.open(root, options) as directory:
            report = evolve(plan_new_member(directory), process_id=None)
        side, id = root / "twinlog", make_id()
        # Damaged or of a later version, the old one is replaced all the same. Its address is noted at the next start.
        save_member(side, new_member(id, "", time.time_ns() // 1_000_000))
        remove_durably(side / ROLE)
        return evolve(report, new_id=id)
    finally:
        os.close(lock)
