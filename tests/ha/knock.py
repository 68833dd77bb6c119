"""Knocks at a port so many times, in bursts, from strangers' IPs: `python knock.py PORT COUNT BURST`.

One third each: connect and close; connect, stay silent and close; connect, ask for the log and close.
"""

import select
import socket
import sys
from contextlib import suppress

IPS = [f"127.0.0.{last}" for last in range(9, 17)]  # The ports of one do not suffice: each rests for a while.


def burst(port: int, kind: int, ip: str, size: int) -> None:
    """Open so many connections at once, do what this kind does, and close them."""
    peers = []
    for _ in range(size):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        peer.bind((ip, 0))
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", port))
        peers.append(peer)
    if kind > 0:
        for peer in peers:
            writable = select.poll()
            writable.register(peer, select.POLLOUT)
            writable.poll(30_000)
            if kind == 2:
                with suppress(ConnectionResetError, BrokenPipeError):  # Sent away already.
                    peer.send(bytes(8))
    for peer in peers:
        peer.close()


def main() -> None:
    port, count, size = map(int, sys.argv[1:])
    for number in range(count // size):
        burst(port, number % 3, IPS[number // 3 % len(IPS)], size)


if __name__ == "__main__":
    main()
