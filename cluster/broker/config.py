"""The broker's own configuration; names and defaults are RocketMQ's (BrokerConfig, NettyServerConfig, 4.9.8)."""

import platform
from enum import Enum
from typing import Any

import attrs
from attrs import frozen, validators

from twinlog.cluster.remoting.names import is_ip
from twinlog.store.config import BrokerRole, option
from twinlog.store.util.host_name import is_host_name

_PORT = validators.and_(validators.ge(0), validators.le(65535))


def _at_least_1(default: int, *, key: str, doc: str) -> Any:
    return option(default, key=key, doc=doc, validator=validators.ge(1))


def _is_host(_config: Any, attribute: Any, value: str | None) -> None:
    if value and not (is_ip(value.strip("[]")) or is_host_name(value)):
        raise ValueError(f"the IP or the name of a host: {value!r}")


NO_BIT_MAPS = (
    "twinlog has no bit maps of SQL92 filters, which only save RocketMQ work: each pull evaluates its filter, and consumers "
    "get the same messages. Remove the line, or set it to false"
)


def addresses_in(text: str) -> tuple[str, ...]:
    """The addresses in a list with ";" between, in the given order without duplicates."""
    return tuple(dict.fromkeys(address for part in text.split(";") if (address := part.strip())))


def _no_bit_maps(_config: Any, _attribute: Any, value: bool) -> None:
    if value:
        raise ValueError(f"false: {NO_BIT_MAPS}: {value}")


class MessageVisibility(Enum):
    """Messages that are visible to consumers."""

    all = "all"
    confirmed = "confirmed"


class SecretMode(Enum):
    """Acceptance of members without the group secret."""

    required = "required"
    optional = "optional"


