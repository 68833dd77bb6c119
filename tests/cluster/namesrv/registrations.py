"""Registrations of brokers that are not there."""

import json
import zlib

from twinlog.cluster.remoting.config import ServerConfig

A, B = "192.0.2.11:10911", "192.0.2.12:10911"
HERE = ServerConfig(bind_address="127.0.0.1")


def registration(
    number: int = 0, address: str = A, counter: int = 1, topics: tuple[str, ...] = ("T1",)
) -> dict[str, object]:
    """Body and fields of request 103."""
    table = {name: {"perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4} for name in topics}
    wrapper = {"dataVersion": {"counter": counter, "timestamp": 5}, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    return {
        "body": body,
        "brokerName": "broker-a",
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "haServerAddr": address.replace("10911", "10912"),
        "brokerId": number,
        "compressed": "false",
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
    }
