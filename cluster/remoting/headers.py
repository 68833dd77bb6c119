"""The header of every request that is sent or served here, and of the responses that clients read.

One class per request code; a request without fields has an empty class, so that its handler can name it.
Field names, types and which are required: RocketMQ's *RequestHeader classes (4.9.8); `5.x` marks later additions.
`broker_name` (bname) and the like come with newer clients and mean nothing to a broker.
"""

from typing import ClassVar

from attrs import define, field

from cluster.remoting.codes import RequestCode
from cluster.remoting.header_fields import (
    I32,
    I64,
    RequestHeader,
    ResponseHeader,
    decode_header,
    encode_header_fields,
    wire,
    wire_names,
)

__all__ = ["I32", "I64", "RequestHeader", "ResponseHeader", "decode_header", "encode_header_fields", "wire_names"]


# Messages


@define
class SendMessage(RequestHeader):
    """10, sent by Go and Python clients. Has the attributes of SendMessageV2, under long names."""

    code: ClassVar[RequestCode] = RequestCode.SEND_MESSAGE
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    batch: bool = False
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class SendMessageV2(RequestHeader):
    """310, what Java clients send: SendMessage with one-letter names, to save parsing."""

    code: ClassVar[RequestCode] = RequestCode.SEND_MESSAGE_V2
    producer_group: str = field(metadata=wire("a"))
    topic: str = field(metadata=wire("b"))
    default_topic: str = field(metadata=wire("c"))
    default_topic_queue_nums: I32 = field(metadata=wire("d"))
    queue_id: I32 = field(metadata=wire("e"))
    sys_flag: I32 = field(metadata=wire("f"))
    born_timestamp: I64 = field(metadata=wire("g"))
    flag: I32 = field(metadata=wire("h"))
    properties: str | None = field(default=None, metadata=wire("i"))
    reconsume_times: I32 | None = field(default=None, metadata=wire("j"))
    unit_mode: bool = field(default=False, metadata=wire("k"))
    max_reconsume_times: I32 | None = field(default=None, metadata=wire("l"))
    batch: bool = field(default=False, metadata=wire("m"))
    broker_name: str | None = field(default=None, metadata=wire("n"))


@define
class SendBatchMessage(SendMessageV2):
    """320: the body is a row of packed messages."""

    code: ClassVar[RequestCode] = RequestCode.SEND_BATCH_MESSAGE


@define
class SendReplyMessage(SendMessage):
    """324: a consumer's answer to a request message."""

    code: ClassVar[RequestCode] = RequestCode.SEND_REPLY_MESSAGE


@define
class SendReplyMessageV2(SendMessageV2):
    """325"""

    code: ClassVar[RequestCode] = RequestCode.SEND_REPLY_MESSAGE_V2


@define
class PullMessage(RequestHeader):
    """11. sys_flag bits: 1 commit_offset counts, 2 may be held, 4 use subscription of this request, 16 lite pull."""

    code: ClassVar[RequestCode] = RequestCode.PULL_MESSAGE
    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None  # None is TAG.
    broker_name: str | None = field(default=None, metadata=wire("bname"))
    max_msg_bytes: I32 | None = None  # 5.x
    request_source: I32 | None = None  # 5.x


@define
class LitePullMessage(PullMessage):
    """361, 5.x: what lite pull consumers send instead of 11."""

    code: ClassVar[RequestCode] = RequestCode.LITE_PULL_MESSAGE


@define
class QueryMessage(RequestHeader):
    """12: records by key, or by UNIQ_KEY when unique_key_query is set."""

    code: ClassVar[RequestCode] = RequestCode.QUERY_MESSAGE
    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool | None = field(default=None, metadata=wire("_UNIQUE_KEY_QUERY"))


@define
class ViewMessageById(RequestHeader):
    """33: the record at a commit log offset."""

    code: ClassVar[RequestCode] = RequestCode.VIEW_MESSAGE_BY_ID
    offset: I64
    topic: str | None = None  # 5.x


@define
class ConsumerSendMsgBack(RequestHeader):
    """36: a record that could not be consumed. delay_level 0: the broker chooses; below 0: to the dead letters."""

    code: ClassVar[RequestCode] = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class EndTransaction(RequestHeader):
    """37. commit_or_rollback: 0 unknown, 8 commit, 12 rollback."""

    code: ClassVar[RequestCode] = RequestCode.END_TRANSACTION
    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    broker_name: str | None = field(default=None, metadata=wire("bname"))
    topic: str | None = None  # 5.x


