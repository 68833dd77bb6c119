"""Requests of mqadmin and of slaves to a broker; those about access control (50 to 54) are 4.9 only."""

from typing import ClassVar

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, header


@header
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


@header
class UpdateAndCreateTopicList(RequestHeader):
    """18, 5.x; body `{"topicConfigList":[..]}`."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


@header
class GetAllTopicConfig(RequestHeader):
    """21"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_CONFIG


@header
class UpdateBrokerConfig(RequestHeader):
    """25, body `key=value` lines."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_BROKER_CONFIG


@header
class GetBrokerConfig(RequestHeader):
    """26"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONFIG


@header
class GetBrokerRuntimeInfo(RequestHeader):
    """28"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_RUNTIME_INFO


@header
class CleanExpiredConsumeQueue(RequestHeader):
    """306"""

    code: ClassVar[RequestCode] = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


@header
class CleanUnusedTopic(RequestHeader):
    """316"""

    code: ClassVar[RequestCode] = RequestCode.CLEAN_UNUSED_TOPIC


@header
class DeleteExpiredCommitLog(RequestHeader):
    """329"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_EXPIRED_COMMITLOG


@header
class GetAllConsumerOffset(RequestHeader):
    """43"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_CONSUMER_OFFSET


@header
class GetAllDelayOffset(RequestHeader):
    """45"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_DELAY_OFFSET


@header
class UpdateAndCreateSubscriptionGroup(RequestHeader):
    """200, body SubscriptionGroupConfig."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@header
class UpdateAndCreateSubscriptionGroupList(RequestHeader):
    """225, 5.x; body `{"groupConfigList":[..]}`."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


@header
class GetAllSubscriptionGroupConfig(RequestHeader):
    """201"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG


@header
class GetTopicStatsInfo(RequestHeader):
    """202"""

    code: ClassVar[RequestCode] = RequestCode.GET_TOPIC_STATS_INFO
    topic: str


@header
class GetConsumerConnectionList(RequestHeader):
    """203"""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str


@header
class GetProducerConnectionList(RequestHeader):
    """204"""

    code: ClassVar[RequestCode] = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str


@header
class DeleteSubscriptionGroup(RequestHeader):
    """207. The flag is removeOffset in 4.9, cleanOffset in 5.x."""

    code: ClassVar[RequestCode] = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None  # 5.x


@header
class GetConsumeStats(RequestHeader):
    """208"""

    code: ClassVar[RequestCode] = RequestCode.GET_CONSUME_STATS
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # 5.x: joined by semicolons


@header
class DeleteTopicInBroker(RequestHeader):
    """215"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


@header
class InvokeBrokerToResetOffset(RequestHeader):
    """222. timestamp -1: to the end."""

    code: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 | None = None  # 5.x
    offset: I64 | None = None  # 5.x


@header
class InvokeBrokerToGetConsumerStatus(RequestHeader):
    """223"""

    code: ClassVar[RequestCode] = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str
    group: str
    client_addr: str | None = None


@header
class QueryTopicConsumeByWho(RequestHeader):
    """300"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str


@header
class QueryConsumeTimeSpan(RequestHeader):
    """303"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str
    group: str


@header
class GetSystemTopicListFromBroker(RequestHeader):
    """305"""

    code: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER


@header
class QueryCorrectionOffset(RequestHeader):
    """308. filter_groups: joined by commas."""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CORRECTION_OFFSET
    compare_group: str
    topic: str
    filter_groups: str | None = None


@header
class CloneGroupOffset(RequestHeader):
    """314"""

    code: ClassVar[RequestCode] = RequestCode.CLONE_GROUP_OFFSET
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@header
class ViewBrokerStatsData(RequestHeader):
    """315"""

    code: ClassVar[RequestCode] = RequestCode.VIEW_BROKER_STATS_DATA
    stats_name: str
    stats_key: str


@header
class GetBrokerConsumeStats(RequestHeader):
    """317"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONSUME_STATS
    is_order: bool


@header
class QueryConsumeQueue(RequestHeader):
    """321"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CONSUME_QUEUE
    topic: str | None = None
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


@header
class ResumeCheckHalfMessage(RequestHeader):
    """323. msg_id: the offset message id."""

    code: ClassVar[RequestCode] = RequestCode.RESUME_CHECK_HALF_MESSAGE
    msg_id: str | None = None


@header
class GetAllProducerInfo(RequestHeader):
    """328"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_PRODUCER_INFO


@header
class GetTopicConfig(RequestHeader):
    """351, 5.x: mqadmin's topicStatus and consumerProgress need it."""

    code: ClassVar[RequestCode] = RequestCode.GET_TOPIC_CONFIG
    topic: str


@header
class GetSubscriptionGroupConfig(RequestHeader):
    """352, 5.x"""

    code: ClassVar[RequestCode] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str


@header
class GetBrokerHaStatus(RequestHeader):
    """907, 5.x"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_HA_STATUS


@header
class CreateAccessConfig(RequestHeader):
    """50. Permissions are lists joined by commas: `T1=PUB|SUB,T2=SUB`."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    access_key: str
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@header
class DeleteAccessConfig(RequestHeader):
    """51"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_ACL_CONFIG
    access_key: str


@header
class GetBrokerAclConfigVersion(RequestHeader):
    """52"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


@header
class UpdateGlobalWhiteAddrsConfig(RequestHeader):
    """53. RocketMQ requires a path, though mqadmin sends it only on request."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    global_white_addrs: str
    acl_file_full_path: str | None = None


@header
class GetBrokerClusterAclConfig(RequestHeader):
    """54"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
