"""Requests to a name server."""

from typing import ClassVar

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, header


@header
class PutKVConfig(RequestHeader):
    """100"""

    code: ClassVar[RequestCode] = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


@header
class GetKVConfig(RequestHeader):
    """101"""

    code: ClassVar[RequestCode] = RequestCode.GET_KV_CONFIG
    namespace: str
    key: str


@header
class DeleteKVConfig(RequestHeader):
    """102"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


@header
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


@header
class UnregisterBroker(RequestHeader):
    """104"""

    code: ClassVar[RequestCode] = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@header
class GetRouteInfoByTopic(RequestHeader):
    """105"""

    code: ClassVar[RequestCode] = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None


@header
class GetBrokerClusterInfo(RequestHeader):
    """106"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_INFO


@header
class WipeWritePermOfBroker(RequestHeader):
    """205"""

    code: ClassVar[RequestCode] = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str


@header
class AddWritePermOfBroker(RequestHeader):
    """327"""

    code: ClassVar[RequestCode] = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str


@header
class GetAllTopicListFromNameserver(RequestHeader):
    """206"""

    code: ClassVar[RequestCode] = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@header
class DeleteTopicInNamesrv(RequestHeader):
    """216. With a cluster name, only the queues of its brokers."""

    code: ClassVar[RequestCode] = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicInNamesrv(RequestHeader):
    """217, of 5.x; body TopicRouteData."""

    code: ClassVar[RequestCode] = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


@header
class GetKVListByNamespace(RequestHeader):
    """219"""

    code: ClassVar[RequestCode] = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


@header
class GetTopicsByCluster(RequestHeader):
    """224"""

    code: ClassVar[RequestCode] = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


@header
class GetSystemTopicListFromNs(RequestHeader):
    """304"""

    code: ClassVar[RequestCode] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


@header
class GetUnitTopicList(RequestHeader):
    """311"""

    code: ClassVar[RequestCode] = RequestCode.GET_UNIT_TOPIC_LIST


@header
class GetHasUnitSubTopicList(RequestHeader):
    """312"""

    code: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


@header
class GetHasUnitSubUnunitTopicList(RequestHeader):
    """313"""

    code: ClassVar[RequestCode] = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


@header
class UpdateNamesrvConfig(RequestHeader):
    """318, body `key=value` lines."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_NAMESRV_CONFIG


@header
class GetNamesrvConfig(RequestHeader):
    """319"""

    code: ClassVar[RequestCode] = RequestCode.GET_NAMESRV_CONFIG


@header
class QueryDataVersion(RequestHeader):
    """322, body DataVersion: is this version of the broker's topics registered?"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_DATA_VERSION
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@header
class GetBrokerMemberGroup(RequestHeader):
    """901, of 5.x"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_MEMBER_GROUP
    cluster_name: str
    broker_name: str


@header
class BrokerHeartbeat(RequestHeader):
    """904, 5.x, oneway. Fields for elections are not read: there is no controller."""

    code: ClassVar[RequestCode] = RequestCode.BROKER_HEARTBEAT
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
