"""Two bad records at one place are no accident of the line. Pure, but for the question to the peer."""

from attrs import define, field

from twinlog.ha.compare.comparison import answer_of
from twinlog.ha.compare.finding import Finding
from twinlog.ha.errors import HABadRecordError, HAPeerError
from twinlog.ha.peer import Peer
from twinlog.store.record.resync import is_record


@define(eq=False)
class BadPlaces:
    """How often in a row what a master sent for one place was bad."""

    _offset: int = field(default=-1, init=False)
    _times: int = field(default=0, init=False)

    def note(self, offset: int) -> int:
        """One more; how many there were for this very offset."""
        self._times = self._times + 1 if offset == self._offset else 1
        self._offset = offset
        return self._times


async def explain(error: HABadRecordError, peer: Peer | None, file_size: int) -> Finding:
    """Ask the master what it has there itself."""
    offset, why = error.phy_offset, "its remoting port does not answer, so that where it broke is not known"
    if peer is not None:
        try:
            record = await answer_of(peer.record(offset))
        except HAPeerError:
            pass
        else:
            if record is not None and is_record(record, offset, file_size):
                why = "asked for this record alone it gives a sound one: the way between, or a machine's memory, spoils it"
            else:
                why = (
                    "asked for this record alone it gives none that is sound, either: its own copy is damaged there. Let it "
                    "look with: twinlog log verify. A slave that has this record can take its place"
                )
    return Finding(
        "bad record",
        offset,
        f"a bad record at offset {offset}, time and again from this master: {error.what}. Nothing behind it is taken, and the "
        f"master is asked again every few seconds only; {why}",
    )
