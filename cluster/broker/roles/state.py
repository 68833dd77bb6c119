"""What a member is in its group: what it has written down, what it does at the moment, and how it says so.

serving    master                                 following  a slave that knows its master
starting   was master, and finds out if it may    waiting    a slave that does not, or has to hear others first
holding    master that keeps writes waiting       fenced     has promised an epoch that it knows no master of
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.role_messages import Calls, Hooks
from twinlog.cluster.broker.roles.book import RoleBook
from twinlog.cluster.broker.roles.silence import SilentMaster
from twinlog.ha.config import HAConfig
from twinlog.ha.election.group_record import remaining_pause
from twinlog.ha.election.voter import is_master
from twinlog.ha.log import ComparableStore
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

Phase = Literal["serving", "starting", "holding", "fenced", "following", "waiting"]


def pause_words(group: GroupRecord | None, now_ms: int) -> str:
    """Why nothing may change in this group now; "" when it may."""
    pause = remaining_pause(group, now_ms)
    if pause is None:
        return ""
    ends = "until somebody resumes it"
    if pause.until_ms is not None:
        ends = f"for {(pause.until_ms - now_ms + 999) // 1000} s more"
    return f"the group is paused {ends}" + (f": {pause.reason}" if pause.reason else "")


@define(eq=False, kw_only=True)
class RoleFacts:
    """`me`: this member, under its address of now and broker.conf's id. `side`: ROOT/twinlog."""

    side: Path
    me: Callable[[], GroupMember]
    store: ComparableStore
    ha: HAService
    calls: Calls
    hooks: Hooks
    config: HAConfig
    now_ms: Callable[[], int]
    boot_id: Callable[[], str]
    boot_ms: int = 0
    told_confirmed: Callable[[], int] = lambda: 0  # Consumers were shown everything below.
    book: RoleBook = field(init=False)
    phase: Phase = field(default="serving", init=False)
    why: str = field(default="", init=False)
    turn: trio.Lock = field(factory=trio.Lock, init=False)
    changed: Wakeup = field(factory=Wakeup, init=False)  # The start rules look again.
    hold_begun: Wakeup = field(factory=Wakeup, init=False)
    master: PeerHistory | None = field(default=None, init=False)  # Who is followed, as it told last.
    confirmed_offset: int = field(default=0, init=False)  # Of the master that is followed, as it told last.
    clock_ahead_ms: int = field(default=0, init=False)  # Our clock, of that of the master who told of a pause last.
    joins: bool = field(default=False, init=False)  # It is new to the group: it was seen without this member.
    silence: SilentMaster = field(init=False)
    strangers_record: GroupRecord | None = field(
        default=None, init=False
    )  # Says that we were a member; our files do not.

    def __attrs_post_init__(self) -> None:
        self.silence = SilentMaster(self.config.lease_ms / 1000)
        self.book = RoleBook(self.side, self.boot_id, lambda: self.told_confirmed(), lambda: self.address)

    def load(self) -> RoleState | None:
        """Before the store is made: None: the role is broker.conf's. With a state, whatever its role, the member starts as a
        slave of nobody, and `hooks` say what it becomes. Raises StoreDirectoryError.
        """
        self.book.load()
        state = self.book.state
        if state is None:
            self.phase = "waiting" if self.store.config.broker_role is BrokerRole.SLAVE else "serving"
            return None
        self.ha.lease.give_up("this member starts")
        was_master = is_master(state, self.book.entries)
        if not state.clean and state.boot_id != self.boot_id():
            self.book.lacks_tail = was_master
            state = evolve(state, whole=state.whole and self._acknowledged_is_on_disk(state.role))
        if self.store.lost_bytes:  # Whatever is synchronous: it was on the disk, and others may have it still.
            self.book.lacks_tail = was_master
            state = evolve(state, whole=False)
        self.book.begin(state)
        self.phase, self.why = ("starting", "asks the others") if was_master else ("waiting", "knows no master yet")
        if not was_master and state.promised.epoch > self.book.last.epoch:
            self._fenced_by(state.promised)
        return state

    def _acknowledged_is_on_disk(self, role: BrokerRole) -> bool:
        config = self.store.config
        return (
            self.config.ack_mode.value == "flushed"
            if role is BrokerRole.SLAVE
            else config.flush_disk_type.value == "SYNC_FLUSH"
        )

    # What it is

    @property
    def address(self) -> str:
        """This member's identity."""
        return self.me().address

    @property
    def id(self) -> EpochId:
        """The epoch that it serves, as a master."""
        return self.book.last.id

    @property
    def group(self) -> GroupRecord | None:
        """Who belongs to the group, as far as it knows."""
        return self.book.state.group if self.book.state is not None else None

    @property
    def is_serving(self) -> bool:
        """Whether it is master now."""
        return self.phase in ("serving", "holding") and self.store.config.broker_role is not BrokerRole.SLAVE

    def state_or_first(self) -> RoleState:
        """What is written down, or what a member begins with."""
        return self.book.fresh(self.store.config.broker_role, self.me().broker_id)

    def role_state(self) -> RoleState | None:
        """None: it never was in a group whose roles change."""
        return self.book.state

    def epochs(self) -> tuple[EpochEntry, ...]:
        """The history of its log."""
        return self.book.entries

    def promised(self) -> EpochId:
        """It serves and follows nobody older."""
        return self.book.promised

    def words(self) -> tuple[str, str]:
        """What it does, and why if that needs a word."""
        if self.book.state is None and self.strangers_record is None:
            return ("following" if self.store.config.broker_role is BrokerRole.SLAVE else "serving"), ""
        return self.phase, self.book.failure or self.why

    def group_ms(self) -> int:
        """The wall clock of the master, by which a pause ends, as far as it told."""
        return self.now_ms() - (0 if self.is_serving else self.clock_ahead_ms)

    def paused(self) -> str:
        """Why nothing may change; "" when it may."""
        return pause_words(self.group, self.group_ms())

    def become(self, phase: Phase, why: str = "") -> None:
        """Say what it does from now on, once."""
        if (phase, why) != (self.phase, self.why):
            log.info("this member's role", state=phase, was=self.phase, why=why or None)
            self.phase, self.why = phase, why
            self.changed.set()

    def own_history(self) -> PeerHistory:
        """What others are told of this log."""
        return PeerHistory(
            id=self.id,
            entries=self.book.entries,
            promised=self.book.promised,
            role=self.store.config.broker_role if self.is_serving else BrokerRole.SLAVE,
            group=self.group,
            min_offset=self.store.commit_log.min_offset,
            max_offset=self.store.max_offset,
            boot_ms=self.boot_ms,
            address=self.address,
            ha_address=self.me().ha_address,
            whole=self.book.state is None or self.book.state.whole,
        )

    def _fenced_by(self, promised: EpochId) -> None:
        self.phase = "fenced"
        self.why = f"it has promised epoch {promised.epoch} to {promised.winner}, and knows no master of it"
