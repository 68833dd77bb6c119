"""What is wrong with files of a member that was stopped, and that it finds when it starts: bit rot, torn and lost files.

A member that starts is asked for all that it has at once: nothing broken may be delivered. One that refuses to start says why;
its store is emptied then, as it advises, and it follows from the beginning.
"""

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.damage import damage
from scripts.fault_matrix.fault import Fault, fail_over
from scripts.fault_matrix.group import PYTHON, Member
from scripts.fault_matrix.member_reader import read_member
from scripts.fault_matrix.planted_machine import EAGER
from tests.support.process_group.process import PROGRAM, Process

SECONDS_TO_START, SECONDS_TO_MEND = 20.0, 40.0
MODULE = "scripts.fault_matrix.planted"
NOTHING_THERE = '"log": "0..0"'  # Said by a start; a scrub of nothing says nothing.
OF_DAMAGE = (
    r"ends before its last durable end|damaged bytes|changed on the disk|wrong unit|made anew|rebuilt|recomputed|"
    r"were cut|was cut|is cut|truncated|lost its first files|"
    r"cannot be (read|opened)|could not be read|unreadable|unusable|a table (and its backup )?(is|are) missing"
)


@define(eq=False)
class AtRest(Fault):
    """`ways`: what happens to a file of the part. `silent`: those of them that a member mends without a word."""

    ways: ClassVar[Sequence[str]] = ("bit", "zeroed", "truncated", "missing", "garbage")
    silent: ClassVar[Sequence[str]] = ()
    victim: Member = field(init=False)
    was_master: bool = field(init=False)
    how: str = field(init=False)
    refusal: str = field(init=False, default="")
    log_sizes: dict[Member, int] = field(init=False)  # When it began.

    def prepare(self) -> None:
        self.victim = self.rng.choice(self.group.members)
        self.was_master = self.victim is self.group.master()
        self.how = self.rng.choice(self.ways)
        self.hold_s = 0.1

    def files(self) -> list[Path]:
        """Those that may be hit."""
        raise NotImplementedError

    @property
    def trace(self) -> str:  # type: ignore[override]
        return r"^Error: " if self.refusal else "" if self.how in self.silent else OF_DAMAGE

    @property
    def text(self) -> str:
        role = "master" if self.was_master else "slave"
        return f"{type(self).__name__} {self.how}, while the {role} {self.victim.label} is stopped"

    def inject(self) -> None:
        eager(self.victim)
        self.victim.stop()
        self.log_sizes = {each: each.log_size for each in self.group.members}
        path = self.rng.choice(sorted(self.files()))
        said = damage(path, self.how, self.rng)
        self.group.write("note", text=f"{path.relative_to(self.victim.store)}: {said}", node=self.victim.label)
        self.look()
        Process.start(self.victim)
        self.refusal = self._starts()
        if self.refusal:
            self.group.write("note", text=f"it refuses to start: {self.refusal}", node=self.victim.label)
        else:
            found = read_member(self.group.namesrv, self.victim.address, self.group.own_lines, f"look-{id(self)}")
            self.group.write("note", text=f"it serves {found} messages", node=self.victim.label)

    def look(self) -> None:
        """What a person does before it starts."""

    def _starts(self) -> str:
        """Empty: it did. Otherwise what it said last."""
        ends = time.monotonic() + SECONDS_TO_START
        while not self.victim.printed("ready "):
            if not self.victim.running:
                return self._said().splitlines()[-1]
            if time.monotonic() > ends:
                raise AssertionError(f"{self.victim.label} neither starts nor says why:\n{self.victim.tail()}")
            time.sleep(0.05)
        return ""

    def heal(self) -> None:
        others = [each for each in self.group.members if each is not self.victim]
        if self.refusal:
            if self.was_master:
                fail_over(self.group, others, self.rng)
            shutil.rmtree(self.victim.store)
            Process.start(self.victim)
        else:
            if self.was_master and "ends before its last durable end" in self._said():
                fail_over(self.group, others, self.rng)  # It waits for that: another one has what it lost.
            self._mended()
        told = [line for each in others for line in each.lines_from(self.log_sizes[each])]
        if spread := [line for line in told if re.search(r"damaged bytes|changed on the disk|wrong unit", line)]:
            self.group.complain("B", f"another member is damaged, too: {spread[0]}")

    def _said(self) -> str:
        return "\n".join(self.victim.lines_from(self.log_sizes[self.victim]))

    def _mended(self) -> None:
        """By itself, with what another member has: `twinlog check` says so long that it is not."""
        ends = time.monotonic() + SECONDS_TO_MEND
        if NOTHING_THERE not in self._said():
            self.victim.wait_until(lambda: "scrub round finished" in self._said(), "its scrub")
        while left := [each for each in self.group.check() if "damage" in each]:
            if time.monotonic() > ends:
                raise AssertionError(f"it does not put itself right: {left}\n{self.victim.tail()}")
            time.sleep(0.2)


