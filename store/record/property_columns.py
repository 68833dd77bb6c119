"""Tags codes and index keys of many records at once, from the raw strings of their properties. No I/O.

Records of one producer have properties of one shape: the same names in the same order, values of the same lengths. Records with
the shape of the first one are read together, at the positions of its values; then those of the next shape. Records with a shape
of their own, or anything unusual, are left to the functions for one record.
"""

from typing import NamedTuple

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from twinlog.store.record.columns import Ints, Words, java_hashes, word_rows
from twinlog.store.record.java_hash import power_of_31, utf8_hash, utf16_length
from twinlog.store.record.keys import message_keys
from twinlog.store.record.multi_dispatch import MULTI_DISPATCHED
from twinlog.store.record.properties import KEYS, TAGS, UNIQ_KEY, java_hash
from twinlog.store.record.scan import properties_tags_code

_SHAPES_MAX = 24  # Limit of shapes in one stretch.
_LAST_SHAPES_MAX = 256  # That are kept for the next stretches.
_ROWS_AT_ONCE = 64
_ROWS_MIN = 24  # Fewer records are read one by one as quickly.
_SIZE_MAX = 1024  # Bytes of properties.
_READ = {name.encode(): name for name in (TAGS, UNIQ_KEY, KEYS)}
_LOW_32, _POSITIVE = np.uint64((1 << 32) - 1), np.int32((1 << 31) - 1)
_ONES = np.uint64(0x0101010101010101)
_THREES, _SPACES, _HIGH_BITS = _ONES * np.uint64(3), _ONES * np.uint64(0x20), _ONES * np.uint64(0x80)


class _Span(NamedTuple):
    """Bytes `begin` to `end` of a properties string."""

    begin: int
    end: int


@frozen(eq=False)
class _Shape:
    """The places of values in the properties of some records, as masks over `width` words of 8 bytes, which end with them.

    `fixed` covers names and separators, which are those of `template`, and of values that are hashed the bit that ASCII does not
    have; `others` has a space in the place of all that is no value. A space would separate two keys where `joined` does not have
    0xff; None: there is no such place. Each mask is there for _ROWS_AT_ONCE records: numpy is slow with short rows.
    """

    width: int
    template: Words
    fixed: Words
    values: Words
    others: Words
    joined: Words | None
    tags: _Span | None
    keys: list[_Span]  # In the order in which they are put.
    has_more_queues: bool

    def misfits(self, data: memoryview, ends: Ints) -> NDArray[np.bool_]:
        """True for properties, by their ends in `data`, of another shape."""
        whole = np.append(ends, np.repeat(ends[-1:], -len(ends) % _ROWS_AT_ONCE))
        words = word_rows(data, self.width, whole).reshape(-1, _ROWS_AT_ONCE * self.width)
        bad = words ^ self.template
        bad &= self.fixed
        if self.joined is not None:
            keys = words ^ _SPACES
            keys |= self.joined
            bad |= _bytes_below(keys, _ONES)
        words &= self.values
        words |= self.others
        bad |= _bytes_below(words, _THREES)  # A separator in a value.
        if not bad.any():
            return np.zeros(len(ends), np.bool_)
        verdict: NDArray[np.bool_] = np.logical_or.reduce(bad.reshape(-1, self.width), axis=1)
        return verdict[: len(ends)]


def _bytes_below(words: Words, limits: np.uint64) -> Words:
    """The high bit of each word's lowest byte that is less than those of `limits`, and maybe of others. It overwrites `words`."""
    below = words - limits
    below &= np.invert(words, out=words)
    below &= _HIGH_BITS
    return below


def _shape(properties: bytes) -> _Shape | None:
    """The shape of properties in which nothing is unusual."""
    spans: dict[str, _Span] = {}
    fixed, values = bytearray(b"\xff" * len(properties)), bytearray(len(properties))
    at = 0
    for segment in properties.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        span = _Span(at + len(segment) - len(value), at + len(segment))
        at = span.end + 1
        if any(byte < 3 for byte in value):
            return None
        _fill(values, span, 0xFF)
        _fill(fixed, span, 0)
        if separator and name in _READ:
            if not value or not value.isascii() or _READ[name] in spans:
                return None
            spans[_READ[name]] = span
    keys = [spans[UNIQ_KEY]] if UNIQ_KEY in spans else []
    read, single = bytearray(len(properties)), bytearray(len(properties))
    for part in _parts(properties, spans.get(KEYS, _Span(0, 0))):
        _fill(single, part, 0xFF)
        keys.append(part)
    if KEYS in spans:  # The positions of spaces are fixed.
        begin, end = spans[KEYS]
        fixed[begin:end] = bytes(byte ^ 0xFF for byte in single[begin:end])
    for span in spans.values():
        _fill(read, span, 0xFF)
    return _Shape(
        len(_words(properties)),
        _repeated(_words(properties)),
        _repeated(_words(fixed) | _words(read) & _HIGH_BITS),
        _repeated(_words(values)),
        _repeated(~_words(values) & _SPACES),
        _repeated(~_words(single)) if any(single) else None,
        spans.get(TAGS),
        keys,
        MULTI_DISPATCHED in properties,
    )


def _repeated(words: Words) -> Words:
    return np.tile(words, _ROWS_AT_ONCE)


def _parts(properties: bytes, span: _Span) -> list[_Span]:
    """The keys between spaces."""
    parts, at = [], span.begin
    for key in properties[span.begin : span.end].split(b" "):
        if key:
            parts.append(_Span(at, at + len(key)))
        at += len(key) + 1
    return parts


