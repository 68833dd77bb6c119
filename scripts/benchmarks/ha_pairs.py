"""Masters and slaves of both kinds, on copies of one log, of which the slave has the first messages."""

import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import evolve, frozen

from scripts.benchmarks.machine import ROOT, cpu_seconds
from scripts.benchmarks.report import Row
from scripts.benchmarks.store_directory import TOPIC, Scale, copy_store
from scripts.benchmarks.systems import BROKER_HEAP, QUEUES
from tests.support.clients.remoting import runtime_info
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.ports import HOST
from twinlog.store.config import StoreConfig
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import host_bytes

BATCH = 64
POLL_SECONDS, SETTLE_SECONDS, SECONDS_MAX = 0.01, 3.0, 300.0
_HOST = host_bytes("127.0.0.1:10911")


class UnverifiedBroker(twinlog.Broker):
    """Ours, whose slaves check no CRCs."""

    def command(self) -> Sequence[str]:
        module = [sys.executable, "-m", "scripts.benchmarks.ha_unverified"]
        return [*module, "broker", "-c", str(self.conf), "-n", self.namesrv]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(ROOT)}


def make_broker(
    kind: str, root: Path, namesrv: str, role: str, settings: Mapping[str, str], **options: Any
) -> BrokerProcess:
    """A broker that is not started yet; `options` as of a BrokerProcess."""
    if kind == "rocketmq":
        return rocketmq.Broker(root, namesrv, role=role, settings=settings, heap=BROKER_HEAP, **options)
    settings = {**settings, "haTls": "true"} if kind == "twinlog-tls" else settings
    made = UnverifiedBroker if kind == "unverified" else twinlog.Broker
    return made(root, namesrv, role=role, settings=settings, **options)


@frozen
class Logs:
    """Store directories to copy: `whole` for masters, `early` with its first messages for slaves. Ends in bytes of the log."""

    whole: Path
    early: Path
    early_end: int
    end: int


def fill(root: Path, scale: Scale, body_size: int, log_bytes: int) -> Logs:
    """Make a log, twice: its beginning, and all of it."""
    config = evolve(scale.config(root / "whole"), message_index_enable=False)  # A master's index is not measured.
    early_end = _put(config, body_size, 1)
    copy_store(root / "whole", root / "early")
    return Logs(root / "whole", root / "early", early_end, _put(config, body_size, log_bytes))


def _put(config: StoreConfig, body_size: int, log_end: int) -> int:
    """Append batches until the log is so long; where it ends then."""
    pool = random.Random(body_size).randbytes(body_size + 997)
    store = MessageStore(config)
    store.load()
    number = store.queue(TOPIC, 0).max_offset * QUEUES
    while store.max_offset < log_end:
        store.put([_message(n, pool[n % 997 :][:body_size]) for n in range(number, number + BATCH)])
        store.dispatch_pending()
        number += BATCH
    end = store.max_offset
    trio.run(store.close)
    return end


def _message(number: int, body: bytes) -> PutMessage:
    properties = f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01Tag{number % 10}"
    now = 1_700_000_000_000 + number // 10
    return PutMessage(TOPIC, number % QUEUES, body, properties.encode(), 0, 0, now, _HOST, _HOST, 0, 0, 0)


@contextmanager
def pair(
    root: Path, namesrv: str, master: str, slave: str, settings: Mapping[str, str], logs: Logs
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A master, running, and a slave, which was started and then stopped in its tracks: send it SIGCONT."""
    leader = make_broker(master, root / "master", namesrv, "ASYNC_MASTER", {**settings, "messageIndexEnable": "false"})
    address = {"haMasterAddress": f"{HOST}:{leader.ha_port}"}
    follower = make_broker(slave, root / "slave", namesrv, "SLAVE", {**settings, **address})
    copy_store(logs.whole, leader.store)
    copy_store(logs.early, follower.store)
    with follower:
        follower.send_signal(signal.SIGSTOP)
        try:
            with leader:
                time.sleep(SETTLE_SECONDS)
                yield leader, follower
        finally:
            follower.send_signal(signal.SIGCONT)


def catch_up(leader: BrokerProcess, follower: BrokerProcess, logs: Logs) -> Row:
    """Let the slave go, and watch it: seconds from its first byte until all are in its log file, until they
    are part of its log, and until all is in its queues."""
    before = {"master": cpu_seconds(leader.pid)}
    follower.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + SECONDS_MAX
    begin, taken, received = 0.0, 0.0, 0.0
    while True:
        now = time.monotonic()
        info = runtime_info(follower.address)
        offset, behind = int(info["commitLogMaxOffset"]), int(info["dispatchBehindBytes"])
        if offset <= logs.early_end and not int(info.get("unverifiedBytes", 0)):
            begin = now
            before["slave"] = cpu_seconds(follower.pid)
        if offset + int(info.get("unverifiedBytes", 0)) >= logs.end and not taken:
            taken = time.monotonic()
        if offset >= logs.end and not received:
            received = time.monotonic()
        if received and behind <= 0:
            break
        if now > deadline or not follower.running:
            raise RuntimeError(f"{follower.name} has {offset} of {logs.end} bytes\n{follower.tail()}")
        time.sleep(POLL_SECONDS)
    dispatched = time.monotonic()
    used = {"master": leader.pid, "slave": follower.pid}
    return {
        "bytes": logs.end - logs.early_end,
        "taken_seconds": taken - begin,  # Until all bytes were in the log file, verified or not.
        "seconds": received - begin,
        "dispatched_seconds": dispatched - begin,
        "cpu_seconds": {name: cpu_seconds(pid) - before.get(name, 0) for name, pid in used.items()},
    }
