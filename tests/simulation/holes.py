"""Faults to be put back into the product, in memory: each is one that the product once had, or that RocketMQ has.

tests/simulation/test_holes.py shows that the simulation notices each of them, and says what it notices.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

HOLES: dict[str, Callable[[], AbstractContextManager[object]]] = {}
