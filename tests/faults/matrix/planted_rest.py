"""Changes of the product for the rows about what lies still, strangers and mixed versions."""

from collections.abc import Iterator
from unittest.mock import patch

import ha.repair
import store.scrub
from store.read_check import ReadCheck
from tests.faults.matrix.planted import planted

EAGER = "a scrub that does not wait"


@planted(EAGER)
def eager_scrub() -> Iterator[None]:
    """No fault: what it does a minute after a start it does at once, so that a row need not wait for it."""
    with (
        patch.object(store.scrub, "_FIRST_SECONDS", 1.5),
        patch.object(ha.repair, "LOOK_SECONDS", 0.5),
        patch.object(ha.repair, "TRY_AGAIN_SECONDS", 2.0),
    ):
        yield


@planted("what lies on the disk is believed")
def disk_is_believed() -> Iterator[None]:
    """Nothing that was there at a start is looked at: neither when it is read nor by the scrub."""

    async def never(self: store.scrub.ScrubService) -> None:
        return

    with (
        patch.object(ReadCheck, "distrust", lambda self, queues: None),
        patch.object(store.scrub.ScrubService, "run", never),
    ):
        yield
