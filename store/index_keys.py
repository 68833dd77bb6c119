"""Which keys of a message go into the index. No I/O.

UNIQ_KEY first, then each part of KEYS between blanks. Of two properties with one name the last counts; those without a value do
not count. Sources: IndexService.buildIndex, MessageDecoder; RocketMQ 4.9.8.
"""

from collections.abc import Iterable
from typing import NamedTuple

from store.index_layout import absolute
from store.java_hash import power_of_31, utf8_hashes, utf16_length
from store.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from store.properties import KEYS, UNIQ_KEY, java_hash, parse_properties
from store.record_scan import DispatchEntry

_UNIQ_KEY, _KEYS = b"UNIQ_KEY\x01", b"KEYS\x01"
_prefixes: dict[str, int] = {}


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
    prefixes: list[int] = []
    phy_offsets: list[int] = []
    timestamps: list[int] = []
    for topic, _, _, phy_offset, _, _, timestamp, sys_flag, properties in entries:
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        at = properties.find(_UNIQ_KEY)
        start = at + 9
        end = properties.find(b"\x02", start)
        if (
            at >= 0
            and (not at or properties[at - 1] == 2)
            and end != start < len(properties)
            and properties.find(_UNIQ_KEY, start) < 0
            and _KEYS not in properties
        ):  # Nearly all messages: one unique key and nothing else.
            keys.append(properties[start:] if end < 0 else properties[start:end])
            count = 1
        else:
            found = message_keys(properties)
            count = len(found)
            keys += found
        prefix = _prefixes[topic] if topic in _prefixes else _prefix(topic)
        if count == 1:
            prefixes.append(prefix)
            phy_offsets.append(phy_offset)
            timestamps.append(timestamp)
        else:
            prefixes += [prefix] * count
            phy_offsets += [phy_offset] * count
            timestamps += [timestamp] * count
    return Keyed(_with_prefixes(keys, prefixes), phy_offsets, timestamps)


def _prefix(topic: str) -> int:
    prefix = java_hash(topic + "#") & 0xFFFFFFFF
    if len(_prefixes) < 100_000:
        _prefixes[topic] = prefix
    return prefix


def _with_prefixes(keys: list[bytes], prefixes: list[int]) -> list[int]:
    """The hashes as the index keeps them: of prefix and key, without a sign."""
    lengths = list(map(len, keys)) if b"".join(keys).isascii() else list(map(utf16_length, keys))
    usual, power = 32, power_of_31(32)
    found = []
    for length, prefix, key_hash in zip(lengths, prefixes, utf8_hashes(keys), strict=True):
        signed = (prefix * (power if length == usual else power_of_31(length)) + key_hash) & 0xFFFFFFFF
        found.append(signed if signed < 0x80000000 else absolute(signed - 0x100000000))
    return found
