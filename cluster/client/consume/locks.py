"""Locks of queues for ordered consumers, given by the queues' masters. Source: RebalanceImpl (RocketMQ 4.9.8).

A lock is valid for 30 s here and 60 s at the broker, and is renewed every 20 s: this consumer stops before another can begin.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import anyio
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError
from twinlog.cluster.remoting.route import MessageQueue, by_broker
from twinlog.store.util.late_logger import LateLogger

RENEW_SECONDS, GOOD_SECONDS = 20.0, 30.0
AGAIN_SECONDS = 2.0  # After a renewal without a response.

log = LateLogger(__name__)


@define(eq=False)
class QueueLocks:
    """The locks of one group."""

    client: Client
    group: str
    _renewed: dict[MessageQueue, float] = field(factory=dict, init=False)  # By the loop's clock.

    def holds(self, queue: MessageQueue) -> bool:
        """True when this consumer has a valid lock of the queue."""
        renewed = self._renewed.get(queue)
        return renewed is not None and anyio.current_time() < renewed + GOOD_SECONDS

    def last_renewed(self, queue: MessageQueue) -> float | None:
        return self._renewed.get(queue)

    async def lock(self, queues: Iterable[MessageQueue]) -> bool:
        """Take or renew locks; holds() says which were given. Without a response nothing changes: False, try again soon."""
        return all(await in_parallel(partial(self._lock_at, *each) for each in by_broker(queues).items()))

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> bool:
        asked = anyio.current_time()  # The broker's 60 s begin later.
        try:
            given = await self.client.api.lock(self._master(broker_name), self.client.client_id, self.group, queues)
        except RemotingError as error:
            log.info("queues not locked; retrying", broker=broker_name, group=self.group, error=str(error))
            for topic in {queue.topic for queue in queues}:
                with suppress(RemotingError):
                    await self.client.routes.renew(topic)
            return False
        for queue in queues:
            if queue in given:
                self._renewed[queue] = asked
            else:
                self._renewed.pop(queue, None)
        return True

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give up locks, for other members at once. If that does not reach the broker, they expire there."""
        await in_parallel(partial(self._unlock_at, *each) for each in by_broker(queues).items())

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._renewed.pop(queue, None)
        try:
            await self.client.api.unlock(self._master(broker_name), self.client.client_id, self.group, queues)
        except RemotingError as error:
            log.info("queues not unlocked; the locks expire", broker=broker_name, group=self.group, error=str(error))

    async def unlock_all(self) -> None:
        """Give up all locks."""
        await self.unlock(list(self._renewed))

    def _master(self, broker_name: str) -> str:
        address = self.client.routes.address(broker_name, or_another=False)
        if address is None:
            raise RemotingConnectError(broker_name, "no master of this broker is known")
        return address