def _fill(mask: bytearray, span: _Span, value: int) -> None:
    mask[span.begin : span.end] = bytes([value]) * (span.end - span.begin)


def _words(raw: bytes | bytearray) -> Words:
    padded = bytes(raw).rjust(-(-len(raw) // 8) * 8, b"\0")
    return np.frombuffer(padded, ">u8").astype(np.uint64)


_last_shapes: dict[int, _Shape] = {}  # By the size of the properties: the next stretch mostly has the same.


@define(eq=False)
class PropertyReader:
    """Reads the properties that lie in `data` from `begins` to `ends`, with at least 8 bytes before each.

    `prefixes` are the hashes of `topic#`. Only records that are `indexed` have keys.
    """

    data: memoryview
    begins: Ints
    ends: Ints
    prefixes: Words
    indexed: NDArray[np.bool_]
    tags_codes: Ints = field(init=False)
    has_more_queues: bool = field(default=False, init=False)  # True when one of the messages may be in further queues.
    _hashes: list[Words] = field(factory=list, init=False)
    _records: list[Ints] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.tags_codes = np.zeros(len(self.begins), np.int64)

    def read(self) -> None:
        """Fill tags_codes and keys."""
        left = np.arange(len(self.begins))
        for _ in range(_SHAPES_MAX):
            if len(left):
                left = self._read_alike(left)
        self._read_plain(left)

    def keys(self) -> tuple[Ints, Ints]:
        """The index hash of each key, and the number of its record, in the order of the log."""
        if not self._hashes:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        hashes, records = np.concatenate(self._hashes), np.concatenate(self._records)
        # As Java's abs does it; for the least number, which has no counterpart, RocketMQ takes 0.
        absolute = (np.abs(hashes.astype(np.uint32).view(np.int32)) & _POSITIVE).astype(np.int64)
        if len(self._hashes) > 1 and all(each is self._records[0] for each in self._records):  # All of one shape.
            return absolute.reshape(len(self._hashes), -1).T.ravel(), np.repeat(self._records[0], len(self._hashes))
        if len(self._hashes) > 1:
            order = np.argsort(records, kind="stable")  # Keys of one record were added in their order.
            absolute, records = absolute[order], records[order]
        return absolute, records

    def _read_alike(self, left: Ints) -> Ints:
        """Read all records, of those that are left, whose shape is that of the first; those that are left then."""
        begin, end = int(self.begins[left[0]]), int(self.ends[left[0]])
        size = end - begin
        is_alike = self.ends[left] - self.begins[left] == size
        alike = left[is_alike]
        if len(alike) < _ROWS_MIN:
            self._read_plain(alike)
            return _others(left, is_alike)
        shape, misfits = self._shape_of(begin, end, self.ends[alike])
        if shape is None:
            self._read_plain(left[:1])
            is_first = np.arange(len(left)) == 0
            return _others(left, is_first)
        if misfits.any():
            is_alike[is_alike] = ~misfits
            alike = alike[~misfits]
        self._read_shape(shape, size, alike)
        return _others(left, is_alike)

    def _shape_of(self, begin: int, end: int, ends: Ints) -> tuple[_Shape | None, NDArray[np.bool_]]:
        """The shape of the properties from `begin` to `end`, and True for those at `ends`, the first of all, of another one."""
        size = end - begin
        shape = _last_shapes.get(size)
        if shape is not None and not (misfits := shape.misfits(self.data, ends))[0]:
            return shape, misfits
        shape = _shape(bytes(self.data[begin:end])) if size <= _SIZE_MAX else None
        if shape is None or not size:
            return shape, np.zeros(len(ends), np.bool_)
        if len(_last_shapes) >= _LAST_SHAPES_MAX:
            _last_shapes.clear()
        _last_shapes[size] = shape
        return shape, shape.misfits(self.data, ends)

    def _read_shape(self, shape: _Shape, size: int, records: Ints) -> None:
        self.has_more_queues |= shape.has_more_queues
        if shape.tags is not None:
            hashes = self._hashes_of(shape.tags, size, records)
            self.tags_codes[records] = hashes.astype(np.uint32).view(np.int32)
        if not shape.keys:
            return
        indexed = self.indexed[records]
        records = records if indexed.all() else records[indexed]
        prefixes = self.prefixes[records]
        for span in shape.keys:
            before = prefixes * np.uint64(power_of_31(span.end - span.begin))
            self._hashes.append(before + self._hashes_of(span, size, records) & _LOW_32)
            self._records.append(records)

    def _hashes_of(self, span: _Span, size: int, records: Ints) -> Words:
        return java_hashes(self.data, self.ends[records] - (size - span.end), span.end - span.begin)

    def _read_plain(self, records: Ints) -> None:
        """Read records one by one."""
        for number in records.tolist():
            properties = bytes(self.data[self.begins[number] : self.ends[number]])
            self.tags_codes[number] = properties_tags_code(properties)
            self.has_more_queues |= MULTI_DISPATCHED in properties
            if self.indexed[number]:
                prefix = int(self.prefixes[number])
                for key in message_keys(properties):
                    key_hash = prefix * power_of_31(utf16_length(key)) + utf8_hash(key)
                    self._hashes.append(np.array([key_hash & 0xFFFFFFFF], np.uint64))
                    self._records.append(np.array([number]))


def _others(records: Ints, are_read: NDArray[np.bool_]) -> Ints:
    others: Ints = records[~are_read]
    return others


def prefix_hashes(topics: list[str]) -> Words:
    """The hash of `topic#` for each topic."""
    return np.array([java_hash(name + "#") & 0xFFFFFFFF for name in topics], np.uint64)
