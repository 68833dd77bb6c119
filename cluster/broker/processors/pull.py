"""11 and 361: pulls, answered at once or held until messages arrive.

Source: PullMessageProcessor.java (RocketMQ 4.9.8). Records are sent as views of the log, without a copy of their bodies.
"""

import time

import trio
from attrs import define, field

from twinlog.cluster.broker.consume.long_polling import HeldPull, PullRequestHoldService
from twinlog.cluster.broker.consume.offset_moved import OffsetMoved, OffsetMovedEvents
from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.filter.consumer_filters import ConsumerFilterManager, compile_expression
from twinlog.cluster.broker.filter.expression import SelectorError
from twinlog.cluster.broker.filter.tags import SubscriptionData, SubscriptionError, build_subscription
from twinlog.cluster.broker.processors.offset import OffsetProcessor
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.rates import PullCounters
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.clients import ClientConnections, ConsumerManager
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig, SubscriptionGroupManager
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY
from twinlog.cluster.remoting.dispatch import OVERLOAD
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.messages import LitePullMessage, PullMessage
from twinlog.cluster.remoting.headers.offsets import UpdateConsumerOffset
from twinlog.cluster.remoting.request import AnyReply, Reply, Request
from twinlog.cluster.remoting.response_template import ResponseTemplate, TemplateReply
from twinlog.cluster.remoting.route import MASTER_ID, PERM_READ
from twinlog.store.message_store import MessageStore
from twinlog.store.read.get_message import GetResult, GetStatus, PropertyFilter

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4  # Bits of sys_flag.
SUSPEND_MS_MAX = 10 * 60_000  # Ours: longest hold, whatever the request asks for.

