"""Requests to a name server."""

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, request_header


@request_header(RequestCode.PUT_KV_CONFIG)
class PutKVConfig(RequestHeader):
    """100"""

    namespace: str
    key: str
    value: str


@request_header(RequestCode.GET_KV_CONFIG)
class GetKVConfig(RequestHeader):
    """101"""

    namespace: str
    key: str


@request_header(RequestCode.DELETE_KV_CONFIG)
class DeleteKVConfig(RequestHeader):
    """102"""

    namespace: str
    key: str


@request_header(RequestCode.REGISTER_BROKER)
class RegisterBroker(RequestHeader):
    """103, body RegisterBrokerBody. body_crc32: CRC-32 & 0x7fffffff of the body as sent; 0: not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = 0
    heartbeat_timeout_millis: I64 | None = None  # 5.x
    enable_acting_master: bool | None = None  # 5.x


@request_header(RequestCode.UNREGISTER_BROKER)
class UnregisterBroker(RequestHeader):
    """104"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@request_header(RequestCode.GET_ROUTEINFO_BY_TOPIC)
class GetRouteInfoByTopic(RequestHeader):
    """105"""

    topic: str
    accept_standard_json_only: bool | None = None


@request_header(RequestCode.GET_BROKER_CLUSTER_INFO)
class GetBrokerClusterInfo(RequestHeader):
    """106"""


@request_header(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
class WipeWritePermOfBroker(RequestHeader):
    """205"""

    broker_name: str


@request_header(RequestCode.ADD_WRITE_PERM_OF_BROKER)
class AddWritePermOfBroker(RequestHeader):
    """327"""

    broker_name: str


@request_header(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
class GetAllTopicListFromNameserver(RequestHeader):
    """206"""


@request_header(RequestCode.DELETE_TOPIC_IN_NAMESRV)
class DeleteTopicInNamesrv(RequestHeader):
    """216. With a cluster name, only the queues of its brokers."""

    topic: str
    cluster_name: str | None = None


@request_header(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
class RegisterTopicInNamesrv(RequestHeader):
    """217, of 5.x; body TopicRouteData."""

    topic: str


@request_header(RequestCode.GET_KVLIST_BY_NAMESPACE)
class GetKVListByNamespace(RequestHeader):
    """219"""

    namespace: str


@request_header(RequestCode.GET_TOPICS_BY_CLUSTER)
class GetTopicsByCluster(RequestHeader):
    """224"""

    cluster: str


@request_header(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
class GetSystemTopicListFromNs(RequestHeader):
    """304"""


@request_header(RequestCode.GET_UNIT_TOPIC_LIST)
class GetUnitTopicList(RequestHeader):
    """311"""


@request_header(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
class GetHasUnitSubTopicList(RequestHeader):
    """312"""


@request_header(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
class GetHasUnitSubUnunitTopicList(RequestHeader):
    """313"""


@request_header(RequestCode.UPDATE_NAMESRV_CONFIG)
class UpdateNamesrvConfig(RequestHeader):
    """318, body `key=value` lines."""


@request_header(RequestCode.GET_NAMESRV_CONFIG)
class GetNamesrvConfig(RequestHeader):
    """319"""


@request_header(RequestCode.QUERY_DATA_VERSION)
class QueryDataVersion(RequestHeader):
    """322, body DataVersion: is this version of the broker's topics registered?"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@request_header(RequestCode.GET_BROKER_MEMBER_GROUP)
class GetBrokerMemberGroup(RequestHeader):
    """901, of 5.x"""

    cluster_name: str
    broker_name: str


@request_header(RequestCode.BROKER_HEARTBEAT)
class BrokerHeartbeat(RequestHeader):
    """904, 5.x, oneway. Fields for elections are not read: there is no controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
