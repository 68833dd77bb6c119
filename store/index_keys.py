"""Which keys of a message go into the index. No I/O.

UNIQ_KEY first, then each part of KEYS between blanks. Of two properties with one name the last counts; those without a value do
not count. Sources: IndexService.buildIndex, MessageDecoder; RocketMQ 4.9.8.
"""

from collections.abc import Iterable
from typing import NamedTuple

from store.java_hash import power_of_31, utf8_hashes, utf16_length
from store.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from store.properties import KEYS, UNIQ_KEY, java_hash, parse_properties
from store.record_scan import DispatchEntry

_UNIQ_KEY, _KEYS = b"UNIQ_KEY\x01", b"KEYS\x01"
_ANY_KEY = b"KEY"  # What both names have in common.
_USUAL_SIZE = 32  # Characters of a UNIQ_KEY.
_WORD, _SIGN = 1 << 32, 1 << 31
_prefixes: dict[str, tuple[int, int]] = {}


class Keyed(NamedTuple):
    """Keys in the order in which they are put: the index's hash of each, where its message lies, when that was stored (ms)."""

    hashes: list[int]
    phy_offsets: list[int]
    timestamps: list[int]


def message_keys(properties: bytes) -> list[bytes]:
    """The keys of one message, from the raw string of its properties."""
    unique, keys = _value(properties, _UNIQ_KEY), _value(properties, _KEYS)
    if unique == b"" or keys == b"":
        return _careful_keys(properties)
    found = [unique] if unique else []
    return found + [key for key in keys.split(b" ") if key] if keys else found


def _value(properties: bytes, name: bytes) -> bytes | None:
    """The last value of a property, given its name and separator; None when it is not there."""
    at = properties.rfind(b"\x02" + name) + 1
    if not at and not properties.startswith(name):
        return None
    end = properties.find(b"\x02", at)
    return properties[at + len(name) :] if end < 0 else properties[at + len(name) : end]


def _careful_keys(properties: bytes) -> list[bytes]:
    """The same, where one of these properties has no value, and an earlier one of the name may count."""
    parsed = parse_properties(properties.decode("utf-8", "replace"))
    unique, keys = parsed.get(UNIQ_KEY), parsed.get(KEYS, "")
    return [key.encode() for key in ([unique] if unique else []) + keys.split(" ") if key]


def keys_of(entries: Iterable[DispatchEntry]) -> Keyed:
    """The keys of all these messages."""
    keys: list[bytes] = []
    shifted: list[int] = []  # The hashes of `topic#`, each shifted by the length of its key.
    phy_offsets: list[int] = []
    timestamps: list[int] = []
    for topic, _, _, phy_offset, _, _, timestamp, sys_flag, properties in entries:
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        prefix, usual = _prefixes[topic] if topic in _prefixes else _prefix(topic)
        # Nearly all messages have one unique key and nothing else; Java's HashMap says where among the properties.
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
    # Without their signs, as Java's abs does it; for the least number, which has no counterpart, RocketMQ takes 0.
    hashes = [
        whole if (whole := (before + own) % _WORD) < _SIGN else (_WORD - whole) % _SIGN
        for before, own in zip(shifted, utf8_hashes(keys), strict=True)
    ]
    return Keyed(hashes, phy_offsets, timestamps)


def _prefix(topic: str) -> tuple[int, int]:
    """The hash of `topic#`, and the same with room for a key of the usual length behind."""
    prefix = java_hash(topic + "#") & 0xFFFFFFFF
    both = prefix, prefix * power_of_31(_USUAL_SIZE)
    if len(_prefixes) < 100_000:
        _prefixes[topic] = both
    return both
