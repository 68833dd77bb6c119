"""A message's own id (property UNIQ_KEY), made where the message is made. Source: MessageClientIDSetter (4.9.8)."""

import itertools
import os
import time
from struct import Struct

_PREFIX, _SUFFIX = Struct(">4sHi"), Struct(">iH")
assert _PREFIX.size + _SUFFIX.size == 16


class UniqueIds:
    """ip 4 | pid u16 | number of this object i32 | ms since the month began i32 | counter u16, in upper-case hex."""

    def __init__(self, ip: bytes = b"\x7f\x00\x00\x01") -> None:
        self._prefix = _PREFIX.pack(ip, os.getpid() & 0xFFFF, int.from_bytes(os.urandom(4), signed=True)).hex().upper()
        self._counter = itertools.count(int.from_bytes(os.urandom(2)))

    def __next__(self) -> str:
        now = time.time()
        local = time.localtime(now)
        month = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
        since_month = int((now - month) * 1000) & 0x7FFFFFFF
        return self._prefix + _SUFFIX.pack(since_month, next(self._counter) & 0xFFFF).hex().upper()

    def __iter__(self) -> "UniqueIds":
        return self
