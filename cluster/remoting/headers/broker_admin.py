"""Requests of mqadmin and of slaves to a broker; those about access control (50 to 54) are 4.9 only."""

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, request_header


@request_header(RequestCode.UPDATE_AND_CREATE_TOPIC)
class UpdateAndCreateTopic(RequestHeader):
    """17"""

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


@request_header(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
class UpdateAndCreateTopicList(RequestHeader):
    """18, 5.x; body `{"topicConfigList":[..]}`."""


@request_header(RequestCode.GET_ALL_TOPIC_CONFIG)
class GetAllTopicConfig(RequestHeader):
    """21"""


@request_header(RequestCode.UPDATE_BROKER_CONFIG)
class UpdateBrokerConfig(RequestHeader):
    """25, body `key=value` lines."""


@request_header(RequestCode.GET_BROKER_CONFIG)
class GetBrokerConfig(RequestHeader):
    """26"""


@request_header(RequestCode.GET_BROKER_RUNTIME_INFO)
class GetBrokerRuntimeInfo(RequestHeader):
    """28"""


@request_header(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
class CleanExpiredConsumeQueue(RequestHeader):
    """306"""


@request_header(RequestCode.CLEAN_UNUSED_TOPIC)
class CleanUnusedTopic(RequestHeader):
    """316"""


@request_header(RequestCode.DELETE_EXPIRED_COMMITLOG)
class DeleteExpiredCommitLog(RequestHeader):
    """329"""


@request_header(RequestCode.GET_ALL_CONSUMER_OFFSET)
class GetAllConsumerOffset(RequestHeader):
    """43"""


@request_header(RequestCode.GET_ALL_DELAY_OFFSET)
class GetAllDelayOffset(RequestHeader):
    """45"""


@request_header(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
class UpdateAndCreateSubscriptionGroup(RequestHeader):
    """200, body SubscriptionGroupConfig."""


@request_header(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
class UpdateAndCreateSubscriptionGroupList(RequestHeader):
    """225, 5.x; body `{"groupConfigList":[..]}`."""


@request_header(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
class GetAllSubscriptionGroupConfig(RequestHeader):
    """201"""


@request_header(RequestCode.GET_TOPIC_STATS_INFO)
class GetTopicStatsInfo(RequestHeader):
    """202"""

    topic: str


@request_header(RequestCode.GET_CONSUMER_CONNECTION_LIST)
class GetConsumerConnectionList(RequestHeader):
    """203"""

    consumer_group: str


@request_header(RequestCode.GET_PRODUCER_CONNECTION_LIST)
class GetProducerConnectionList(RequestHeader):
    """204"""

    producer_group: str


@request_header(RequestCode.DELETE_SUBSCRIPTIONGROUP)
class DeleteSubscriptionGroup(RequestHeader):
    """207. The flag is removeOffset in 4.9, cleanOffset in 5.x."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None  # 5.x


@request_header(RequestCode.GET_CONSUME_STATS)
class GetConsumeStats(RequestHeader):
    """208"""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # 5.x: joined by semicolons


@request_header(RequestCode.DELETE_TOPIC_IN_BROKER)
class DeleteTopicInBroker(RequestHeader):
    """215"""

    topic: str


@request_header(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
class InvokeBrokerToResetOffset(RequestHeader):
    """222. timestamp -1: to the end."""

    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 | None = None  # 5.x
    offset: I64 | None = None  # 5.x


@request_header(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
class InvokeBrokerToGetConsumerStatus(RequestHeader):
    """223"""

    topic: str
    group: str
    client_addr: str | None = None


@request_header(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
class QueryTopicConsumeByWho(RequestHeader):
    """300"""

    topic: str


@request_header(RequestCode.QUERY_CONSUME_TIME_SPAN)
class QueryConsumeTimeSpan(RequestHeader):
    """303"""

    topic: str
    group: str


@request_header(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
class GetSystemTopicListFromBroker(RequestHeader):
    """305"""


@request_header(RequestCode.QUERY_CORRECTION_OFFSET)
class QueryCorrectionOffset(RequestHeader):
    """308. filter_groups: joined by commas."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


@request_header(RequestCode.CLONE_GROUP_OFFSET)
class CloneGroupOffset(RequestHeader):
    """314"""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@request_header(RequestCode.VIEW_BROKER_STATS_DATA)
class ViewBrokerStatsData(RequestHeader):
    """315"""

    stats_name: str
    stats_key: str


@request_header(RequestCode.GET_BROKER_CONSUME_STATS)
class GetBrokerConsumeStats(RequestHeader):
    """317"""

    is_order: bool


@request_header(RequestCode.QUERY_CONSUME_QUEUE)
class QueryConsumeQueue(RequestHeader):
    """321"""

    topic: str | None = None
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


@request_header(RequestCode.RESUME_CHECK_HALF_MESSAGE)
class ResumeCheckHalfMessage(RequestHeader):
    """323. msg_id: the offset message id."""

    msg_id: str | None = None


@request_header(RequestCode.GET_ALL_PRODUCER_INFO)
class GetAllProducerInfo(RequestHeader):
    """328"""


@request_header(RequestCode.GET_TOPIC_CONFIG)
class GetTopicConfig(RequestHeader):
    """351, 5.x: mqadmin's topicStatus and consumerProgress need it."""

    topic: str


@request_header(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
class GetSubscriptionGroupConfig(RequestHeader):
    """352, 5.x"""

    group: str


@request_header(RequestCode.GET_BROKER_HA_STATUS)
class GetBrokerHaStatus(RequestHeader):
    """907, 5.x"""


@request_header(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
class CreateAccessConfig(RequestHeader):
    """50. Permissions are lists joined by commas: `T1=PUB|SUB,T2=SUB`."""

    access_key: str
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@request_header(RequestCode.DELETE_ACL_CONFIG)
class DeleteAccessConfig(RequestHeader):
    """51"""

    access_key: str


@request_header(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
class GetBrokerAclConfigVersion(RequestHeader):
    """52"""


@request_header(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
class UpdateGlobalWhiteAddrsConfig(RequestHeader):
    """53. RocketMQ requires a path, though mqadmin sends it only on request."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@request_header(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
class GetBrokerClusterAclConfig(RequestHeader):
    """54"""
