"""One typed function for each request that clients and tools make. Source: MQClientAPIImpl (RocketMQ 4.9.8).

Each raises RequestError for an answer other than success, RemotingConnectError without a connection and
RemotingTimeoutError without an answer.
"""

from collections.abc import Sequence

from attrs import frozen

from twinlog.cluster.client.api.answers import Pulled, PullStatus, QueueOffsets, SendStatus, Sent, StoredRecord
from twinlog.cluster.client.api.calls import Caller
from twinlog.cluster.client.api.groups import GroupApi
from twinlog.cluster.client.api.members import MemberApi
from twinlog.cluster.client.api.messages import (
    DEFAULT_TOPIC,
    DEFAULT_TOPIC_QUEUES,
    TOOLS_GROUP,
    MessageApi,
    SendRequest,
)
from twinlog.cluster.client.api.namesrv import NameServerApi
from twinlog.cluster.client.api.offsets import OffsetApi
from twinlog.cluster.client.route import BrokerAddresses

__all__ = [
    "DEFAULT_TOPIC",
    "DEFAULT_TOPIC_QUEUES",
    "TOOLS_GROUP",
    "Caller",
    "ClientApi",
    "PullStatus",
    "Pulled",
    "QueueOffsets",
    "SendRequest",
    "SendStatus",
    "Sent",
    "StoredRecord",
    "addresses_of",
    "name_servers",
]


@frozen
class ClientApi(NameServerApi, MessageApi, OffsetApi, GroupApi, MemberApi):
    """Requests over one RemotingClient; `namesrv` are asked in turn until one answers."""


def name_servers(text: str) -> tuple[str, ...]:
    """The addresses in `one:9876;two:9876`, each once; a missing port is 9876."""
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    return tuple(dict.fromkeys(part if ":" in part else f"{part}:9876" for part in parts if part))


def addresses_of(groups: Sequence[BrokerAddresses]) -> list[tuple[BrokerAddresses, int, str]]:
    """Every member as (its group, brokerId, address)."""
    return [(group, broker_id, address) for group in groups for broker_id, address in group.addresses.items()]
