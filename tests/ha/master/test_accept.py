"""Who must leave when there are too many connections, and a listener without descriptors."""

import resource
import socket
from contextlib import suppress

import pytest
import trio
from structlog.testing import capture_logs

from twinlog.ha.master.accept import AcceptSocketService, Seat, must_leave

SILENT_STRANGER, STRANGER = Seat("192.0.2.9", False, False), Seat("192.0.2.9", False, True)
WAITING, SLAVE = Seat("10.0.0.1", True, False), Seat("10.0.0.1", True, True)
FROM_ELSEWHERE = "192.0.2.200"


@pytest.mark.parametrize(
    ("seats", "for_stranger", "for_slave"),
    [
        ([SLAVE, SLAVE], None, None),
        ([SLAVE, SILENT_STRANGER, SILENT_STRANGER], [1], [1]),
        ([STRANGER, SILENT_STRANGER], [1], [1]),
        ([SLAVE, STRANGER, STRANGER], None, [1]),
        ([SLAVE, WAITING, STRANGER], None, [2]),
        ([SLAVE, WAITING, WAITING], None, [1]),
    ],
)
def test_who_leaves_when_all_places_are_taken(seats, for_stranger, for_slave):
    limits = {"total": len(seats), "per_address": 10}
    assert must_leave(seats, Seat(FROM_ELSEWHERE, False, False), **limits) == for_stranger
    assert must_leave(seats, Seat(FROM_ELSEWHERE, True, False), **limits) == for_slave


def test_while_there_is_room_nobody_leaves():
    assert must_leave([SLAVE, STRANGER], SILENT_STRANGER, total=3, per_address=2) == []
    assert must_leave([], SLAVE, total=1, per_address=1) == []


@pytest.mark.parametrize(
    ("seats", "newcomer", "leavers"),
    [
        ([SILENT_STRANGER, SLAVE, SILENT_STRANGER], SILENT_STRANGER, [0]),
        ([STRANGER, SLAVE, STRANGER], SILENT_STRANGER, None),
        ([SLAVE, WAITING, SILENT_STRANGER], WAITING, [1]),  # The stranger has another IP, it is not in the way.
        ([SLAVE, SLAVE, SILENT_STRANGER], WAITING, None),
    ],
)
def test_one_ip_takes_no_more_than_its_share(seats, newcomer, leavers):
    assert must_leave(seats, newcomer, total=100, per_address=2) == leavers


def test_both_limits_at_once():
    """One of its own IP leaves, which makes room enough."""
    seats = [STRANGER, WAITING, SLAVE]
    assert must_leave(seats, WAITING, total=3, per_address=2) == [1]
    assert must_leave(seats, WAITING, total=2, per_address=2) == [1, 0]


async def test_a_process_without_descriptors_goes_on_once_it_has_some():
    """Connections wait in the kernel meanwhile, and one line is logged. RocketMQ's accept loop spins."""
    taken: list[socket.socket] = []
    accept = AcceptSocketService("127.0.0.1", 0, lambda sock, *_: taken.append(sock))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(accept.run)
        clients = [socket.socket() for _ in range(4)]
        highest = max(client.fileno() for client in clients)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        fillers = []
        try:
            with suppress(OSError):
                while True:
                    fillers.append(socket.socket())
            with capture_logs() as lines:
                for client in clients:
                    client.connect(("127.0.0.1", port))
                await trio.sleep(0.5)
                assert taken == []
                assert [line["log_level"] for line in lines] == ["error"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for filler in fillers:
                filler.close()
        with trio.fail_after(5):
            while len(taken) < 4:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    for sock in (*clients, *taken):
        sock.close()
