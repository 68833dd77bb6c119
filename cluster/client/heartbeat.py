"""Heartbeats of clients to brokers. Pure. Sources: HeartbeatData, ClientConfig (RocketMQ 4.9.8)."""

import os
import socket
import time
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from twinlog.cluster.client.subscription import Subscription
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.names import split_address

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"  # Sends copies of failed messages to retry topics.


@frozen(kw_only=True)
class ConsumerData:
    """One consumer group of a client."""

    group: str
    subscriptions: tuple[Subscription, ...]
    is_push: bool = True
    broadcasting: bool = False
    start: str = "CONSUME_FROM_LAST_OFFSET"

    def to_json(self) -> dict[str, Any]:
        """The group's entry in a heartbeat."""
        return {
            "consumeFromWhere": self.start,
            "consumeType": "CONSUME_PASSIVELY" if self.is_push else "CONSUME_ACTIVELY",
            "groupName": self.group,
            "messageModel": "BROADCASTING" if self.broadcasting else "CLUSTERING",
            "subscriptionDataSet": [each.to_json() for each in self.subscriptions],
            "unitMode": False,
        }


def heartbeat(client_id: str, producers: Iterable[str], consumers: Iterable[ConsumerData]) -> bytes:
    """The body of request 34."""
    return fastjson.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [each.to_json() for each in consumers],
            "producerDataSet": [{"groupName": group} for group in sorted({*producers, INNER_PRODUCER})],
        }
    )


def own_address(namesrv: str) -> str:
    """This machine's address on the route to that name server; nothing is sent. 127.0.0.1 without a route."""
    try:
        host, port = split_address(namesrv)
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=_NO_NAMES)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return "127.0.0.1"


_NO_NAMES = socket.AI_NUMERICHOST  # Resolving a name would take time.


def instance_name() -> str:
    """A unique instance name, in the form of Java's clients."""
    return f"{os.getpid()}#{time.monotonic_ns()}"


def now_ms() -> int:
    """The current time as in messages and heartbeats."""
    return time.time_ns() // 1_000_000
