"""What is found to be broken in a store, by reads and by the scrub: kept for statistics, and told once each."""

import structlog
from attrs import define, field

from store.damage import DamagedRanges

log = structlog.get_logger()

_UNITS_MAX = 10_000  # More wrong units than this are counted, not kept one by one.


@define(eq=False)
class KnownDamage:
    """`damaged`: no message of these bytes is served. `in_doubt`: a byte in them changed that no message's CRC covers."""

    damaged: DamagedRanges = field(factory=DamagedRanges)
    in_doubt: DamagedRanges = field(factory=DamagedRanges)
    wrong_units: int = 0
    _units: set[tuple[str, int, int]] = field(factory=set, init=False)

    def record(self, start: int, end: int, found: str) -> None:
        """Bytes `start` to `end` of the log are no sound record."""
        if self.damaged.overlaps(start, end):
            self.damaged.add(start, end)
            return
        self.damaged.add(start, end)
        log.error(
            "damaged bytes in the commit log; what they held is not served, consumers go on behind it",
            offset=start,
            bytes=end - start,
            found=found,
            advice="copy the message from another replica, or this store's files from a backup",
        )

    def doubt(self, start: int, end: int, found: str) -> None:
        """A byte in this range is another one than was written, and it cannot be said which."""
        if not self.in_doubt.overlaps(start, end):
            log.error(
                "the commit log changed on its disk where no CRC covers it; its messages are served as they lie",
                offset=start,
                bytes=end - start,
                found=found,
                advice="compare this range with another replica",
            )
        self.in_doubt.add(start, end)

    def unit(self, topic: str, queue_id: int, queue_offset: int, found: str, *, served: bool = False) -> None:
        """A consume queue's unit is wrong; `served`: its message is found all the same."""
        key = (topic, queue_id, queue_offset)
        if key in self._units:
            return
        self.wrong_units += 1
        if len(self._units) < _UNITS_MAX:
            self._units.add(key)
        log.error(
            "a wrong unit in a consume queue; its message is " + ("served" if served else "not served"),
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            found=found,
            advice="stop the broker and remove this queue's directory: the next start makes it anew from the commit log",
        )
