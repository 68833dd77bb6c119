"""One store directory that twinlog and the real RocketMQ hand to each other, and what their producers were told meanwhile.

Every broker of the chain has the same name, address and settings; only one runs at a time. In its turn it first answers
for everything that the ones before stored, then takes messages of all kinds, then stops or is killed in full traffic.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.support.clients.java_client import Consumed, JavaClient, Sent
from tests.support.clients.java_reader import QueueContent, Reader, TransactionProducer
from tests.support.clients.remoting import create_topic, request
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from tests.support.process_group.ports import free_broker_port
from tests.support.waiting import wait_for
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.verify.verify import VerifyReport, verify

TWINLOG, ROCKETMQ, ROCKETMQ_5 = "twinlog", "rocketmq", "rocketmq-5.3.3"
STOP, KILL = "stop", "kill"


class Turn(NamedTuple):
    """Who has the directory, and how its turn ends."""

    broker: str
    end: str


SHORT_DELAY, LONG_DELAY, LONG_DELAY_S = 1, 2, 8  # Levels, and how long the second is.
SETTINGS = {
    **TEST_SETTINGS,
    "mappedFileSizeCommitLog": "131072",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "messageDelayLevel": f"1s {LONG_DELAY_S}s {LONG_DELAY_S}s",  # The third is that of a first retry.
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "3000",
    "flushConsumerOffsetInterval": "1000",
}

BROKER_NAME = "broker-a"
PLAIN, BATCH, DELAYED, TRANSACTION, RETRIED, TRAFFIC = "plain", "batch", "delayed", "transaction", "retried", "traffic"
QUEUES = {PLAIN: 4, BATCH: 2, DELAYED: 2, TRANSACTION: 2, RETRIED: 1, TRAFFIC: 4}
SCHEDULE_TOPIC, RETRY_QUEUE = "SCHEDULE_TOPIC_XXXX", 2
OUTCOMES = ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]  # Of the number, modulo 3.
RETRY_GROUP = OFFSET_GROUP = "retrying"  # RocketMQ 5 takes offsets of groups only that it knows.
QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 14, 15
BODY_SIZE = 400
TAGS = ("red", "blau-ü")
PER_TURN = 10_000  # Message numbers of turn k: from k * PER_TURN on.
TRAFFIC_BEFORE_KILL = 500


def key(topic: str, number: int) -> str:
    return f"{topic}-{number}"


class Chain:
    """The directory, the name server, the one Java client, and what has been told so far: `told` by topic."""

    def __init__(self, root: Path, turns: Sequence[Turn]) -> None:
        self.root = root
        self.turns = turns
        self.store = root / "broker" / "store"
        self.turn = -1
        self.told: dict[str, list[Sent]] = {topic: [] for topic in QUEUES}
        self.committed: list[dict[int, int]] = []  # By turn: consumer offsets of OFFSET_GROUP by queue of PLAIN.
        self.delayed_at_ms: dict[str, int] = {}  # By unique id: when a message with LONG_DELAY was answered.
        self._port = free_broker_port()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.namesrv = self._stack.enter_context(twinlog.NameServer(self.root / "namesrv")).address
        self.client = self._stack.enter_context(JavaClient(self.root / "client"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def before(self) -> Turn:
        """The turn that left the directory to the one of now."""
        return self.turns[self.turn - 1]

    @property
    def now(self) -> Turn:
        return self.turns[self.turn]

    @property
    def deaths(self) -> int:
        """How many of the turns before ended by kill -9."""
        return sum(turn.end == KILL for turn in self.turns[: self.turn])

    def advance_to(self, turn: int) -> None:
        """Play all turns up to this one, whose broker then runs and has taken nothing yet."""
        while self.turn < turn:
            if self.turn >= 0:
                self.finish_turn()
            self.turn += 1
            self.broker: BrokerProcess = self._stack.enter_context(self._make_broker())
            if self.turn == 0:
                for topic, queues in QUEUES.items():
                    create_topic(self.broker.address, topic, queues=queues)
            self.reader = Reader(self.client, self.namesrv, BROKER_NAME, group=f"reader-{self.turn}")

    def _make_broker(self) -> BrokerProcess:
        root, namesrv = self.root / "broker", self.namesrv
        if self.now.broker == TWINLOG:
            return twinlog.Broker(root, namesrv, broker_name=BROKER_NAME, port=self._port, settings=SETTINGS)
        version, settings = (jars.VERSION, SETTINGS)
        if self.now.broker == ROCKETMQ_5:
            version, settings = jars.VERSION_5, SETTINGS | {"timerWheelEnable": "false"}
        return rocketmq.Broker(
            root, namesrv, broker_name=BROKER_NAME, port=self._port, settings=settings, version=version
        )

    # What a turn stores

    def finish_turn(self) -> None:
        """Take messages of all kinds, then end as the turn says."""
        first = self.turn * PER_TURN
        producer = self.client.producer(f"producers-{self.turn}", self.namesrv)

        def send(topic: str, count: int, *, first: int = first, **how: Any) -> list[Sent]:
            sent = producer.send(
                topic, count, first=first, seed=topic, keys=topic + "-{i}", tags=TAGS, body_size=BODY_SIZE, **how
            )
            refused = [message.error or message.status for message in sent if not message.ok]
            assert not refused, f"{refused}\n{self.broker.tail()}"
            self.told[topic] += sent
            return sent

        send(DELAYED, 6, delay_level=SHORT_DELAY)
        late = send(DELAYED, 6, first=first + 6, delay_level=LONG_DELAY)
        self.delayed_at_ms |= {message.msg_id: time.time_ns() // 1_000_000 for message in late}
        send(RETRIED, 5)
        self._let_them_be_retried()
        send(PLAIN, 600, mode="async")
        send(BATCH, 100, batch_size=7)
        self._commit_offsets()
        self._send_transactions(first)
        job = producer.start_sending(
            TRAFFIC,
            PER_TURN,
            first=first,
            seed=TRAFFIC,
            keys=TRAFFIC + "-{i}",
            tags=TAGS,
            body_size=BODY_SIZE,
            threads=8,
            pause_ms=1,
        )
        job.wait_answered(TRAFFIC_BEFORE_KILL)
        if self.now.end == KILL:
            self.broker.kill()
            self.told[TRAFFIC] += job.finish(stop=True).sent
        else:
            self.told[TRAFFIC] += job.finish(stop=True).sent
            self.broker.stop()
        producer.shutdown()
        self.reader.shutdown()
        assert (self.store / "abort").exists() == (self.now.end == KILL)
        if self.now.end == STOP:
            assert not self.verified().errors

    def _let_them_be_retried(self) -> None:
        """A consumer refuses the new messages once: they come back to it after LONG_DELAY_S, in the next turn."""
        waiting = self.reader.queue(SCHEDULE_TOPIC, RETRY_QUEUE).max_offset if self.turn else 0
        consumer = self.client.consumer(RETRY_GROUP, self.namesrv, RETRIED, failures=1)
        wanted = {message.msg_id for message in self.told[RETRIED] if message.number >= self.turn * PER_TURN}
        wait_for(lambda: wanted <= {message.msg_id for message in consumer.consumed(0)}, "messages to be retried")
        wait_for(
            lambda: self.reader.queue(SCHEDULE_TOPIC, RETRY_QUEUE).max_offset >= waiting + len(wanted), "their retries"
        )
        consumer.shutdown()

    def _commit_offsets(self) -> None:
        """Leave a consumer offset for each queue of PLAIN: at first one behind nothing, then two, and so on."""
        offsets = {queue_id: 10 * (self.turn + 1) + queue_id for queue_id in range(QUEUES[PLAIN])}
        for queue_id, offset in offsets.items():
            fields = {"consumerGroup": OFFSET_GROUP, "topic": PLAIN, "queueId": str(queue_id)}
            header, _ = request(self.broker.address, UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": str(offset)})
            assert header["code"] == 0
        self.committed.append(offsets)

    def _send_transactions(self, first: int) -> None:
        producer = self.transaction_producer()
        sent = producer.send(
            9, OUTCOMES, first=first, seed=TRANSACTION, checked="COMMIT_MESSAGE", keys=TRANSACTION + "-{i}"
        )
        assert all(message.ok for message in sent)
        self.told[TRANSACTION] += sent
        producer.shutdown()

    def verified(self) -> VerifyReport:
        """Check the directory as it lies, from outside."""
        options = DirectoryOptions(
            index_slots=int(SETTINGS["maxHashSlotNum"]), message_delay_level=SETTINGS["messageDelayLevel"]
        )
        with StoreDirectory.open(self.store, options) as directory:
            return verify(directory, processes=1)

    # What can be asked

    def transaction_producer(self) -> TransactionProducer:
        """A producer of the group that sent all transactions: a broker may ask it about those of earlier turns."""
        return TransactionProducer(self.client, "transactions", self.namesrv, TRANSACTION)

    def queues(self, topic: str) -> list[QueueContent]:
        """All queues of a topic as the broker serves them now."""
        return [self.reader.queue(topic, queue_id) for queue_id in range(QUEUES[topic])]

    def messages(self, topic: str) -> Iterator[Consumed]:
        """All messages of a topic."""
        for queue in self.queues(topic):
            yield from queue.messages

    def consumer_offset(self, queue_id: int) -> int | None:
        """What the broker has stored for OFFSET_GROUP; None: nothing."""
        fields = {"consumerGroup": OFFSET_GROUP, "topic": PLAIN, "queueId": str(queue_id)}
        header, _ = request(self.broker.address, QUERY_CONSUMER_OFFSET, fields)
        return int(header["extFields"]["offset"]) if header["code"] == 0 else None
