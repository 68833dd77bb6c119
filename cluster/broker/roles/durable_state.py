"""Durable state of a member: who it is, its role, and the epochs of its log: saved first, in effect afterwards.

A failed save may or may not have reached the disk: until the next start nothing is promised, won or acknowledged after one. One
for which there was no room has not: it changed nothing, and can be tried again.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
import trio
from attrs import define, evolve, field

from twinlog.ha.errors import HALogError
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId, load_epochs, save_epochs
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.member_file import (
    MemberFile,
    check_group,
    check_is_one_member,
    in_group,
    member_at_start,
    new_member_command,
    save_member,
)
from twinlog.store.role_file import GroupMember, RoleState, load_role, save_role
from twinlog.store.util.sync import is_no_space, make_directory

log = structlog.get_logger(__name__)


class RoleFileError(HALogError):  # It ends an attempt to follow, never the client.
    """A decision could not be made durable, now or before: no answer may rely on it."""


@define(eq=False)
class DurableRoleState:
    """`side` is ROOT/twinlog. `state` is None for a member that never was in a group whose roles change. `group` and `cluster`
    are the names in broker.conf; "": not known, and not checked.
    """

    side: Path
    boot_id: Callable[[], str]
    described: Callable[[], GroupMember]  # This member, at its present address; its id is here.
    now_ms: Callable[[], int]
    shown_offset: Callable[[], int] = lambda: 0  # Consumers were shown everything below.
    group: str = ""
    cluster: str = ""
    identity: MemberFile = field(default=MemberFile(id=""), init=False)
    has_moved: bool = field(default=False, init=False)  # Its address is another one than at the last save.
    # What to do where the group takes this member for a copy for that.
    starts_lost: str = field(default="", init=False)
    state: RoleState | None = field(default=None, init=False)
    entries: tuple[EpochEntry, ...] = field(default=(FIRST,), init=False)
    failure: str = field(default="", init=False)
    # `identity` with this start, which is not on the disk yet: nobody hears of its register code before.
    _to_note: MemberFile | None = field(default=None, init=False)
    _lacks_room: bool = field(default=False, init=False)  # That was logged.
    # It was master, and its machine died or its disk failed: its log may lack a tail until it is elected again.
    lacks_tail: bool = field(default=False, init=False)

    def load(self) -> None:
        """Read all files, and note a start. Raises StoreDirectoryError: then nothing was noted, and a stop notes nothing."""
        entries, state = load_epochs(self.side), load_role(self.side)
        address, known = self.described().address, state.address if state is not None else ""
        # twinlog 0.2 named a member by its address, and had no file for that.
        known_as = (state.member or known or address) if state is not None else ""
        identity = member_at_start(self.side, known_as, address, self.now_ms())
        if state is not None and state.member and len(identity.register_codes) == 1:  # Only twinlog/role knew its id.
            self.starts_lost = (
                f"{self.side / 'member'} was lost, and with it the starts of this member, so that nothing tells it from a copy. "
                "Next: stop this broker, and let the directory take the member's place, at its address and under its name: "
                f"{new_member_command(self.side)}"
            )
            log.warning("this member's file was lost", why=self.starts_lost, member_id=identity.id)
        if state is not None:
            check_is_one_member(self.side, identity.id, state.member)
        if self.group:
            check_group(self.side, identity, self.group, self.cluster)
        self.entries, self.state, self.identity = entries, state, self._grouped(identity, state)
        try:
            save_member(self.side, self.identity)
        except OSError as error:  # The broker may serve all the same: decisions need the disk, and save it first.
            if state is None and len(identity.register_codes) == 1:
                raise StoreDirectoryError(
                    f"{self.side / 'member'} cannot be written: {error}. It is to hold the id of a new member, which nobody may "
                    "hear before it is on the disk. Next: make room there, or let this user write there"
                ) from error
            log.warning("noting this start failed; retrying before this member's next vote", why=str(error))
            self._to_note = self.identity
            self.identity = evolve(self.identity, register_codes=self.identity.register_codes[:-1])
        self.has_moved = known not in ("", address) and not address.endswith(":0")
        if self.state is not None and self.state.promised < self.entries[-1].id:  # It served, or followed, that one.
            self.state = evolve(self.state, promised=self.entries[-1].id)

    def begin(self, state: RoleState) -> None:
        """Save the state of a running member: its next stop counts as a crash unless it says otherwise. Raises OSError."""
        self.state = self._stamped(state)
        save_role(self.side, self.state)

    def note_clean_stop(self) -> None:
        """Save that everything is on the disk: call it last. May raise OSError: the next start takes it for a crash."""
        if self.state is not None and not self.failure and not self.lacks_tail:
            save_role(
                self.side, evolve(self.state, clean=True, boot_id=self.boot_id(), told_confirmed=self.shown_offset())
            )

    def _stamped(self, state: RoleState) -> RoleState:
        """The state with what every save notes. The boot id of a machine that died stays until its loss is settled."""
        shown = max(state.told_confirmed, self.shown_offset())
        boot_id = state.boot_id if self.lacks_tail else self.boot_id()
        address = self.described().address
        own = self.identity.id
        return evolve(state, boot_id=boot_id, told_confirmed=shown, clean=False, address=address, member=own)

    def _grouped(self, identity: MemberFile, state: RoleState | None) -> MemberFile:
        """The identity with the name of its group, once it has a record."""
        has_record = state is not None and state.group is not None
        return in_group(identity, self.group, self.cluster) if has_record else identity

    @property
    def promised(self) -> EpochId:
        """The promised epoch: masters of epochs below this one are fenced."""
        return self.state.promised if self.state is not None else self.entries[-1].id

    @property
    def last(self) -> EpochEntry:
        """The epoch in which this log ends."""
        return self.entries[-1]

    async def save(self, state: RoleState) -> None:
        """Save a state, then let it take effect. Raises RoleFileError."""
        assert state.promised >= self.promised, "the promised epoch falls"
        lacked_tail = self.lacks_tail
        if state.role is BrokerRole.SLAVE:  # Not master any more: `whole` says what it lost.
            self.lacks_tail = False
        state = self._stamped(state)
        if state != self.state:
            try:
                await self._durably(lambda: save_role(self.side, state), self._grouped(self._noted_next, state))
            except RoleFileError:
                self.lacks_tail = lacked_tail
                raise
            self.state = state

    async def take_place(self, named: GroupMember) -> None:
        """Go on as a member that a group's record names, instead of under an id that no group has seen. Raises RoleFileError."""
        assert self.state is None, "a member of a group keeps its id"
        if named.id != self.identity.id:
            codes = (*named.codes, *self._noted_next.register_codes)
            await self._durably(lambda: None, evolve(self._noted_next, id=named.id, register_codes=codes))

    async def save_entries(self, entries: Sequence[EpochEntry]) -> None:
        """Save a history, then let it take effect. Raises RoleFileError."""
        entries = tuple(entries)
        assert entries[-1].epoch >= self.last.epoch, "the last epoch of the log falls"
        if entries != self.entries:
            await self._durably(lambda: save_epochs(self.side, entries), self._noted_next)
            self.entries = entries

    @property
    def _noted_next(self) -> MemberFile:
        """The identity that the next save notes."""
        return self._to_note or self.identity

    async def _durably(self, write: Callable[[], None], identity: MemberFile) -> None:
        """Save the identity, if it is another one than on the disk, and then what `write` does."""

        def make() -> None:
            make_directory(self.side)
            if identity != self.identity:
                save_member(self.side, identity)
            write()

        if self.failure:
            raise RoleFileError(self.failure)
        try:
            with trio.CancelScope(shield=True):  # A thread cannot be cancelled: wait for its write.
                await trio.to_thread.run_sync(make)
        except (OSError, ValueError) as error:
            why = f"{self.side / 'role'} cannot be written: {error}"
            if isinstance(error, OSError) and is_no_space(error):  # Before the new file took the old one's place.
                if not self._lacks_room:
                    log.error("no room to save the role: what needs that is put off until there is", why=str(error))
                self._lacks_room = True
                raise RoleFileError(why) from error
            self.failure = why
            log.error("saving the role failed: this member is fenced until its next start", why=str(error))
            raise RoleFileError(self.failure) from error
        self._lacks_room = False
        self.identity, self._to_note = identity, None
