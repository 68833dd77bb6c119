"""Requests of mqadmin about access control; 4.9 only."""

from typing import ClassVar

from attrs import define, field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import RequestHeader


@define
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


@define
class DeleteAccessConfig(RequestHeader):
    """51"""

    code: ClassVar[RequestCode] = RequestCode.DELETE_ACL_CONFIG
    access_key: str


@define
class GetBrokerAclConfigVersion(RequestHeader):
    """52"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


@define
class UpdateGlobalWhiteAddrsConfig(RequestHeader):
    """53. RocketMQ asks for a path, though mqadmin sends one only when it was told to."""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    global_white_addrs: str
    acl_file_full_path: str | None = None


@define
class GetBrokerClusterAclConfig(RequestHeader):
    """54"""

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
