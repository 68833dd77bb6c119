"""Reader of one queue: pulls ahead of its consumer. Sources: PullMessageService, PullAPIWrapper (RocketMQ 4.9.8)."""

from contextlib import suppress
from typing import Protocol

import anyio
from attrs import define, field

from twinlog.cluster.client.api import PullResponse, PullStatus
from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.offsets import address_of
from twinlog.cluster.client.consume.process_queue import FlowLimits, ProcessQueue
from twinlog.cluster.client.messages import received
from twinlog.cluster.client.subscription import Subscription
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.store.errors import StoreError
from twinlog.store.util.late_logger import LateLogger

PAUSE_SECONDS, FLOW_CONTROL_SECONDS = 1.0, 0.02
COUNT_MAX = 32  # Messages of one pull.
HOLD_MS = 15_000  # Time that a broker may hold a pull without messages, as in RocketMQ's clients.
FLOW_CONTROL = 215  # A response code of RocketMQ 5.

log = LateLogger(__name__)


class ReadingConsumer(Protocol):
    """The consumer that a reader pulls for."""

    def on_arrival(self, held: ProcessQueue) -> None:
        """Take note of new messages."""

    def on_passed(self, held: ProcessQueue, *, back: bool) -> None:
        """Move the offset to next_offset: no message is held. `back`: also when that is a step backwards."""

    def may_pull(self, held: ProcessQueue) -> bool:
        """True when the queue may be read now."""

    def offset_to_commit(self, held: ProcessQueue) -> int | None:
        """The offset that a pull from the master commits; None: pulls commit nothing."""


@define(kw_only=True)
class Reading:
    """Options of all readers of a consumer."""

    consumer: ReadingConsumer

    client: Client
    group: str
    limits: FlowLimits = field(factory=FlowLimits)
    ordered: bool = False
    carries_filter: bool = False  # Pulls contain the filter; else the subscription in heartbeats counts.


@define(eq=False)
class QueueReader:
    """Pulls one queue until it is stopped, or its task is cancelled."""

    reading: Reading
    subscription: Subscription
    held: ProcessQueue
    scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)

    async def run(self) -> None:
        """Pull the queue's messages as long as there is room; after a failure again every second."""
        with self.scope:
            while True:
                try:
                    await self._step()
                except RemotingError as error:
                    await self._recover(error)
                except StoreError as error:
                    log.error("pulled bytes are no messages; pulling again", queue=self.held.queue, error=str(error))
                    await anyio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """Pull no more, and commit nothing for what is held."""
        self.held.is_dropped = True
        self.scope.cancel()

    def wake(self) -> None:
        """Go on if there is room again."""
        if self.held.on_room is not None and not self._is_full:
            self.held.on_room()

    @property
    def _is_full(self) -> bool:
        return self.held.is_full(self.reading.limits, ordered=self.reading.ordered)

    async def _step(self) -> None:
        held, reading = self.held, self.reading
        if self._is_full:
            room = anyio.Event()
            held.on_room = room.set
            try:
                await room.wait()
            finally:
                held.on_room = None
        elif not reading.consumer.may_pull(held):
            await anyio.sleep(PAUSE_SECONDS)
        else:
            self._take(await self._pull())

    async def _pull(self) -> PullResponse:
        held, reading, wanted = self.held, self.reading, self.subscription
        address = address_of(reading.client, held.queue, held.broker_id)
        master = reading.client.routes.address(held.queue.broker_name, or_another=False)
        return await reading.client.api.pull(
            address,
            held.queue,
            held.next_offset,
            group=reading.group,
            expression=wanted.expression if reading.carries_filter else None,
            kind=wanted.kind,
            version=wanted.version,
            count_max=COUNT_MAX,
            suspend_ms=HOLD_MS,
            commit_offset=reading.consumer.offset_to_commit(held) if address == master else None,
        )

    def _take(self, pulled: PullResponse) -> None:
        held = self.held
        if held.is_dropped:
            return
        held.broker_id, held.last_pulled = pulled.suggested_broker_id, anyio.current_time()
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset out of range; the queue is read from another one",
                queue=held.queue,
                was=held.next_offset,
                now=pulled.next_offset,
            )
            if pulled.next_offset < held.next_offset:  # Other messages have these offsets now: a new ProcessQueue.
                held.is_dropped = True
                held = self.held = ProcessQueue(held.queue, pulled.next_offset, held.broker_id)
            held.next_offset = pulled.next_offset
            self.reading.consumer.on_passed(held, back=True)
            return
        messages = []
        if pulled.status is PullStatus.FOUND:
            messages = received(pulled.records, held.queue, self.subscription.tag_filter)
        held.put(messages)
        held.next_offset = pulled.next_offset
        if messages:
            self.reading.consumer.on_arrival(held)
        elif not held.count:
            self.reading.consumer.on_passed(held, back=False)

    async def _recover(self, error: RemotingError) -> None:
        if isinstance(error, RequestError) and error.code == FLOW_CONTROL:
            await anyio.sleep(FLOW_CONTROL_SECONDS)
            return
        log.info("pull failed; retrying in 1 s", queue=self.held.queue, error=str(error))
        await anyio.sleep(PAUSE_SECONDS)
        self.held.broker_id = MASTER_ID
        with suppress(RemotingError):
            await self.reading.client.routes.renew(self.held.queue.topic)
            await self.reading.client.introduce()
