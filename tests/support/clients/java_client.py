"""The real Java client for tests: DefaultMQProducer and DefaultMQPushConsumer, each JVM a child process.

    with JavaClient(tmp_path / "client", binary_headers=True) as client:
        producer = client.producer("group-a", namesrv.address)
        sent = producer.send("topic-a", 200, keys="order-{i}", tags=["red", "blau-ü"])
        consumer = client.consumer("group-b", namesrv.address, "topic-a")
        messages = consumer.consumed(200, timeout_s=20)

Message number i has the body `body(seed, i, size)`; "{i}" in keys and property values stands for the number.
"""

import hashlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.process_group import jars
from tests.support.process_group.rocketmq import LOGBACK, QUICK_START
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]
_instances = itertools.count(1)


class JavaError(Exception):
    """The Java client threw. The message is the exception's text, then its stack."""


class Sent(NamedTuple):
    """What became of one message. `status` is None when the client threw (`error`), and for oneway."""

    number: int
    status: str | None
    msg_id: str
    offset_msg_id: str | None
    broker_name: str | None
    queue_id: int
    queue_offset: int
    error: str | None
    elapsed_us: int

    @property
    def ok(self) -> bool:
        return self.status == "SEND_OK"

    @property
    def commit_log_offset(self) -> int:
        """Where the broker put it: the last 8 bytes of the id that it answered with."""
        assert self.offset_msg_id is not None, "a message without an answer has no offset"
        return int(self.offset_msg_id[-16:], 16)


class Consumed(NamedTuple):
    """One message as the push consumer's listener saw it."""

    msg_id: str
    offset_msg_id: str | None
    topic: str
    queue_id: int
    queue_offset: int
    body_sha1: str
    keys: str | None
    tags: str | None
    properties: dict[str, str]
    reconsume_times: int
    commit_log_offset: int
    store_host: str
    store_timestamp_ms: int


class SendReport(NamedTuple):
    """All answered messages of one job, in the order of their numbers. `whole`: none was left without an answer."""

    whole: bool
    elapsed_ms: int
    sent: list[Sent]


