"""How `twinlog demo` tells its story: plain lines in a pipe; on a terminal with the members and the traffic below them, live."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any, Protocol

from twinlog.cluster.observe.members import MemberList

WIDTH = 100
BARS = " ▁▂▃▄▅▆▇█"
STEP_SECONDS = 0.25  # Of one bar.
Picture = Callable[[int], Any]  # Columns of the terminal -> what rich draws.


class Screen(Protocol):
    """Where the story goes."""

    def chapter(self, title: str, why: str) -> None:
        """What happens now, and what for."""

    def tell(self, words: str, mark: str = "·") -> None:
        """One thing that has happened. Marks: · as it is, ✓ good, ✗ bad."""

    def draw(self, picture: Picture) -> None:
        """Show how everybody is; nothing in a pipe."""


class PlainScreen:
    """Lines on stdout."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._chapters = 0

    def chapter(self, title: str, why: str) -> None:
        """A line for the title, some for the reason."""
        self._chapters += 1
        print(f"\n{self._chapters}. {title}")
        for line in wrap(why, WIDTH - 3):
            print(f"   {line}", flush=True)

    def tell(self, words: str, mark: str = "·") -> None:
        """One line, with the seconds since the beginning."""
        print(f"   {self._clock():5.1f} s {mark} {words}", flush=True)

    def draw(self, picture: Picture) -> None:
        """Nothing: what changes is told."""


class LiveScreen:
    """The same lines, and below them what changes."""

    def __init__(self, live: Any, clock: Callable[[], float]) -> None:
        self._live, self._clock = live, clock
        self._chapters = 0

    def chapter(self, title: str, why: str) -> None:
        """The title in bold."""
        from rich.padding import Padding
        from rich.text import Text

        self._chapters += 1
        self._live.console.print(Text(f"\n{self._chapters}. {title}", style="bold cyan"))
        self._live.console.print(Padding(Text(why, style="dim"), (0, 0, 0, 3)))

    def tell(self, words: str, mark: str = "·") -> None:
        """Marks in colour, too."""
        from rich.text import Text

        style = {"✓": "green", "✗": "bold red"}.get(mark, "")
        self._live.console.print(
            Text.assemble((f"   {self._clock():5.1f} s ", "dim"), (f"{mark} ", style), (words, style))
        )

    def draw(self, picture: Picture) -> None:
        """Draw the picture anew."""
        self._live.update(picture(self._live.console.width), refresh=True)


@contextmanager
def screen(clock: Callable[[], float]) -> Iterator[Screen]:
    """The one that suits stdout."""
    if not sys.stdout.isatty():
        yield PlainScreen(clock)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), auto_refresh=False, transient=True) as live:  # auto_refresh would be a thread.
        yield LiveScreen(live, clock)


def picture_of(members: MemberList, traffic: str, where: str) -> Picture:
    """The members, the traffic, and where to look."""

    def picture(width: int) -> Any:
        from rich.console import Group
        from rich.text import Text

        from twinlog.cluster.cli.run.up_view import members_table

        lines = [Text(traffic[:width], style="green"), Text(where[:width], style="dim")]
        return Group(Text(""), members_table(members.members, width), *lines)

    return picture


def bars(counts: Sequence[int]) -> str:
    """One character for each count; a step without any is a gap that one can see.

    >>> bars([0, 1, 4, 8])
    ' ▁▄█'
    """
    most = max(counts, default=0)
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] if most else BARS[0] for count in counts)
