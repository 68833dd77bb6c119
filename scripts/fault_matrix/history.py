"""What happened in a run, as lines of JSON: client operations, faults and heals, and what was looked at afterwards.

    {"ns": 81, "kind": "invoke", "op": "append", "process": "p0", "id": 4, "queue": "faults/1", "value": "p0-4", "level": "L2"}
    {"ns": 95, "kind": "ok", "op": "append", "process": "p0", "id": 4, ..., "node": "127.0.0.1:26011", "offset": 7, "phy": 2048}

`kind` of an operation: invoke, then one of ok, fail (it certainly did not happen) or unknown (it may have, or may yet). Times are
CLOCK_MONOTONIC of one machine, so that several processes may write parts of one history. Checkers need nothing but such lines.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from sys import intern
from typing import Literal

import orjson
from attrs import asdict, field, frozen

Kind = Literal["invoke", "ok", "fail", "unknown", "fault", "heal", "healed", "seen", "note"]
Op = Literal["", "append", "read", "final"]
KINDS = frozenset({"invoke", "ok", "fail", "unknown", "fault", "heal", "healed", "seen", "note"})
ENDS = frozenset({"ok", "fail", "unknown"})
NAMES = frozenset({"kind", "op", "process", "node", "queue", "level"})


@frozen(kw_only=True)
class Event:
    """One line. What is not known or does not apply is left out of it.

    A read gives one `ok` line for each message, with its queue, offset and value; a value that is None there was no message that
    anybody could have sent. `final` is a read after everything has healed: it sees all that is there.
    """

    ns: int
    kind: Kind
    op: Op = ""
    process: str = ""
    id: int = -1  # Pairs the lines of one operation of a process; of a fault: its number in the run.
    node: str = ""
    queue: str = ""
    value: str | None = None
    offset: int | None = None  # In its queue.
    phy: int | None = None  # In the log.
    level: str = ""  # What an acknowledgement promises, see docs/operating/replication.md.
    text: str = ""


@frozen
class Append:
    """One message, as its producer saw it. Times in ns; `end_ns` is None while nobody knows what became of it."""

    value: str
    queue: str
    process: str
    level: str
    begin_ns: int
    end_ns: int | None
    outcome: Literal["ok", "fail", "unknown"]
    node: str = ""
    offset: int | None = None
    phy: int | None = None
    text: str = ""


@frozen
class Seen:
    """A message that somebody read."""

    queue: str
    offset: int
    value: str | None
    begin_ns: int
    end_ns: int
    final: bool
    phy: int | None = None


@frozen
class History:
    """All lines of a run, oldest first, and what they come to."""

    events: tuple[Event, ...]
    appends: tuple[Append, ...] = field(init=False, repr=False)
    reads: tuple[Seen, ...] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "appends", tuple(_appends(self.events)))
        object.__setattr__(self, "reads", tuple(_reads(self.events)))

    @property
    def final(self) -> tuple[Seen, ...]:
        """What was there in the end."""
        return tuple(read for read in self.reads if read.final)

    @property
    def acknowledged(self) -> tuple[Append, ...]:
        """What producers were told to be safe."""
        return tuple(append for append in self.appends if append.outcome == "ok")

    def of_kind(self, *kinds: str) -> tuple[Event, ...]:
        """The faults, the heals."""
        return tuple(event for event in self.events if event.kind in kinds)


def history_of(events: Iterable[Event]) -> History:
    """Events of several writers, in the order in which they happened."""
    return History(tuple(sorted(events, key=lambda event: event.ns)))


def encode(event: Event) -> bytes:
    """One line."""
    plain = asdict(event, filter=lambda attribute, value: value != attribute.default)
    return orjson.dumps(plain) + b"\n"


def decode(line: bytes) -> Event:
    """The reverse. Raises ValueError for what is no event."""
    try:
        fields = orjson.loads(line)
        for name in NAMES & fields.keys():
            fields[name] = intern(fields[name])  # Millions of lines name a few.
        event = Event(**fields)
    except TypeError as error:
        raise ValueError(f"no event: {line[:200]!r}") from error
    if event.kind not in KINDS:
        raise ValueError(f"no kind of event: {event.kind!r}")
    return event


def load(*paths: Path) -> History:
    """The history in these files. A last line that is cut, by a writer that was killed, is left out."""
    return history_of(event for path in paths for event in from_position(path, 0))


def from_position(path: Path, position: int) -> Iterator[Event]:
    """What was written behind so many bytes, where a line began."""
    with path.open("rb") as file:
        file.seek(position)
        raw = file.read()
    start = 0 if position == 0 else raw.find(b"\n") + 1
    for line in raw[start : raw.rfind(b"\n") + 1].splitlines():
        yield decode(line)


def _appends(events: Iterable[Event]) -> Iterator[Append]:
    begun: dict[tuple[str, int], Event] = {}
    for event in events:
        if event.op != "append":
            continue
        key = event.process, event.id
        if event.kind == "invoke":
            if key in begun or event.value is None:
                raise ValueError(f"operation {key} begins twice, or without a value")
            begun[key] = event
        elif event.kind in ENDS:
            yield _append(begun.pop(key), event)
    for start in begun.values():  # Its producer was killed.
        yield _append(start, None)


def _append(start: Event, end: Event | None) -> Append:
    assert start.value is not None
    known = (start.value, start.queue, start.process, start.level, start.ns)
    if end is None or end.kind == "unknown":
        return Append(*known, None, "unknown", text=end.text if end else "")
    if end.kind == "fail":
        return Append(*known, end.ns, "fail", text=end.text)
    if end.offset is None:
        raise ValueError(f"an acknowledgement without an offset: {end}")
    return Append(*known, end.ns, "ok", end.node, end.offset, end.phy)


def _reads(events: Iterable[Event]) -> Iterator[Seen]:
    begun: dict[tuple[str, int], int] = {}
    for event in events:
        if event.op not in ("read", "final"):
            continue
        key = event.process, event.id
        if event.kind == "invoke":
            begun[key] = event.ns
        elif event.kind == "ok" and event.offset is not None:
            final = event.op == "final"
            yield Seen(event.queue, event.offset, event.value, begun[key], event.ns, final, event.phy)