def body(seed: str, index: int, size: int) -> bytes:
    """Return the body of message `index`, as Bodies.java makes it."""
    blocks = (hashlib.sha256(f"{seed}:{index}:{block}".encode()).digest() for block in range(-(-size // 32)))
    return b"".join(blocks)[:size]


class JavaClient:
    """A JVM with the RocketMQ client of one release. Its log, and the client's own, lie in `root`."""

    def __init__(
        self,
        root: Path,
        *,
        binary_headers: bool = False,
        version: str = jars.VERSION,
        jvm_options: Sequence[str] = (),
        poll_ms: int = 30_000,
    ) -> None:
        self.root = root
        self._serialize = "ROCKETMQ" if binary_headers else "JSON"
        self._version, self._jvm_options = version, jvm_options
        self._poll_ms = poll_ms  # How often clients ask name servers for routes; as they come: 30 s.
        self._worker: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "logback.xml").write_text(LOGBACK.format(log=self.root / "slf4j.log", level="WARN"))
        options = [
            "-Xmx384m",
            *QUICK_START,
            *jars.OPEN_MODULES,
            f"-Drocketmq.serialize.type={self._serialize}",
            f"-Duser.home={self.root}",
            f"-Drocketmq.client.logRoot={self.root}",
            f"-Dlogback.configurationFile={self.root}/logback.xml",
            *self._jvm_options,
        ]
        class_path = jars.class_path(self._version, sources=jars.JAVA_SOURCES)
        with (self.root / "worker.log").open("ab") as log:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "tests.support.clients.java_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                encoding="utf-8",
                bufsize=1,
            )
        self.command({"jvm_options": options, "class_path": class_path, "directory": str(self.root)})
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM, without asking: tests that care for a clean leave call shutdown() before."""
        if self._worker is None:
            return
        self._worker.kill()
        self._worker.wait()
        for pipe in (self._worker.stdin, self._worker.stdout):
            assert pipe is not None
            pipe.close()
        self._worker = None

    def producer(
        self,
        group: str,
        namesrv: str,
        *,
        retries: int = 0,
        vip_channel: bool = False,
        trace: bool = False,
        compression: str = "ZLIB",
    ) -> "Producer":
        """Start a producer. No retries unless asked for, so that one message is one request. `compression`: ZLIB, LZ4 or ZSTD,
        of a client of 5.x.
        """
        options = {"group": group, "namesrv": namesrv, "retries": str(retries), "vip": str(vip_channel).lower()}
        options |= {"trace": str(trace).lower(), "compression": compression}
        return Producer(self, self.new("Sender", options))

    def consumer(
        self,
        group: str,
        namesrv: str,
        topic: str,
        *,
        expression: str = "*",
        sql: str | None = None,
        from_first: bool = True,
        from_time: time.struct_time | None = None,
        failures: int = 0,
        retries_max: int | None = None,
    ) -> "Consumer":
        """Start a push consumer. It answers RECONSUME_LATER for the first `failures` deliveries of each message.

        A new group begins at the first message, at `from_time` (of this machine's zone), or else at the end. With
        `sql` it filters by that, not by tags.
        """
        start = "CONSUME_FROM_FIRST_OFFSET" if from_first else "CONSUME_FROM_LAST_OFFSET"
        start = "CONSUME_FROM_TIMESTAMP" if from_time is not None else start
        options = {
            "group": group,
            "namesrv": namesrv,
            "topic": topic,
            "expression": expression,
            "from": start,
            "failures": str(failures),
        }
        if sql is not None:
            options["sql"] = sql
        if from_time is not None:
            options["timestamp"] = time.strftime("%Y%m%d%H%M%S", from_time)
        if retries_max is not None:
            options["max_reconsume_times"] = str(retries_max)
        return Consumer(self, self.new("Collector", options))

    def new(self, name: str, options: Mapping[str, str]) -> int:
        """Make an object of one of the classes in java/; returns its number, for call()."""
        # Two clients of one JVM share a connection unless their instance names differ.
        options = {**options, "instance": f"instance-{next(_instances)}", "poll_ms": str(self._poll_ms)}
        number: int = self.command({"new": name, "options": options})
        return number

    def call(self, handle: int, method: str, **options: str) -> Any:
        return self.command({"on": handle, "call": method, "options": options})

    def command(self, command: Mapping[str, Any]) -> Any:
        """Send one line, wait for its answer. The wait ends with the worker, or with pytest's own timeout."""
        worker = self._worker
        assert worker is not None, "use it in a with block"
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(command) + "\n")
        line = worker.stdout.readline()
        if not line:
            log = (self.root / "worker.log").read_text(errors="replace")[-4000:]
            raise JavaError(f"the worker ended with {worker.wait()}\n{log}")
        answer = json.loads(line)
        if "error" in answer:
            raise JavaError(f"{answer['error']}\n{answer['stack']}")
        return answer.get("result")


class Producer:
    """A running DefaultMQProducer."""

    def __init__(self, client: JavaClient, handle: int) -> None:
        self._client, self._handle = client, handle

    def start_sending(
        self,
        topic: str,
        count: int,
        *,
        first: int = 0,
        seed: str = "seed",
        body_size: int = 100,
        keys: str | None = None,
        tags: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        mode: str = "sync",
        threads: int = 1,
        send_timeout_s: float = 5,
        pause_ms: int = 0,
        batch_size: int = 1,
        delay_level: int = 0,
    ) -> "SendJob":
        """Begin to send messages first .. first + count - 1, and return at once. `mode`: sync, async or oneway.

        With a `batch_size` above 1, so many go with each request, one request after the other for each thread.
        """
        assert mode in ("sync", "async", "oneway")
        assert batch_size == 1 or mode == "sync"
        options = {
            "topic": topic,
            "count": str(count),
            "first": str(first),
            "seed": seed,
            "body_size": str(body_size),
            "tags": ",".join(tags),
            "mode": mode,
            "threads": str(threads),
            "send_timeout_ms": str(round(send_timeout_s * 1000)),
            "pause_ms": str(pause_ms),
            "batch_size": str(batch_size),
            "delay_level": str(delay_level),
        }
        options |= {} if keys is None else {"keys": keys}
        options |= {f"property.{name}": value for name, value in (properties or {}).items()}
        return SendJob(self._client, self._handle, self._client.call(self._handle, "start", **options))

    def send(self, topic: str, count: int = 1, *, timeout_s: float = 60, **how: Any) -> list[Sent]:
        """Send `count` messages (see start_sending) and return what became of each; fails if one has no answer."""
        report = self.start_sending(topic, count, **how).finish(timeout_s=timeout_s)
        assert report.whole, f"{count - len(report.sent)} of {count} messages without an answer in {timeout_s} s"
        return report.sent

    def send_until_ok(self, topic: str, *, timeout_s: float = 30) -> int:
        """Send single messages until one is SEND_OK: a SYNC_MASTER has its slave then. Returns how many it took."""
        deadline = time.monotonic() + timeout_s
        for attempt in itertools.count(1):
            (sent,) = self.send(topic, seed="until-ok")
            if sent.ok:
                return attempt
            if time.monotonic() > deadline:
                raise TimeoutError(f"no SEND_OK in {timeout_s:.0f} s, at last {sent}")
            time.sleep(0.2)
        raise AssertionError("unreachable")

    def shutdown(self) -> None:
        self._client.call(self._handle, "shutdown")


class SendJob:
    """Messages that are being sent."""

    def __init__(self, client: JavaClient, handle: int, job: str) -> None:
        self._client, self._handle, self._job = client, handle, job

    def answered(self) -> int:
        """Return how many messages have an answer by now."""
        count: int = self._client.call(self._handle, "progress", job=self._job)
        return count

    def wait_answered(self, count: int, *, timeout_s: float = 30) -> None:
        """Wait until so many messages have an answer: the moment to break something."""
        wait_for(lambda: self.answered() >= count, f"{count} messages answered", timeout_s=timeout_s)

    def finish(self, *, stop: bool = False, timeout_s: float = 60) -> SendReport:
        """Wait for the end, or send nothing more (`stop`) and wait for what is under way."""
        result = self._client.call(
            self._handle, "finish", job=self._job, stop=str(stop).lower(), timeout_ms=str(round(timeout_s * 1000))
        )
        return SendReport(result["whole"], result["elapsed_ms"], [Sent(*row) for row in result["rows"]])


class Consumer:
    """A running DefaultMQPushConsumer."""

    def __init__(self, client: JavaClient, handle: int) -> None:
        self._client, self._handle = client, handle

    def consumed(self, count: int, *, timeout_s: float = 30) -> list[Consumed]:
        """Return everything received so far, once that is `count` messages or the time is over; the caller counts."""
        rows = self._client.call(self._handle, "consumed", count=str(count), timeout_ms=str(round(timeout_s * 1000)))
        return [Consumed(*row) for row in rows]

    def bodies(self, awaited: Set[str], *, timeout_s: float = 30) -> set[str]:
        """Return the SHA-1 of each body received so far, once all of `awaited` are there or the time is over.

        Others may be there, too: what was stored without an answer, and what came twice.
        """
        got, count, deadline = set[str](), len(awaited), time.monotonic() + timeout_s
        while not awaited <= got and time.monotonic() < deadline:
            received = self.consumed(count, timeout_s=1)
            got, count = {each.body_sha1 for each in received}, len(received) + 1
        return got

    def shutdown(self) -> None:
        """Leave cleanly: offsets go to the broker."""
        self._client.call(self._handle, "shutdown")
