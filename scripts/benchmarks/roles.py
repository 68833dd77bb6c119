"""scripts/bench roles: how long producers wait when roles change, and how quickly a log is cut or taken anew."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import define, field

from scripts.benchmarks.ha_lag import send_evenly
from scripts.benchmarks.report import Row, say, scratch
from scripts.benchmarks.roles_load import EvenLoad, wait_send_ok
from scripts.benchmarks.store_directory import FULL, TOPIC
from scripts.benchmarks.systems import QUEUES
from tests.support.clients.remoting import create_topic, runtime_info
from tests.support.process_group import twinlog
from tests.support.process_group.role_changes import change_role, wait_electable, wait_grouped
from tests.support.waiting import wait_for

PARTS = ("switchover", "failover", "rewind", "reinit")
AROUND_SECONDS = 0.5  # Of load before and after a switchover.
FILL_RATE, LEVEL_SECONDS = 20_000, 120.0
SEND_OK_SECONDS_MAX = 60.0


@define(kw_only=True)
class RolesBench:
    """One run. Everything lies below a temporary directory; rows come out as they are measured."""

    parts: tuple[str, ...]
    rounds: int  # Switchovers at each rate, and twice the failovers.
    rates: tuple[int, ...]  # Messages a second.
    log_bytes: int  # That are cut, and taken anew.
    root: Path = field(init=False)
    namesrv: str = field(init=False)

    def rows(self) -> Iterator[Row]:
        """Measure one thing after the other."""
        with scratch("bench-roles-") as self.root, twinlog.NameServer(self.root / "namesrv") as namesrv:
            self.namesrv = namesrv.address
            if "switchover" in self.parts:
                for rate in self.rates:
                    yield from self._switchovers(rate)
            if "failover" in self.parts:
                yield from self._failovers()
            if "rewind" in self.parts:
                yield self._rewind()
            if "reinit" in self.parts:
                yield self._reinit()

    @contextmanager
    def _group(self, count: int, **settings: str) -> Iterator[list[twinlog.Broker]]:
        """A master and its slaves, in one record."""
        with scratch(within=self.root) as directory, ExitStack() as stack:
            members = []
            for number in range(count):
                role = "SLAVE" if number else "SYNC_MASTER"
                member = twinlog.Broker(
                    directory / str(number),
                    self.namesrv,
                    role=role,
                    broker_id=number,
                    broker_name=directory.name,  # A group of its own: the name server remembers the others.
                    settings={**FULL.settings, **settings},
                )
                members.append(stack.enter_context(member))
            create_topic(members[0].address, TOPIC, queues=QUEUES)
            wait_grouped(members[0], count)
            for slave in members[1:]:  # The master may know them before they know each other.
                wait_electable(slave, count)
            yield members

    def _switchovers(self, rate: int) -> Iterator[Row]:
        """There and back, each time with a producer that goes on talking to the old master."""
        with self._group(2) as members:
            for number in range(self.rounds):
                master, candidate = members[number % 2], members[1 - number % 2]
                row = trio.run(_switchover, master, candidate, rate)
                yield {"measure": "switchover", "rate": rate, "round": number, **row}

    def _failovers(self) -> Iterator[Row]:
        """The master dies; of three members two are left. It comes back before the next round."""
        with self._group(3) as members:
            for number in range((self.rounds + 1) // 2):
                master, candidate = members[number % 3], members[(number + 1) % 3]
                yield {"measure": "failover", "round": number, **trio.run(_failover, master, candidate)}
                master.start()
                self._wait_level(members, members[(number + 1) % 3])

    def _rewind(self) -> Row:
        """A master writes alone, dies, and comes back when another one is master."""
        with self._group(2, haAutoRewind="false", inSyncReplicas="1") as (master, slave):
            slave.kill()
            end = _end(master)
            self._fill(master)
            written = _end(master) - end
            master.kill()
            slave.start()
            change_role("failover", slave, "--accept-data-loss", "unknown")
            master.start()
            seconds = trio.run(_timed, partial(_command, "rewind", master))
            self._wait_level([master, slave], slave)
        return {"measure": "rewind", "bytes": written, "seconds": seconds}

    def _reinit(self) -> Row:
        with self._group(2) as members:
            master, slave = members
            self._fill(master)
            self._wait_level(members, master)
            seconds = trio.run(_timed, partial(_command, "reinit", slave))
            self._wait_level(members, master)
            return {"measure": "reinit", "bytes": _end(master), "seconds": seconds}

    def _fill(self, master: twinlog.Broker) -> None:
        say(f"filling a log of {self.log_bytes >> 20} MiB")
        begin = _end(master)
        while _end(master) < begin + self.log_bytes:
            trio.run(send_evenly, master.port, FILL_RATE, 1.0)

    def _wait_level(self, members: Sequence[twinlog.Broker], master: twinlog.Broker) -> None:
        for member in members:
            what = f"{member.root} is level"
            wait_for(lambda: _end(member) == _end(master), what, timeout_s=LEVEL_SECONDS)  # noqa: B023


def _end(member: twinlog.Broker) -> int:
    return int(runtime_info(member.address)["commitLogMaxOffset"])


async def _switchover(master: twinlog.Broker, candidate: twinlog.Broker, rate: int) -> Row:
    load = EvenLoad(master.port, rate)
    async with trio.open_nursery() as nursery:
        await nursery.start(load.run)
        await trio.sleep(AROUND_SECONDS)
        begin = trio.current_time()
        result = await trio.to_thread.run_sync(change_role, "switchover", candidate)
        seconds = trio.current_time() - begin
        await trio.sleep(AROUND_SECONDS)
        load.stop()
    return {
        "pause_ms": result["pause_ms"],
        "longest_wait_ms": max(answer.wait_ms for answer in load.answers),
        "messages": len(load.answers) + load.unanswered,
        "codes": dict(Counter(str(answer.code) for answer in load.answers)),
        "unanswered": load.unanswered,
        "command_seconds": seconds,
    }


async def _failover(master: twinlog.Broker, candidate: twinlog.Broker) -> Row:
    """Seconds from the start of the command, which a person or a program gives at once, and within it."""
    await trio.to_thread.run_sync(master.kill)
    begin = trio.current_time()
    first_ok = 0.0

    async def watch() -> None:
        nonlocal first_ok
        first_ok = await wait_send_ok(candidate.port, SEND_OK_SECONDS_MAX)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        result = await trio.to_thread.run_sync(change_role, "failover", candidate)
        command_seconds = trio.current_time() - begin
    return {
        "send_ok_seconds": first_ok - begin,
        "command_seconds": command_seconds,
        "lost_bytes": result["lost_bytes"],
    }


async def _timed(action: Callable[[], None]) -> float:
    begin = trio.current_time()
    await trio.to_thread.run_sync(action)
    return trio.current_time() - begin


def _command(verb: str, member: twinlog.Broker) -> None:
    """`twinlog rewind` or `reinit`, which end when it is done."""
    command = [twinlog.PROGRAM, verb, member.address, "--yes", "-n", member.namesrv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{verb} ended with {done.returncode}\n{done.stderr}\n{member.tail()}")
