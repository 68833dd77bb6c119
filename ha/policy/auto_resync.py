"""Decides whether a slave whose log does not fit its master's repairs itself. Pure: a verdict in, a repair or a refusal out.

What a repair takes away is kept in twinlog/divergent/. Still, a slave may be the last one that has some messages: a master that
lost its disk, was set up anew or restored from an old backup must not make all its slaves throw their copies away. Therefore a
repair cuts only behind bytes that were compared with the master's and are equal, no more than haAutoResyncBytesMax of them, and
only for a master. Everything else is a person's decision.
"""

from attrs import define, field, frozen

from twinlog.ha.compare.preflight import Verdict


@frozen
class Cut:
    """Let the log end at `offset`."""

    offset: int
    why: str


@frozen
class BeginAnew:
    """Replace the whole log; it is kept."""

    why: str


@frozen
class Refusal:
    """Do nothing, for this reason."""

    why: str


Repair = Cut | BeginAnew


@define(eq=False)
class Resync:
    """Decides for one master; the same repair is not made twice while that one runs."""

    is_on: bool
    bytes_max: int
    _done: set[object] = field(factory=set, init=False)

    def decide(self, verdict: Verdict) -> Repair | Refusal | None:
        """Decide on a verdict; None when repairs are switched off, or do not help."""
        if not self.is_on or verdict.kind not in ("diverged", "ahead", "below min"):
            return None
        assert verdict.finding is not None
        if verdict.peer.is_master is False:
            return Refusal("the member that is followed is no master")
        place = (verdict.kind, verdict.finding.offset, verdict.peer.boot_ms)
        if place in self._done:
            return Refusal("this was repaired once already and is back: the cause is another one")
        if verdict.kind == "below min":
            return BeginAnew(verdict.finding.text)
        common = verdict.common_offset
        if verdict.peer.max_offset == 0:
            return Refusal("the master's log is empty: what is here may be the last copy")
        if common is None or verdict.compared == "nothing":
            return Refusal("no byte is known to be common to both: what is here may be the last copy")
        size = verdict.own.max_offset - common
        assert size >= 0, "a cut behind the log's end"
        if size > self.bytes_max:
            return Refusal(f"{size} bytes would be cut, haAutoResyncBytesMax is {self.bytes_max}")
        return Cut(common, verdict.finding.text)

    def done(self, verdict: Verdict) -> None:
        """Note that what was decided was carried out."""
        assert verdict.finding is not None
        self._done.add((verdict.kind, verdict.finding.offset, verdict.peer.boot_ms))
