"""Wall clocks that leap, drift and differ; time itself goes by as ever (libfaketime leaves the monotonic clock alone)."""

import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.group import MEMBER_DIRECTORY, Member
from scripts.fault_matrix.planted import FAKETIME
from tests.support.disk.faults import OK, Connection
from tests.support.process_group.process import Process

HOUR = 3600.0
LAG_SECONDS_MAX = 30.0  # Of a slave that is not an hour behind, whatever clocks say.
DELETE_EXPIRED_COMMIT_LOG = 329
# What a clock may not do to anybody.
MISTAKES = re.compile(r"no lease|fenced|commit log file deleted|replication interrupted|the event loop stalls")
DRIFT, DRIFT_STEP_S = 0.2, 0.1


def library() -> Path | None:
    """libfaketime as Debian has it; None: it is not there."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def environment() -> dict[str, str]:
    """Of a member whose wall clock can be set. Its files keep the times that the kernel gives them."""
    found = library()
    assert found is not None
    return {
        "LD_PRELOAD": str(found),
        FAKETIME: f"{MEMBER_DIRECTORY}/clock",
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def set_clock(member: Member, seconds: float) -> None:
    """So far ahead of the machine's, from now on."""
    scratch = member.conf.with_name("clock.new")
    scratch.write_text(f"{seconds:+.3f}\n")
    os.replace(scratch, member.conf.with_name("clock"))


@define(eq=False)
class Clocks(Fault):
    """Each member has another clock. Nobody may be deposed for it, nor a file deleted, nor a lag be told that there is not."""

    needs: ClassVar[Sequence[str]] = ("faketime",)
    trace: ClassVar[str] = r"clocks differ"
    leaps: dict[str, float] = field(init=False)
    sizes: dict[str, int] = field(init=False)
    is_quiet: ClassVar[bool] = True  # The clocks are all that happens.

    def prepare(self) -> None:
        self.hold_s = self.rng.uniform(1.5, 3.0)
        members = self.rng.sample(self.group.members, len(self.group.members))
        hours = self.rng.choice([(3, -1, 0), (3, -3, 1), (3, 1, -1)])  # Files are kept for 2 h.
        self.leaps = {each.label: at * HOUR for each, at in zip(members, hours, strict=False)}

    @property
    def text(self) -> str:
        return f"clocks leap: {', '.join(f'{label} by {seconds / HOUR:+g} h' for label, seconds in self.leaps.items())}"

    def inject(self) -> None:
        self.sizes = {each.label: each.log_size for each in self.group.members}
        for member in self.group.members:
            set_clock(member, self.leaps[member.label])
        self.ask_for_room()

    def ask_for_room(self) -> None:
        """What is old enough may go now."""
        for member in self.group.members:
            with Connection(member.port) as connection:
                header, _ = connection.ask(DELETE_EXPIRED_COMMIT_LOG)
                assert header["code"] == OK, header

    def heal(self) -> None:
        self.look()
        for member in self.group.members:
            set_clock(member, 0.0)

    def look(self) -> None:
        """Is anybody led astray?"""
        for label, told in self.group.listed().items():
            behind = told["lag_seconds"]
            if behind is not None and not 0 <= behind <= LAG_SECONDS_MAX:
                self.group.complain("G", f"{label} is said to be {behind} s behind: {told}")
        if self.is_quiet:
            for member in self.group.members:
                wrong = [each for each in member.lines_from(self.sizes[member.label]) if MISTAKES.search(each)]
                if wrong:
                    oracle = "A" if "deleted" in wrong[0] else "F"
                    self.group.complain(oracle, f"{member.label} took another clock for another world: {wrong[0]}")


@define(eq=False)
class Drift(Clocks):
    """Clocks go faster and slower than time does, and there is a switchover meanwhile."""

    is_quiet: ClassVar[bool] = False
    rates: dict[str, float] = field(init=False)
    _ends: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def prepare(self) -> None:
        Clocks.prepare(self)
        self.rates = {each.label: self.rng.uniform(-DRIFT, DRIFT) for each in self.group.members}

    @property
    def text(self) -> str:
        rates = ", ".join(f"{label} {rate:+.0%}" for label, rate in self.rates.items())
        return f"clocks drift, after {Clocks.text.fget(self)}: {rates}, and a switchover"  # type: ignore[attr-defined]

    def inject(self) -> None:
        Clocks.inject(self)
        self._thread = threading.Thread(target=self._drift)
        self._thread.start()
        done = self.group.twinlog("switchover", "--yes", "--reason", "fault matrix", status=None)
        self.group.write("note", text=f"switchover: exit status {done.returncode} {done.stderr}")
        if done.returncode not in (0, 6):
            self._ends.set()
            raise AssertionError(f"no switchover while clocks differ: {done.stderr}")

    def _drift(self) -> None:
        began = time.monotonic()
        while not self._ends.wait(DRIFT_STEP_S) and time.monotonic() - began < HOUR:
            for member in self.group.members:
                gained = self.rates[member.label] * (time.monotonic() - began)
                set_clock(member, self.leaps[member.label] + gained)

    def heal(self) -> None:
        self._ends.set()
        self._thread.join()
        Clocks.heal(self)


@define(eq=False)
class KillWithOtherClock(Clocks):
    """It writes with the new clock, is killed, and is started by another one: its log has times that go back."""

    victim: Member = field(init=False)
    is_quiet: ClassVar[bool] = False
    trace: ClassVar[str] = r"store recovered"

    def prepare(self) -> None:
        Clocks.prepare(self)
        self.victim = self.rng.choice([each for each in self.group.members if self.leaps[each.label]])

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        return f"{Clocks.text.fget(self)}; kill -9 of {self.victim.label}, which starts as late as it was early"  # type: ignore[attr-defined]

    def inject(self) -> None:
        Clocks.inject(self)
        time.sleep(self.rng.uniform(0.5, 1.5))
        self.victim.kill()
        set_clock(self.victim, -self.leaps[self.victim.label])

    def heal(self) -> None:
        """The clocks are put right once it has recovered by a wrong one."""
        Process.start(self.victim)
        self.victim.wait_ready()
        Clocks.heal(self)
