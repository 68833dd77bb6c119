"""Output of `twinlog demo`: plain lines in a pipe; on a terminal also the members and the traffic, live."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any

from twinlog.cluster.broker.peers.role_messages import ChangeResult, ChangeState
from twinlog.cluster.cli import common
from twinlog.cluster.cli.common.render import drawn_table
from twinlog.cluster.cli.demo.traffic import LedgerAccount
from twinlog.cluster.cli.members import member_columns
from twinlog.cluster.observe.live_diff import LiveDiffReport, LiveVerdict
from twinlog.cluster.observe.members import MemberList
from twinlog.cluster.text import count
from twinlog.store.truncation.divergent import Divergent

WIDTH = 100
BARS = " ▁▂▃▄▅▆▇█"
STEP_SECONDS = 0.25  # Of one bar.
Picture = Callable[[int], Any]  # Width of the terminal -> what rich draws.


class PlainScreen:
    """Chapters and events as lines on stdout. Marks of events: · neutral, ✓ good, ✗ bad."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._chapters = 0

    def chapter(self, title: str, why: str) -> None:
        """Print what happens next, and why."""
        self._chapters += 1
        print(f"\n{self._chapters}. {title}")
        for line in wrap(why, WIDTH - 3):
            print(f"   {line}", flush=True)

    def tell(self, words: str, mark: str = "·") -> None:
        """Print one line with the seconds since the start."""
        print(f"   {self._clock():5.1f} s {mark} {words}", flush=True)

    def draw(self, picture: Picture) -> None:
        """Draw nothing: events are printed."""


class LiveScreen:
    """The same lines in colour, with a live picture below them."""

    def __init__(self, live: Any, clock: Callable[[], float]) -> None:
        self._live, self._clock = live, clock
        self._chapters = 0

    def chapter(self, title: str, why: str) -> None:
        """Print the title in bold."""
        self._chapters += 1
        self._live.console.print(common.drawing.Text(f"\n{self._chapters}. {title}", style="bold cyan"))
        self._live.console.print(common.drawing.Padding(common.drawing.Text(why, style="dim"), (0, 0, 0, 3)))

    def tell(self, words: str, mark: str = "·") -> None:
        """Print one event with a coloured mark."""
        style = {"✓": "green", "✗": "bold red"}.get(mark, "")
        self._live.console.print(
            common.drawing.Text.assemble((f"   {self._clock():5.1f} s ", "dim"), (f"{mark} ", style), (words, style))
        )

    def draw(self, picture: Picture) -> None:
        """Redraw the picture."""
        self._live.update(picture(self._live.console.width), refresh=True)


Screen = PlainScreen | LiveScreen


@contextmanager
def screen(clock: Callable[[], float]) -> Iterator[Screen]:
    """Yield the output that suits stdout."""
    if not sys.stdout.isatty():
        yield PlainScreen(clock)
        return

    console = common.drawing.Console()
    # auto_refresh would be a thread.
    with common.drawing.Live(console=console, auto_refresh=False, transient=True) as live:
        yield LiveScreen(live, clock)


def picture_of(members: MemberList, traffic: str, where: str) -> Picture:
    """Return a picture of the members, the traffic, and where to see more."""

    def picture(width: int) -> Any:
        lines = [common.drawing.Text(traffic[:width], style="green"), common.drawing.Text(where[:width], style="dim")]
        table = drawn_table(member_columns(members.members), members.members, "pretty", width)
        return common.drawing.Group(common.drawing.Text(""), table, *lines)

    return picture


def bars(counts: Sequence[int]) -> str:
    """Draw one character for each count; a step without any is a visible gap.

    >>> bars([0, 1, 4, 8])
    ' ▁▄█'
    """
    most = max(counts, default=0)
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] if most else BARS[0] for count in counts)


def many(value: int, one: str) -> str:
    """Format a number with its noun.

    >>> many(1, "message"), many(1200, "message")
    ('1 message', '1 200 messages')
    """
    return f"{number(value)} {one if value == 1 else one + 's'}"


def number(value: int) -> str:
    """Format a number with spaces between thousands."""
    return count(value, " ")


def verdict(state: ChangeState) -> str:
    """Describe what a failover would cost, as judged by its candidate."""
    if any(each.may and not each.forced for each in state.judgements):
        return "bytes at risk: 0; enough members vote for it, and it has everything that any of them has"
    lost = [each.lost for each in state.judgements if each.lost is not None]
    if not lost:
        return "bytes at risk: unknown"
    return f"bytes at risk: {number(lost[0].end - lost[0].first) if lost[0].end is not None else 'unknown'}"


def taken_over(winner: str, result: ChangeResult, seconds: float) -> str:
    """Describe the result of a failover."""
    lost = "an unknown number of" if result.lost_bytes is None else number(result.lost_bytes)
    return f"{winner} is the master in epoch {result.epoch}, after {seconds:.2f} s; acknowledged bytes lost: {lost}"


def rewound(name: str, kept: Sequence[Divergent]) -> str:
    """Describe what the old master cut from its log."""
    if not kept:
        return f"{name} follows as a slave; its log had nothing that the new master lacks"
    size, where = number(sum(each.size for each in kept)), kept[-1].path.name
    return f"{name} follows; it cut {size} bytes that only it had, without SEND_OK, and keeps them in divergent/{where}"


def account_lines(account: LedgerAccount) -> list[tuple[str, bool]]:
    """Format the account in lines, each with whether it is good."""
    lines = [
        (f"acknowledged {number(account.acknowledged)}", True),
        (f"found        {number(account.found)}", account.found == account.acknowledged),
        (f"missing      {number(len(account.missing))}{_first(account.missing)}", not account.missing),
    ]
    if account.surplus:
        copies = many(account.surplus, "message") + (" is" if account.surplus == 1 else " are")
        lines.append(
            (f"{copies} stored twice: the response was lost with the master, so the producer sent again", True)
        )
    else:
        lines.append(("duplicates   0", True))
    if account.unclear:
        lines.append((f"{many(account.unclear, 'message')} found without an acknowledgement", True))
    if account.unknown:
        lines.append((f"{many(account.unknown, 'message')} found, but never sent", False))
    return lines


def _first(missing: Sequence[int]) -> str:
    return f", first number {missing[0]}" if missing else ""


def compared(reports: Sequence[LiveDiffReport]) -> tuple[str, bool]:
    """Describe the comparison of the logs."""
    differing = [each for each in reports if each.verdict is not LiveVerdict.EQUAL or each.right_behind_bytes]
    if not differing:
        end = number(reports[0].common_end) if reports else "0"
        return f"the logs of all {len(reports) + 1} members are equal by digest, byte 0 to {end}", True
    names = "; ".join(f"{each.left.name} and {each.right.name}: {each.verdict.value}" for each in differing)
    return f"the logs are not equal: {names}", False
