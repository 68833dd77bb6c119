"""Joins the results of all stretches for the consume queues, and checks the units without a record.

A queue holds, in this order: blanks, for messages that were gone when it was rebuilt; units of messages that are gone by now;
one unit for each message of the log, a blank for a lost one; and nothing, or stale units left by an earlier cut.
"""

from collections.abc import Iterator

from attrs import define, field

from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.finding import Finding, FindingKind, Findings, Severity, queue_finding
from twinlog.store.offline.queue_view import QueueKey, read_units, units_end
from twinlog.store.offline.verify.log_check import Jump, Segment, Suspect, phy_offset_of, wrong_number
from twinlog.store.queue.layout import BLANK, BLANK_SIZE, UNIT
from twinlog.store.record.scan import SCHEDULE_TOPIC

_UNITS_AT_ONCE = 16_384
_ZERO = bytes(UNIT.size)


@define
class _Lost:
    """Messages of one queue that are lost, for one reason."""

    first: int | None = None
    count: int = 0

    def note(self, number: int) -> None:
        self.first = number if self.first is None else self.first
        self.count += 1


@define(eq=False)
class QueueCheck:
    """Collected state of the queues. Feed it the segments of the log in order, then call finish()."""

    directory: StoreDirectory
    findings: Findings
    damaged: DamagedRanges
    topics: frozenset[str] | None  # Those of topics.json; None: there is no such file.
    units: int = field(default=0, init=False)
    next_offsets: dict[QueueKey, int] = field(factory=dict, init=False)  # Of queues with messages in the log.
    _firsts: dict[QueueKey, int] = field(factory=dict, init=False)
    _restarts: dict[QueueKey, list[tuple[int, int]]] = field(factory=dict, init=False)  # Queue offset, physical offset.
    _suspects: list[Suspect] = field(factory=list, init=False)
    _shifts: dict[QueueKey, int] = field(factory=dict, init=False)

    def join(self, segment: Segment) -> None:
        """Add the next segment of the log."""
        for key, span in segment.spans.items():
            expected = self.next_offsets.get(key)
            if expected is None:
                self._firsts[key] = span.first
            elif expected != span.first and span.unit:
                self._jump(Jump(key, expected, span.first, span.unit))
        for jump in segment.jumps:
            self._jump(jump)
        self.next_offsets.update(segment.next_offsets)
        self._suspects += segment.suspects

    def _jump(self, jump: Jump) -> None:
        key, expected, found, unit = jump
        if found < expected:
            self._went_back(jump)
        elif read_units(self.directory, key, expected, UNIT.size) == unit:
            self.findings.add(wrong_number(key, expected, found, phy_offset_of(unit)))
        else:
            self._check_unclaimed(key, expected, found)

    def _went_back(self, jump: Jump) -> None:
        """Numbers went back: the queue was deleted and began anew, if its units agree."""
        key, expected, found, unit = jump
        phy_offset = phy_offset_of(unit)
        message, severity = "the record's queue offset was given before", Severity.ERROR
        if read_units(self.directory, key, found, UNIT.size) == unit:
            self._restarts.setdefault(key, []).append((found, phy_offset))
            self._firsts[key] = min(self._firsts.get(key, found), found)
            message = "the numbering of the queue begins anew here, as after its topic was deleted"
            severity = Severity.WARNING
        self.findings.add(
            queue_finding(
                FindingKind.QUEUE_OFFSET,
                key,
                found,
                message,
                severity=severity,
                phy_offset=phy_offset,
                expected=expected,
                actual=found,
            )
        )

    def _check_unclaimed(self, key: QueueKey, start: int, end: int) -> None:
        """Check the units of messages `start` to `end` of a queue, which have no record in the log."""
        raw = b""
        if key in self.directory.queues:
            size = min(end - start, _UNITS_AT_ONCE) * UNIT.size
            raw = read_units(self.directory, key, start, size).ljust(size, b"\0")
        lost, absent, blank = _Lost(), _Lost(), _Lost()
        absent.count = max(0, end - start - len(raw) // UNIT.size)
        for number, (phy_offset, size, _) in enumerate(UNIT.iter_unpack(raw), start):
            if size <= 0 or phy_offset < 0:
                absent.note(number)
            elif phy_offset == 0 and size == BLANK_SIZE:
                blank.note(number)
            else:
                self._unit_without_record(key, number, phy_offset, lost)
        self._add_lost(key, lost)
        file = self._name(key)
        if blank.first is not None:
            kind, message = FindingKind.UNIT_DANGLING, "blanks, which keep the numbers of messages that are lost"
            warning = Severity.WARNING
            self.findings.add(
                queue_finding(kind, key, blank.first, message, severity=warning, file=file, count=blank.count)
            )
        if absent.count:
            first = start if absent.first is None else absent.first
            kind, message = FindingKind.QUEUE_OFFSET, "messages of which nothing is left"
            self.findings.add(queue_finding(kind, key, first, message, file=file, count=absent.count))

    def _name(self, key: QueueKey, number: int | None = None) -> str | None:
        """The queue's directory, or the file of a message."""
        series = self.directory.queues.get(key)
        if series is None:
            return None
        file = series.file_at(number * UNIT.size) if number is not None else None
        return self.directory.relative(file.path if file is not None else series.directory)

    def finish(self, log_min: int, log_end: int) -> None:
        """Check all units without a record, and again what did not fit."""
        for key in {suspect.key for suspect in self._suspects} if self.directory.is_running else ():
            self.directory.list_again(key)
        self._check_suspects()
        for key, series in sorted(self.directory.queues.items()):
            if series.files:
                first = series.min_offset // UNIT.size
                begin, end = self._firsts.get(key), self.next_offsets.get(key)
                self._check_rest(key, series, first, begin, end, log_min, log_end)

    # Units of records that are there

    def _check_suspects(self) -> None:
        missing: dict[QueueKey, list[int]] = {}  # First and last offset, first physical offset, count.
        for suspect in self._suspects:
            key, start, units = suspect
            limit = self._superseded_from(suspect)
            actual = read_units(self.directory, key, start, len(units)).ljust(len(units), b"\0")
            for at in range(0, len(units), UNIT.size):
                number = start + at // UNIT.size
                expected, found = units[at : at + UNIT.size], actual[at : at + UNIT.size]
                if expected == found or (limit is not None and number >= limit):
                    continue
                phy_offset = UNIT.unpack(expected)[0]
                if found == _ZERO:
                    note = missing.setdefault(key, [number, number, phy_offset, 0])
                    note[1] = number
                    note[3] += 1
                else:
                    self._wrong_unit(key, number, expected, found)
        for key, (first, last, phy_offset, count) in missing.items():
            self.findings.add(self._missing(key, first, last, phy_offset, count))

    def _superseded_from(self, suspect: Suspect) -> int | None:
        """The queue offset from which on the queue was numbered anew after this record."""
        restarts = self._restarts.get(suspect.key, ())
        own = phy_offset_of(suspect.units)
        return min((offset for offset, phy_offset in restarts if own < phy_offset), default=None)

    def _wrong_unit(self, key: QueueKey, number: int, expected: bytes, found: bytes) -> None:
        phy_offset, size, code = UNIT.unpack(expected)
        found_phy_offset, found_size, found_code = UNIT.unpack(found)
        if (phy_offset, size) == (found_phy_offset, found_size) and key[0] == SCHEDULE_TOPIC:
            shift = self._shifts.setdefault(key, found_code - code if (found_code - code) % 1000 == 0 else 0)
            if found_code - code == shift:  # A broker with another table of delays.
                return
        at = self._position(key, number)
        if found_phy_offset != phy_offset:
            what, expected_value, actual = "place in the log", phy_offset, found_phy_offset
        elif found_size != size:
            what, at, expected_value, actual = "size", at + 8, size, found_size
        else:
            what, at, expected_value, actual = "tags code", at + 12, code, found_code
        self.findings.add(
            queue_finding(
                FindingKind.UNIT_WRONG,
                key,
                number,
                f"the unit shows another {what} than its message's",
                phy_offset=phy_offset,
                file=self._name(key, number),
                position=at,
                expected=expected_value,
                actual=actual,
            )
        )

    def _missing(self, key: QueueKey, first: int, last: int, phy_offset: int, count: int) -> Finding:
        message, severity = "messages of the log are not in their queue", Severity.ERROR
        if key not in self.directory.queues:
            message = "messages of the log have no queue"
            if self.topics is not None and key[0] not in self.topics and not key[0].startswith("RMQ_SYS_"):
                message, severity = f"{message}; their topic was deleted", Severity.WARNING
        elif not self.directory.stopped_cleanly and self._ends_before(key, last):
            message, severity = f"{message} yet; a broker's start or its dispatch puts them there", Severity.WARNING
        kind, file = FindingKind.UNIT_MISSING, self._name(key)
        return queue_finding(
            kind, key, first, message, severity=severity, phy_offset=phy_offset, file=file, count=count
        )

    def _ends_before(self, key: QueueKey, number: int) -> bool:
        """True when nothing follows in the queue."""
        return not read_units(self.directory, key, number + 1, _UNITS_AT_ONCE * UNIT.size).strip(b"\0")

    # Units without a record

    def _check_rest(
        self,
        key: QueueKey,
        series: FileSeries,
        first: int,
        begin: int | None,
        end: int | None,
        log_min: int,
        log_end: int,
    ) -> None:
        """Check the units before and behind those of the log's records, `begin` to `end`."""
        last, lost, blanks_over = -1, _Lost(), False
        for number, phy_offset, size, is_blank in self._units(key, first, begin):
            if begin is None and (size <= 0 or phy_offset < 0 or phy_offset >= log_end):
                end = number
                break
            self.units += 1
            if is_blank and not blanks_over:
                continue
            blanks_over = True
            if size <= 0 or phy_offset < 0 or phy_offset <= last:
                self.findings.add(self._expired_finding(key, number, phy_offset, size, last))
            elif phy_offset >= log_min:
                self._unit_without_record(key, number, phy_offset, lost)
            last = max(last, phy_offset)
        if begin is not None and end is not None:
            self.units += end - begin
        if end is not None:
            self._check_tail(key, end, log_end, lost)
        self._add_lost(key, lost)

    def _unit_without_record(self, key: QueueKey, number: int, phy_offset: int, lost: _Lost) -> None:
        if self.damaged.overlaps(phy_offset, phy_offset + 1):
            lost.note(number)
            return
        kind, message = FindingKind.UNIT_DANGLING, "a unit of a message that the log does not have there"
        file, position = self._name(key, number), self._position(key, number)
        self.findings.add(
            queue_finding(kind, key, number, message, phy_offset=phy_offset, file=file, position=position)
        )

    def _position(self, key: QueueKey, number: int) -> int:
        return number * UNIT.size % self.directory.queues[key].file_size

    def _add_lost(self, key: QueueKey, lost: _Lost) -> None:
        if lost.first is not None:
            kind, message = FindingKind.UNIT_DANGLING, "their records lie in damaged parts"
            file = self._name(key)
            self.findings.add(queue_finding(kind, key, lost.first, message, file=file, count=lost.count))

    def _units(self, key: QueueKey, start: int, end: int | None) -> Iterator[tuple[int, int, int, bool]]:
        """Number, physical offset and size of units, and True for blanks; up to the end of the queue's files."""
        while end is None or start < end:
            count = _UNITS_AT_ONCE if end is None else min(_UNITS_AT_ONCE, end - start)
            raw = read_units(self.directory, key, start, count * UNIT.size)
            if len(raw) < UNIT.size:
                return
            for at in range(0, len(raw) - UNIT.size + 1, UNIT.size):
                unit = raw[at : at + UNIT.size]
                phy_offset, size, _ = UNIT.unpack(unit)
                yield start, phy_offset, size, unit == BLANK
                start += 1

    def _expired_finding(self, key: QueueKey, number: int, phy_offset: int, size: int, last: int) -> Finding:
        message = "an invalid unit among those of deleted messages"
        if size > 0 and phy_offset >= 0:
            message = f"does not lie behind the unit before it, which is at {last}"
        file = self._name(key, number)
        return queue_finding(FindingKind.UNIT_WRONG, key, number, message, phy_offset=phy_offset, file=file)

    def _check_tail(self, key: QueueKey, start: int, log_end: int, lost: _Lost) -> None:
        """Check for units from `start` on, where none should be: brokers read on to the first invalid unit."""
        behind = 0
        for number, phy_offset, size, _ in self._units(key, start, None):
            if size <= 0 or phy_offset < 0:
                break
            if phy_offset < log_end:
                self._unit_without_record(key, number, phy_offset, lost)
            else:
                behind += 1
        if behind and not self.directory.is_running:  # Else they came after the end of the log was found.
            severity, why = Severity.WARNING, "a broker's start removes them"
            if self.directory.stopped_cleanly:
                severity, why = Severity.ERROR, "the log lost its tail"
            kind, message = FindingKind.UNIT_DANGLING, f"units of messages behind the end of the log; {why}"
            file = self._name(key, start)
            self.findings.add(queue_finding(kind, key, start, message, severity=severity, file=file, count=behind))


def queue_ends(directory: StoreDirectory) -> dict[QueueKey, int]:
    """The next queue offset of each queue, by its files. Raises OSError."""
    return {key: units_end(series) // UNIT.size for key, series in directory.queues.items()}
