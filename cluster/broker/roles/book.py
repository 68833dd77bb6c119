"""What a member has written down of its role and its log's history: saved first, then believed.

A save that failed may or may not be on the disk, so nothing is promised, taken or said after it until the next start.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
import trio
from attrs import define, evolve, field

from twinlog.ha.errors import HALogError
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId, load_epochs, save_epochs
from twinlog.store.role_file import RoleState, load_role, save_role
from twinlog.store.util.sync import make_directory

log = structlog.get_logger(__name__)

NOBODY = EpochId(0, "")


class RoleFileError(HALogError):  # It ends an attempt to follow, never the client.
    """What was decided could not be made durable, now or before: nothing may be said that relies on it."""


@define(eq=False)
class RoleBook:
    """`side` is ROOT/twinlog. `state` is None for a member that never was in a group whose roles change."""

    side: Path
    boot_id: Callable[[], str]
    told_confirmed: Callable[[], int] = lambda: 0
    address: Callable[[], str] = lambda: ""
    state: RoleState | None = field(default=None, init=False)
    entries: tuple[EpochEntry, ...] = field(default=(FIRST,), init=False)
    failure: str = field(default="", init=False)
    lacks_tail: bool = field(
        default=False, init=False
    )  # It was master, and its machine died or its disk failed: until it is elected anew.

    def load(self) -> None:
        """Read both files. Raises StoreDirectoryError."""
        self.entries = load_epochs(self.side)
        self.state = load_role(self.side, self.address())
        if self.state is not None and self.state.promised < self.entries[-1].id:  # It served, or followed, that one.
            self.state = evolve(self.state, promised=self.entries[-1].id)

    def begin(self, state: RoleState) -> None:
        """Durably: it runs, so that its next stop is a crash unless it says otherwise. Raises OSError."""
        self.state = self._stamped(state)
        save_role(self.side, self.state)

    def _stamped(self, state: RoleState) -> RoleState:
        """A machine that died is remembered until what it cost is settled."""
        told = max(state.told_confirmed, self.told_confirmed())
        boot_id = state.boot_id if self.lacks_tail else self.boot_id()
        return evolve(state, boot_id=boot_id, told_confirmed=told, clean=False, address=self.address())

    @property
    def promised(self) -> EpochId:
        """Nobody older is served."""
        return self.state.promised if self.state is not None else self.entries[-1].id

    @property
    def last(self) -> EpochEntry:
        """The epoch of this log's end."""
        return self.entries[-1]

    def fresh(self, role: BrokerRole, broker_id: int) -> RoleState:
        """The state as it is, or what a member begins with."""
        return self.state or RoleState(role=role, broker_id=broker_id, promised=self.entries[-1].id, group=None)

    async def save(self, state: RoleState) -> None:
        """Raises RoleFileError."""
        lacked_tail = self.lacks_tail
        if state.role is BrokerRole.SLAVE:  # Nobody's master any more: `whole` says what it lost.
            self.lacks_tail = False
        state = self._stamped(state)
        if state != self.state:
            try:
                await self._durably(lambda: save_role(self.side, state))
            except RoleFileError:
                self.lacks_tail = lacked_tail
                raise
            self.state = state

    async def save_entries(self, entries: Sequence[EpochEntry]) -> None:
        """Raises RoleFileError."""
        entries = tuple(entries)
        if entries != self.entries:
            await self._durably(lambda: save_epochs(self.side, entries))
            self.entries = entries

    async def _durably(self, write: Callable[[], None]) -> None:
        def make() -> None:
            make_directory(self.side)
            write()

        if self.failure:
            raise RoleFileError(self.failure)
        try:
            with trio.CancelScope(shield=True):  # What a thread writes is written, whoever waits for it.
                await trio.to_thread.run_sync(make)
        except (OSError, ValueError) as error:
            self.failure = f"{self.side / 'role'} cannot be written: {error}"
            log.error("this member's role cannot be saved: it serves nobody until it is started again", why=str(error))
            raise RoleFileError(self.failure) from error
