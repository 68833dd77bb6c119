"""Many messages for a running broker, in batches, as quickly as a few lines of Python send them."""

import random
import socket
import struct
import time

from scripts.benchmarks.store_directory import BODY_SIZE, TOPIC
from scripts.benchmarks.store_restarts import SUCCESS, frame, receive_codes
from scripts.benchmarks.systems import QUEUES
from tests.support.process_group.ports import HOST

SEND_BATCH_MESSAGE = 320
BATCH, IN_FLIGHT = 64, 8


def send_batches(port: int, messages: int) -> None:
    """Send so many messages, a multiple of BATCH. Raises RuntimeError unless the broker takes every one of them."""
    body = random.Random(1).randbytes(BODY_SIZE)
    batches = messages // BATCH
    with socket.create_connection((HOST, port), timeout=60) as connection:
        for first in range(0, batches, IN_FLIGHT):
            numbers = range(first, min(first + IN_FLIGHT, batches))
            connection.sendall(b"".join(_frame(number, body) for number in numbers))
            codes = receive_codes(connection, len(numbers))
            if set(codes) != {SUCCESS}:
                raise RuntimeError(f"batches were answered with {codes}")


def _frame(number: int, body: bytes) -> bytes:
    items = b"".join(_item(number * BATCH + i, body) for i in range(BATCH))
    fields = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": str(QUEUES),
        "e": str(number % QUEUES),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": "WAIT\x01true",
        "j": "0",
        "k": "false",
        "m": "true",
    }
    return frame(SEND_BATCH_MESSAGE, number, fields, items)


def _item(number: int, body: bytes) -> bytes:
    properties = f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01Tag{number % 10}".encode()
    size = 22 + len(body) + len(properties)
    return struct.pack(
        f">iiiii{len(body)}sh{len(properties)}s", size, 0, 0, 0, len(body), body, len(properties), properties
    )
