"""Short words for histories that are written by hand, and histories by chance."""

from hypothesis import strategies as st

from scripts.fault_matrix.history import Append, Event, History, Seen, history_of


def send(value, begin, end, offset, *, queue="q", node="m", phy=None, outcome="ok", process=None, level="L2"):
    """The two lines of one append; without an `end` its producer never heard."""
    process = process or value.rpartition("-")[0] or "p"
    known = {"op": "append", "process": process, "id": hash(value), "queue": queue, "value": value, "level": level}
    lines = [Event(ns=begin, kind="invoke", **known)]
    if end is not None:
        place = {"offset": offset, "phy": phy if phy is not None else (offset or 0) * 100} if outcome == "ok" else {}
        lines.append(Event(ns=end, kind=outcome, node=node, **known, **place))
    return lines


def read(values, *, begin=1000, end=1001, queue="q", op="final", process="reader", first=0):
    """A read of the whole queue."""
    known = {"op": op, "process": process, "id": begin, "queue": queue}
    lines = [Event(ns=begin, kind="invoke", **known)]
    return lines + [
        Event(ns=end, kind="ok", offset=first + at, value=value, **known) for at, value in enumerate(values)
    ]


def early(values, begin, end, first=0):
    """A consumer's pull."""
    return read(values, begin=begin, end=end, op="read", process=f"r{begin}", first=first)


def fault(number, begin, end=None, text="a fault"):
    """Injected, and healed again."""
    lines = [Event(ns=begin, kind="fault", id=number, text=text)]
    return lines if end is None else [*lines, Event(ns=end, kind="heal", id=number, text=text)]


def seen(number, at=0, text="a line"):
    """A trace of it."""
    return [Event(ns=at, kind="seen", id=number, text=text)]


def history(*parts) -> History:
    """All of it."""
    return history_of(event for part in parts for event in part)


@st.composite
def histories(draw):
    """Up to five appends and three reads, most of them of a real run of which one thing may be changed."""
    count = draw(st.integers(1, 5))
    moments = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    order = sorted(range(count), key=lambda each: (moments[each], each))
    happened = [each for each in order if draw(st.integers(0, 4))]
    appends = []
    for number, at in enumerate(moments):
        begin, end = at - draw(st.integers(0, 3)), at + draw(st.integers(0, 3))
        is_known = number in happened and draw(st.booleans())
        offset = happened.index(number) if is_known else None
        if is_known and not draw(st.integers(0, 3)):
            offset = draw(st.integers(0, count))
        appends.append(
            Append(
                f"v{number}",
                "q",
                "p",
                "L2",
                begin,
                end if is_known else None,
                "ok" if is_known else "unknown",
                "m",
                offset,
            )
        )
    reads = []
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, count - 1))
        if place < len(happened) and draw(st.integers(0, 3)):
            number = happened[place]
            at = moments[number] + draw(st.integers(0, 6))
        else:
            number, at = draw(st.integers(0, count - 1)), draw(st.integers(0, 14))
        reads.append(Seen("q", place, f"v{number}", at - draw(st.integers(0, 2)), at + draw(st.integers(0, 2)), False))
    return appends, reads
