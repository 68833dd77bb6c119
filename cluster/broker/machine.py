"""Facts of the machine: its addresses, its clock, and the id of its last boot."""

import socket
import time
from pathlib import Path

import psutil


def own_ip() -> str:
    """Return the first IPv4 address of an interface that is up, without loopback ones; 127.0.0.1 if there is none."""
    states = psutil.net_if_stats()
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127.") and states[name].isup:
                return str(address.address)
    return "127.0.0.1"


def machine_boot_id() -> str:
    """Return an id that changes with each start of the machine, after which memory is lost."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
