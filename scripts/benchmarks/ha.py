"""scripts/bench ha: how quickly a slave gets level with its master, and how far behind it is then; ours and RocketMQ's, mixed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import trio
from attrs import define, field

from scripts.benchmarks.ha_lag import LagProxy, send_evenly
from scripts.benchmarks.ha_pairs import Logs, catch_up, fill, make_broker, pair
from scripts.benchmarks.load import TOPIC, Load, measure
from scripts.benchmarks.machine import ROOT
from scripts.benchmarks.report import Row, in_turn, say, scratch
from scripts.benchmarks.store_directory import FULL, QUICK, Scale
from scripts.benchmarks.store_directory import TOPIC as EVEN_TOPIC
from scripts.benchmarks.systems import QUEUES, System
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.ports import HOST

PAIRS = (("twinlog", "twinlog"), ("twinlog", "rocketmq"), ("rocketmq", "twinlog"), ("rocketmq", "rocketmq"))
TLS_PAIRS = (("twinlog", "twinlog"), ("twinlog-tls", "twinlog-tls"))
PARTS = ("catch-up", "raw", "lag", "verification")
VERIFIED, UNVERIFIED = "twinlog", "unverified"


@define(kw_only=True)
class HABench:
    """One run. Everything lies below a temporary directory; rows come out as they are measured."""

    log_bytes: int
    body_sizes: tuple[int, ...]
    pairs: tuple[tuple[str, str], ...]
    parts: tuple[str, ...]
    rounds: int
    seconds: float  # Of a measurement of lag or throughput.
    messages_per_second: int
    root: Path = field(init=False)
    namesrv: str = field(init=False)

    def rows(self) -> Iterator[Row]:
        """Measure one thing after the other."""
        with scratch("bench-ha-") as self.root, twinlog.NameServer(self.root / "namesrv") as namesrv:
            self.namesrv = namesrv.address
            for body_size in self.body_sizes:
                if {"catch-up", "raw"} & {*self.parts}:
                    yield from self._catch_up(body_size)
            if "lag" in self.parts:
                yield from self._lag()
            if "verification" in self.parts:
                for _, kind in in_turn(self.rounds, (VERIFIED, UNVERIFIED)):
                    yield self._throughput(kind)

    def _in_round(self, number: int) -> tuple[tuple[str, str], ...]:
        """The pairs, every second round backwards."""
        return self.pairs[::-1] if number % 2 else self.pairs

    @property
    def scale(self) -> Scale:
        """RocketMQ's own file sizes, or small ones for a small log."""
        return FULL if self.log_bytes >= FULL.log_file_bytes else QUICK

    def _catch_up(self, body_size: int) -> Iterator[Row]:
        base = self.root / f"base-{body_size}"
        say(f"filling a log of {self.log_bytes >> 20} MiB with messages of {body_size} bytes")
        logs = fill(base, self.scale, body_size, self.log_bytes)
        for number in range(self.rounds):
            if "raw" in self.parts:
                yield {"measure": "raw", "body_bytes": body_size, "round": number, **self._raw(logs)}
            for master, slave in self._in_round(number) if "catch-up" in self.parts else ():
                os.sync()  # What the last one left to write is not charged to this one.
                with (
                    scratch(within=self.root) as directory,
                    self._pair(directory, master, slave, logs) as (leader, follower),
                ):
                    row = catch_up(leader, follower, logs)
                yield {"measure": "catch-up", "master": master, "slave": slave, "body_bytes": body_size} | row
        shutil.rmtree(base)

    def _raw(self, logs: Logs) -> Row:
        command = [sys.executable, "-m", "scripts.benchmarks.ha_raw", str(logs.whole / "commitlog")]
        with scratch(within=self.root) as directory:
            command += [str(directory / "received"), str(logs.end)]
            ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=300)
        result: Row = json.loads(ran.stdout)
        return result

    def _lag(self) -> Iterator[Row]:
        for number in range(self.rounds):
            for master, slave in self._in_round(number):
                os.sync()
                with scratch(within=self.root) as directory:
                    row = trio.run(self._lag_of, directory, master, slave)
                yield {"measure": "lag", "master": master, "slave": slave, "round": number, **row}

    async def _lag_of(self, directory: Path, master: str, slave: str) -> Row:
        settings = FULL.settings
        leader = make_broker(master, directory / "master", self.namesrv, "ASYNC_MASTER", settings)
        proxy = LagProxy(leader.ha_port, FULL.log_file_bytes, with_tls=master == "twinlog-tls")
        (listener,) = await trio.open_tcp_listeners(0, host=HOST)
        port = listener.socket.getsockname()[1]
        address = {"haMasterAddress": f"{HOST}:{port}"}
        follower = make_broker(slave, directory / "slave", self.namesrv, "SLAVE", {**settings, **address})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proxy.run, listener)
            with await trio.to_thread.run_sync(leader.__enter__), await trio.to_thread.run_sync(follower.__enter__):
                await trio.to_thread.run_sync(_create_topics, leader.address)
                rate, seconds = self.messages_per_second, self.seconds
                await send_evenly(leader.port, rate, seconds)  # To warm up: a JVM compiles for a while.
                await trio.sleep(1)
                proxy.counting = True
                await send_evenly(leader.port, rate, seconds)
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
        return proxy.row()

    def _throughput(self, kind: str) -> Row:
        """What a SYNC_MASTER takes whose slave verifies, or does not."""
        load = Load(threads=(64,), first_warm_up_s=5, warm_up_s=2, seconds=max(1, round(self.seconds)))
        with scratch(within=self.root) as directory:
            master = make_broker(VERIFIED, directory / "master", self.namesrv, "SYNC_MASTER", FULL.settings)
            address = {"haMasterAddress": f"{HOST}:{master.ha_port}"}
            slave = make_broker(kind, directory / "slave", self.namesrv, "SLAVE", {**FULL.settings, **address})
            with master, slave:
                _create_topics(master.address)
                pids = {"master": master.pid, "slave": slave.pid}
                system = System(name=kind, namesrv=self.namesrv, master=master.address, pids=pids)
                (row,) = measure(system, load, directory)
        return {"measure": "verification", "slave": kind, **row}

    def _pair(
        self, directory: Path, master: str, slave: str, logs: Logs
    ) -> AbstractContextManager[tuple[BrokerProcess, BrokerProcess]]:
        return pair(directory, self.namesrv, master, slave, self.scale.settings, logs)


def _create_topics(address: str) -> None:
    for topic in (TOPIC, EVEN_TOPIC):
        create_topic(address, topic, queues=QUEUES)
