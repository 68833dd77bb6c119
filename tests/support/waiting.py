"""Waiting for what other processes do."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

SECONDS_MAX = 60.0  # Of one wait; other work on the machine makes everything slow.


def wait_for(condition: Callable[[], object], what: str, *, timeout_s: float = SECONDS_MAX) -> float:
    """Poll until the condition holds; returns how long it took. TimeoutError names what did not come true."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - began


def at_once(actions: Iterable[Callable[[], object]]) -> None:
    """Do things that mostly wait side by side; raises what the first of them raised."""
    actions = list(actions)
    with ThreadPoolExecutor(len(actions)) as pool:
        for future in [pool.submit(action) for action in actions]:
            future.result()
