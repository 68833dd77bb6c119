"""What our members tell of themselves, and messages of a few lines for masters of either kind."""

import json
import os
import time
from typing import Any

from tests.support.clients.remoting import message_fields, request
from tests.support.disk.faults import SEND, Connection
from tests.support.process_group.member import BrokerProcess

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET, MEMBER_STATUS = 14, 15, 20001


def status(member: BrokerProcess) -> dict[str, Any]:
    """What `twinlog list` is told by a member of ours."""
    header, body = request(member.address, MEMBER_STATUS)
    assert header["code"] == 0, header
    found: dict[str, Any] = json.loads(body)
    return found


def send(port: int, topic: str, count: int, *, size: int, pause_s: float = 0) -> list[int]:
    """Send messages one after the other, each waiting for a slave where the master does; returns the codes of the answers."""
    codes = []
    with Connection(port) as connection:
        for number in range(count):
            fields = message_fields(topic, queue_id=number % 4, queues=4, properties="WAIT\x01true")
            header, _ = connection.ask(SEND, os.urandom(size), **fields)
            codes.append(int(header["code"]))
            time.sleep(pause_s)
    return codes


def commit_offset(member: BrokerProcess, group: str, topic: str, offset: int) -> None:
    """What a consumer tells that it has consumed of queue 0."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    header, _ = request(member.address, UPDATE_CONSUMER_OFFSET, fields)
    assert header["code"] == 0, header


def committed_offset(member: BrokerProcess, group: str, topic: str) -> int | None:
    """Where a consumer of queue 0 is sent on; None: nothing is known."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    header, _ = request(member.address, QUERY_CONSUMER_OFFSET, fields)
    return int(header["extFields"]["offset"]) if header["code"] == 0 else None
