"""Methods that attrs writes for its classes, compiled once and kept beside compiled modules.

attrs writes the methods of a class as text, which Python compiles again at each start: a third of what a broker's start takes.
"""

import marshal
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

import attr._make
from attrs import define, field

KEPT_MAX = 4000  # Of the file; `broker`, `namesrv` and `list` have 865. More are of sources that have changed since.
_SUM_BYTES, _SUM_OF_NOTHING = 4, 1  # Not 0, which a file of zeros would have.
# The number that sets a class's hash apart, another one in each process: any is right.
_OWN_NUMBER = re.compile(r"^ +-?\d+,$", re.MULTILINE)


@contextmanager
def kept_classes(path: Path | None = None) -> Iterator[None]:
    """Within this, attrs takes compiled methods from a file, and those that it lacks are added to it at the end.

    `path`: for tests; else it lies where Python keeps what it has compiled of this module, under Python's rules
    (PYTHONDONTWRITEBYTECODE, PYTHONPYCACHEPREFIX). Where it cannot be read or written, all are compiled as ever.
    """
    before = getattr(attr._make, "_compile_and_eval", None)
    if before is None:  # Another attrs.
        yield
        return
    path = path or Path(cache_from_source(__file__)).with_suffix(".attrs")
    kept = _Kept(_read(path))
    attr._make._compile_and_eval = kept.evaluate
    try:
        yield
    finally:
        attr._make._compile_and_eval = before
        if kept.used.keys() - kept.of_file.keys() and not sys.dont_write_bytecode:
            with suppress(OSError):
                _write(path, kept.used if len(kept.of_file) > KEPT_MAX else kept.of_file | kept.used)


@define(eq=False)
class _Kept:
    """Compiled methods, by a digest of their text and their class."""

    of_file: dict[bytes, bytes]
    used: dict[bytes, bytes] = field(factory=dict)

    def evaluate(self, script: str, globs: dict[str, Any] | None, locs: Any = None, filename: str = "") -> None:
        """Do what attrs' function of this place does: carry the text out."""
        key = blake2b(f"{filename}\n{_OWN_NUMBER.sub('', script)}".encode(), digest_size=16).digest()
        kept = self.of_file.get(key)
        code: CodeType
        if kept is None:
            code = compile(script, filename, "exec")
            kept = marshal.dumps(code)
        else:
            code = marshal.loads(kept)
        self.used[key] = kept
        eval(code, globs, locs)


def _read(path: Path) -> dict[bytes, bytes]:
    """Compiled methods of the file, by their keys; none where it is damaged or not there."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    body = memoryview(data)[_SUM_BYTES:]
    if _sum_of(body) != data[:_SUM_BYTES]:
        return {}
    return dict(marshal.loads(body))


def _write(path: Path, kept: dict[bytes, bytes]) -> None:
    """Replace the file at once; several processes may do so: the last one wins."""
    body = marshal.dumps(kept)
    new = path.with_suffix(f".{os.getpid()}")
    try:
        new.write_bytes(_sum_of(body) + body)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _sum_of(body: bytes | memoryview) -> bytes:
    return zlib.crc32(body, _SUM_OF_NOTHING).to_bytes(_SUM_BYTES, "big")
