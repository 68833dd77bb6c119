"""The end of the process at any step of something that takes several."""

import os
from collections.abc import Callable
from pathlib import Path

SYNCS = ((Path, "rename"), (Path, "mkdir"), (os, "fsync"), (os, "fdatasync"))


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(step: int, work: Callable[[], object], monkeypatch, *more: tuple[object, str]) -> bool:
    """Do `work`, with the process ending at a call of SYNCS or `more`, the first one being number 0; whether it ended there."""
    left = step

    def dying(call):
        def wrapped(*args, **kwargs):
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return call(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patched:
        for place, name in (*SYNCS, *more):
            patched.setattr(place, name, dying(getattr(place, name)))
        try:
            work()
        except Killed:
            return True
    return False
