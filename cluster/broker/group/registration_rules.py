"""What a broker tells name servers, how often, and what it reads in their answers. Pure.

Sources: RegisterBrokerBody.java, BrokerController.java (RocketMQ 4.9.8).
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from twinlog.cluster.broker.tables.topics import PERM_READ, PERM_WRITE, TopicConfigManager
from twinlog.cluster.remoting import fastjson

MASTER_ID = 0
RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.1, 1.0
EARLY_REPEATS_SECONDS = (1.0, 11.0)  # After the first success.


@frozen
class Master:
    """What a name server says to a slave. None: it knows no master."""

    address: str | None
    ha_address: str | None


def registration_body(topics: TopicConfigManager, broker_permission: int) -> bytes:
    """RegisterBrokerBody. A broker that forbids reading or writing says so for all its topics."""
    wrapper = topics.plain()
    if broker_permission != PERM_READ | PERM_WRITE:
        for config in wrapper["topicConfigTable"].values():
            config["perm"] = broker_permission
    return fastjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def slaves_of(broker_name: str, cluster_info: Mapping[str, Any], *, but: int = MASTER_ID) -> set[tuple[int, str]]:
    """Id and IP of each slave of a group in the body of 106, except for the one that asks."""
    group = (cluster_info.get("brokerAddrTable") or {}).get(broker_name) or {}
    addresses = group.get("brokerAddrs") or {}
    return {
        (int(broker_id), address.rpartition(":")[0].strip("[]"))
        for broker_id, address in addresses.items()
        if int(broker_id) not in (MASTER_ID, but)
    }


def member_addresses(broker_name: str, cluster_info: Mapping[str, Any]) -> dict[int, str]:
    """IP:PORT of the remoting port of each member of a group in the body of 106, by its id."""
    group = (cluster_info.get("brokerAddrTable") or {}).get(broker_name) or {}
    return {int(broker_id): str(address) for broker_id, address in (group.get("brokerAddrs") or {}).items()}


def next_pause(since_first: float, failures: int, period: float) -> float:
    """Seconds until the next registration: so long after the first success, and after failures since the last one."""
    if failures:
        return float(min(RETRY_SECONDS_FIRST * 2 ** (min(failures, 10) - 1), RETRY_SECONDS_MAX))
    return next((at - since_first for at in EARLY_REPEATS_SECONDS if since_first < at), period)
