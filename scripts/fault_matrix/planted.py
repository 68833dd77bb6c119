"""`twinlog` with a fault of its own: `python -m scripts.fault_matrix.planted HOLE... broker ...`. The matrix must notice each.

One more change is none: a machine of its own, whose starts the harness tells.
"""

import importlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import twinlog.cluster.broker.wiring
import twinlog.ha.election.votes
import twinlog.store.services.flush
from tests.simulation import holes, role_holes
from twinlog.cluster.broker.send.acks import ProducerAcks
from twinlog.cluster.cli.main import main
from twinlog.store.recovery.recovery import Recovery

BOOT_ID, OWN_BOOTS = "FAULTS_BOOT_ID", "a machine of its own"
FAKETIME, OWN_CLOCK = "FAKETIME_TIMESTAMP_FILE", "a clock of its own"
PLANTED: dict[str, Callable[[], AbstractContextManager[object]]] = {}


def planted(name: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Give it a name."""

    def add(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        PLANTED[name] = contextmanager(function)
        return function

    return add


@planted(OWN_BOOTS)
def own_boots() -> Iterator[None]:
    """What the kernel says of its own start is in a file that $FAULTS_BOOT_ID names."""
    with patch.object(
        twinlog.cluster.broker.wiring, "machine_boot_id", lambda: Path(os.environ[BOOT_ID]).read_text().strip()
    ):
        yield


@planted(OWN_CLOCK)
def own_clock() -> Iterator[None]:
    """Its time is libfaketime's, of which clock_nanosleep() knows nothing but EINVAL."""
    with patch.object(time, "sleep", lambda seconds: select.select([], [], [], seconds)):
        yield


@planted("recovery gives up the last record")
def last_record_given_up() -> Iterator[None]:
    """After a crash the log's last record is taken for half written, though it is whole."""
    walk = Recovery._walk

    def short(self: Recovery) -> None:
        walk(self)
        if self.after_crash and self.last is not None:
            self.end, self.last = self.last.phy_offset, None

    with patch.object(Recovery, "_walk", short):
        yield


@planted("recovery gives up the whole log")
def log_given_up() -> Iterator[None]:
    """After a crash the log begins anew, as if nothing of it were sound."""
    walk = Recovery._walk

    def nothing(self: Recovery) -> None:
        walk(self)
        if self.after_crash:
            self.end, self.last = self.log.min_offset, None

    with patch.object(Recovery, "_walk", nothing):
        yield


@planted("a refusal is an OK")
def refusal_is_ok() -> Iterator[None]:
    """Synchronous is silently asynchronous: whoever cannot be told that his message is safe is told that it is."""

    def refuse(self: ProducerAcks, frames: list[bytes], status: object, reason: str) -> None:
        self.answer(frames)

    with patch.object(ProducerAcks, "refuse", refuse):
        yield


@planted("a flush is a word")
def flush_is_a_word() -> Iterator[None]:
    """Bytes count as flushed that nobody has flushed."""
    with patch.object(twinlog.store.services.flush, "sync_data", lambda fd: None):
        yield


@planted("power cuts are not noticed")
def power_cuts_not_noticed() -> Iterator[None]:
    """A master that lost what it had flushed in words only goes on as if it had everything."""
    with all_of("a flush is a word", "who lost bytes is counted whole", "a lost tail is written again"):
        yield


@planted("who lacks bytes is elected")
def lacking_is_elected() -> Iterator[None]:
    """Promises enough are enough: nobody looks who of those that gave them has more."""
    with patch.object(twinlog.ha.election.votes, "_outdone", lambda candidate, own, better: None):
        yield


@contextmanager
def all_of(*names: str) -> Iterator[None]:
    """These, and those of the simulation that are put into the product and not into its fakes."""
    assert role_holes  # Its holes are listed with the others once it is imported.
    with ExitStack() as stack:
        for name in names:
            stack.enter_context((PLANTED.get(name) or holes.HOLES[name])())
        yield


def every() -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """All there are, those of planted_*.py with them."""
    for path in sorted(Path(__file__).parent.glob("planted_*.py")):
        importlib.import_module(f"scripts.fault_matrix.{path.stem}")
    return PLANTED


if __name__ == "__main__":
    from scripts.fault_matrix import planted as module  # What planted_*.py add to; this one is another, __main__.

    module.every()
    at = sys.argv.index("broker")
    changes = sys.argv[1:at]
    del sys.argv[1:at]
    with module.all_of(*changes):
        sys.exit(main())
