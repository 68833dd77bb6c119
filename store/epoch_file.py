"""Epoch history of a log: which master wrote it from which byte on. ROOT/twinlog/epochs.

    twinlog-epochs 1 CRC32HEX
    [{"epoch": 0, "winner": "", "startOffset": 0, ...}, ...]

An epoch begins when a member becomes master, at the end of its log. Its number and the winner's id name it: two members may win
one number, though only one of them can have its messages acknowledged. A log without the file has one epoch, FIRST.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from attrs import frozen

from twinlog.store.util.checked_file import decode_checked, encode_checked, load_checked
from twinlog.store.util.plain import from_plain, to_plain
from twinlog.store.util.sync import save_durably

NAME, VERSION = "epochs", 1
ENTRIES_MAX = 1000  # A member that was away for longer begins anew.

EpochKind = Literal["first", "switchover", "failover", "forced", "restart"]
DecidedBy = Literal["", "person", "group"]  # "": not known, or nobody had to.


class EpochId(NamedTuple):
    """An epoch's name."""

    epoch: int
    winner: str  # The member's id; "" for FIRST.


@frozen(kw_only=True)
class EpochEntry:
    """One epoch. A log whose history has it begins like the winner's log, up to the start of the winner's next epoch."""

    epoch: int
    winner: str
    start_offset: int  # The winner's log ended here.
    at_ms: int = 0
    kind: EpochKind = "first"
    reason: str = ""
    old: str = ""  # The master before: its id.
    winner_label: str = ""  # Name and address of the winner then, for people.
    lost_bytes: int | None = 0  # Known lost bytes of acknowledged messages; None: unknown.
    decided_by: DecidedBy = ""

    @property
    def id(self) -> EpochId:
        """Its name."""
        return EpochId(self.epoch, self.winner)


FIRST = EpochEntry(epoch=0, winner="", start_offset=0)


@frozen
class _File:
    epochs: tuple[EpochEntry, ...]


def encode_epochs(entries: Sequence[EpochEntry]) -> bytes:
    """The reverse of decode_epochs; of more than ENTRIES_MAX entries the oldest are dropped. Raises ValueError."""
    kept = tuple(entries[-ENTRIES_MAX:])
    check_history(kept)
    return encode_checked(NAME, VERSION, to_plain(kept))


def decode_epochs(raw: bytes) -> tuple[EpochEntry, ...]:
    """The entries of a file. Raises ValueError when it is damaged or no valid history."""
    entries = from_plain(_File, {"epochs": decode_checked(NAME, VERSION, raw)}).epochs
    check_history(entries)
    return entries


def check_history(entries: Sequence[EpochEntry]) -> None:
    """Require rising numbers and start offsets that do not fall. Raises ValueError."""
    if not entries:
        raise ValueError("a history has at least one epoch")
    if entries[0].epoch < 0 or entries[0].start_offset < 0:
        raise ValueError(f"epoch {entries[0].epoch} begins at {entries[0].start_offset}")
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset < before.start_offset:
            raise ValueError(
                f"epoch {entry.epoch} from {entry.start_offset} on stands behind "
                f"epoch {before.epoch} from {before.start_offset} on"
            )


def load_epochs(side: Path) -> tuple[EpochEntry, ...]:
    """The history of the log beside which `side` lies; (FIRST,) without a file. Raises StoreDirectoryError."""
    return load_checked(side / NAME, decode_epochs) or (FIRST,)


def save_epochs(side: Path, entries: Sequence[EpochEntry]) -> None:
    """Replace the history, durably. May block: run it in a thread. Raises OSError, ValueError."""
    save_durably(side / NAME, encode_epochs(entries))
