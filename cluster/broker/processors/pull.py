"""11 and 361: consumers fetch messages, and wait for them.

Source: PullMessageProcessor.java (RocketMQ 4.9.8). Records leave as views of the log; nothing copies a body.
"""

import time

import trio

from twinlog.cluster.broker.consume.long_polling import HeldPull
from twinlog.cluster.broker.consume.offset_moved import OffsetMoved
from twinlog.cluster.broker.filter.consumer_filters import compile_expression
from twinlog.cluster.broker.filter.expression import SelectorError
from twinlog.cluster.broker.filter.tags import SubscriptionData, SubscriptionError, build_subscription
from twinlog.cluster.broker.processors.offset import update_consumer_offset
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.wiring import BrokerParts
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
from twinlog.store.read.get_message import GetResult, GetStatus, PropertyFilter
from twinlog.store.record.message import host_bytes

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4  # Bits of sys_flag.
SUSPEND_MS_MAX = 10 * 60_000  # Ours: nobody is held longer, whatever the request says.

_WHERE = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
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


def pull_message(broker: BrokerParts, header: PullMessage, request: Request) -> AnyReply | None:
    """None: nothing new; the request is held until a message comes or its time is up."""
    return _pull(broker, header, request, may_hold=True)


def lite_pull_message(broker: BrokerParts, header: LitePullMessage, request: Request) -> AnyReply | None:
    """The same under another code."""
    return _pull(broker, header, request, may_hold=True)


def _pull(broker: BrokerParts, header: PullMessage, request: Request, *, may_hold: bool) -> AnyReply | None:
    began = time.perf_counter()
    group, subscription, accepts = _check(broker, header)
    # A queue is read as far ahead as is asked for, so what an answer cannot hold is not asked for.
    count = max(1, min(header.max_msg_nums, broker.store.config.max_transfer_count_on_message_in_memory))
    wanted = subscription.wanted
    broker.store.dispatch_pending()  # What this turn of the loop has appended before is found, too: one turn less to wait.
    result = broker.store.get_message(header.topic, header.queue_id, header.queue_offset, count, wanted, accepts)
    if may_hold and header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0:
        _commit(broker, header, request)
    code = code_of(result.status, header.queue_offset)
    if code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & SUSPEND:
        _hold(broker, header, request, wanted, accepts)
        return None
    if broker.visibility is not None:
        result = as_shown(result, broker.shown_end(header.topic, header.queue_id))
    suggested = suggested_broker(result, group, slave_read_enable=broker.config.slave_read_enable)
    if code == ResponseCode.PULL_OFFSET_MOVED:
        if not broker.is_slave:
            _report_moved(broker, header, result.next_offset)
        elif not broker.store.config.offset_check_in_slave:
            # A consumer that is ahead of this slave goes back to the master instead of being reset.
            code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.broker_id
    broker.pulls.count(result.message_count)
    where = (suggested, result.next_offset, result.min_offset, result.max_offset)
    if result.status is not GetStatus.FOUND:
        return Reply(code, result.status.value, _FOUND.ext(where))
    group_name, latency_ms = header.consumer_group, int((time.perf_counter() - began) * 1000)
    count, size = result.message_count, result.size
    broker.stats.group_get(group_name, header.topic, header.queue_id, count, size, latency_ms, result.next_offset)
    return TemplateReply(_FOUND, where, result.buffers, size)


def _commit(broker: BrokerParts, header: PullMessage, request: Request) -> None:
    """What a consumer tells a slave is not for it, unless that was the master a moment ago: then the master is told."""
    if broker.gate.state == "open":
        if not broker.is_slave:
            broker.offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return
    told = UpdateConsumerOffset(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    command = told.command(flag=ONEWAY)
    update_consumer_offset(broker, told, Request(request.connection, command))


def _report_moved(broker: BrokerParts, header: PullMessage, new_offset: int) -> None:
    event = OffsetMoved(
        header.consumer_group,
        broker.config.broker_name,
        header.topic,
        header.queue_id,
        header.queue_offset,
        new_offset,
    )
    if broker.gate.state == "open" and broker.offset_moved.is_due(event, trio.current_time()):
        broker.store.put([event.message(host_bytes(broker.address), broker.now_ms())])


def as_shown(result: GetResult, end: int) -> GetResult:
    """The same with the queue's end as consumers are shown it: they compute their lag from it, and are not sent behind it."""
    is_sent_back = result.status is GetStatus.OFFSET_OVERFLOW_BADLY and result.next_offset == result.max_offset
    return result._replace(max_offset=end, next_offset=end if is_sent_back else result.next_offset)


def code_of(status: GetStatus, requested: int) -> ResponseCode:
    """An empty queue is `nothing new` for those who ask for its beginning and `moved` for others."""
    code = _CODES.get(status)
    if code is None:
        return ResponseCode.PULL_OFFSET_MOVED if requested else ResponseCode.PULL_NOT_FOUND
    return code


def suggested_broker(result: GetResult, group: SubscriptionGroupConfig, *, slave_read_enable: bool) -> int:
    """The broker id that the next pull of this queue should go to."""
    if not slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id


def _check(
    broker: BrokerParts, header: PullMessage
) -> tuple[SubscriptionGroupConfig, SubscriptionData, PropertyFilter | None]:
    """All that can be wrong with a pull, in RocketMQ's order; what is wanted, by tags and by properties. Raises RequestError."""
    if not broker.config.broker_permission & PERM_READ:
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] pulling message is forbidden"
        )
    group = broker.groups.find(header.consumer_group)
    if group is None:
        raise RequestError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{header.consumer_group[: names.GROUP_LENGTH_MAX]}] does not exist",
        )
    if not group.consume_enable:
        raise RequestError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
    topic = broker.topics.select(header.topic)
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
        return group, *_brought(broker, header)
    return group, *_registered(broker, header, group)


