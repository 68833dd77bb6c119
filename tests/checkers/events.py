"""Short words for histories that are written by hand."""

from scripts.fault_matrix.history import Event, History, history_of


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
