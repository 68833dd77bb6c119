"""The cluster that the suite wants: two masters without slaves, broker-a and broker-b, behind one name server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.process_group import twinlog

# Small files, and what the tests presume.
SETTINGS = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "enablePropertyFilter": "true",
    "tls.server.mode": "permissive",
}


@contextmanager
def running(root: Path) -> Iterator[str]:
    """The name server's address, while they run."""
    with twinlog.NameServer(root / "namesrv") as namesrv:
        first, second = (
            twinlog.Broker(root / name, namesrv.address, broker_name=name, settings=SETTINGS)
            for name in ("broker-a", "broker-b")
        )
        with first, second:
            yield namesrv.address


def complaints(root: Path) -> list[str]:
    """What name server and masters logged of connections and requests that failed: some tests pass when nothing is sent."""
    words = ("[error", "Traceback", "does not speak the remoting protocol")
    lines = (line for log in sorted(root.glob("*/stdout.log")) for line in log.read_text(errors="replace").splitlines())
    return [line for line in lines if any(word in line for word in words)]
