"""What being watched costs a broker: metrics, a Prometheus that scrapes, a dashboard with a reader, against none of them.

Each round measures both, in turn and in the other order next time; what changes on the machine meanwhile hits both alike. The
load is that of `produce`: sync sends of 1 KiB messages to a SYNC_MASTER with one slave, as `twinlog up` starts them.
"""

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from scripts.benchmarks.load import TOPIC, Load, measure
from scripts.benchmarks.report import Row, in_turn, scratch
from scripts.benchmarks.systems import QUEUES, System
from tests.monitoring.prometheus import prometheus
from tests.support.clients.remoting import create_topic
from tests.support.process_group.ports import HOST
from tests.support.process_group.up import Up, running

KINDS = ("off", "on")
OPTIONS = ("--set", "mappedFileSizeCommitLog=268435456")


@frozen(kw_only=True)
class ObserveBench:
    """`scrape_seconds`: how often Prometheus asks."""

    rounds: int
    load: Load
    scrape_seconds: int
    topics: int  # That the metrics have to tell of, besides the system's.

    def rows(self) -> Iterator[Row]:
        """One for each round and kind."""
        for number, kind in in_turn(self.rounds, KINDS):
            with self._system(kind) as system, scratch() as client:
                for row in measure(system, self.load, client):
                    yield {"round": number, "kind": kind, **row}

    @contextmanager
    def _system(self, kind: str) -> Iterator[System]:
        """A master and its slave, ready; with all that watches, or nothing."""
        watched = kind == "on"
        options = OPTIONS if watched else (*OPTIONS, "--set", "httpEnable=false")
        with ExitStack() as stack:
            root = stack.enter_context(scratch("bench-observe-"))
            up = stack.enter_context(running(root / "data", *options, with_dashboard=watched))
            up.wait_ready()
            master = f"{HOST}:{up.port_base + 11}"
            create_topic(master, TOPIC, queues=QUEUES)
            for number in range(self.topics - 1):
                create_topic(master, f"{TOPIC}-{number}", queues=QUEUES)
            if watched:
                self._watch(up, root, stack)
            pids = {"master": up.member("broker-a-0").pid, "slave-1": up.member("broker-a-1").pid}
            yield System(name=f"twinlog, observed {kind}", namesrv=up.namesrv, pids=pids, master=master)

    def _watch(self, up: Up, root: Path, stack: ExitStack) -> None:
        base = up.port_base
        targets = {"broker": [f"{HOST}:{base + 14}", f"{HOST}:{base + 24}"], "namesrv": [f"{HOST}:{base + 2}"]}
        stack.enter_context(prometheus(targets, root, interval=f"{self.scrape_seconds}s"))
        answer = stack.enter_context(urllib.request.urlopen(f"{up.dashboard}/events", timeout=60))
        threading.Thread(target=_read, args=(answer,), daemon=True).start()


def _read(answer: Any) -> None:
    """As a browser that somebody looks at."""
    with suppress(OSError, ValueError, AttributeError):  # Closed by the other thread, at the end.
        while answer.read(1):
            pass
