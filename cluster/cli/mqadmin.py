"""`twinlog mqadmin`: the most used sub-commands of RocketMQ's mqadmin, with its names, flags and columns."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import click

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.cli.common.group import InOrder, examples
from twinlog.cluster.cli.common.logging_setup import ERROR, set_up_log
from twinlog.cluster.cli.common.options import namesrv_option, together
from twinlog.cluster.cli.common.running import run_admin
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.mqadmin import brokers, groups, messages, text, topics
from twinlog.cluster.remoting.route import UNIT, UNIT_SUBSCRIPTION

_BOOLEAN = click.Choice(["true", "false"])


@click.group(
    "mqadmin",
    cls=InOrder,
    epilog=examples(
        "twinlog mqadmin clusterList -n 127.0.0.1:9876",
        "twinlog mqadmin updateTopic -c DefaultCluster -t orders -r 8 -w 8",
        "twinlog mqadmin consumerProgress -g billing",
        "twinlog mqadmin resetOffsetByTime -g billing -t orders -s 2026-11-22#08:00:00:000",
    ),
)
def mqadmin() -> None:
    """Run sub-commands of RocketMQ's mqadmin without a JVM, with the same names, flags and columns, for existing scripts.

    RocketMQ's own mqadmin also works, with all of its sub-commands. New users should prefer `twinlog topic`, `group` and `list`.
    """
    set_up_log(ERROR)  # Before anything imports structlog, which would take rich along.


def _show(namesrv: str, operation: Callable[[ClientApi], Awaitable[str]]) -> None:
    click.echo(run_admin(namesrv, lambda admin: operation(admin.api)), nl=False)


def _check(flag: str, read: Callable[[str], object], text: str) -> None:
    """Raise CliError for an invalid value, before any request."""
    try:
        read(text)
    except ValueError as error:
        raise CliError(f"{flag} {text}: {error}.", exit_code=USAGE) from error


_flag = click.option
_topic = _flag("-t", "--topic", required=True, help="Topic.")
_group = _flag("-g", "--group", "--groupName", "group", required=True, help="Consumer group.")
_broker_or_cluster = together(
    _flag("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="This broker."),
    _flag("-c", "--clusterName", "cluster", metavar="NAME", help="Every master of this cluster."),
)


def _one_of(broker: str | None, cluster: str | None) -> None:
    if bool(broker) == bool(cluster):
        raise click.UsageError("give either -b HOST:PORT or -c CLUSTER")


@mqadmin.command("topicList", epilog=examples("twinlog mqadmin topicList", "twinlog mqadmin topicList -c"))
@namesrv_option
@_flag("-c", "--clusterModel", "with_groups", is_flag=True, help="With cluster and consumer groups.")
def topic_list(namesrv: str, with_groups: bool) -> None:
    """List all topics."""
    _show(namesrv, lambda api: topics.topic_list(api, with_groups=with_groups))


@mqadmin.command("topicRoute", epilog=examples("twinlog mqadmin topicRoute -t orders"))
@namesrv_option
@_topic
@_flag("-l", "--list", "as_list", is_flag=True, help="Print a table.")
def topic_route(namesrv: str, topic: str, as_list: bool) -> None:
    """Show where a topic's queues are."""
    _show(namesrv, lambda api: topics.topic_route(api, topic, as_list=as_list))


@mqadmin.command("topicStatus", epilog=examples("twinlog mqadmin topicStatus -t orders"))
@namesrv_option
@_topic
def topic_status(namesrv: str, topic: str) -> None:
    """Show the offsets of a topic's queues."""
    _show(namesrv, lambda api: topics.topic_status(api, topic))


@mqadmin.command("updateTopic", epilog=examples("twinlog mqadmin updateTopic -c DefaultCluster -t orders -r 8 -w 8"))
@namesrv_option
@_broker_or_cluster
@_topic
@_flag("-r", "--readQueueNums", "read_queues", type=click.IntRange(0, 65_536), default=8, show_default=True)
@_flag("-w", "--writeQueueNums", "write_queues", type=click.IntRange(0, 65_536), default=8, show_default=True)
@_flag("-p", "--perm", type=click.IntRange(0, 15), default=6, show_default=True, help="2: write, 4: read, 6: both.")
@_flag("-o", "--order", type=_BOOLEAN, default="false", show_default=True, help="Keep the order of messages.")
@_flag("-u", "--unit", type=_BOOLEAN, default="false", help="Make it a unit topic.")
@_flag("-s", "--hasUnitSub", "has_unit_sub", type=_BOOLEAN, default="false", help="Permit unit subscriptions.")
def update_topic(
    namesrv: str,
    broker: str | None,
    cluster: str | None,
    topic: str,
    order: str,
    unit: str,
    has_unit_sub: str,
    **numbers: Any,
) -> None:
    """Create a topic, or change it."""
    _one_of(broker, cluster)
    sys_flag = UNIT * (unit == "true") | UNIT_SUBSCRIPTION * (has_unit_sub == "true")
    config = TopicConfig(topic, sys_flag=sys_flag, order=order == "true", **numbers)
    _show(namesrv, lambda api: topics.update_topic(api, config, broker=broker, cluster=cluster))


