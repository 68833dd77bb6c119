"""scripts/bench consume, latency and idle: what consumers get of a broker, ours and RocketMQ's, one after the other.

Every system has a name server of twinlog and one ASYNC_MASTER without slaves.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from scripts.benchmarks.batches import BATCH, send_batches
from scripts.benchmarks.ha_pairs import make_broker
from scripts.benchmarks.idle import IdleLoad
from scripts.benchmarks.load import java_client
from scripts.benchmarks.machine import cpu_seconds, drop_caches
from scripts.benchmarks.report import Row, in_turn, scratch
from scripts.benchmarks.store_directory import FULL, TOPIC
from scripts.benchmarks.store_restarts import make_broker as stopped_broker
from scripts.benchmarks.systems import QUEUES
from tests.support.clients.remoting import create_topic
from tests.support.process_group import twinlog
from tests.support.process_group.member import BrokerProcess

KINDS = ("twinlog", "rocketmq")
BODY_BYTES = 1024
DRAIN_SECONDS_MAX = 180


@frozen(kw_only=True)
class ClientsBench:
    """One run. Rows come out as they are measured; the systems take turns, every second round the other way round."""

    rounds: int
    kinds: tuple[str, ...] = KINDS

    def consume(self, log_bytes: int, consumers: Sequence[int]) -> Iterator[Row]:
        """How fast push consumers drain a topic: as it was written, and after a restart from a disk that has to be read."""
        messages = log_bytes // BODY_BYTES // BATCH * BATCH
        for number, kind in in_turn(self.rounds, self.kinds):
            with self._broker(kind) as broker:
                send_batches(broker.port, messages)
                for is_cold in (False, True):
                    if is_cold:
                        broker.stop()
                        broker.start()
                    for count in consumers:
                        if is_cold and not drop_caches():
                            raise PermissionError("only the super-user makes the kernel forget files")
                        row = self._drain(broker, count, messages, f"bench-{is_cold}-{count}")
                        yield {"round": number, "system": kind, "cold": is_cold, "consumers": count, **row}

    def latency(self, rates: Sequence[int], warm_ups: Sequence[int], seconds: int) -> Iterator[Row]:
        """From send to listener, at even rates; measured after each of these seconds of load."""
        for number, kind in in_turn(self.rounds, self.kinds):
            with self._broker(kind) as broker:
                starts = ",".join(map(str, warm_ups))
                arguments = [broker.namesrv, TOPIC, str(BODY_BYTES), starts, str(seconds), *map(str, rates)]
                before = 0.0
                limit_s = 60 + len(rates) * 2 * (max(warm_ups) + seconds + 10)
                for event in printed("LatencyLoad", arguments, limit_s):
                    now = cpu_seconds(broker.pid)
                    if event.pop("event") == "start":
                        before = now
                    else:
                        cpu_us = (now - before) * 1e6 / event["sent"]
                        yield {"round": number, "system": kind, **event, "broker_cpu_us": round(cpu_us, 1)}

    def idle(self, load: IdleLoad) -> Iterator[Row]:
        """What a broker costs that has consumers and no messages, and how quickly it wakes them all."""
        for number, kind in in_turn(self.rounds, self.kinds):
            with scratch("bench-clients-") as directory, twinlog.NameServer(directory / "namesrv") as namesrv:
                broker = stopped_broker(kind, directory / "master", namesrv.address, FULL)
                try:
                    yield {"round": number, "system": kind, **load.measure(broker)}
                finally:
                    broker.kill()

    @contextmanager
    def _broker(self, kind: str) -> Iterator[BrokerProcess]:
        with (
            scratch("bench-clients-") as directory,
            twinlog.NameServer(directory / "namesrv") as namesrv,
            make_broker(kind, directory / "master", namesrv.address, "ASYNC_MASTER", FULL.settings) as broker,
        ):
            create_topic(broker.address, TOPIC, queues=QUEUES)
            yield broker

    def _drain(self, broker: BrokerProcess, consumers: int, messages: int, group: str) -> Row:
        before = cpu_seconds(broker.pid)
        arguments = [broker.namesrv, TOPIC, group, str(consumers), str(messages), str(DRAIN_SECONDS_MAX)]
        (row,) = printed("ConsumeLoad", arguments, DRAIN_SECONDS_MAX + 60)
        if not row.pop("whole"):
            raise RuntimeError(f"{broker.name} gave {row['messages']} of {messages} messages\n{broker.tail()}")
        used = cpu_seconds(broker.pid) - before
        return {
            **row,
            "messages_per_s": round(row["messages"] / row["elapsed_s"]),
            "broker_cpu_us": round(used * 1e6 / row["messages"], 2),
        }


def printed(name: str, arguments: Sequence[str], limit_s: float) -> Iterator[Row]:
    """What one of java/ prints. Raises RuntimeError if it fails."""
    with scratch("bench-clients-") as home, java_client(name, arguments, home, limit_s) as (_, rows):
        yield from rows
