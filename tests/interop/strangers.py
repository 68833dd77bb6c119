"""What somebody can do who reaches an HA port and is no slave: the same bytes to the real RocketMQ and to ours."""

import socket
import struct
import time
from pathlib import Path

from tests.support.clients.remoting import message_fields, request
from tests.support.process_group.ports import HOST

STRANGER = "127.0.0.9"  # Everybody else in these tests is 127.0.0.1.
OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12
SEND_MESSAGE, UPDATE_BROKER_CONFIG = 10, 25
FRAME_HEADER, REPORT = struct.Struct(">qi"), struct.Struct(">q")
FILE_SIZE = 1 << 20


def connect(ha_port: int, *reports: int, ip: str = STRANGER) -> socket.socket:
    """Connect to an HA port from this IP, and report."""
    peer = socket.create_connection((HOST, ha_port), timeout=10, source_address=(ip, 0))
    peer.sendall(b"".join(map(REPORT.pack, reports)))
    return peer


def receive(peer: socket.socket, size: int) -> bytes:
    """So many bytes; fewer when the other end closes before."""
    data = b""
    try:
        while len(data) < size and (piece := peer.recv(size - len(data))):
            data += piece
    except ConnectionResetError:
        pass
    return data


def send_message(broker: str, body: bytes = b"a secret") -> tuple[int, float]:
    """Send one message that waits for a slave; its response code, and how many seconds that took."""
    fields = message_fields("strangers", properties="WAIT\x01true\x02")
    began = time.monotonic()
    header, _ = request(broker, SEND_MESSAGE, fields, body, timeout_s=15)
    return header["code"], time.monotonic() - began


def set_option(broker: str, key: str, value: str) -> None:
    """As `mqadmin updateBrokerConfig` does."""
    header, _ = request(broker, UPDATE_BROKER_CONFIG, body=f"{key}={value}\n".encode())
    assert header["code"] == 0, header


def begin_log_at(commit_log: Path, offset: int) -> None:
    """Make a log whose earlier files were deleted."""
    commit_log.mkdir(parents=True)
    with (commit_log / f"{offset:020}").open("wb") as file:
        file.truncate(FILE_SIZE)
