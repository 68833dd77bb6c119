"""Index keys of a message. No I/O.

UNIQ_KEY first, then each part of KEYS between blanks. Of two properties with one name the last counts; those without a value
do not count. Sources: IndexService.buildIndex, MessageDecoder; RocketMQ 4.9.8.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from twinlog.store.record.java_hash import (
    UNIQUE_PART,
    power_of_31,
    unique_part_hashes,
    utf8_hash,
    utf8_hashes,
    utf16_length,
)
from twinlog.store.record.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from twinlog.store.record.properties import KEYS, UNIQ_KEY, java_hash, parse_properties
from twinlog.store.record.scan import DispatchEntry

_UNIQ_KEY, _KEYS = b"UNIQ_KEY\x01", b"KEYS\x01"
_ANY_KEY = b"KEY"  # Common to both names.
_USUAL_SIZE = 32  # Characters of a UNIQ_KEY.
_TOGETHER_MIN = 4  # So few are quicker one by one.
_ENDS = {b"\x02", b""}  # The bytes behind a value.
_WORD, _SIGN = 1 << 32, 1 << 31
_prefixes: dict[str, tuple[int, int]] = {}
_T = TypeVar("_T")


class Keyed(NamedTuple):
    """Keys in the order of their puts: index hash, log offset of the message, store time (ms)."""

    hashes: list[int]
    phy_offsets: list[int]
    timestamps: list[int]


def message_keys(properties: bytes) -> list[bytes]:
    """The keys of one message, from the raw string of its properties."""
    unique, keys = _value(properties, _UNIQ_KEY), _value(properties, _KEYS)
    if unique == b"" or keys == b"":
        return _keys_by_parsing(properties)
    found = [unique] if unique else []
    return found + [key for key in keys.split(b" ") if key] if keys else found


def _value(properties: bytes, name: bytes) -> bytes | None:
    """The last value of a property, given its name and separator; None when it is not there."""
    at = properties.rfind(b"\x02" + name) + 1
    if not at and not properties.startswith(name):
        return None
    end = properties.find(b"\x02", at)
    return properties[at + len(name) :] if end < 0 else properties[at + len(name) : end]


def _keys_by_parsing(properties: bytes) -> list[bytes]:
    """Slow path of message_keys(), where one of these properties has no value, and an earlier one of the name may count."""
    parsed = parse_properties(properties.decode("utf-8", "replace"))
    unique, keys = parsed.get(UNIQ_KEY), parsed.get(KEYS, "")
    return [key.encode() for key in ([unique] if unique else []) + keys.split(" ") if key]


def keys_of(entries: Sequence[DispatchEntry]) -> Keyed:
    """The keys of all these messages."""
    together = None
    if len(entries) >= _TOGETHER_MIN:
        alike = _keys_of_one_kind if entries[0].properties.count(_ANY_KEY) == 1 else _keys_of_two_kinds
        together = alike(entries)
    return together or _keys_one_by_one(entries)


def _keys_of_one_kind(entries: Sequence[DispatchEntry]) -> Keyed | None:
    """The keys of messages of one topic that have one key each, a UNIQ_KEY at the same place of their properties.

    With a few calls for all of them. None where the messages differ. A UNIQ_KEY has 32 characters, or 56 where the client's
    address is of IPv6; most of them identify the client.
    """
    topics, _, _, phy_offsets, _, _, timestamps, sys_flags, properties = zip(*entries, strict=True)
    count, first = len(entries), properties[0]
    at = first.find(_UNIQ_KEY)
    begin = at + len(_UNIQ_KEY)
    end = first.find(b"\x02", begin) if first.find(b"\x02", begin) >= 0 else len(first)
    split = end - UNIQUE_PART
    lead_at = max(at - 1, 0)
    lead = b"\x02" + _UNIQ_KEY if at else _UNIQ_KEY
    heads, tails = [raw[lead_at:split] for raw in properties], b"".join([raw[split:end] for raw in properties])
    makers = set(heads)
    if (
        at < 0
        or split < begin
        or len(makers) * _TOGETHER_MIN > count
        or not all(_is_head(head, lead, split - lead_at) for head in makers)
        or len(tails) != UNIQUE_PART * count
        or b"\x02" in tails
        or not tails.isascii()
        or not {raw[end : end + 1] for raw in properties} <= _ENDS
        or b"".join(properties).count(_ANY_KEY) != count
        or not _are_of_one_topic(topics, sys_flags)
    ):
        return None
    prefix = (_prefixes.get(topics[0]) or _prefix(topics[0]))[0] * power_of_31(split - begin)
    shifted = {head: (prefix + utf8_hash(head[len(lead) :])) * power_of_31(UNIQUE_PART) for head in makers}
    if len(makers) == 1:
        (before,) = shifted.values()
        sums = [before + own for own in unique_part_hashes(tails)]
    else:
        sums = [shifted[head] + own for head, own in zip(heads, unique_part_hashes(tails), strict=True)]
    return Keyed(_absolute(sums), list(phy_offsets), list(timestamps))


def _keys_of_two_kinds(entries: Sequence[DispatchEntry]) -> Keyed | None:
    """The keys of messages of one topic that have a UNIQ_KEY and KEYS each, anywhere in their properties.

    None where the messages differ, where they hold more than ASCII, and where a value has "KEY" in it.
    """
    topics, _, _, phy_offsets, _, _, timestamps, sys_flags, properties = zip(*entries, strict=True)
    count, joined = len(entries), b"\x02".join((b"", *properties))
    if (
        joined.count(_ANY_KEY) != 2 * count
        or joined.count(b"\x02" + _UNIQ_KEY) != count
        or joined.count(b"\x02" + _KEYS) != count
        or not joined.isascii()
        or not _are_of_one_topic(topics, sys_flags)
    ):
        return None
    uniques = [raw.partition(_UNIQ_KEY)[2].partition(b"\x02")[0] for raw in properties]
    keys = [raw.partition(_KEYS)[2].partition(b"\x02")[0] for raw in properties]
    if b"" in uniques or b"" in keys:  # Then others have two of them.
        return None
    if any(b" " in key for key in keys):
        each = [[unique, *filter(None, key.split(b" "))] for unique, key in zip(uniques, keys, strict=True)]
        sizes = [len(own) for own in each]
        texts = [text for own in each for text in own]
        own_hashes = utf8_hashes(texts)
        offsets = [offset for offset, size in zip(phy_offsets, sizes, strict=True) for _ in range(size)]
        times = [time for time, size in zip(timestamps, sizes, strict=True) for _ in range(size)]
    else:
        texts = _by_turns(uniques, keys)
        own_hashes = _by_turns(utf8_hashes(uniques), utf8_hashes(keys))
        offsets, times = _by_turns(phy_offsets, phy_offsets), _by_turns(timestamps, timestamps)
    prefix = (_prefixes.get(topics[0]) or _prefix(topics[0]))[0]
    shifted = {length: prefix * power_of_31(length) for length in set(map(len, texts))}
    sums = [shifted[len(text)] + own for text, own in zip(texts, own_hashes, strict=True)]
    return Keyed(_absolute(sums), offsets, times)


def _by_turns(first: Sequence[_T], second: Sequence[_T]) -> list[_T]:
    """Of each its first item, then of each its second one, and so on."""
    return [item for both in zip(first, second, strict=True) for item in both]


def _are_of_one_topic(topics: Sequence[str], sys_flags: Sequence[int]) -> bool:
    """True when none of these messages is of another topic, and none rolls back, as keys of those do not count."""
    rolls_back = any(sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK for sys_flag in set(sys_flags))
    return topics.count(topics[0]) == len(topics) and not rolls_back


def _is_head(head: bytes, lead: bytes, size: int) -> bool:
    """True when a key begins there, and nothing else follows."""
    return len(head) == size and head.startswith(lead) and b"\x02" not in head[1:] and head.isascii()


def _keys_one_by_one(entries: Iterable[DispatchEntry]) -> Keyed:
    keys: list[bytes] = []
    shifted: list[int] = []  # The hashes of `topic#`, each shifted by the length of its key.
    phy_offsets: list[int] = []
    timestamps: list[int] = []
    for topic, _, _, phy_offset, _, _, timestamp, sys_flag, properties in entries:
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        prefix, usual = _prefixes[topic] if topic in _prefixes else _prefix(topic)
        # Nearly all messages have one unique key and no other; Java's HashMap decides on its place among the properties.
        if properties.count(_ANY_KEY) == 1:
            key = _value(properties, _UNIQ_KEY)
            if key is not None and len(key) == _USUAL_SIZE and key.isascii():
                keys.append(key)
                shifted.append(usual)
                phy_offsets.append(phy_offset)
                timestamps.append(timestamp)
                continue
        for key in message_keys(properties):
            keys.append(key)
            shifted.append(prefix * power_of_31(utf16_length(key)))
            phy_offsets.append(phy_offset)
            timestamps.append(timestamp)
    hashes = _absolute([before + own for before, own in zip(shifted, utf8_hashes(keys), strict=True)])
    return Keyed(hashes, phy_offsets, timestamps)


def _absolute(sums: list[int]) -> list[int]:
    """Without their signs, as Java's abs does it; for the least number, which has no counterpart, RocketMQ takes 0."""
    return [whole if (whole := each % _WORD) < _SIGN else (_WORD - whole) % _SIGN for each in sums]


def _prefix(topic: str) -> tuple[int, int]:
    """The hash of `topic#`, and the same with room for a key of the usual length behind."""
    prefix = java_hash(topic + "#") & 0xFFFFFFFF
    both = prefix, prefix * power_of_31(_USUAL_SIZE)
    if len(_prefixes) < 100_000:
        _prefixes[topic] = both
    return both