@frozen(kw_only=True)
class BrokerConfig:
    """Identity of a broker and what it allows. Times in milliseconds unless the name has another unit."""

    broker_cluster_name: str = option("DefaultCluster", key="brokerClusterName", doc="the cluster it belongs to")
    broker_name: str = option(
        platform.node() or "DEFAULT_BROKER", key="brokerName", doc="the name that a master and its slaves share"
    )
    broker_id: int = option(0, key="brokerId", doc="0: master; slaves have other numbers")
    broker_ip1: str | None = option(
        None, key="brokerIP1", doc="IP or host name for clients; none: this machine's own IP", validator=_is_host
    )
    broker_ip2: str | None = option(
        None, key="brokerIP2", doc="IP or host name for slaves and other members; none: brokerIP1's", validator=_is_host
    )
    broker_port1: int = option(
        0, key="brokerPort1", doc="port that clients are told, with brokerIP1; 0: listenPort", validator=_PORT
    )
    broker_port2: int = option(
        0, key="brokerPort2", doc="port that other members are told, with brokerIP2; 0: listenPort", validator=_PORT
    )
    ha_port: int = option(
        0, key="haPort", doc="port that slaves are told, with brokerIP2; 0: haListenPort", validator=_PORT
    )
    listen_port: int = option(10911, key="listenPort", doc="TCP port; two below it the fast port", validator=_PORT)
    namesrv_addr: str | None = option(None, key="namesrvAddr", doc="name servers, host:port joined by ;")
    broker_permission: int = option(6, key="brokerPermission", doc="4 read + 2 write", validator=validators.le(7))
    default_topic_queues: int = _at_least_1(8, key="defaultTopicQueueNums", doc="queues of TBW102")
    auto_create_topic_enable: bool = option(True, key="autoCreateTopicEnable", doc="a message may create its topic")
    auto_create_subscription_group: bool = option(
        True, key="autoCreateSubscriptionGroup", doc="a consumer may create its group"
    )
    cluster_topic_enable: bool = option(True, key="clusterTopicEnable", doc="the cluster's own topic may be used")
    broker_topic_enable: bool = option(True, key="brokerTopicEnable", doc="the broker's own topic may be used")
    trace_topic_enable: bool = option(False, key="traceTopicEnable", doc="create the message trace topic")
    msg_trace_topic_name: str = option("RMQ_SYS_TRACE_TOPIC", key="msgTraceTopicName", doc="the message trace topic")
    trace_on: bool = option(True, key="traceOn", doc="TRACE_ON in answers to producers")
    region_id: str = option("DefaultRegion", key="regionId", doc="MSG_REGION in answers to producers")
    store_reply_message_enable: bool = option(
        True, key="storeReplyMessageEnable", doc="keep answers to request messages in <cluster>_REPLY_TOPIC"
    )
    reject_transaction_message: bool = option(
        False, key="rejectTransactionMessage", doc="refuse the first half of transactions"
    )
    transaction_timeout_ms: int = option(
        6_000, key="transactionTimeOut", doc="age at which an open transaction is checked with its producer"
    )
    transaction_check_max: int = _at_least_1(
        15, key="transactionCheckMax", doc="checks before the message goes to TRANS_CHECK_MAX_TIME_TOPIC"
    )
    transaction_check_interval_ms: int = _at_least_1(
        60_000, key="transactionCheckInterval", doc="how often open transactions are searched"
    )
    start_accept_send_request_timestamp: int = option(
        0, key="startAcceptSendRequestTimeStamp", doc="no sends before this time, ms since 1970"
    )
    flush_consumer_offset_interval_ms: int = _at_least_1(
        5_000, key="flushConsumerOffsetInterval", doc="how often consumerOffset.json is written"
    )
    flush_delay_offset_interval_ms: int = _at_least_1(
        10_000, key="flushDelayOffsetInterval", doc="how often delayOffset.json is written"
    )
    long_polling_enable: bool = option(True, key="longPollingEnable", doc="hold pulls for as long as the client asks")
    short_polling_time_ms: int = option(
        1_000, key="shortPollingTimeMills", doc="how long pulls are held without longPollingEnable"
    )
    visibility: MessageVisibility = option(
        MessageVisibility.all,
        key="visibility",
        doc="messages visible to consumers: all; or confirmed: those that a SYNC_MASTER could answer with SEND_OK, so that "
        "no message is consumed that a failover may lose",
    )
    enable_property_filter: bool = option(
        False, key="enablePropertyFilter", doc="consumers may filter by SQL92 over messages' properties"
    )
    filter_support_retry: bool = option(
        False, key="filterSupportRetry", doc="apply a group's filter to retried messages, too"
    )
    enable_calc_filter_bit_map: bool = option(
        False,
        key="enableCalcFilterBitMap",
        doc="only false is allowed: there are no bit maps of filters, each pull evaluates its filter",
        validator=_no_bit_maps,
    )
    filter_data_clean_time_span_ms: int = option(
        24 * 3_600_000, key="filterDataCleanTimeSpan", doc="how long the filter of a group without consumers is kept"
    )
    slave_read_enable: bool = option(False, key="slaveReadEnable", doc="send consumers that are far behind to a slave")
    register_name_server_period_ms: int = option(
        30_000, key="registerNameServerPeriod", doc="how often to register; 10 to 60 s"
    )
    register_broker_timeout_ms: int = _at_least_1(
        6_000, key="registerBrokerTimeoutMills", doc="longest wait for a name server's answer"
    )

    audit_metrics_file: str = option(
        "", key="auditMetricsFile", doc="file of `twinlog audit --metrics` for /metrics; none: no audit metrics"
    )

    secret_file: str = option(
        "",
        key="haSecretFile",
        doc="file of the group secret, mode 0600, by which the members of a group know each other: see `twinlog group secret`; "
        "none: they are known by IP",
    )
    secret_mode: SecretMode = option(
        SecretMode.required,
        key="haSecret",
        doc="with haSecretFile: required; or optional, which accepts members without it as well, while it is introduced",
    )

    def for_role(self, role: BrokerRole) -> "BrokerConfig":
        """Return the configuration for a role: a master has id 0, as in RocketMQ. Raises ValueError for a slave with id 0."""
        if role is not BrokerRole.SLAVE:
            return attrs.evolve(self, broker_id=0)
        if self.broker_id <= 0:
            raise ValueError(f"brokerId={self.broker_id}: a SLAVE needs a number above 0")
        return self

    @property
    def register_period_seconds(self) -> float:
        """Time between registrations; limited to 10 to 60 s, as in RocketMQ."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000)) / 1000

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of the name servers, in the given order without duplicates."""
        return addresses_in(self.namesrv_addr or "")