@define
class CheckTransactionState(RequestHeader):
    """39, broker to producer, oneway."""

    code: ClassVar[RequestCode] = RequestCode.CHECK_TRANSACTION_STATE
    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))  # 5.x


# Offsets


@define
class QueryConsumerOffset(RequestHeader):
    """14"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class UpdateConsumerOffset(RequestHeader):
    """15"""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class SearchOffsetByTimestamp(RequestHeader):
    """29"""

    code: ClassVar[RequestCode] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None  # 5.x: LOWER, UPPER
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class GetMaxOffset(RequestHeader):
    """30: the queue offset that the next message will get."""

    code: ClassVar[RequestCode] = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: I32
    committed: bool | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class GetMinOffset(RequestHeader):
    """31"""

    code: ClassVar[RequestCode] = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: I32
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@define
class GetEarliestMsgStoretime(RequestHeader):
    """32"""

    code: ClassVar[RequestCode] = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: I32
    broker_name: str | None = field(default=None, metadata=wire("bname"))


# Clients


@define
class HeartBeat(RequestHeader):
    """34, body HeartbeatData."""

    code: ClassVar[RequestCode] = RequestCode.HEART_BEAT


@define
class UnregisterClient(RequestHeader):
    """35, with one of the two groups."""

    code: ClassVar[RequestCode] = RequestCode.UNREGISTER_CLIENT
    client_id: str = field(metadata=wire("clientID"))
    producer_group: str | None = None
    consumer_group: str | None = None


@define
class GetConsumerListByGroup(RequestHeader):
    """38"""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    consumer_group: str


@define
class NotifyConsumerIdsChanged(RequestHeader):
    """40, broker to consumer, oneway."""

    code: ClassVar[RequestCode] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str


@define
class LockBatchMq(RequestHeader):
    """41, body {clientId, consumerGroup, mqSet}."""

    code: ClassVar[RequestCode] = RequestCode.LOCK_BATCH_MQ


@define
class UnlockBatchMq(RequestHeader):
    """42, body as 41."""

    code: ClassVar[RequestCode] = RequestCode.UNLOCK_BATCH_MQ


@define
class CheckClientConfig(RequestHeader):
    """46, body {clientId, group, subscriptionData}."""

    code: ClassVar[RequestCode] = RequestCode.CHECK_CLIENT_CONFIG


@define
class ResetConsumerClientOffset(RequestHeader):
    """220, broker to consumer, oneway."""

    code: ClassVar[RequestCode] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str
    group: str
    timestamp: I64
    is_force: bool


@define
class GetConsumerStatusFromClient(RequestHeader):
    """221, broker to consumer."""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str
    client_addr: str | None = None


@define
class GetConsumerRunningInfo(RequestHeader):
    """307, forwarded to the consumer."""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@define
class ConsumeMessageDirectly(RequestHeader):
    """309, forwarded to the consumer with the record."""

    code: ClassVar[RequestCode] = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


# Broker administration


@define
class UpdateAndCreateTopic(RequestHeader):
    """17"""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    order: bool
    topic_sys_flag: I32 | None = None
    attributes: str | None = None  # 5.x
    force: bool | None = None  # 5.x


@define
class GetAllTopicConfig(RequestHeader):
    """21"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_CONFIG


@define
class UpdateBrokerConfig(RequestHeader):
    """25, body `key=value` lines."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_BROKER_CONFIG


@define
class GetBrokerConfig(RequestHeader):
    """26"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONFIG


@define
class GetBrokerRuntimeInfo(RequestHeader):
    """28"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_RUNTIME_INFO


@define
class CleanExpiredConsumeQueue(RequestHeader):
    """306"""

    code: ClassVar[RequestCode] = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


@define
class DeleteExpiredCommitLog(RequestHeader):
    """329"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_EXPIRED_COMMITLOG


@define
class GetAllConsumerOffset(RequestHeader):
    """43"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_CONSUMER_OFFSET


@define
class GetAllDelayOffset(RequestHeader):
    """45"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_DELAY_OFFSET


@define
class UpdateAndCreateSubscriptionGroup(RequestHeader):
    """200, body SubscriptionGroupConfig."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@define
class GetAllSubscriptionGroupConfig(RequestHeader):
    """201"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


