"""The properties of many records at once as an Arrow map: raw strings are cut at their separators by numpy. No I/O.

The rules are those of store/record/properties.py: a pair without a name or a value does not count, of two with one name
the last does.
"""

import numpy as np
import pyarrow as pa
from attrs import frozen

from twinlog.store.record.column_scan import Bools
from twinlog.store.record.columns import Ints
from twinlog.store.record.properties import tags_code
from twinlog.store.record.scan import properties_tags_code

_NAME_END, _PAIR_END = 1, 2
_MASK_BITS = 62


def cut_out(data: memoryview, begins: Ints, ends: Ints) -> pa.Array:
    """Bytes `begins` to `ends` of the data, rising and apart from each other, copied: a binary array."""
    if not len(begins):
        return pa.array([], pa.binary())
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2], bounds[1::2] = begins, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


@frozen(eq=False)
class Properties:
    """The pairs of all records in a row: `names` by their number in `vocabulary`, `values`; `record` says whose each is."""

    record: Ints
    vocabulary: pa.Array
    names: Ints
    values: pa.Array
    records: int  # How many there are.
    odd: Ints  # Those with anything that does not count.

    def maps(self) -> pa.Array:
        """A map for each record."""
        offsets = np.searchsorted(self.record, np.arange(self.records + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), self.vocabulary.take(pa.array(self.names)), self.values)

    def values_of(self, name: str) -> pa.Array:
        """The value of one property for each record; null where there is none."""
        number = self.vocabulary.index(name).as_py()
        found = np.flatnonzero(self.names == number)
        which, is_missing = np.zeros(self.records, np.int64), np.ones(self.records, np.bool_)
        which[self.record[found]] = found
        is_missing[self.record[found]] = False
        return self.values.take(pa.array(which, mask=is_missing))

    def tags_codes(self, raw: pa.Array) -> Ints:
        """The hashes of the tags in `raw`, as consume queues keep them."""
        encoded = self.values_of("TAGS").dictionary_encode()
        codes = np.array([*map(tags_code, encoded.dictionary.to_pylist()), 0], np.int64)
        found: Ints = codes[encoded.indices.fill_null(len(codes) - 1).to_numpy()]
        for number in self.odd.tolist():
            found[number] = properties_tags_code(raw[number].as_py())
        return found


def read_properties(raw: pa.Array) -> Properties:
    """The pairs in properties strings, a binary array without nulls."""
    raw = _as_java_reads_them(raw)
    bounds, data = _parts(raw)
    octets = np.frombuffer(data, np.uint8)
    begins, ends, record = _segments(octets, bounds)
    name_ends, are_pairs = _name_ends(octets, begins, ends)
    odd = np.unique(record[~are_pairs & (begins < ends)])
    begins, ends, name_ends, record = begins[are_pairs], ends[are_pairs], name_ends[are_pairs], record[are_pairs]
    encoded = _texts(cut_out(data, begins, name_ends)).dictionary_encode()
    names: Ints = encoded.indices.to_numpy().astype(np.int64)
    kept = _last_ones(record, names, len(encoded.dictionary))
    if kept is not None:
        odd = np.union1d(odd, np.delete(record, kept))
        record, names, name_ends, ends = record[kept], names[kept], name_ends[kept], ends[kept]
    values = _texts(cut_out(data, name_ends + 1, ends))
    return Properties(record, encoded.dictionary, names, values, len(raw), odd)


def _parts(raw: pa.Array) -> tuple[Ints, memoryview]:
    """Where each string begins, and where the last one ends, in the bytes of all of them."""
    _, bounds, data = raw.buffers()
    if bounds is None or not len(raw):
        return np.zeros(1, np.int64), memoryview(b"")
    numbers = np.frombuffer(bounds, np.int32)[raw.offset : raw.offset + len(raw) + 1].astype(np.int64)
    return numbers - numbers[0], memoryview(data if data is not None else b"")[int(numbers[0]) : int(numbers[-1])]


def _as_java_reads_them(raw: pa.Array) -> pa.Array:
    """The same, with what is no UTF-8 replaced."""
    bounds, data = _parts(raw)
    octets = np.frombuffer(data, np.uint8)
    if not (octets & 0x80).any():
        return raw
    starts = bounds[:-1][bounds[:-1] < bounds[1:]]
    try:
        str(data, "utf-8")
        if not (octets[starts] & 0xC0 == 0x80).any():  # None begins within a character.
            return raw
    except UnicodeDecodeError:
        pass
    return pa.array([text.decode("utf-8", "replace").encode() for text in raw.to_pylist()], pa.binary())


def _texts(raw: pa.Array) -> pa.Array:
    """A binary array of what is known to be UTF-8, as strings."""
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _segments(octets: "np.typing.NDArray[np.uint8]", bounds: Ints) -> tuple[Ints, Ints, Ints]:
    """What lies between the ends of pairs: where it begins and ends, and the number of its string."""
    cuts = np.flatnonzero(octets == _PAIR_END)
    begins = np.sort(np.concatenate([bounds[:-1], cuts + 1]), kind="stable")
    ends = np.sort(np.concatenate([bounds[1:], cuts]), kind="stable")
    counts = 1 + np.diff(np.searchsorted(cuts, bounds))
    return begins, ends, np.repeat(np.arange(len(counts)), counts)


def _name_ends(octets: "np.typing.NDArray[np.uint8]", begins: Ints, ends: Ints) -> tuple[Ints, Bools]:
    """Where the name ends in each segment, and which segments have a name and a value."""
    marks = np.flatnonzero(octets == _NAME_END)
    if len(marks) == len(begins) and bool(((marks > begins) & (marks < ends - 1)).all()):
        return marks, np.ones(len(marks), np.bool_)
    found = np.append(marks, len(octets))[np.searchsorted(marks, begins)]
    return found, (found > begins) & (found < ends - 1)


def _last_ones(record: Ints, names: Ints, count: int) -> Ints | None:
    """Which pairs are left of those of one record and name; None: all of them."""
    if not len(record):
        return None
    if count <= _MASK_BITS:  # Different powers of two add up to what they are together.
        starts = np.flatnonzero(np.diff(record, prepend=-1))
        masks = np.left_shift(1, names)
        if (np.add.reduceat(masks, starts) == np.bitwise_or.reduceat(masks, starts)).all():
            return None
    which = (record * count + names)[::-1]
    _, last = np.unique(which, return_index=True)
    return np.sort(len(which) - 1 - last) if len(last) < len(which) else None