def _brought(broker: BrokerParts, header: PullMessage) -> tuple[SubscriptionData, PropertyFilter | None]:
    """What the request itself says. Other than RocketMQ, which then filters nothing, an expression that is none is refused."""
    try:
        subscription = build_subscription(header.topic, header.subscription, header.expression_type)
        if subscription.is_tag:
            return subscription, _retry_filter(broker, header.topic)
        _check_enabled(broker, subscription)
        return subscription, compile_expression(subscription.sub_string, subscription.expression_type).accepts
    except (SubscriptionError, SelectorError):
        raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed") from None


def _registered(
    broker: BrokerParts, header: PullMessage, group: SubscriptionGroupConfig
) -> tuple[SubscriptionData, PropertyFilter | None]:
    """What the group's heartbeats say."""
    info = broker.consumers.find(header.consumer_group)
    if info is None:
        raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    if info.is_broadcasting and not group.consume_broadcast_enable:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
        )
    subscription = info.subscriptions.get(header.topic)
    if subscription is None:
        raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if subscription.sub_version < header.sub_version:
        raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    if subscription.is_tag:
        return subscription, _retry_filter(broker, header.topic)
    _check_enabled(broker, subscription)  # RocketMQ asks this last; filters that nobody may use are not compiled here.
    data = broker.filters.get(header.topic, header.consumer_group)
    if data is None:
        raise RequestError(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        )
    if data.client_version < header.sub_version:
        raise RequestError(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    return subscription, data.filter.accepts


def _check_enabled(broker: BrokerParts, subscription: SubscriptionData) -> None:
    if not broker.config.enable_property_filter:
        raise RequestError(ResponseCode.SYSTEM_ERROR, not_supported(subscription.expression_type))


def not_supported(expression_type: str) -> str:
    """RocketMQ's words for a broker without enablePropertyFilter."""
    return f"The broker does not support consumer to filter message by {expression_type[:40]}"


def _retry_filter(broker: BrokerParts, topic: str) -> PropertyFilter | None:
    """Consumers subscribe to retry topics by tag, whatever they said of the topics that these messages come from."""
    is_wanted = broker.config.filter_support_retry and broker.config.enable_property_filter
    if is_wanted and topic.startswith(names.RETRY_PREFIX):
        return broker.filters.retry_filter(topic)
    return None


def _hold(
    broker: BrokerParts,
    header: PullMessage,
    request: Request,
    wanted: frozenset[int] | None,
    accepts: PropertyFilter | None,
) -> None:
    def run_again() -> None:
        try:
            reply = _pull(broker, header, request, may_hold=False)
        except RequestError as error:  # The topic or the group changed meanwhile.
            reply = Reply(code=error.code, remark=error.remark)
        assert reply is not None
        request.reply(reply)

    config = broker.config
    wait_ms = header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_ms
    connection = request.connection
    pull = HeldPull(
        topic=header.topic,
        queue_id=header.queue_id,
        offset=header.queue_offset,
        wanted=wanted,
        deadline=broker.held_pulls.now() + max(0, min(wait_ms, SUSPEND_MS_MAX)) / 1000,
        connection=connection,
        run_again=run_again,
        accepts=accepts,
        text_size=len(header.subscription or ""),
    )
    if not broker.held_pulls.hold(pull):
        raise RequestError(ResponseCode.SYSTEM_BUSY, OVERLOAD)
    request.command.body, request.command.ext = b"", None  # They may be long, and are not needed any more.
    broker.watch(connection)


HANDLERS = (pull_message, lite_pull_message)
