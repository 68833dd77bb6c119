"""Message properties: `name 0x01 value` pairs joined by 0x02, in the order in which a Java HashMap yields them.

RocketMQ parses the client's string into a HashMap and writes it again, so its order on disk is the map's. We keep to it, so
that our records are byte for byte RocketMQ's. Sources: MessageDecoder, java.util.HashMap; RocketMQ 4.9.8.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR = "\x01", "\x02"
TAGS, KEYS, UNIQ_KEY, WAIT, DELAY, CLUSTER = "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "CLUSTER"
DISPATCH_QUEUES, DISPATCH_OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
# Only a broker may set these two: by them a message lies in queues of other topics, see multi_dispatch.py.
DISPATCH = frozenset({DISPATCH_QUEUES, DISPATCH_OFFSETS})


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, signed 32 bit."""
    h = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h & 0x80000000 else h


_java_hash_of_few = lru_cache(maxsize=4096)(java_hash)
_REMEMBERED_LENGTH_MAX = 256  # Longer texts would make the cache large.


def _known_hash(text: str) -> int:
    return _java_hash_of_few(text) if len(text) <= _REMEMBERED_LENGTH_MAX else java_hash(text)


def tags_code(tags: str) -> int:
    """The hash of a TAGS value, as consume queues keep it; 0 for no tags."""
    return _known_hash(tags) if tags else 0


def _bucket_hash(name: str) -> int:
    h = _known_hash(name) & 0xFFFFFFFF
    return h ^ (h >> 16)


def hash_map_order(names: Sequence[str], *, puts: int | None = None) -> list[int]:
    """The order in which a HashMap that was given `names` yields them, as indexes into `names`.

    `puts` is the largest number of entries that the map ever held, when more than it holds now: maps never shrink.
    """
    size = 16
    while max(puts or 0, len(names)) * 4 > size * 3:
        size *= 2
    return sorted(range(len(names)), key=lambda i: _bucket_hash(names[i]) & (size - 1))


def split_properties(text: str) -> Iterable[tuple[str, str]]:
    """The pairs of a properties string as they stand; those without a name or a value are left out."""
    for segment in text.split(PROPERTY_SEPARATOR):
        name, separator, value = segment.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            yield name, value


def parse_properties(text: str) -> dict[str, str]:
    """The properties by name; of two with one name the last counts."""
    return dict(split_properties(text))


def without_dispatch(raw: bytes) -> bytes:
    """Properties as records have them, without those of multi dispatch; the very bytes when there are none."""
    if b"INNER_MULTI_" not in raw:
        return raw
    segments = raw.split(PROPERTY_SEPARATOR.encode())
    names = (segment.partition(NAME_VALUE_SEPARATOR.encode())[0].decode("utf-8", "replace") for segment in segments)
    kept = [segment for segment, name in zip(segments, names, strict=True) if name not in DISPATCH]
    return PROPERTY_SEPARATOR.encode().join(kept)


def format_properties(properties: Mapping[str, str], *, puts: int | None = None) -> str:
    """The string that RocketMQ 4.9 stores for these, given in the order of their insertion."""
    items = list(properties.items())
    order = hash_map_order([name for name, _ in items], puts=puts)
    return PROPERTY_SEPARATOR.join(f"{items[i][0]}{NAME_VALUE_SEPARATOR}{items[i][1]}" for i in order)