@define
class GetTopicStatsInfo(RequestHeader):
    """202"""

    code: ClassVar[RequestCode] = RequestCode.GET_TOPIC_STATS_INFO
    topic: str


@define
class GetConsumerConnectionList(RequestHeader):
    """203"""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str


@define
class GetProducerConnectionList(RequestHeader):
    """204"""

    code: ClassVar[RequestCode] = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str


@define
class DeleteSubscriptionGroup(RequestHeader):
    """207. The flag's name differs: removeOffset in 4.9, cleanOffset in 5.x."""

    code: ClassVar[RequestCode] = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None  # 5.x


@define
class GetConsumeStats(RequestHeader):
    """208"""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUME_STATS
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # 5.x: joined by semicolons


@define
class DeleteTopicInBroker(RequestHeader):
    """215"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


@define
class InvokeBrokerToResetOffset(RequestHeader):
    """222. timestamp -1: to the end."""

    code: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 | None = None  # 5.x
    offset: I64 | None = None  # 5.x


@define
class InvokeBrokerToGetConsumerStatus(RequestHeader):
    """223"""

    code: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str
    group: str
    client_addr: str | None = None


@define
class QueryTopicConsumeByWho(RequestHeader):
    """300"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str


@define
class QueryConsumeTimeSpan(RequestHeader):
    """303"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str
    group: str


@define
class GetSystemTopicListFromBroker(RequestHeader):
    """305"""

    code: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER


@define
class CloneGroupOffset(RequestHeader):
    """314"""

    code: ClassVar[RequestCode] = RequestCode.CLONE_GROUP_OFFSET
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@define
class ViewBrokerStatsData(RequestHeader):
    """315"""

    code: ClassVar[RequestCode] = RequestCode.VIEW_BROKER_STATS_DATA
    stats_name: str
    stats_key: str


@define
class QueryConsumeQueue(RequestHeader):
    """321"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_QUEUE
    topic: str | None = None
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


@define
class GetAllProducerInfo(RequestHeader):
    """328"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_PRODUCER_INFO


@define
class GetTopicConfig(RequestHeader):
    """351, 5.x: mqadmin topicStatus and consumerProgress fail without it."""

    code: ClassVar[RequestCode] = RequestCode.GET_TOPIC_CONFIG
    topic: str


@define
class GetSubscriptionGroupConfig(RequestHeader):
    """352, 5.x"""

    code: ClassVar[RequestCode] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str


@define
class GetBrokerHaStatus(RequestHeader):
    """907, 5.x"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_HA_STATUS


@define
class MemberStatus(RequestHeader):
    """20001, between twinlog members only: role, offsets and slaves of a broker."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_MEMBER_STATUS


@define
class BlockDigests(RequestHeader):
    """20002, between twinlog members only: digests of bytes `start` to `end` of the log, see store/range_digests.py."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_BLOCK_DIGESTS
    start: I64
    end: I64
    blocks_per_digest: I32 = 1


@define
class RecordAtOffset(RequestHeader):
    """20003, between twinlog members only: the record that a byte of the log belongs to, sound or not."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_RECORD_AT
    offset: I64


@define
class GetBrokerEpoch(RequestHeader):
    """1007: the epochs of a broker's log. RocketMQ 5 has no fields; a twinlog member that follows says who it is, and which end
    of an HA connection is its own: it compares the logs by itself.
    """

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_EPOCH
    member: str | None = field(default=None, metadata=wire("twinlogMember"))
    ha_address: str | None = field(default=None, metadata=wire("twinlogHaAddress"))
    broker_id: I64 | None = field(default=None, metadata=wire("twinlogBrokerId"))
    name: str | None = field(default=None, metadata=wire("twinlogName"))
    ha_end: str | None = field(default=None, metadata=wire("twinlogHaEnd"))


@define
class AskLease(RequestHeader):
    """20004, between twinlog members only: a master asks whether it still is one. The body is JSON."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_LEASE


@define
class AskPromise(RequestHeader):
    """20005, between twinlog members only: a candidate asks for a member's word. The body is JSON."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_PROMISE


@define
class AskRoleChange(RequestHeader):
    """20006, of twinlog only: a role change, its parts and what belongs to it. The body is JSON, `op` says which."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_ROLE_CHANGE


# Name server


@define
class PutKVConfig(RequestHeader):
    """100"""

    code: ClassVar[RequestCode] = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


