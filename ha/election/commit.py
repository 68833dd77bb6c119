"""Commit of a version of the group's record: who decides that it is in force. No I/O.

Today the members do, by having it: a version is in force once so many voters keep it that the one before elects nobody without
it. Whoever else keeps the record durably, outside the members, is another implementation of RecordCommit.
"""

from collections.abc import Mapping
from typing import Protocol

from twinlog.ha.election.group_record import is_committed
from twinlog.store.role_file import GroupRecord


class RecordCommit(Protocol):
    """`before` is the version that `record` changes; None: it is the first."""

    async def propose(self, before: GroupRecord | None, record: GroupRecord) -> None:
        """Take down a new version before its master keeps it and tells the voters. Raises HAError: it is not to be."""

    def is_in_force(self, before: GroupRecord | None, record: GroupRecord, versions: Mapping[str, int]) -> bool:
        """True if it is known to be in force. `versions`: the version that each voter keeps, durably, by its id."""


class VotersCommit:
    """The members' own files are all there is."""

    async def propose(self, before: GroupRecord | None, record: GroupRecord) -> None:
        """Nobody else is asked."""

    def is_in_force(self, before: GroupRecord | None, record: GroupRecord, versions: Mapping[str, int]) -> bool:
        """By the voters that have it."""
        return is_committed(before, versions, record)
