"""Who has no business at a member's ports; a process of its own, so that it may run at any address.

    python -m scripts.fault_matrix.strangers forge HOST HA_PORT        acknowledge what nobody has
    python -m scripts.fault_matrix.strangers probe HOST:PORT...        PROBES connections, one after the other
    python -m scripts.fault_matrix.strangers drip HOST:PORT...         requests that come a byte at a time
    python -m scripts.fault_matrix.strangers oversize HOST:PORT...     frames that cannot be, and large ones that never end

Each says in a line of JSON what came of it. All is bounded in count and in time.
"""

import json
import os
import select
import socket
import struct
import sys
import time
from contextlib import suppress

PROBES, PROBE_SECONDS = 100_000, 45.0
HELD = 100  # Probes that are open at a time.
FORGE_SECONDS = 6.5  # Whoever is not known is sent away after haAdmissionTimeout, 5 s.
DRIPS, DRIP_SECONDS = 100, 14.0  # Connections to each port.
LARGE, LARGE_BYTES = 60, 1 << 20
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: no port of ours stays taken by a probe that is over.
REQUEST = b"\x00\x00\x40\x00\x00\x00\x10\x00" + b'{"code":10,'  # Half of 16 KiB.
HALVES = (
    b"",
    b"\x00",
    b"\x00\x00\x00\x10\x00",
    b"\x7f\xff\xff\xff\x00\x00\x00\x10",
    b"GET / HTTP/1.0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",
    os.urandom(64),
    REQUEST,
)
IMPOSSIBLE = (
    struct.pack(">iI", 0x7FFFFFFF, 16),  # 2 GiB.
    struct.pack(">iI", -1, 16),
    struct.pack(">iI", 0, 0),
    struct.pack(">iI", 100, 0x00FFFFFF),  # A header that is longer than its frame.
    struct.pack(">iI", (16 << 20) + 1, 100),
    struct.pack(">iI", 2 << 20, 0x00100000),  # A header of 1 MiB.
)


def forge(host: str, ha_port: int) -> dict[str, int]:
    """Huge, negative, falling words, one after the other, over several connections; one asks for the log, and waits."""
    ends, said = time.monotonic() + FORGE_SECONDS, 0
    patient = socket.create_connection((host, ha_port), timeout=1)
    patient.sendall(struct.pack(">q", 0))
    words = (1 << 62, 0, -5, 1 << 40, 1, (1 << 63) - 1, 100)
    while time.monotonic() < ends:
        for word in words:
            try:
                with socket.create_connection((host, ha_port), timeout=1) as link:
                    link.sendall(struct.pack(">q", word))
                    time.sleep(0.05)
                    for more in (1 << 62, 1 << 40, -(1 << 40)):
                        link.sendall(struct.pack(">q", more))
                        said += 1
                    time.sleep(0.1)
            except OSError:
                time.sleep(0.05)
    patient.close()
    return {"said": said}


def probe(targets: list[tuple[str, int]]) -> dict[str, int]:
    """Nothing, half of something, nonsense."""
    began, held, refused, number = time.monotonic(), [], 0, 0
    while number < PROBES and time.monotonic() - began < PROBE_SECONDS:
        link = socket.socket()
        link.settimeout(2)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        try:
            link.connect(targets[number % len(targets)])
            link.sendall(HALVES[number // len(targets) % len(HALVES)])
        except OSError:
            refused += 1
        held.append(link)
        if len(held) > HELD:
            held.pop(0).close()
        number += 1
    for link in held:
        link.close()
    return {"probes": number, "refused": refused, "ms": round((time.monotonic() - began) * 1000)}


def drip(targets: list[tuple[str, int]]) -> dict[str, int]:
    """Connections that each send a byte of a request every now and then; how many were closed at last."""
    began, links = time.monotonic(), []
    for target in targets:
        for _ in range(DRIPS):
            with suppress(OSError):
                links.append(socket.create_connection(target, timeout=2))
                links[-1].setblocking(False)
    opened, at = len(links), 0
    while links and time.monotonic() - began < DRIP_SECONDS:
        links = [link for link in links if _sent(link, REQUEST[at % len(REQUEST) : at % len(REQUEST) + 1])]
        at = at + 1 if at + 1 < len(REQUEST) else at  # Then it says the last byte for ever: 16 KiB are far away.
        time.sleep(0.3)
    return {"opened": opened, "left": len(links), "ms": round((time.monotonic() - began) * 1000)}


def _sent(link: socket.socket, byte: bytes) -> bool:
    """Whether it is still there for more."""
    try:
        if select.select([link], [], [], 0)[0] and not link.recv(4096):
            link.close()
            return False
        link.send(byte)
    except BlockingIOError:
        return True
    except OSError:
        link.close()
        return False
    return True


def oversize(targets: list[tuple[str, int]]) -> dict[str, int]:
    """Frames that cannot be, each of which has to end its connection; and many large ones of which the end never comes."""
    kept, large = 0, []
    for target in targets:
        for words in IMPOSSIBLE:
            with suppress(OSError), socket.create_connection(target, timeout=5) as link:
                link.sendall(words)
                try:
                    kept += bool(link.recv(1))
                except TimeoutError:
                    kept += 1
        for _ in range(LARGE):
            with suppress(OSError):
                link = socket.create_connection(target, timeout=1)
                large.append(link)
                link.sendall(struct.pack(">iI", 15 << 20, 100) + bytes(LARGE_BYTES))
    time.sleep(1)  # They are there, all at once: whoever looks at the memory now sees them.
    for link in large:
        link.close()
    return {"kept": kept, "large": len(large)}


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "forge":
        found = forge(words[0], int(words[1]))
    else:
        places = [(host, int(port)) for host, _, port in (word.rpartition(":") for word in words)]
        found = {"probe": probe, "drip": drip, "oversize": oversize}[what](places)
    print(json.dumps(found))