@define
class GetKVConfig(RequestHeader):
    """101"""

    code: ClassVar[RequestCode] = RequestCode.GET_KV_CONFIG
    namespace: str
    key: str


@define
class DeleteKVConfig(RequestHeader):
    """102"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


@define
class RegisterBroker(RequestHeader):
    """103, body RegisterBrokerBody. body_crc32: CRC-32 & 0x7fffffff of the body as sent; 0: not checked."""

    code: ClassVar[RequestCode] = RequestCode.REGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = 0
    heartbeat_timeout_millis: I64 | None = None  # 5.x
    enable_acting_master: bool | None = None  # 5.x


@define
class UnregisterBroker(RequestHeader):
    """104"""

    code: ClassVar[RequestCode] = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@define
class GetRouteInfoByTopic(RequestHeader):
    """105"""

    code: ClassVar[RequestCode] = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None


@define
class GetBrokerClusterInfo(RequestHeader):
    """106"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_INFO


@define
class WipeWritePermOfBroker(RequestHeader):
    """205"""

    code: ClassVar[RequestCode] = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str


@define
class AddWritePermOfBroker(RequestHeader):
    """327"""

    code: ClassVar[RequestCode] = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str


@define
class GetAllTopicListFromNameserver(RequestHeader):
    """206"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@define
class DeleteTopicInNamesrv(RequestHeader):
    """216. With a cluster name, only the queues of its brokers."""

    code: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


@define
class GetKVListByNamespace(RequestHeader):
    """219"""

    code: ClassVar[RequestCode] = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


@define
class GetTopicsByCluster(RequestHeader):
    """224"""

    code: ClassVar[RequestCode] = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


@define
class GetSystemTopicListFromNs(RequestHeader):
    """304"""

    code: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


@define
class GetUnitTopicList(RequestHeader):
    """311"""

    code: ClassVar[RequestCode] = RequestCode.GET_UNIT_TOPIC_LIST


@define
class GetHasUnitSubTopicList(RequestHeader):
    """312"""

    code: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


@define
class GetHasUnitSubUnunitTopicList(RequestHeader):
    """313"""

    code: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


@define
class UpdateNamesrvConfig(RequestHeader):
    """318, body `key=value` lines."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_NAMESRV_CONFIG


@define
class GetNamesrvConfig(RequestHeader):
    """319"""

    code: ClassVar[RequestCode] = RequestCode.GET_NAMESRV_CONFIG


@define
class QueryDataVersion(RequestHeader):
    """322, body DataVersion: does the name server have this broker's topics as of that version?"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_DATA_VERSION
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


# Responses that clients read


@define
class SendMessageResponse(ResponseHeader):
    """To 10, 310, 320, also with codes 10, 11 and 12. msg_id is the offset message id; of a batch, a comma list."""

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None  # 5.x
    region_id: str | None = field(default=None, metadata=wire("MSG_REGION"))
    trace_on: bool | None = field(default=None, metadata=wire("TRACE_ON"))


@define
class PullMessageResponse(ResponseHeader):
    """To 11 and 361, with codes 0, 19, 20 and 21."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64


@define
class OffsetResponse(ResponseHeader):
    """To 14, 29, 30 and 31."""

    offset: I64


@define
class TimestampResponse(ResponseHeader):
    """To 32; -1: none."""

    timestamp: I64


@define
class QueryMessageResponse(ResponseHeader):
    """To 12."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


@define
class BlockDigestsResponse(ResponseHeader):
    """To 20002: what the digests in the body are of, which may be less than was asked for."""

    start: I64
    end: I64
    blocks_per_digest: I32


@define
class RecordAtOffsetResponse(ResponseHeader):
    """To 20003: bytes `start` to `end` of the log, in the body; with a problem they are no sound record."""

    start: I64
    end: I64
    problem: str | None = None


@define
class GetKVConfigResponse(ResponseHeader):
    """To 101."""

    value: str | None = None


@define
class RegisterBrokerResponse(ResponseHeader):
    """To 103; both are there only for a slave whose master is registered."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@define
class QueryDataVersionResponse(ResponseHeader):
    """To 322."""

    changed: bool


@define
class WipeWritePermResponse(ResponseHeader):
    """To 205."""

    wipe_topic_count: I32


@define
class AddWritePermResponse(ResponseHeader):
    """To 327."""

    add_topic_count: I32


@define
class GetBrokerConfigResponse(ResponseHeader):
    """To 26; version is a DataVersion as JSON."""

    version: str
