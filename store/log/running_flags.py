"""Why a store takes no bytes: named conditions, each with a reason for people.

RocketMQ keeps bits (RunningFlags, 4.9.8: not writeable, logics queue error, index error, disk full); here a condition has a text,
and it is known whether it passes by itself. That a broker is a slave is none of these: a slave's log takes bytes, its master's.
"""

from enum import Enum

from attrs import define, field


class Condition(Enum):
    """What can be the matter, worst first."""

    FAILED = "failed"  # The disk lost something, or may have: only a restart, which looks at all of it, ends this.
    CLOSED = "closed"
    NOT_OPEN = "not open"
    DISK_REFUSES = (
        "disk refuses"  # A write was refused whole: no space, quota, read-only. Tried again until it is taken.
    )
    CUTTING = "cutting"  # A slave's log is being cut, or is about to begin anew.
    DISK_FULL = "disk full"  # Above diskSpaceWarningLevelRatio: producers are refused early, replication goes on.


_WORST_FIRST = tuple(Condition)
_PASSING = (Condition.DISK_REFUSES, Condition.CUTTING, Condition.DISK_FULL)


@define(eq=False)
class RunningFlags:
    """The conditions that hold. `why_not_writable` and `why_not_appendable` are kept ready: every put looks at them."""

    why_not_writable: str = field(default="", init=False)  # For producers; empty: they may write.
    why_not_appendable: str = field(
        default="", init=False
    )  # For replication, which a disk above a limit does not stop.
    _reasons: dict[Condition, str] = field(factory=dict, init=False)

    def set(self, condition: Condition, reason: str) -> bool:
        """Let a condition hold; False when it held before: FAILED and DISK_REFUSES keep their first reason."""
        held = condition in self._reasons
        if not held or condition is Condition.DISK_FULL:
            self._reasons[condition] = reason
            self._say()
        return not held

    def clear(self, condition: Condition) -> bool:
        """End a condition; whether it held. FAILED never ends."""
        assert condition is not Condition.FAILED
        held = self._reasons.pop(condition, None) is not None
        self._say()
        return held

    def __contains__(self, condition: Condition) -> bool:
        return condition in self._reasons

    @property
    def is_passing(self) -> bool:
        """Whether whatever holds ends by itself."""
        return all(condition in _PASSING for condition in self._reasons)

    def _say(self) -> None:
        texts = [(condition, self._reasons[condition]) for condition in _WORST_FIRST if condition in self._reasons]
        self.why_not_writable = texts[0][1] if texts else ""
        self.why_not_appendable = next((text for condition, text in texts if condition is not Condition.DISK_FULL), "")
