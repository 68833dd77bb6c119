"""14, 15, 29 to 32, 222, 308, 314: offsets of queues, and those of consumer groups: read, commit, reset, copy.

Sources: ConsumerManageProcessor.java, AdminBrokerProcessor.java, Broker2Client.resetOffset (RocketMQ 4.9.8; 5.3.3 for the
fields of 222 that name one queue). Connected consumers keep offsets in memory, so a reset notifies them (220), and they commit
the new offsets.
"""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial

import trio
from attrs import define

from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.clients import ConsumerGroupInfo, ConsumerManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import NOT_STORED, ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import offsets as h
from twinlog.cluster.remoting.headers.broker_admin import (
    CloneGroupOffset,
    InvokeBrokerToResetOffset,
    QueryCorrectionOffset,
)
from twinlog.cluster.remoting.headers.clients import ResetConsumerClientOffset
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.route import MessageQueue, key_of_queue
from twinlog.store.message_store import MessageStore
from twinlog.store.read.get_message import memory_bytes_max

OFFSET_MAX = (1 << 63) - 1
RESETTABLE_SINCE_VERSION = 28  # V3_0_7_SNAPSHOT: older clients do not know 220 and 221.
TO_THE_END = -1  # As timestamp.


@define(eq=False)
class OffsetProcessor:
    """Offsets of queues and of consumer groups."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    queues: Queues
    gate: Gate

    def query_consumer_offset(self, header: h.QueryConsumerOffset, request: Request) -> Reply:
        """Return a group's offset; without one 0 while the queue is young, otherwise code 22: the client chooses."""
        offset = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset != NOT_STORED:
            return Reply.success(offset=offset)
        if header.set_zero_if_not_found is not False and self._is_young(header.topic, header.queue_id):
            return Reply.success(offset=0)
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """True while the queue's first message exists and is recent enough to be in memory."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or queue.max_offset == 0:
            return True
        first = queue.unit(0) if queue.min_offset <= 0 else None
        in_memory = memory_bytes_max(self.store.config.access_message_in_memory_max_ratio)
        return first is not None and self.store.max_offset - first.phy_offset <= in_memory

    def update_consumer_offset(self, header: h.UpdateConsumerOffset, request: Request) -> Reply | None:
        """Store a group's offset, also a smaller one.

        When another member is master, the offset is stored here after the master has it, and only if it is greater: otherwise
        a consumer that read it here could get a smaller one from the master.
        """
        fault = names.topic_fault(header.topic) or names.group_fault(header.consumer_group)
        if fault or header.queue_id < 0 or header.commit_offset < 0:
            raise RequestError(ResponseCode.SYSTEM_ERROR, fault or "queueId and commitOffset must not be negative")
        return self._commit(header, request)

    def _note(self, header: h.UpdateConsumerOffset) -> None:
        """Store an offset that the master has accepted."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        with contextlib.suppress(RequestError):
            self.offsets.commit_if_greater(group, topic, queue_id, header.commit_offset)

    @partial(gated, taken=_note)
    def _commit(self, header: h.UpdateConsumerOffset, request: Request) -> Reply:
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.commit_offset
        if self.gate.original_client(request.connection, request.command) is not None:
            # Forwarded: the client may have committed more here since.
            offset = max(offset, self.offsets.query(group, topic, queue_id))
        self.offsets.commit(group, topic, queue_id, offset)
        return Reply.success()

    def search_offset_by_timestamp(self, header: h.SearchOffsetByTimestamp, request: Request) -> Reply:
        """Return the offset of the visible message stored nearest to a time, as 4.9 does."""
        queue = self.queues.find(header.topic, header.queue_id)
        if queue is None:
            return Reply.success(offset=0)
        last = max(self.queues.shown_end(header.topic, header.queue_id) - 1, queue.min_offset)
        return Reply.success(
            offset=min(self.store.offset_by_time(header.topic, header.queue_id, header.timestamp), last)
        )

    def get_max_offset(self, header: h.GetMaxOffset, request: Request) -> Reply:
        """Return the visible end of a queue; 0 if there is no such queue."""
        queue = self.queues.find(header.topic, header.queue_id)
        return Reply.success(offset=self.queues.shown_end(header.topic, header.queue_id) if queue else 0)

    def get_min_offset(self, header: h.GetMinOffset, request: Request) -> Reply:
        """Return the offset of a queue's oldest message; 0 if there is no such queue."""
        queue = self.queues.find(header.topic, header.queue_id)
        return Reply.success(offset=queue.min_offset if queue else 0)

    def get_earliest_msg_storetime(self, header: h.GetEarliestMsgStoretime, request: Request) -> Reply:
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

    async def invoke_broker_to_reset_offset(self, header: InvokeBrokerToResetOffset, request: Request) -> Reply | None:
        """Reset a group's offsets, and return the new ones. With the two fields of 5.x they are stored here, too."""
        topic = self.topics.select(header.topic)
        if topic is None:
            name = header.topic[: names.TOPIC_LENGTH_MAX]
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={name}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if header.queue_id is not None:
            return await self._reset_as_5(header, topic, request)
        offsets = await _search(self._targets(header, topic))
        info = self.consumers.find(header.group)
        if info is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {topic.name} "
                f"Timestamp: {header.timestamp}",
            )
        self._notify(header, _members(info), offsets, request.command.language == "CPP")
        return shared.json_reply({"offsetTable": self._table(topic.name, offsets)})

    def _targets(self, header: InvokeBrokerToResetOffset, topic: TopicConfig) -> Iterator[tuple[int, int]]:
        """Yield queues and their new offsets. Without isForce no offset is moved forward."""
        for queue_id in range(topic.write_queues):
            committed = self.offsets.query(header.group, topic.name, queue_id)
            if committed == NOT_STORED:
                group = header.group[: names.GROUP_LENGTH_MAX]
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            target = self._offset_at(topic.name, queue_id, header.timestamp)
            yield queue_id, target if header.is_force else min(target, committed)

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        end = self.queues.shown_end(topic, queue_id)
        if timestamp == TO_THE_END:
            return end
        return max(0, min(self.store.offset_by_time(topic, queue_id, timestamp), end))

    def _first_since(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the first message since a time, as 5.x does. Its mqadmin sends the present time for the end."""
        offset = self._offset_at(topic, queue_id, timestamp)
        if timestamp != TO_THE_END and self.store.store_timestamp(topic, queue_id, offset) < timestamp:
            offset += 1
        return min(offset, self.queues.shown_end(topic, queue_id))

    async def _reset_as_5(
        self, header: InvokeBrokerToResetOffset, topic: TopicConfig, request: Request
    ) -> Reply | None:
        """Reset as a 5.x broker does: no consumer has to be online."""
        if self.gate.state != "open":
            return self._store_and_notify((header, None), request)
        self._check_group(header)
        return self._store_and_notify((header, await _search(self._targets_of_5(header, topic))), request)

    def _check_group(self, header: InvokeBrokerToResetOffset) -> None:
        if self.groups.table.get(header.group) is None:
            group = header.group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")

    @gated
    def _store_and_notify(
        self, asked: tuple[InvokeBrokerToResetOffset, Mapping[int, int] | None], request: Request
    ) -> Reply:
        """Store the new offsets, and notify the group's members."""
        header, offsets = asked
        self._require_master()
        self._check_group(header)
        topic = self.topics.select(header.topic)
        if topic is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic {header.topic} was deleted meanwhile")
        if offsets is None:
            offsets = dict(self._targets_of_5(header, topic))
        info = self.consumers.find(header.group)
        members = _members(info) if info is not None else []
        for queue_id, offset in offsets.items():
            self.offsets.commit(header.group, topic.name, queue_id, offset)
        self._notify(header, members, offsets, request.command.language == "CPP")
        return shared.json_reply({"offsetTable": self._table(topic.name, offsets)})

    def _targets_of_5(self, header: InvokeBrokerToResetOffset, topic: TopicConfig) -> Iterator[tuple[int, int]]:
        name, queue_id = topic.name, header.queue_id
        if queue_id is None or queue_id < 0:
            for number in range(topic.read_queues):
                yield number, self._first_since(name, number, header.timestamp)
            return
        if queue_id >= topic.read_queues:
            remark = f"queueId[{queue_id}] is out of range, topic {name} has {topic.read_queues} queues"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if header.offset is None or header.offset < 0:
            yield queue_id, self._first_since(name, queue_id, header.timestamp)
            return
        low, high = self.store.queue(name, queue_id).min_offset, self.queues.shown_end(name, queue_id)
        if not low <= header.offset <= high:
            remark = f"offset[{header.offset}] is not within the queue's [{low}, {high}]"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        yield queue_id, header.offset

    def _require_master(self) -> None:
        """Raises RequestError on a slave, which copies its offsets from the master."""
        if self.store.config.is_slave:
            remark = "this broker is a slave: reset the offsets at its master"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)

    def _notify(
        self,
        header: InvokeBrokerToResetOffset,
        members: list[Connection],
        offsets: Mapping[int, int],
        for_cpp: bool,
    ) -> None:
        """Send 220 to every member; some may leave meanwhile."""
        table: object = self._table(header.topic, offsets)
        if for_cpp:  # The C++ client cannot read maps whose keys are objects.
            name = self.settings.config.broker_name
            table = [
                {"brokerName": name, "offset": offset, "queueId": queue_id, "topic": header.topic}
                for queue_id, offset in offsets.items()
            ]
        notice = ResetConsumerClientOffset(header.topic, header.group, header.timestamp, is_force=False)
        command = notice.command(fastjson.dumps({"offsetTable": table}), flag=ONEWAY)
        for connection in members:
            connection.send(command)

    def _table(self, topic: str, offsets: Mapping[int, int]) -> dict[fastjson.ObjectKey, int]:
        name = self.settings.config.broker_name
        return {key_of_queue(MessageQueue(topic, name, queue_id)): offset for queue_id, offset in offsets.items()}

    @gated
    def clone_group_offset(self, header: CloneGroupOffset, request: Request) -> Reply:
        """Copy a group's offsets to another one, of one topic or of all; `offline`: also of topics that it left."""
        self._require_master()
        names.require_group(header.dest_group)
        info = None if header.offline else self.consumers.find(header.src_group)
        for name in [header.topic] if header.topic else self.offsets.topics_of(header.src_group):
            is_left = info is not None and info.subscriptions and name not in info.subscriptions
            if self.topics.select(name) is not None and not is_left:
                self.offsets.clone(header.src_group, header.dest_group, name)
        return Reply()


async def _search(targets: Iterator[tuple[int, int]]) -> dict[int, int]:
    """Search all offsets; other tasks run in between, as each search reads the log."""
    found = {}
    for queue_id, offset in targets:
        found[queue_id] = offset
        await trio.lowlevel.checkpoint()
    return found


def _members(info: ConsumerGroupInfo) -> list[Connection]:
    """Return the members of a group. Raises RequestError when one of them does not know 220: it is sent to all or none."""
    for client in info.clients.values():
        refuse_old_client(client.version)
    return list(info.clients)


def refuse_old_client(version: int) -> None:
    """Raises RequestError for a client that is too old for 220 and 221."""
    if version < RESETTABLE_SINCE_VERSION:
        remark = f"the client does not support this feature. version={version}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
