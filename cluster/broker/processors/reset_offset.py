"""222, 314: an administrator resets or copies the offsets of a consumer group.

Sources: AdminBrokerProcessor.resetOffset and cloneGroupOffset, Broker2Client.resetOffset (RocketMQ 4.9.8; 5.3.3 for the fields
that name one queue). Connected consumers keep offsets in memory, so they are notified (220), and commit the new offsets.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import trio
from attrs import define

from twinlog.cluster.broker.consume.queues import Queues
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.clients import ConsumerGroupInfo, ConsumerManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import NOT_STORED, ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfig, TopicConfigManager
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, RemotingCommand
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import encode_header_fields
from twinlog.cluster.remoting.headers.broker_admin import CloneGroupOffset, InvokeBrokerToResetOffset
from twinlog.cluster.remoting.headers.clients import ResetConsumerClientOffset
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.message_store import MessageStore

RESETTABLE_SINCE_VERSION = 28  # V3_0_7_SNAPSHOT: older clients do not know 220 and 221.
TO_THE_END = -1  # As timestamp.


@define(eq=False)
class ResetOffsetProcessor:
    """Moves the offsets of consumer groups."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[Connection]
    queues: Queues
    gate: Gate

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
        return self._answer(topic.name, offsets)

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
        return self._answer(topic.name, offsets)

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
        notice = ResetConsumerClientOffset(header.topic, header.group, header.timestamp, is_force=False)
        ext = encode_header_fields(notice)
        body = fastjson.dumps(
            {"offsetTable": self._list(header.topic, offsets) if for_cpp else self._table(header.topic, offsets)}
        )
        for connection in members:
            connection.send(RemotingCommand(notice.code, ext=ext, body=body, flag=ONEWAY))

    def _table(self, topic: str, offsets: Mapping[int, int]) -> dict[str, int]:
        name = self.settings.config.broker_name
        return {
            fastjson.ObjectKey.of({"brokerName": name, "queueId": queue_id, "topic": topic}): offset
            for queue_id, offset in offsets.items()
        }

    def _list(self, topic: str, offsets: Mapping[int, int]) -> list[dict[str, Any]]:
        """Return the table as a list: the C++ client cannot read maps whose keys are objects."""
        name = self.settings.config.broker_name
        return [
            {"brokerName": name, "offset": offset, "queueId": queue_id, "topic": topic}
            for queue_id, offset in offsets.items()
        ]

    def _answer(self, topic: str, offsets: Mapping[int, int]) -> Reply:
        return shared.json_reply({"offsetTable": self._table(topic, offsets)})

    @gated
    def clone_group_offset(self, header: CloneGroupOffset, request: Request) -> Reply:
        """Copy a group's offsets to another one, of one topic or of all; `offline`: also of topics that it left."""
        self._require_master()
        if fault := names.group_fault(header.dest_group):
            raise RequestError(ResponseCode.SYSTEM_ERROR, fault)
        info = None if header.offline else self.consumers.find(header.src_group)
        for name in [header.topic] if header.topic else self.offsets.topics_of(header.src_group):
            is_left = info is not None and info.subscriptions and name not in info.subscriptions
            if self.topics.select(name) is not None and not is_left:
                self.offsets.clone(header.src_group, header.dest_group, name)
        return Reply(ext=None)


async def _search(targets: Iterator[tuple[int, int]]) -> dict[int, int]:
    """Search all offsets; other tasks run in between, as each search reads the log."""
    found = {}
    for queue_id, offset in targets:
        found[queue_id] = offset
        await trio.lowlevel.checkpoint()
    return found


def _members(info: ConsumerGroupInfo[Connection]) -> list[Connection]:
    """Return the members of a group. Raises RequestError when one of them does not know 220: it is sent to all or none."""
    for client in info.clients.values():
        refuse_old_client(client.version)
    return list(info.clients)


def refuse_old_client(version: int) -> None:
    """Raises RequestError for a client that is too old for 220 and 221."""
    if version < RESETTABLE_SINCE_VERSION:
        remark = f"the client does not support this feature. version={version}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
