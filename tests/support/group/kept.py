"""A model of etcd as far as a group's record needs it, with its guarantees and no stronger ones.

A read shows what was written last; a swap writes only where nobody wrote since; a swap whose answer is lost has happened, or has
not, or happens later. What is announced lives for its time.
"""

from collections.abc import Callable
from typing import Literal

import trio
from attrs import define, field

from twinlog.ha.election.commit import KeeperSilentError, KeptRecord, ResultUnknownError
from twinlog.store.role_file import GroupRecord

Fate = Literal["answered", "away", "lost answer", "lost", "late"]


@define(eq=False)
class EtcdModel:
    """What is written, and each version that ever was."""

    record: GroupRecord | None = None
    revision: int = 0
    master: str = ""
    master_until: float = 0.0
    versions: list[GroupRecord] = field(factory=list)
    cluster: str = "model"

    def read(self) -> KeptRecord:
        """What was written last."""
        master = self.master if trio.current_time() < self.master_until else ""
        return KeptRecord(record=self.record, revision=self.revision, master=master)

    def swap(self, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        """Write where nobody has since."""
        if before.revision == self.revision:
            self.record, self.revision = record, self.revision + 1
            self.versions.append(record)
        return self.read()


@define(eq=False)
class ModelKeeper:
    """The way of one member to it. `fate` says what becomes of the next calls."""

    model: EtcdModel
    fate: Callable[[], Fate] = lambda: "answered"
    seconds: float = 0.01
    late: list[Callable[[], object]] = field(factory=list)  # Swaps that arrive when they are called.

    @property
    def cluster(self) -> str:
        return self.model.cluster

    async def read(self) -> KeptRecord:
        await self._go()
        if self.fate() != "answered":
            raise KeeperSilentError("etcd does not answer")
        return self.model.read()

    async def swap(self, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        await self._go()
        fate = self.fate()
        if fate == "answered":
            return self.model.swap(before, record)
        if fate == "away":
            raise KeeperSilentError("etcd does not answer")
        if fate == "lost answer":
            self.model.swap(before, record)
        elif fate == "late":
            self.late.append(lambda: self.model.swap(before, record))
        raise ResultUnknownError("no answer came: the change may have happened")

    async def announce(self, master: str, seconds: float) -> None:
        await self._go()
        if self.fate() != "answered":
            raise KeeperSilentError("etcd does not answer")
        self.model.master, self.model.master_until = master, trio.current_time() + seconds

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def _go(self) -> None:
        await trio.sleep(self.seconds)
