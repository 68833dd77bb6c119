"""Tells brokers how far a query is, as the progress of a consumer group. Nobody reads it here: the checkpoint is the truth.

Brokers store offsets of any group, but tools find a group by its retry topic, which a broker makes when a member of the group
sends a heartbeat. So the master of each broker gets one before the first offsets, and again when it is another one or time has
gone by: a group may be deleted, and a disk replaced. The member is gone with the connection of the commit, so the group is listed
as offline. A group with other members needs no heartbeat, and gets none: brokers would forget what these subscribe.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

from attrs import define, field

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.client import HEARTBEAT_SECONDS
from twinlog.cluster.client.subscription import ConsumerData, heartbeat
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.pipeline.topics.offsets import Offsets, text_of
from twinlog.cluster.pipeline.topics.refusals import refused
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.route import MASTER_ID, BrokerAddresses, MessageQueue, by_broker

CLIENT_ID = "spark"


@define(eq=False)
class GroupProgress:
    """Progress of a group, as far as brokers know it; it lives as long as the query. `warn` gets a sentence."""

    group: str
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _committed: dict[MessageQueue, int] = field(factory=dict, init=False)
    _told: dict[str, tuple[str, float]] = field(factory=dict, init=False)  # The master of each broker, and when it was.
    _refusals: dict[str, str] = field(factory=dict, init=False)  # Of brokers that do not take heartbeats.

    async def commit(self, api: ClientApi, brokers: Mapping[str, BrokerAddresses], done: Offsets) -> None:
        """Let the group be at these offsets, as far as they are new. What fails is a warning, and tried again the next time."""
        new = {queue: offset for queue, offset in done.items() if self._committed.get(queue) != offset}
        problems: list[str] = []
        await in_parallel(
            partial(self._commit_to, api, brokers.get(name), {queue: new[queue] for queue in queues}, problems)
            for name, queues in by_broker(new).items()
        )
        if problems:
            self.warn_of(problems[0])

    def warn_of(self, why: str) -> None:
        """Warn of progress that is not committed."""
        self.warn(f"progress of the group {self.group} is not committed, the next batch tries again: {why}")

    async def _commit_to(
        self, api: ClientApi, broker: BrokerAddresses | None, offsets: Offsets, problems: list[str]
    ) -> None:
        address = broker.find(MASTER_ID) if broker is not None else None
        if broker is None or address is None:
            problems.append(f"{text_of(min(offsets))}: no member is registered")
            return
        try:
            await self._introduce(api, broker)
        except RemotingError as error:  # It cannot be reached: offsets would wait as long, in vain.
            problems.append(str(error))
            return

        async def commit_at(queue: MessageQueue, offset: int) -> None:
            try:
                await api.commit_offset(address, queue, self.group, offset)
            except RemotingError as error:
                problems.append(f"{text_of(queue)}: {error}")
            else:
                self._committed[queue] = offset

        await in_parallel(partial(commit_at, queue, offset) for queue, offset in offsets.items())

    async def _introduce(self, api: ClientApi, broker: BrokerAddresses) -> None:
        """Send a heartbeat when one is due. Slaves get none: their groups are their master's. A refusal is told once."""
        name, address, now = broker.broker_name, broker.master, self.clock()
        before, since = self._told.get(name, ("", 0.0))
        if address is None or (address == before and now < since + HEARTBEAT_SECONDS):
            return
        # Without a subscription: so no right is needed but SUB on the group.
        member = ConsumerData(group=self.group, subscriptions=(), consume_type="CONSUME_ACTIVELY")
        why = ""
        try:
            if not await api.consumer_ids(address, self.group):
                await api.heartbeat(address, heartbeat(CLIENT_ID, (), (member,)))
        except RequestError as error:
            why = str(refused(f"the broker {name} at {address}, told of the group {self.group}", error))
        self._told[name] = address, now
        if why and why != self._refusals.get(name):
            self.warn(f"mqadmin consumerProgress may not find the group {self.group}; its offsets are committed: {why}")
        self._refusals[name] = why
