"""The bit positions that RocketMQ gives each SQL92 subscription, for consumerFilter.json: without them it passes the file over.

Sources: BloomFilter.java, ConsumerFilterManager.java (RocketMQ 4.9.7). The hash is the first half of Austin Appleby's murmur3
(x64, 128 bits) with seed 0.
"""

import math
from functools import cache

from attrs import frozen

_M64 = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@frozen
class BloomShape:
    """`error_rate` in percent, `expected`: how many subscriptions are to be told apart."""

    error_rate: int = 20  # maxErrorRateOfBloomFilter
    expected: int = 32  # expectConsumerNumUseFilter

    @property
    def hashes(self) -> int:
        return math.ceil(math.log(self.error_rate / 100) / math.log(0.5))

    @property
    def bits(self) -> int:
        """A multiple of 8."""
        least = self.expected * math.log2(100 / self.error_rate) * math.log2(math.e)
        return 8 * math.ceil(math.ceil(least) / 8)

    def positions(self, text: str) -> list[int]:
        hash64 = murmur3_64(text.encode())
        low, high = hash64 & 0xFFFFFFFF, hash64 >> 32
        sums = ((low + i * high) & 0xFFFFFFFF for i in range(1, self.hashes + 1))
        return [(value ^ 0xFFFFFFFF if value >> 31 else value) % self.bits for value in sums]


@cache
def shape() -> BloomShape:
    """RocketMQ's defaults; twinlog keeps no bit maps, so nothing depends on them here."""
    return BloomShape()


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _M64


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _M64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _M64
    return value ^ value >> 33


def murmur3_64(data: bytes) -> int:
    """The first 64 bits of murmur3 x64 128, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotated(k1 * _C1 & _M64, 31) * _C2 & _M64
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _M64
        h2 ^= _rotated(k2 * _C2 & _M64, 33) * _C1 & _M64
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _M64
    tail = data[whole:]
    h2 ^= _rotated(int.from_bytes(tail[8:], "little") * _C2 & _M64, 33) * _C1 & _M64
    h1 ^= _rotated(int.from_bytes(tail[:8], "little") * _C1 & _M64, 31) * _C2 & _M64
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _M64
    h2 = (h2 + h1) & _M64
    return (_final(h1) + _final(h2)) & _M64
