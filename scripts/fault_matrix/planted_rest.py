"""Changes of the product for the rows about what lies still, strangers and mixed versions."""

from collections.abc import Iterator
from unittest.mock import patch

import trio

import twinlog.ha.slave.repair
import twinlog.store.integrity.scrub
from scripts.fault_matrix.planted import planted
from twinlog.cluster.remoting.limits import Budget
from twinlog.cluster.remoting.server import RemotingServer
from twinlog.store.integrity.read_check import ReadCheck

EAGER = "a scrub that does not wait"


@planted(EAGER)
def eager_scrub() -> Iterator[None]:
    """No fault: what it does a minute after a start it does at once, so that a row need not wait for it."""
    with (
        patch.object(twinlog.store.integrity.scrub, "_FIRST_SECONDS", 1.5),
        patch.object(twinlog.ha.slave.repair, "CHECK_SECONDS", 0.5),
        patch.object(twinlog.ha.slave.repair, "TRY_AGAIN_SECONDS", 2.0),
    ):
        yield


@planted("what lies on the disk is believed")
def disk_is_believed() -> Iterator[None]:
    """Nothing that was there at a start is looked at: neither when it is read nor by the scrub, which says that it did."""

    async def claim(self: twinlog.store.integrity.scrub.ScrubService) -> None:
        await trio.sleep(twinlog.store.integrity.scrub._FIRST_SECONDS)
        twinlog.store.integrity.scrub.log.info("scrub round finished", bytes=0)

    with (
        patch.object(ReadCheck, "distrust", lambda self, queues: None),
        patch.object(twinlog.store.integrity.scrub.ScrubService, "run", claim),
    ):
        yield


@planted("drops keep a connection")
def drops_keep_a_connection() -> Iterator[None]:
    """Each byte is a sign of life: the longest wait for the rest of a frame begins anew with it."""
    with patch.object(RemotingServer, "_drips", lambda self, connection, reader, now: False):
        yield


@planted("frames of any size are kept")
def frames_of_any_size() -> Iterator[None]:
    """Nothing bounds what all connections together make a member keep."""
    with patch.object(Budget, "_cut", lambda self, holder: self.forget(holder)):
        yield
