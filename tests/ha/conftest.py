"""What all tests of replication need."""

from collections.abc import Callable
from typing import Any

import pytest
import trio


async def _at_once(function: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


@pytest.fixture(autouse=True)
def no_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time leaps while a thread is at work, so there is none where time is virtual."""
    if "autojump_clock" in request.fixturenames:
        monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
