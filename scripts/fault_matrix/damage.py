"""What a disk does to a file that nobody has open: a bit, a part that is zero, an end that is gone, rubbish behind the end."""

import random
from pathlib import Path

PAGE = 4096


def damage(path: Path, how: str, rng: random.Random) -> str:
    """Do it; where and what, in a few words. The file keeps its time, as nobody wrote to it."""
    raw = bytearray(path.read_bytes())
    used = len(raw.rstrip(b"\0"))
    if how == "missing":
        path.unlink()
        return f"{path.name} of {len(raw)} bytes is gone"
    said = _WAYS[how](raw, used, rng)
    path.write_bytes(raw)
    return f"{path.name}: {said}"


def _bit(raw: bytearray, used: int, rng: random.Random) -> str:
    """In what was written: a bit of a part that nobody uses would show nothing."""
    at = rng.randrange(used)
    for _ in range(1000):
        if raw[at]:
            break
        at = rng.randrange(used)
    bit = 1 << rng.randrange(8)
    raw[at] ^= bit
    return f"bit {bit:#04x} of byte {at} of {used}"


def _zeroed(raw: bytearray, used: int, rng: random.Random) -> str:
    """A page, as a block that was never written back."""
    at = rng.randrange(used) // PAGE * PAGE
    end = min(used, at + PAGE)
    raw[at:end] = bytes(end - at)
    return f"bytes {at} to {end} of {used} are zero"


def _truncated(raw: bytearray, used: int, rng: random.Random) -> str:
    at = rng.randrange(used)
    del raw[at:]
    return f"it ends at {at}, {used} were written"


def _garbage(raw: bytearray, used: int, rng: random.Random) -> str:
    """Behind the end of what was written; the file grows where that is its end."""
    rubbish = rng.randbytes(rng.randrange(100, 2 * PAGE))
    raw[used : used + len(rubbish)] = rubbish
    return f"{len(rubbish)} bytes of rubbish behind {used}"


_WAYS = {"bit": _bit, "zeroed": _zeroed, "truncated": _truncated, "garbage": _garbage}
