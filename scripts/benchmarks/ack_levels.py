"""scripts/bench acks: how long a lone producer waits for its answer at each level of acknowledgement, with one slave.

One message is under way at a time, so that the answer's time is the level's own. Rounds go through the levels in turn, every
second round backwards; each pair is started fresh.
"""

import socket
import time
from collections.abc import Iterator
from statistics import quantiles

from attrs import field, frozen

from scripts.benchmarks.report import Row, in_turn, scratch
from scripts.benchmarks.store_directory import FULL, TOPIC
from scripts.benchmarks.store_restarts import SUCCESS, receive_codes, send_frame
from scripts.benchmarks.systems import QUEUES
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.ports import HOST
from tests.support.process_group.role_changes import wait_grouped


@frozen
class Level:
    """A level of docs/operating/acknowledgements.md: what master and slave are told."""

    name: str
    role: str
    master: dict[str, str] = field(factory=dict)
    slave: dict[str, str] = field(factory=dict)


SYNC_FLUSH, FLUSHED = {"flushDiskType": "SYNC_FLUSH"}, {"haAckMode": "flushed"}
LEVELS = (
    Level("L0", "ASYNC_MASTER"),
    Level("L1", "ASYNC_MASTER", SYNC_FLUSH),
    Level("L2", "SYNC_MASTER"),
    Level("L3", "SYNC_MASTER", {}, FLUSHED),
    Level("L3 and SYNC_FLUSH", "SYNC_MASTER", SYNC_FLUSH, FLUSHED),
)


@frozen(kw_only=True)
class AckBench:
    """One run. `messages` are measured in each round and level, after `warm_up` that are not."""

    rounds: int
    messages: int = 500
    warm_up: int = 200

    def rows(self) -> Iterator[Row]:
        """Rows come out as they are measured; nothing is left behind."""
        with scratch("bench-acks-") as root, twinlog.NameServer(root / "namesrv") as namesrv:
            for number, level in in_turn(self.rounds, LEVELS):
                yield {"round": number, "level": level.name, **self._measure(level, namesrv.address)}

    def _measure(self, level: Level, namesrv: str) -> Row:
        with scratch("bench-acks-") as directory:
            name = directory.name  # A group of its own: the name server remembers the others.
            leader, follower = (
                twinlog.Broker(
                    directory / role, namesrv, role=role, broker_name=name, settings={**FULL.settings, **own}
                )
                for role, own in ((level.role, level.master), ("SLAVE", level.slave))
            )
            with leader, follower:
                create_topic(leader.address, TOPIC, queues=QUEUES)
                wait_grouped(leader, 2)
                return _waits(leader.port, self.warm_up, self.messages)


def _waits(port: int, warm_up: int, count: int) -> Row:
    """Send one message after the other. Raises RuntimeError for an answer that is not SEND_OK."""
    times = []
    with socket.create_connection((HOST, port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(warm_up + count):
            frame = send_frame(number)
            began = time.perf_counter()
            connection.sendall(frame)
            (code,) = receive_codes(connection, 1)
            times.append(time.perf_counter() - began)
            if code != SUCCESS:
                raise RuntimeError(f"message {number} was answered {code}")
    cuts = quantiles(times[warm_up:], n=100, method="inclusive")
    return {"messages": count, "p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}
