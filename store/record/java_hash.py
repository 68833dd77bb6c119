"""Java's String.hashCode of many keys at once: s[0]*31^(n-1) + ... + s[n-1], modulo 2^32, over UTF-16 units.

The index needs one for each message. A multiplication of one large integer by a small one is a multiplication of all the
lanes that the large one is divided into, so the keys are laid side by side, padded with zeros in front (which leave the hash
alone), and neighbouring lanes are folded into one of twice the width until each key is one: 0.4 us a key of 32 characters, where
a sum over its characters takes 2.4.
"""

from collections.abc import Callable, Sequence
from operator import mul
from struct import Struct, unpack

from twinlog.store.record.properties import java_hash

_MASK = 0xFFFFFFFF
_KEYS_MAX = 128  # At once.
_WIDTHS = (16, 32, 64)  # Bytes of padded keys; longer ones are rare.
_WIDTH_MAX = _WIDTHS[-1]
UNIQUE_PART = 16  # Characters at the end of a UNIQ_KEY that differ among the messages of one client.


def power_of_31(exponent: int) -> int:
    """31^exponent modulo 2^32: the factor that `exponent` more characters apply to a text's hash."""
    return _POWERS[exponent] if exponent < len(_POWERS) else pow(31, exponent, 1 << 32)


_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(256))
_FALLING_POWERS = _POWERS[::-1]


def utf8_hash(text: bytes) -> int:
    """The hash of a text as unsigned 32 bit; bytes that are no UTF-8 count as Java reads them."""
    units = text.decode("utf-8", "replace").encode("utf-16-be")
    count = len(units) // 2
    if not 0 < count <= len(_POWERS):
        return java_hash(text.decode("utf-8", "replace")) & _MASK
    total: int = sum(map(mul, unpack(f">{count}H", units), _FALLING_POWERS[-count:]))
    return total & _MASK


def utf16_length(text: bytes) -> int:
    """The number of UTF-16 units of a UTF-8 text."""
    return len(text) if text.isascii() else len(text.decode("utf-8", "replace").encode("utf-16-be")) // 2


def utf8_hashes(texts: Sequence[bytes]) -> list[int]:
    """The unsigned hash of each text."""
    hashes: list[int] = []
    for start in range(0, len(texts), _KEYS_MAX):
        hashes += _hash_some(texts[start : start + _KEYS_MAX])
    return hashes


def unique_part_hashes(parts: bytes) -> list[int]:
    """The unsigned hash of each of many ASCII texts of UNIQUE_PART characters, which lie one behind the other."""
    hash_lanes, size = _UNIQUE_FOLD, _KEYS_MAX * UNIQUE_PART
    if len(parts) <= size:
        return hash_lanes(parts)
    hashes: list[int] = []
    for start in range(0, len(parts), size):
        hashes += hash_lanes(parts[start : start + size])
    return hashes


def _hash_some(texts: Sequence[bytes]) -> list[int]:
    longest = max(map(len, texts))
    for width, hash_lanes in _FOLDS:
        if longest <= width:
            joined = b"".join([text if len(text) == width else text.rjust(width, b"\0") for text in texts])
            if joined.isascii():
                return hash_lanes(joined)
    plain = [len(text) <= _WIDTH_MAX and text.isascii() for text in texts]
    together = iter(_hash_some([text for text, is_plain in zip(texts, plain, strict=True) if is_plain] or [b""]))
    return [next(together) if is_plain else utf8_hash(text) for text, is_plain in zip(texts, plain, strict=True)]


def _fold(width: int) -> Callable[[bytes], list[int]]:
    """The function that hashes texts of exactly `width` bytes, a power of two, which lie side by side."""
    steps = []
    lane = 1  # Bytes that are folded already.
    while lane < width:
        kept = min(lane, 4)
        pattern = b"\0" * (2 * lane - kept) + b"\xff" * kept
        mask = int.from_bytes(pattern * (_KEYS_MAX * width // len(pattern)))
        steps.append((lane * 8, mask, pow(31, lane, 1 << 32)))
        lane *= 2
    last_words = Struct(f">{width - 4}xI").iter_unpack

    def hash_lanes(joined: bytes) -> list[int]:
        lanes = int.from_bytes(joined)
        for bits, mask, power in steps:
            lanes = (lanes >> bits & mask) * power + (lanes & mask)
        return [word for (word,) in last_words(lanes.to_bytes(len(joined)))]

    return hash_lanes


_FOLDS = tuple((width, _fold(width)) for width in _WIDTHS)
_UNIQUE_FOLD = dict(_FOLDS)[UNIQUE_PART]
