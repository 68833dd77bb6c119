"""Reads one queue ahead of its consumer, by long polls. Sources: PullMessageService, PullAPIWrapper (RocketMQ 4.9.8)."""

from collections.abc import Callable
from contextlib import suppress

import structlog
import trio
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

PAUSE_SECONDS, FLOW_CONTROL_SECONDS = 1.0, 0.02
FLOW_CONTROL = 215  # A response code of RocketMQ 5.

log = structlog.get_logger(__name__)


@define(kw_only=True)
class Reading:
    """How all queues of a consumer are read. `count_max`: messages of one pull; `hold_ms`: how long a broker may hold it."""

    client: Client
    group: str
    limits: FlowLimits = field(factory=FlowLimits)
    count_max: int = 32
    hold_ms: int = 15_000
    ordered: bool = False
    carries_filter: bool = False  # Whether pulls say what they want; else what the heartbeat said counts.
    arrived: Callable[[ProcessQueue], None]
    passed: Callable[
        [ProcessQueue, bool], None
    ]  # Nothing is held up to next_offset; True: also when that is a step back.
    may_pull: Callable[[ProcessQueue], bool] = lambda _held: True
    commit_offset: Callable[[ProcessQueue], int | None] = lambda _held: None


@define(eq=False)
class QueueReader:
    """Until it is stopped, or its task is cancelled."""

    reading: Reading
    subscription: Subscription
    held: ProcessQueue
    scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _room: trio.Event = field(factory=trio.Event, init=False)

    async def run(self) -> None:
        """Keep the queue's messages coming; what fails is tried again every second."""
        with self.scope:
            while True:
                try:
                    await self._step()
                except RemotingError as error:
                    await self._recover(error)
                except StoreError as error:
                    log.error("a broker sent what are no messages", queue=self.held.queue, error=str(error))
                    await trio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """Pull no more; what is held is nobody's to commit."""
        self.held.is_dropped = True
        self.scope.cancel()

    def wake(self) -> None:
        """There may be room again."""
        self._room.set()

    async def _step(self) -> None:
        held, reading = self.held, self.reading
        if held.is_full(reading.limits, ordered=reading.ordered):
            self._room = trio.Event()
            await self._room.wait()
        elif not reading.may_pull(held):
            await trio.sleep(PAUSE_SECONDS)
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
            count_max=reading.count_max,
            suspend_ms=reading.hold_ms,
            commit_offset=reading.commit_offset(held) if address == master else None,
        )

    def _take(self, pulled: PullResponse) -> None:
        held = self.held
        if held.is_dropped:
            return
        held.broker_id, held.last_pulled = pulled.suggested_broker_id, trio.current_time()
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "a queue is read from elsewhere", queue=held.queue, was=held.next_offset, now=pulled.next_offset
            )
            if pulled.next_offset < held.next_offset:  # Other messages have these offsets now: a new ProcessQueue.
                held.is_dropped = True
                held = self.held = ProcessQueue(held.queue, pulled.next_offset, held.broker_id)
            held.next_offset = pulled.next_offset
            self.reading.passed(held, True)
            return
        messages = []
        if pulled.status is PullStatus.FOUND:
            messages = received(pulled.records, held.queue, self.subscription.matches)
        held.put(messages)
        held.next_offset = pulled.next_offset
        if messages:
            self.reading.arrived(held)
        elif not held.count:
            self.reading.passed(held, False)

    async def _recover(self, error: RemotingError) -> None:
        if isinstance(error, RequestError) and error.code == FLOW_CONTROL:
            await trio.sleep(FLOW_CONTROL_SECONDS)
            return
        log.info("a pull has failed", queue=self.held.queue, error=str(error))
        await trio.sleep(PAUSE_SECONDS)
        self.held.broker_id = MASTER_ID
        with suppress(RemotingError):
            await self.reading.client.routes.renew(self.held.queue.topic)
            await self.reading.client.introduce()
