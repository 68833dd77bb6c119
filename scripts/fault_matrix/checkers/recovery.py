"""How long after a heal messages are acknowledged again, without anybody doing anything; and whether every fault was told."""

from attrs import frozen

from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from scripts.fault_matrix.history import Event, History

NS = 1_000_000_000
MAY_NEED_SOMEBODY = "may need somebody"  # A note with the number of a fault of which no time is promised.


@frozen
class Recovery:
    """Seconds from a heal to the first acknowledgement of a message that was sent after it; None: there was none."""

    fault: Event
    heal: Event
    seconds: float | None


def recoveries(history: History) -> list[Recovery]:
    """One for each heal, of the fault with its number."""
    faults = {event.id: event for event in history.of_kind("fault")}
    found = []
    for heal in history.of_kind("heal"):
        ends = [
            append.end_ns for append in history.acknowledged if append.begin_ns >= heal.ns and append.end_ns is not None
        ]
        seconds = (min(ends) - heal.ns) / NS if ends else None
        found.append(Recovery(faults[heal.id], heal, seconds))
    return found


def recovered_in_time(history: History, seconds_max: float) -> Verdict:
    """Oracle F."""
    excused = {event.id for event in history.of_kind("note") if event.text == MAY_NEED_SOMEBODY}
    found = [each for each in recoveries(history) if each.fault.id not in excused]
    wrong = []
    for each in found:
        what = f"{each.fault.text} (fault {each.fault.id})"
        if each.seconds is None:
            wrong.append(f"{what}: nothing was acknowledged after it had healed")
        elif each.seconds > seconds_max:
            wrong.append(
                f"{what}: {each.seconds:.1f} s until the first acknowledgement, {seconds_max:g} s are promised"
            )
    not_healed = {event.id for event in history.of_kind("fault")} - {each.fault.id for each in found} - excused
    wrong += [f"fault {number} was never healed" for number in sorted(not_healed)]
    if not found:
        wrong.append("there was no fault, so nothing was shown")
    slowest = max((each.seconds or 0 for each in found), default=0.0)
    return verdict("F", wrong, f"{len(found)} faults, slowest recovery {slowest:.2f} s")


def nothing_silent(history: History) -> Verdict:
    """Oracle G. A `seen` line says of which fault it is a trace, where that was (a log, `twinlog check`), and how it reads."""
    seen: dict[int, list[str]] = {}
    for event in history.of_kind("seen"):
        seen.setdefault(event.id, []).append(event.text)
    faults = history.of_kind("fault")
    wrong = [f"{event.text} (fault {event.id}) left no trace" for event in faults if event.id not in seen]
    if not faults:
        wrong.append("there was no fault, so nothing was shown")
    return verdict("G", wrong, f"{sum(map(len, seen.values()))} traces of {len(faults)} faults")
