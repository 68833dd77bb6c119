"""Queues that an ordered consumer may work on, because their masters say so. Source: RebalanceImpl (RocketMQ 4.9.8).

A lock is good for 30 s here and 60 s at the broker, and is renewed every 20 s: we stop before another one may begin.
"""

from collections.abc import Iterable
from functools import partial

import structlog
import trio
from attrs import define, field

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError
from twinlog.cluster.remoting.route import MessageQueue, by_broker

RENEW_SECONDS, GOOD_SECONDS = 20.0, 30.0

log = structlog.get_logger(__name__)


@define(eq=False)
class QueueLocks:
    """The locks of one group."""

    client: Client
    group: str
    _renewed: dict[MessageQueue, float] = field(factory=dict, init=False)  # By trio's clock.

    def holds(self, queue: MessageQueue) -> bool:
        """Whether its lock is ours and fresh."""
        renewed = self._renewed.get(queue)
        return renewed is not None and trio.current_time() < renewed + GOOD_SECONDS

    def last_renewed(self, queue: MessageQueue) -> float | None:
        return self._renewed.get(queue)

    async def lock(self, queues: Iterable[MessageQueue]) -> None:
        """Take or renew these locks; holds() tells which were given. A broker that does not answer changes nothing."""
        await in_parallel(partial(self._lock_at, *each) for each in by_broker(queues).items())

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        asked = trio.current_time()  # The broker counts from later on.
        try:
            given = await self.client.api.lock(self._master(broker_name), self.client.client_id, self.group, queues)
        except RemotingError as error:
            log.info("queues were not locked", broker=broker_name, group=self.group, error=str(error))
            return
        for queue in queues:
            if queue in given:
                self._renewed[queue] = asked
            else:
                self._renewed.pop(queue, None)

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have them at once; what does not reach the broker runs out there."""
        await in_parallel(partial(self._unlock_at, *each) for each in by_broker(queues).items())

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._renewed.pop(queue, None)
        try:
            await self.client.api.unlock(self._master(broker_name), self.client.client_id, self.group, queues)
        except RemotingError as error:
            log.info("queues were not unlocked", broker=broker_name, group=self.group, error=str(error))

    async def unlock_all(self) -> None:
        """This member leaves."""
        await self.unlock(list(self._renewed))

    def _master(self, broker_name: str) -> str:
        address = self.client.routes.address(broker_name, or_another=False)
        if address is None:
            raise RemotingConnectError(broker_name, "no master of this broker is known")
        return address
