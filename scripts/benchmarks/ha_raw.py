"""The limit: a log sent with sendfile over loopback by one process, received and written by another that looks at nothing.

    python -m scripts.benchmarks.ha_raw COMMITLOG_DIRECTORY TARGET_FILE BYTES

What stdout gets is the result, as JSON.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

from tests.support.process_group.ports import HOST

SEND_MAX, BUFFER = 4 << 20, 1 << 20


def main(source: Path, target: Path, size: int) -> None:
    """Send in a child, receive here."""
    with socket.create_server((HOST, 0)) as listener:
        child = os.fork()
        if child == 0:
            send(listener, source, size)
            os._exit(0)
        fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(fd, 0, size)
        with socket.create_connection(listener.getsockname()) as connection:
            begin, cpu = time.perf_counter(), time.process_time()
            received = receive(connection, fd)
            seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    os.waitpid(child, 0)
    assert received == size, f"{received} bytes of {size}"
    print(json.dumps({"bytes": size, "seconds": seconds, "cpu_seconds": {"receiver": used}}))


def send(listener: socket.socket, source: Path, size: int) -> None:
    connection, _ = listener.accept()
    for path in sorted(source.iterdir()):
        with path.open("rb") as file:
            at, end = 0, min(size, path.stat().st_size)
            while at < end:
                at += os.sendfile(connection.fileno(), file.fileno(), at, min(SEND_MAX, end - at))
            size -= at
    connection.close()


def receive(connection: socket.socket, fd: int) -> int:
    buffer, received = memoryview(bytearray(BUFFER)), 0
    while count := connection.recv_into(buffer):
        os.pwrite(fd, buffer[:count], received)
        received += count
    return received


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