def eager(member: Member) -> None:
    """From its next start on it scrubs and repairs at once."""
    command = member._command
    if MODULE not in command:
        at = command.index(PROGRAM)
        command[at : at + 1] = [PYTHON, "-m", MODULE, EAGER]
    elif EAGER not in command:
        command.insert(command.index(MODULE) + 1, EAGER)


class LogAtRest(AtRest):
    """The only thing that nothing else can make anew, but another member."""

    def prepare(self) -> None:
        AtRest.prepare(self)
        if not self.files():
            self.how = "bit"

    def files(self) -> list[Path]:
        """Of lost files not the first one: a log that begins later is one to a start, too, but for a warning."""
        found = sorted(path for path in self.victim.commit_log.iterdir() if path.name.isdigit())
        written = [path for path in found if path.read_bytes().strip(b"\0")]
        return {"garbage": found[-1:], "missing": written[1:] or written}.get(self.how, found)


class QueuesAtRest(AtRest):
    def files(self) -> list[Path]:
        queues = (self.victim.store / "consumequeue" / "faults").glob("*/*")
        return [path for path in queues if path.read_bytes().strip(b"\0")]


class IndexAtRest(AtRest):
    """A broker looks at its end alone: `twinlog log verify` finds what is wrong with the rest, and `rebuild` mends it."""

    silent = AtRest.ways

    def files(self) -> list[Path]:
        return list((self.victim.store / "index").iterdir())

    def look(self) -> None:
        store = str(self.victim.store)
        done = self.group.twinlog("log", "verify", store, status=None)
        self.group.write("note", text=f"log verify: exit status {done.returncode}: {done.stdout[:200]}")
        if done.returncode:
            self.group.twinlog("log", "rebuild", store, "--index", "--yes")


class MarksAtRest(AtRest):
    """Where a start begins. It may not trust them more than what they speak of."""

    silent = AtRest.ways

    def files(self) -> list[Path]:
        side = self.victim.store / "twinlog"
        return [
            each
            for each in (self.victim.store / "checkpoint", side / "recovery-point", side / "digest")
            if each.exists()
        ]


class PromisesAtRest(AtRest):
    """What a member has promised, and whose the bytes of its log are: it must not start on a guess."""

    ways = ("bit", "zeroed", "truncated", "garbage")

    def files(self) -> list[Path]:
        side = self.victim.store / "twinlog"
        return [each for each in (side / "role", side / "epochs") if each.exists()]


class TablesAtRest(AtRest):
    """Topics, groups, offsets. There is the text before the last change beside each, and slaves have their master's. A member
    notes which of them it has saved, so it misses each that is gone, whether a group ever consumed or not.
    """

    ways = ("zeroed", "truncated", "missing", "garbage")

    def files(self) -> list[Path]:
        config = self.victim.store / "config"
        names = ("topics.json", "consumerOffset.json", "subscriptionGroup.json")
        return [config / name for name in names if (config / name).exists()]
