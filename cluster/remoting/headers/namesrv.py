"""Requests to a name server."""

from typing import ClassVar

from attrs import define

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader


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
class RegisterTopicInNamesrv(RequestHeader):
    """217, of 5.x; body TopicRouteData."""

    code: ClassVar[RequestCode] = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


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


@define
class GetBrokerMemberGroup(RequestHeader):
    """901, of 5.x"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_MEMBER_GROUP
    cluster_name: str
    broker_name: str


@define
class BrokerHeartbeat(RequestHeader):
    """904, of 5.x, oneway. What it says for elections is not read: there is no controller."""

    code: ClassVar[RequestCode] = RequestCode.BROKER_HEARTBEAT
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
