"""consumerProgress, resetOffsetByTime and updateSubGroup."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.mqadmin import text
from twinlog.cluster.mqadmin.requests import (
    ConsumeStats,
    QueueProgress,
    consume_stats,
    consume_stats_of,
    masters_in,
    one_address_each,
    route_of,
)
from twinlog.cluster.observe import requests as admin_requests
from twinlog.cluster.observe.requests import Consumers
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.headers.broker_admin import InvokeBrokerToResetOffset
from twinlog.cluster.remoting.names import RETRY_PREFIX
from twinlog.cluster.remoting.route import MessageQueue, queue_of_key

RESET_MS = 6_000
_GROUPS = "{:<64.64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}"
_QUEUES = "{:<64.64}  {:<32.32}  {:<4}  {:<20}  {:<20}  {:<20}  {}"
_CLIENTS = "{:<64.64}  {:<32.32}  {:<4}  {:<20}  {:<20}  {:<20} {:<20}  {}"
_RESET = "{:<40.32}  {:<40}  {:<40}"
_RESET_OLD = "{:<20.32}  {:<20}  {:<20}  {:<20}  {:<20}  {:<20}"


async def consumer_progress(api: ClientApi, group: str | None, *, show_clients: bool) -> str:
    """The progress of one group in each queue, or of all groups in a row each."""
    if group is None:
        return await _all_groups(api)
    stats = await consume_stats(api, group)
    clients = await _holders(api, group) if show_clients else {}
    head = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    form = _CLIENTS if show_clients else _QUEUES
    rows = [form.format(*head, *(("#Client IP",) if show_clients else ()), "#Diff", "#LastTime")]
    for queue, progress in stats.queues.items():
        who = (clients.get(queue, "N/A"),) if show_clients else ()
        place = (queue.topic, queue.broker_name, queue.queue_id, progress.broker_offset, progress.consumer_offset)
        rows.append(form.format(*place, *who, progress.lag, _last(progress)))
    return text.lines([*rows, "", f"Consume TPS: {stats.tps:.2f}", f"Diff Total: {stats.lag}"])


def _last(progress: QueueProgress) -> str:
    return text.second(progress.last_ms) if progress.last_ms else "N/A"


async def _holders(api: ClientApi, group: str) -> dict[MessageQueue, str]:
    """The IP of each queue's client, as reported by the clients; empty where they cannot be asked."""
    found: dict[MessageQueue, str] = {}
    try:
        for address in one_address_each(await route_of(api, RETRY_PREFIX + group)):
            consumers = await admin_requests.consumers_of(api, address, group)
            for client in consumers.clients if consumers else ():
                held = await admin_requests.queues_held(api, address, group, client.client_id)
                found |= dict.fromkeys(held or (), client.client_id.split("@")[0])
    except RemotingError:
        pass
    return found


async def _all_groups(api: ClientApi) -> str:
    groups = [topic.removeprefix(RETRY_PREFIX) for topic in await api.topics() if topic.startswith(RETRY_PREFIX)]
    rows = await in_parallel(partial(_group_row, api, group) for group in groups)
    return text.lines([_GROUPS.format("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"), *rows])


async def _group_row(api: ClientApi, group: str) -> str:
    try:
        stats = await consume_stats(api, group)
    except RemotingError:
        stats = ConsumeStats({}, 0)
    try:
        asked = one_address_each(await route_of(api, RETRY_PREFIX + group))
        consumers = await admin_requests.consumers_of(api, asked[0], group) if asked else None
    except RemotingError:
        consumers = None
    return _GROUPS.format(group, *_who(consumers), int(stats.tps), stats.lag)


def _who(consumers: Consumers | None) -> tuple[object, ...]:
    """The number of clients, their oldest version, push or pull, and the message model of push consumers."""
    if consumers is None or not consumers.clients:
        return (0, "OFFLINE", "", "")
    version = text.version_name(min(client.version for client in consumers.clients))
    pushes = consumers.consume_type == "CONSUME_PASSIVELY"
    kind = "PULL" if consumers.consume_type == "CONSUME_ACTIVELY" else "PUSH"
    return (len(consumers.clients), version, kind, consumers.message_model if pushes else "")


async def reset_offset_by_time(api: ClientApi, group: str, topic: str, when: str, *, force: bool) -> str:
    """Reset a group to the store time `when` (see text.parse_moment): through its connected members or, without any, by
    storing its offsets. Raises ValueError for an invalid time.
    """
    milliseconds = text.parse_moment(when)
    asked = f"[{group}], topic[{topic}], force[{text.boolean(force)}], timestamp(string)[{when}], timestamp(long)[{milliseconds}]"
    moved: dict[MessageQueue, int] = {}
    for address in one_address_each(await route_of(api, topic)):
        header = InvokeBrokerToResetOffset(topic, group, milliseconds, force)
        answer = await api.call(
            address, header, expected=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE), timeout_ms=RESET_MS
        )
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return await _reset_old(api, group, topic, milliseconds, force=force, asked=asked)
        moved |= answer.json(_read_offsets)
    head = f"rollback consumer offset by specified group{asked}"
    rows = [_RESET.format(queue.broker_name, queue.queue_id, to) for queue, to in sorted(moved.items())]
    return text.lines([head, _RESET.format("#brokerName", "#queueId", "#offset"), *rows])


def _read_offsets(body: Mapping[str, Any]) -> dict[MessageQueue, int]:
    return {queue_of_key(key): int(offset) for key, offset in (body.get("offsetTable") or {}).items()}


async def _reset_old(api: ClientApi, group: str, topic: str, milliseconds: int, *, force: bool, asked: str) -> str:
    """Store the offsets of a group without connected members."""
    head = f"rollback consumer offset by specified consumerGroup{asked}"
    names = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset")
    rows = [head, _RESET_OLD.format(*names)]
    for address in one_address_each(await route_of(api, topic)):
        queues = (await consume_stats_of(api, address, group, topic)).queues
        if not queues:
            stats = await api.topic_stats(address, topic)
            queues = {queue: QueueProgress(each.max_offset, each.min_offset, 0) for queue, each in stats.items()}
        for queue, progress in sorted(queues.items()):
            to = await (
                api.max_offset(address, queue) if milliseconds < 0 else api.offset_at(address, queue, milliseconds)
            )
            goes = force or to <= progress.consumer_offset
            if goes:
                await api.commit_offset(address, queue, group, to)
            numbers = (progress.broker_offset, progress.consumer_offset, to, to if goes else progress.consumer_offset)
            rows.append(_RESET_OLD.format(queue.broker_name, queue.queue_id, *numbers))
    return text.lines(rows)


async def update_sub_group(
    api: ClientApi, config: SubscriptionGroupConfig, *, broker: str | None, cluster: str | None
) -> str:
    """Create or change a group on one broker, or on every master of a cluster."""
    rows = []
    for address in [broker] if broker else await masters_in(api, cluster or ""):
        await admin_requests.update_group(api, address, config)
        rows.append(f"create subscription group to {address} success.")
    return text.lines([*rows, text.group_config(config)])
