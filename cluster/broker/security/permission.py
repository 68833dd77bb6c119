"""Permissions that requests need, and permissions of accounts. Pure.

Permissions are bits; DENY wins. A group has the name of its retry topic as a resource.
Sources: Permission.java, PlainAccessValidator.java, PlainAccessResource.java (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import HeaderError
from twinlog.cluster.remoting.header_fields import decode_header, wire_names
from twinlog.cluster.remoting.headers.clients import GetConsumerListByGroup, UnregisterClient
from twinlog.cluster.remoting.headers.members import GetBrokerEpoch
from twinlog.cluster.remoting.headers.offsets import UpdateConsumerOffset
from twinlog.cluster.remoting.headers.table import REQUESTS
from twinlog.cluster.remoting.names import HEARTBEAT_BYTES_MAX, RETRY_PREFIX, retry_topic
from twinlog.cluster.remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

DENY, ANY, PUB, SUB = 1, 2, 4, 8

# Requests about accounts, and twinlog's own, which change roles or show bytes of the log whatever topic they belong to; only the
# status is free. RocketMQ requires an administrator for the others only: any account can make itself one there by request 50.
_GUARDED_CODES = frozenset(code for code in RequestCode if code > RequestCode.TWINLOG_MEMBER_STATUS) | {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
}
ADMIN_CODES = _GUARDED_CODES | {
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,  # 5.x, like the one above.
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_TOPIC_IN_BROKER,
}
_JOINING_FIELD = wire_names(GetBrokerEpoch)["member"]
# Fields of any request: of access control, of the tools' stream type, and those that 5.x adds.
_COMMON_FIELDS = {ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, "_UNIQUE_KEY_QUERY", "ReqT"}
_COMMON_FIELDS |= {"__ZONE_NAME", "__ZONE_MODE", "bname", "ns", "nsd", "oway", "lo"}
_WORDS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY}

Resources = dict[str, int]


def needs_admin(command: RemotingCommand) -> bool:
    """True when a signed request needs an administrator's account."""
    return command.code in ADMIN_CODES or is_guarded(command)


def is_guarded(command: RemotingCommand) -> bool:
    """True when a request needs an administrator's signature, even from a white address of the account."""
    # A sender of 1007 that identifies itself becomes a member.
    joins = command.code == RequestCode.GET_BROKER_EPOCH and command.ext is not None and _JOINING_FIELD in command.ext
    return joins or command.code in _GUARDED_CODES


def check_fields(command: RemotingCommand) -> None:
    """Raises AclError for fields that a guarded request does not have: a signature covers the concatenated values without their
    borders, so one of another request could be reused with other fields.
    """
    if is_guarded(command):
        unknown = set(command.ext or {}) - _COMMON_FIELDS - {*wire_names(REQUESTS[RequestCode(command.code)]).values()}
        if unknown:
            raise AclError(f"request code={int(command.code)} has no field {min(unknown):.60}")


def is_permitted(needed: int, owned: int) -> bool:
    if owned & DENY:
        return False
    if needed & ANY:
        return bool(owned & (PUB | SUB))
    return bool(needed & owned)


def parse_permission(text: str | None) -> int:
    """Read a permission; an unknown one is 0."""
    return _WORDS.get((text or "").strip(), DENY)


def split_permission(text: str) -> tuple[str, str] | None:
    """Split `T1=PUB|SUB`; None for another form."""
    parts = [part for part in text.split("=") if part]
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None


def check_permissions(texts: Iterable[str] | None) -> None:
    """Check permissions that an administrator sets. Raises AclError with RocketMQ's texts."""
    for text in texts or ():
        pair = split_permission(text)
        if pair is None:
            raise AclError(
                f"Parse Resource format error for {text}.\nThe expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if pair[1] not in _WORDS:
            raise AclError(
                f"Parse resource permission error for {text}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def resource_text(resource: str) -> str:
    """Format a resource as refusals name it."""
    is_group = resource.startswith(RETRY_PREFIX)
    return f"group:{resource.removeprefix(RETRY_PREFIX)}" if is_group else f"topic:{resource}"


def needed_by(command: RemotingCommand) -> Resources:
    """Return the resources that a request needs; most need none. Raises AclError for an invalid request.

    As in 4.9, batches (320) and replies (324, 325) need none.
    """
    needs = NEEDS.get(command.code)
    if needs is None:
        return {}
    try:
        return needs(command.ext or {}, command)
    except (HeaderError, ValueError, TypeError, AttributeError) as error:
        raise AclError(str(error)) from None


Ext = Mapping[str, str]


def _of_commit(ext: Ext, _command: RemotingCommand) -> Resources:
    committed = decode_header(UpdateConsumerOffset, ext)
    return _named((_retry(committed.consumer_group), SUB), (committed.topic, SUB))


def _of_group(kind: type[GetConsumerListByGroup | UnregisterClient], ext: Ext) -> Resources:
    return _named((_retry(decode_header(kind, ext).consumer_group), SUB))


def _of_pull(ext: Ext, _command: RemotingCommand) -> Resources:
    return _named((ext.get("topic"), SUB), (_retry(ext.get("consumerGroup")), SUB))


def _of_heartbeat(_ext: Ext, command: RemotingCommand) -> Resources:
    if len(command.body) > HEARTBEAT_BYTES_MAX:
        raise AclError(f"a heartbeat of {len(command.body)} bytes; at most {HEARTBEAT_BYTES_MAX} are allowed")
    beat: Mapping[str, Any] = fastjson.loads(bytes(command.body))
    needed: Resources = {}
    for data in beat.get("consumerDataSet") or ():
        needed |= _named((_retry(data.get("groupName")), SUB))
        for subscription in data.get("subscriptionDataSet") or ():
            needed |= _named((subscription.get("topic"), SUB))
    return needed


def _sending(topic: str | None) -> Resources:
    """Return the resources of a send. Consumers send messages to their retry topic; for these 4.9 checks the group in the
    request, which may be another one.
    """
    if topic is not None and topic.startswith(RETRY_PREFIX):
        return _named((topic, SUB))
    return _named((topic, PUB))


def _retry(group: str | None) -> str | None:
    """Return the retry topic, as MixAll.getRetryTopic."""
    return None if group is None else retry_topic(group)


def _named(*pairs: tuple[str | None, int]) -> Resources:
    return {resource: permission for resource, permission in pairs if resource is not None}


NEEDS: dict[int, Callable[[Ext, RemotingCommand], Resources]] = {
    RequestCode.SEND_MESSAGE_V2: lambda ext, _: _sending(ext.get("b")),
    RequestCode.SEND_MESSAGE: lambda ext, _: _sending(ext.get("topic")),
    RequestCode.PULL_MESSAGE: _of_pull,
    RequestCode.LITE_PULL_MESSAGE: _of_pull,
    RequestCode.CONSUMER_SEND_MSG_BACK: lambda ext, _: _named((_retry(ext.get("group")), SUB)),
    RequestCode.QUERY_MESSAGE: lambda ext, _: _named((ext.get("topic"), SUB)),
    RequestCode.UPDATE_CONSUMER_OFFSET: _of_commit,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda ext, _: _of_group(GetConsumerListByGroup, ext),
    RequestCode.UNREGISTER_CLIENT: lambda ext, _: _of_group(UnregisterClient, ext),
    RequestCode.HEART_BEAT: _of_heartbeat,
}
