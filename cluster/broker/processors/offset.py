"""14, 15, 29 to 32, 308: first and last offsets of queues, and offsets of consumer groups.

Sources: ConsumerManageProcessor.java, AdminBrokerProcessor.java (RocketMQ 4.9.8).
"""

import contextlib
from functools import partial

from attrs import define

from twinlog.cluster.broker.consume.queues import Queues
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.tables.offsets import NOT_STORED, ConsumerOffsetManager
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import QueryCorrectionOffset
from twinlog.cluster.remoting.headers.offsets import (
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.message_store import MessageStore
from twinlog.store.read.get_message import memory_bytes_max

OFFSET_MAX = (1 << 63) - 1


@define(eq=False)
class OffsetProcessor:
    """Offsets of queues and of consumer groups."""

    store: MessageStore
    offsets: ConsumerOffsetManager
    queues: Queues
    gate: Gate

    def query_consumer_offset(self, header: QueryConsumerOffset, request: Request) -> Reply:
        """Return a group's offset; without one 0 while the queue is young, otherwise code 22: the client chooses."""
        offset = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset != NOT_STORED:
            return Reply.success(offset=offset)
        if header.set_zero_if_not_found is not False and self._is_young(header.topic, header.queue_id):
            return Reply.success(offset=0)
        raise RequestError(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """True while the queue's first message exists and is recent enough to be in memory."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            return True
        first = queue.unit(0) if queue.min_offset <= 0 else None
        in_memory = memory_bytes_max(self.store.config.access_message_in_memory_max_ratio)
        return first is not None and self.store.max_offset - first.phy_offset <= in_memory

    def update_consumer_offset(self, header: UpdateConsumerOffset, request: Request) -> Reply | None:
        """Store a group's offset, also a smaller one.

        When another member is master, the offset is stored here after the master has it, and only if it is greater: otherwise
        a consumer that read it here could get a smaller one from the master.
        """
        fault = names.topic_fault(header.topic) or names.group_fault(header.consumer_group)
        if fault or header.queue_id < 0 or header.commit_offset < 0:
            raise RequestError(ResponseCode.SYSTEM_ERROR, fault or "queueId and commitOffset must not be negative")
        return self._commit(header, request)

    def _note(self, header: UpdateConsumerOffset) -> None:
        """Store an offset that the master has accepted."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        with contextlib.suppress(RequestError):
            self.offsets.commit_if_greater(group, topic, queue_id, header.commit_offset)

    @partial(gated, taken=_note)
    def _commit(self, header: UpdateConsumerOffset, request: Request) -> Reply:
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.commit_offset
        if self.gate.original_client(request.connection, request.command) is not None:
            # Forwarded: the client may have committed more here since.
            offset = max(offset, self.offsets.query(group, topic, queue_id))
        self.offsets.commit(group, topic, queue_id, offset)
        return Reply.success()

    def search_offset_by_timestamp(self, header: SearchOffsetByTimestamp, request: Request) -> Reply:
        """Return the offset of the visible message stored nearest to a time, as 4.9 does."""
        queue = self.queues.find(header.topic, header.queue_id)
        if queue is None:
            return Reply.success(offset=0)
        last = max(self.queues.shown_end(header.topic, header.queue_id) - 1, queue.min_offset)
        return Reply.success(
            offset=min(self.store.offset_by_time(header.topic, header.queue_id, header.timestamp), last)
        )

    def get_max_offset(self, header: GetMaxOffset, request: Request) -> Reply:
        """Return the visible end of a queue; 0 if there is no such queue."""
        queue = self.queues.find(header.topic, header.queue_id)
        return Reply.success(offset=self.queues.shown_end(header.topic, header.queue_id) if queue else 0)

    def get_min_offset(self, header: GetMinOffset, request: Request) -> Reply:
        """Return the offset of a queue's oldest message; 0 if there is no such queue."""
        queue = self.queues.find(header.topic, header.queue_id)
        return Reply.success(offset=queue.min_offset if queue else 0)

    def get_earliest_msg_storetime(self, header: GetEarliestMsgStoretime, request: Request) -> Reply:
        """Return the store time of a queue's oldest message in ms; -1 for none."""
        queue = self.queues.find(header.topic, header.queue_id)
        if queue is None:
            return Reply.success(timestamp=-1)
        return Reply.success(timestamp=self.store.store_timestamp(header.topic, header.queue_id, queue.min_offset))

    def query_correction_offset(self, header: QueryCorrectionOffset, request: Request) -> Reply:
        """Return the offset of the slowest group in each queue of a topic, without the groups in the filter; OFFSET_MAX where the
        group to compare is behind it.

        RocketMQ deletes the offsets of the groups in the filter, and never finds the group to compare.
        """
        left_out = set((header.filter_groups or "").split(","))
        slowest: dict[int, int] = {}
        for group in self.offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self.offsets.table[f"{header.topic}@{group}"].items():
                if offset >= self.store.queue(header.topic, queue_id).min_offset:
                    slowest[queue_id] = min(offset, slowest.get(queue_id, offset))
        for queue_id, offset in self.offsets.table.get(f"{header.topic}@{header.compare_group}", {}).items():
            if queue_id in slowest and slowest[queue_id] > offset:
                slowest[queue_id] = OFFSET_MAX
        return shared.json_reply({"correctionOffsets": slowest})
