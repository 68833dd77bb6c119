"""What no client sends, at each port of a running cluster: the connection ends, one line at most is logged, memory stays flat."""

import json
import socket
import struct
from pathlib import Path

import psutil
import pytest

from tests.support.process_group.up import Up
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)

PROBES = 5_000
MEMORY_MARGIN = 4 << 20  # Bytes; a leak of a connection's state would take more than 5,000 times a few KiB.
CLOSES_WITHIN = 10.0

JSON_HEADER = json.dumps(
    {"code": 105, "extFields": {"topic": "T"}, "flag": 0, "language": "JAVA", "opaque": 1}
).encode()


def frame(header: bytes, *, total: int | None = None, header_size: int | None = None, kind: int = 0) -> bytes:
    size = len(header) if header_size is None else header_size
    return struct.pack(">iI", 4 + len(header) if total is None else total, kind << 24 | size) + header


REMOTING = {
    "a frame over 16 MiB": frame(JSON_HEADER, total=(16 << 20) + 1),
    "a negative length": frame(JSON_HEADER, total=-5),
    "a length too small for a header": frame(JSON_HEADER, total=3),
    "a header longer than its frame": frame(JSON_HEADER, header_size=len(JSON_HEADER) + 1),
    "broken JSON": frame(JSON_HEADER[:-1]),
    "a header that is no object": frame(b"[1]"),
    "an unknown serialization": frame(JSON_HEADER, kind=7),
    "a binary header that ends early": frame(b"\0\x0a\0\0", kind=1),
    "a binary header with a negative remark": frame(struct.pack(">hbhiii", 10, 0, 409, 1, 0, -1), kind=1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
HA = {
    "a request beyond the log": struct.pack(">q", 1 << 40),
    "a request below -1": struct.pack(">q", -2),
    "an ack of what was never sent": struct.pack(">qq", 0, 1 << 40),
}


def ports(up: Up) -> dict[str, tuple[int, str]]:
    """Port and log name of each listener of the cluster."""
    base = up.port_base
    return {
        "name server": (base, "namesrv"),
        "broker": (base + 11, "broker-a-0"),
        "fast port": (base + 9, "broker-a-0"),
        "HA": (base + 12, "broker-a-0"),
    }


def log_lines(up: Up, name: str) -> list[str]:
    """Warnings and errors: how a group comes together may still be told while strangers knock."""
    lines = Path(up.directory, "logs", f"{name}.log").read_text().splitlines()
    return [line for line in lines if "[info" not in line]


def is_closed_by_server(port: int, data: bytes) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=CLOSES_WITHIN) as peer:
        peer.sendall(data)
        try:
            while peer.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("where", ["name server", "broker", "fast port"])
def test_what_is_no_frame_ends_the_connection_with_one_line(up, where):
    port, log_name = ports(up)[where]
    before = len(log_lines(up, log_name))
    for what, data in REMOTING.items():
        assert is_closed_by_server(port, data), what
    assert len(log_lines(up, log_name)) - before <= len(REMOTING)
    assert up.twinlog("send", "AfterAll", "hello").startswith("SEND_OK")


def test_what_is_no_slave_ends_at_the_ha_port_and_changes_nothing(up):
    port, log_name = ports(up)["HA"]
    up.twinlog("send", "Before", "hello")
    before = len(log_lines(up, log_name))
    for what, data in HA.items():
        assert is_closed_by_server(port, data), what
    assert len(log_lines(up, log_name)) - before <= len(HA) + 1, "one was a slave until its second report"
    master, slave = up.members()
    assert master["confirmed_offset"] == master["written_offset"] == slave["written_offset"]
    assert up.twinlog("send", "AfterAll", "hello").startswith("SEND_OK")


def test_connections_that_close_at_once_leave_nothing_behind(up):
    """Port probes: RocketMQ's HA port leaked each of them."""
    processes = {name: up.member(name) for name in ("namesrv", "broker-a-0")}
    for where, (port, log_name) in ports(up).items():
        _probe(port, PROBES)  # What is allocated once is there now, also what a process does some time after its start.
        memory, lines = _memory(processes[log_name]), len(log_lines(up, log_name))
        descriptors = processes[log_name].num_fds()
        _probe(port, PROBES)
        wait_for(
            lambda name=log_name, most=descriptors + 8: processes[name].num_fds() <= most, f"closed at the {where}"
        )
        assert _memory(processes[log_name]) - memory < MEMORY_MARGIN, where
        assert len(log_lines(up, log_name)) - lines <= 1, where
    assert up.twinlog("send", "AfterAll", "hello").startswith("SEND_OK")


def _probe(port: int, count: int) -> None:
    for _ in range(count):
        socket.create_connection(("127.0.0.1", port), timeout=CLOSES_WITHIN).close()


def _memory(process: psutil.Process) -> int:
    return process.memory_info().rss