@mqadmin.command("deleteTopic", epilog=examples("twinlog mqadmin deleteTopic -c DefaultCluster -t orders"))
@namesrv_option
@_topic
@_flag("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="The cluster to delete it from.")
def delete_topic(namesrv: str, topic: str, cluster: str) -> None:
    """Delete a topic with its messages. Like mqadmin, it does not ask for confirmation."""
    _show(namesrv, lambda api: topics.delete_topic(api, topic, cluster))


@mqadmin.command("clusterList", epilog=examples("twinlog mqadmin clusterList", "twinlog mqadmin clusterList -m -i 5"))
@namesrv_option
@_flag("-m", "--moreStats", "more", is_flag=True, help="Add the counts of today and yesterday.")
@_flag("-i", "--interval", type=click.IntRange(1), metavar="SECS", help="Repeat every SECS seconds.")
def cluster_list(namesrv: str, more: bool, interval: int | None) -> None:
    """List clusters and brokers."""
    while True:
        _show(namesrv, lambda api: brokers.cluster_list(api, more=more))
        if interval is None:
            return
        time.sleep(interval)


@mqadmin.command("brokerStatus", epilog=examples("twinlog mqadmin brokerStatus -b 127.0.0.1:10911"))
@namesrv_option
@_broker_or_cluster
def broker_status(namesrv: str, broker: str | None, cluster: str | None) -> None:
    """Show the runtime information of a broker, or of each broker of a cluster."""
    _one_of(broker, cluster)
    _show(namesrv, lambda api: brokers.broker_status(api, broker=broker, cluster=cluster))


@mqadmin.command("consumerProgress", epilog=examples("twinlog mqadmin consumerProgress -g billing"))
@namesrv_option
@_flag("-g", "--groupName", "group", help="One group, queue by queue; without it, all groups.")
@_flag("-s", "--showClientIP", "show_clients", type=_BOOLEAN, default="false", help="Show the client of each queue.")
def consumer_progress(namesrv: str, group: str | None, show_clients: str) -> None:
    """Show the progress of consumer groups."""
    _show(namesrv, lambda api: groups.consumer_progress(api, group, show_clients=show_clients == "true"))


@mqadmin.command("queryMsgById", epilog=examples("twinlog mqadmin queryMsgById -i 7F00000100002A9F0000000000000000"))
@namesrv_option
@_flag("-i", "--msgId", "message_ids", required=True, metavar="ID[,ID]", help="Ids as brokers return them.")
def query_by_id(namesrv: str, message_ids: str) -> None:
    """Show messages by id, and who has consumed them. The body is printed; mqadmin writes it to a file in /tmp."""
    ids = [part.strip() for part in message_ids.split(",") if part.strip()]
    for each in ids:
        _check("-i", messages.place_of, each)
    for each in ids:
        _show(namesrv, partial(messages.query_by_id, message_id=each))


@mqadmin.command("queryMsgByKey", epilog=examples("twinlog mqadmin queryMsgByKey -t orders -k order-1"))
@namesrv_option
@_topic
@_flag("-k", "--msgKey", "key", required=True, help="One of the message's keys.")
def query_by_key(namesrv: str, topic: str, key: str) -> None:
    """Find messages by key."""
    _show(namesrv, lambda api: messages.query_by_key(api, topic, key))


@mqadmin.command("resetOffsetByTime", epilog=examples("twinlog mqadmin resetOffsetByTime -g billing -t orders -s now"))
@namesrv_option
@_group
@_topic
@_flag("-s", "--timestamp", "when", required=True, help="now, ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.")
@_flag("-f", "--force", type=_BOOLEAN, default="true", show_default=True, help="false: never forward.")
def reset_offset_by_time(namesrv: str, group: str, topic: str, when: str, force: str) -> None:
    """Move the offsets of a group to a time."""
    _check("-s", text.parse_moment, when)
    _show(namesrv, lambda api: groups.reset_offset_by_time(api, group, topic, when, force=force == "true"))


@mqadmin.command("updateSubGroup", epilog=examples("twinlog mqadmin updateSubGroup -c DefaultCluster -g billing -r 5"))
@namesrv_option
@_broker_or_cluster
@_group
@_flag("-s", "--consumeEnable", "consume_enable", type=_BOOLEAN, default="true", show_default=True)
@_flag("-m", "--consumeFromMinEnable", "consume_from_min_enable", type=_BOOLEAN, default="false", show_default=True)
@_flag("-d", "--consumeBroadcastEnable", "consume_broadcast_enable", type=_BOOLEAN, default="false", show_default=True)
@_flag("-q", "--retryQueueNums", "retry_queues", type=int, default=1, show_default=True)
@_flag("-r", "--retryMaxTimes", "retry_times_max", type=int, default=16, show_default=True)
@_flag("-i", "--brokerId", "broker_id", type=int, default=0, show_default=True, help="Id of the broker to read from.")
@_flag(
    "-w", "--whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", type=int, default=1, show_default=True
)
@_flag("-a", "--notifyConsumerIdsChanged", "notify", type=_BOOLEAN, default="true", show_default=True)
def update_sub_group(
    namesrv: str, broker: str | None, cluster: str | None, group: str, notify: str, **settings: Any
) -> None:
    """Create a consumer group, or change it."""
    _one_of(broker, cluster)
    values = {name: value == "true" if isinstance(value, str) else value for name, value in settings.items()}
    config = SubscriptionGroupConfig(name=group, notify_consumer_ids_changed_enable=notify == "true", **values)
    _show(namesrv, lambda api: groups.update_sub_group(api, config, broker=broker, cluster=cluster))