_WHERE = dict.fromkeys(("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"), "%d")
_FOUND = ResponseTemplate(ResponseCode.SUCCESS, GetStatus.FOUND.value, _WHERE)

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@define(eq=False)
class PullProcessor:
    """Pulls, answered at once or held."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    queues: Queues
    held_pulls: PullRequestHoldService
    pulls: PullCounters
    stats: BrokerStatsManager
    connections: ClientConnections
    gate: Gate
    commits: OffsetProcessor
    _moved: OffsetMovedEvents = field(factory=OffsetMovedEvents, init=False)

    def pull_message(self, header: PullMessage, request: Request) -> AnyReply | None:
        """Answer a pull; None when it found nothing and is held until a message arrives or its time is up."""
        return self._pull(header, request, may_hold=True)

    def lite_pull_message(self, header: LitePullMessage, request: Request) -> AnyReply | None:
        """Answer a pull with another request code."""
        return self._pull(header, request, may_hold=True)

    def _pull(self, header: PullMessage, request: Request, *, may_hold: bool) -> AnyReply | None:
        began = time.perf_counter()
        group, subscription, accepts = self._check(header)
        # The store reads ahead as far as is asked for, so no more is asked for than a response can hold.
        count = max(1, min(header.max_msg_nums, self.store.config.max_transfer_count_on_message_in_memory))
        wanted = subscription.wanted
        self.store.dispatch_pending()  # Also finds messages appended in this time slice.
        result = self.store.get_message(header.topic, header.queue_id, header.queue_offset, count, wanted, accepts)
        if may_hold and header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0:
            self._commit(header, request)
        code = code_of(result.status, header.queue_offset)
        if code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & SUSPEND:
            self._hold(header, request, wanted, accepts)
            return None
        if self.queues.visibility is not None:
            result = with_visible_end(result, self.queues.shown_end(header.topic, header.queue_id))
        suggested = suggested_broker(result, group, slave_read_enable=self.settings.config.slave_read_enable)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            if not self.store.config.is_slave:
                self._report_moved(header, result.next_offset)
            elif not self.store.config.offset_check_in_slave:
                # A consumer ahead of this slave is sent to the master instead of being reset.
                code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
        self.pulls.count(result.message_count)
        where = (suggested, result.next_offset, result.min_offset, result.max_offset)
        if result.status is not GetStatus.FOUND:
            return Reply(code, result.status.value, _FOUND.ext(where))
        group_name, latency_ms = header.consumer_group, int((time.perf_counter() - began) * 1000)
        count, size = result.message_count, result.size
        self.stats.group_get(group_name, header.topic, header.queue_id, count, size, latency_ms, result.next_offset)
        return TemplateReply(_FOUND, where, result.buffers, size)

    def _commit(self, header: PullMessage, request: Request) -> None:
        """Store the offset in a pull. A slave does not store it; a former master forwards it."""
        if self.gate.state == "open":
            if not self.store.config.is_slave:
                self.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
            return
        update = UpdateConsumerOffset(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        command = update.command(flag=ONEWAY)
        self.commits.update_consumer_offset(update, Request(request.connection, command))

    def _report_moved(self, header: PullMessage, new_offset: int) -> None:
        event = OffsetMoved(
            header.consumer_group,
            self.settings.config.broker_name,
            header.topic,
            header.queue_id,
            header.queue_offset,
            new_offset,
        )
        if self.gate.state == "open" and self._moved.is_due(event, trio.current_time()):
            self.store.put([event.message(self.settings.store_host, self.store.now_ms())])

    def _check(self, header: PullMessage) -> tuple[SubscriptionGroupConfig, SubscriptionData, PropertyFilter | None]:
        """Check a pull in RocketMQ's order; return its group, subscription and property filter. Raises RequestError."""
        if not self.settings.config.broker_permission & PERM_READ:
            remark = f"the broker[{self.settings.config.broker_ip1}] pulling message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        group = self.groups.find(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group[: names.GROUP_LENGTH_MAX]}] does not exist"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise RequestError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
        topic = self.topics.select(header.topic)
        if topic is None:
            name = header.topic[: names.TOPIC_LENGTH_MAX]
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if not topic.perm & PERM_READ:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queues:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queues}] consumer:[{header.consumer_group}]",
            )
        if header.sys_flag & SUBSCRIPTION:
            return group, *self._in_request(header)
        return group, *self._registered(header, group)

    def _in_request(self, header: PullMessage) -> tuple[SubscriptionData, PropertyFilter | None]:
        """Return the request's own subscription. An invalid expression is refused; RocketMQ then filters nothing."""
        try:
            subscription = build_subscription(header.topic, header.subscription, header.expression_type)
            if subscription.is_tag:
                return subscription, self._retry_filter(header.topic)
            self._check_enabled(subscription)
            return subscription, compile_expression(subscription.sub_string, subscription.expression_type).accepts
        except (SubscriptionError, SelectorError):
            remark = "parse the consumer's subscription failed"
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None

    def _registered(
        self, header: PullMessage, group: SubscriptionGroupConfig
    ) -> tuple[SubscriptionData, PropertyFilter | None]:
        """Return the subscription from the group's heartbeats."""
        info = self.consumers.find(header.consumer_group)
        if info is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if info.is_broadcasting and not group.consume_broadcast_enable:
            remark = f"the consumer group[{header.consumer_group}] can not consume by broadcast way"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        subscription = info.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if subscription.sub_version < header.sub_version:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if subscription.is_tag:
            return subscription, self._retry_filter(header.topic)
        self._check_enabled(subscription)  # RocketMQ checks this last; here filters that are off are not compiled.
        data = self.filters.get(header.topic, header.consumer_group)
        if data is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise RequestError(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        if data.client_version < header.sub_version:
            raise RequestError(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        return subscription, data.filter.accepts

    def _check_enabled(self, subscription: SubscriptionData) -> None:
        if not self.settings.config.enable_property_filter:
            raise RequestError(ResponseCode.SYSTEM_ERROR, not_supported(subscription.expression_type))

    def _retry_filter(self, topic: str) -> PropertyFilter | None:
        """Return the filter for a retry topic, to which consumers subscribe by tag whatever filter their topics have."""
        is_wanted = self.settings.config.filter_support_retry and self.settings.config.enable_property_filter
        if is_wanted and topic.startswith(names.RETRY_PREFIX):
            return self.filters.retry_filter(topic)
        return None

    def _hold(
        self,
        header: PullMessage,
        request: Request,
        wanted: frozenset[int] | None,
        accepts: PropertyFilter | None,
    ) -> None:
        def run_again() -> None:
            try:
                reply = self._pull(header, request, may_hold=False)
            except RequestError as error:  # The topic or the group changed meanwhile.
                reply = Reply(code=error.code, remark=error.remark)
            assert reply is not None
            request.reply(reply)

        config = self.settings.config
        wait_ms = header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_ms
        connection = request.connection
        pull = HeldPull(
            topic=header.topic,
            queue_id=header.queue_id,
            offset=header.queue_offset,
            wanted=wanted,
            deadline=self.held_pulls.now() + max(0, min(wait_ms, SUSPEND_MS_MAX)) / 1000,
            connection=connection,
            run_again=run_again,
            accepts=accepts,
            text_size=len(header.subscription or ""),
        )
        if not self.held_pulls.hold(pull):
            raise RequestError(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        request.command.body, request.command.ext = b"", None  # Frees memory: they may be long.
        self.connections.watch(connection)


def with_visible_end(result: GetResult, end: int) -> GetResult:
    """Return the result with the visible end of the queue: consumers compute their lag from it, and must not go beyond it."""
    is_sent_back = result.status is GetStatus.OFFSET_OVERFLOW_BADLY and result.next_offset == result.max_offset
    return result._replace(max_offset=end, next_offset=end if is_sent_back else result.next_offset)


def code_of(status: GetStatus, requested: int) -> ResponseCode:
    """Return the response code; an empty queue is NOT_FOUND for a pull at its start, otherwise OFFSET_MOVED."""
    code = _CODES.get(status)
    if code is None:
        return ResponseCode.PULL_OFFSET_MOVED if requested else ResponseCode.PULL_NOT_FOUND
    return code


def suggested_broker(result: GetResult, group: SubscriptionGroupConfig, *, slave_read_enable: bool) -> int:
    """Return the id of the broker that the next pull of this queue should go to."""
    if not slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id


def not_supported(expression_type: str) -> str:
    """Return RocketMQ's text for a broker without enablePropertyFilter."""
    return f"The broker does not support consumer to filter message by {expression_type[:40]}"
