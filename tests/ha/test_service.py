"""The whole of replication over loopback sockets, in real time: listener, strangers, limits, and two real stores."""

import os
import socket
import struct
from contextlib import suppress

import pytest
import trio
from structlog.testing import capture_logs

from tests.ha.services import FILE_SIZE, connect, master_at, member, slave_at, until
from tests.helpers import RecordingSink, log_bytes, open_store, put
from twinlog.ha.config import HAConfig
from twinlog.ha.master.tickets import Holder
from twinlog.ha.policy.admission import Proofs
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.retention import NO_FLOOR


@pytest.mark.parametrize(("replicas", "warned"), [(1, 1), (2, 0)])
async def test_a_synchronous_master_that_asks_no_slave_says_so_at_the_start(tmp_path, replicas, warned):
    with capture_logs() as lines:
        async with master_at(tmp_path, in_sync_replicas=replicas):
            pass
    told = [line["why"] for line in lines if line["event"] == "SEND_OK may promise less than producers expect"]
    assert sum("without asking any slave" in why for why in told) == warned


async def test_a_master_follows_nobody(tmp_path):
    """haMasterAddress is left behind when somebody makes a slave a master by hand. RocketMQ looks at it on slaves only."""
    async with (
        master_at(tmp_path) as old,
        member(tmp_path / "new", role=BrokerRole.ASYNC_MASTER, master_address=old.address) as promoted,
    ):
        put(old.store, b"for the old one")
        end = put(promoted.store, b"for the new one")
        await trio.sleep(0.1)
        assert promoted.store.max_offset == end
        assert old.ha.statistics().connections == ()
        assert promoted.ha.statistics().role == "master"


async def test_what_a_connected_slave_lacks_is_needed(tmp_path):
    """As long as it is connected: who is gone for good must not fill the disk."""
    async with master_at(tmp_path) as master:
        put(master.store, b"x")
        assert master.ha.lowest_needed() == NO_FLOOR
        async with await connect(master, 0) as stream:
            await until(lambda: any(each.request_offset == 0 for each in master.ha.statistics().connections))
            assert master.ha.lowest_needed() == 0
            assert await stream.receive_some()
        await until(lambda: not master.ha.statistics().connections)
        assert master.ha.lowest_needed() == NO_FLOOR


async def test_a_slave_follows(tmp_path):
    """What was there before, over several files, and then each message; producers are released by its acks."""
    async with master_at(tmp_path) as master, slave_at(tmp_path) as slave:
        put(master.store, *[os.urandom(900) for _ in range(60)])
        assert master.store.max_offset > 3 * FILE_SIZE
        slave.ha.set_master(master.address)
        await until(lambda: slave.store.max_offset == master.store.max_offset)
        sink = RecordingSink()
        for number in range(100):
            end = put(master.store, b"%d" % number * 50)
            master.ha.group_transfer.wait(end, sink, b"%d" % number)
            await until(lambda number=number: len(sink.answered) == number + 1)
        assert log_bytes(slave.store) == log_bytes(master.store)
        await until(lambda: slave.store.queue("TopicTest", 0).max_offset == 160)

        shown = master.ha.statistics()
        assert (shown.role, shown.port, shown.client) == ("master", master.port, None)
        (connection,) = shown.connections
        assert (connection.state, connection.admitted, connection.counted) == ("streaming", True, True)
        assert (connection.lag_bytes, connection.lag_seconds) == (0, 0.0)
        assert connection.ack_offset == connection.sent_offset == end == shown.push2_slave_max_offset
        shown = slave.ha.statistics()
        assert shown.role == "slave"
        assert shown.client is not None
        assert (shown.client.state, shown.client.transferred_bytes) == ("streaming", end)
        assert shown.client.last_read_ms > 1_700_000_000_000


async def test_slaves_of_slaves(tmp_path):
    async with master_at(tmp_path) as master, slave_at(tmp_path) as slave, slave_at(tmp_path, "grandchild") as last:
        slave.ha.set_master(master.address)
        last.ha.set_master(slave.address)
        put(master.store, *[b"x" * 900] * 60)
        await until(lambda: last.store.max_offset == master.store.max_offset)
        assert log_bytes(last.store) == log_bytes(master.store)


async def test_a_slave_that_stops_goes_on_where_it_was(tmp_path):
    async with master_at(tmp_path) as master:
        for _ in range(3):
            async with slave_at(tmp_path) as slave:
                put(master.store, *[os.urandom(700) for _ in range(30)])
                slave.ha.set_master(master.address)
                await until(lambda slave=slave: slave.store.max_offset == master.store.max_offset)
            await until(lambda: master.ha.statistics().connections == ())
        assert master.ha.group_transfer.push2_slave_max_offset == 0
        async with slave_at(tmp_path) as slave:
            assert log_bytes(slave.store) == log_bytes(master.store)
            assert slave.store.queue("TopicTest", 0).max_offset == 90


async def test_a_master_that_restarts_is_found_again(tmp_path):
    async with slave_at(tmp_path) as slave:
        async with master_at(tmp_path) as master:
            put(master.store, b"x")
            slave.ha.set_master(master.address)
            await until(lambda: slave.store.max_offset == master.store.max_offset)
        async with master_at(tmp_path, port=master.port) as master:
            put(master.store, b"y")
            await until(lambda: slave.store.max_offset == master.store.max_offset)
            assert log_bytes(slave.store) == log_bytes(master.store)


async def test_connections_that_break_anywhere(tmp_path):
    """A relay cuts the stream after more and more bytes, mostly inside a frame; the slave loses nothing and repeats nothing."""
    async with master_at(tmp_path) as master, slave_at(tmp_path) as slave, trio.open_nursery() as nursery:
        end = put(master.store, *[os.urandom(900) for _ in range(60)])
        cuts = 0

        async def relay(stream: trio.SocketStream) -> None:
            nonlocal cuts
            cuts += 1
            left = 211 * cuts
            upstream = await trio.open_tcp_stream("127.0.0.1", master.port)
            async with stream, upstream:
                await upstream.send_all(await stream.receive_some(8))
                while left > 0 and (data := await upstream.receive_some(min(left, 1000))):
                    left -= len(data)
                    await stream.send_all(data)

        listeners = await nursery.start(trio.serve_tcp, relay, 0)
        slave.ha.set_master(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        await until(lambda: slave.store.max_offset == end)
        assert cuts > 10
        assert log_bytes(slave.store) == log_bytes(master.store)
        nursery.cancel_scope.cancel()


async def test_a_slave_that_has_only_just_registered_is_held_until_it_is_known(tmp_path):
    """It gets no byte before; then the connection that waits is served, with all that it asked meanwhile."""
    async with master_at(tmp_path, slaves=("10.0.0.7",)) as master, slave_at(tmp_path) as slave:
        sink = RecordingSink()
        end = put(master.store, b"x")
        slave.ha.set_master(master.address)
        await until(lambda: master.asked > 0)
        assert master.ha.connection_admission.has_unregistered
        assert (master.ha.statistics().connections, slave.store.max_offset) == ((), 0)
        master.ha.group_transfer.wait(end, sink, b"frame")
        assert sink.refused == [(b"frame", PutStatus.SLAVE_NOT_AVAILABLE)]
        master.ha.members_changed(["127.0.0.1"])
        await until(lambda: master.ha.group_transfer.push2_slave_max_offset == end)
        assert slave.ha.client.statistics().connections == 1
        assert not master.ha.connection_admission.has_unregistered
        end = put(master.store, b"y")
        master.ha.group_transfer.wait(end, sink, b"frame")
        await until(lambda: sink.answered == [b"frame"])


async def test_a_slave_that_nobody_knows_is_refused_after_a_while(tmp_path):
    """One line says so, with what would help; the status counts each time."""
    async with master_at(tmp_path, slaves=("10.0.0.7",), admission_timeout_ms=200) as master:
        put(master.store, b"secret")
        with capture_logs() as lines:
            for _ in range(2):
                async with await connect(master, 0, ip="127.0.0.9") as stream:
                    with trio.fail_after(5):
                        assert await stream.receive_some() == b""
        (line,) = lines
        assert (line["event"], line["cause"]) == ("slave refused", "stranger")
        assert "127.0.0.9 is not the IP of a registered slave of this broker group (these are: 10.0.0.7)" in line["why"]
        shown = master.ha.statistics()
        assert shown.refused["stranger"] == 2
        assert [(each.ip, each.cause, each.count) for each in shown.refusals] == [("127.0.0.9", "stranger", 2)]


async def test_a_slave_of_an_allowed_network_follows_and_counts_once(tmp_path):
    """Its newest connection does."""
    async with master_at(tmp_path, slaves=(), allowed_slaves="127.0.0.8/30") as master:
        end = put(master.store, b"x")
        async with await connect(master, 0, ip="127.0.0.9") as older, await connect(master, 0, ip="127.0.0.9") as newer:
            await until(lambda: len(master.ha.group_transfer.slaves) == 2)
            newest = f"127.0.0.9:{newer.socket.getsockname()[1]}"
            counted = [each.address for each in master.ha.statistics().connections if each.counted]
            assert counted == [newest]
            received = 0
            while received < BATCH_HEADER.size + end:
                received += len(await newer.receive_some())
            await newer.send_all(ACK.pack(end))
            await until(lambda: master.ha.group_transfer.push2_slave_max_offset == end)
            assert older.socket.fileno() > 0
        await until(lambda: not master.ha.statistics().connections)
        assert master.ha.group_transfer.push2_slave_max_offset == 0


async def test_a_slave_that_is_registered_no_longer_has_to_leave(tmp_path):
    """Name servers that know it no more were asked for 120 s then: see cluster/broker/group/registration.py."""
    async with master_at(tmp_path) as master, slave_at(tmp_path) as slave:
        slave.ha.set_master(master.address)
        await until(lambda: len(master.ha.group_transfer.slaves) == 1)
        with capture_logs() as lines:
            master.ha.members_changed(["10.0.0.7"])
            assert master.ha.group_transfer.push2_slave_max_offset == 0
            await until(lambda: not master.ha.statistics().connections)
        assert "connection closed: slave no longer registered" in [line["event"] for line in lines]
        end = put(master.store, b"x")
        master.ha.members_changed(["127.0.0.1"])
        await until(lambda: slave.store.max_offset == end)


async def test_where_the_secret_is_required_a_slave_has_to_prove_itself(tmp_path):
    """Who was let in by its IP, or by a secret that is dropped, has to leave; a ticket counts once, and as what it becomes."""
    async with master_at(tmp_path, slaves=("127.0.0.1", "m1"), admission_timeout_ms=300) as master:
        put(master.store, b"x")
        ha = master.ha

        async def is_served(*reports):
            stream = await connect(master, *reports)
            return stream, bool(await stream.receive_some())

        by_ip, served = await is_served(0)
        assert served
        ha.use_proofs(Proofs(("new", "old"), is_required=True))
        while await by_ip.receive_some():
            pass
        given = []
        ticket = ha.ticket_for(Holder("m1", "old"), lambda ticket: given.append(ticket) or ticket - 1)
        unproven = ha.ticket_for(Holder("m1"))
        for reports in ((0,), (given[0], 0), (unproven, 0)):
            stream, served = await is_served(*reports)
            await stream.aclose()
            assert not served
        assert all("haSecret=required" in each.why for each in ha.statistics().refusals)
        proven, served = await is_served(ticket - 1, 0)
        assert served
        ha.use_proofs(Proofs(("new",), is_required=True))
        while await proven.receive_some():
            pass
        for stream in (by_ip, proven):
            await stream.aclose()


async def test_a_slave_that_lacks_what_was_deleted_is_told_so(tmp_path):
    """RocketMQ leaves it connected on heartbeats for ever. Here the status names it, and one line does."""
    async with master_at(tmp_path) as master:
        put(master.store, *[b"x" * 1000] * 40)
        master.store.commit_log.files.files.pop(0).delete()
        with capture_logs() as lines:
            for _ in range(3):
                async with await connect(master, 100) as stream:
                    with trio.fail_after(5):
                        assert await stream.receive_some() == b""
        (line,) = [line for line in lines if line["event"] == "slave refused"]
        assert line["cause"] == "below_min"
        assert f"begins at {FILE_SIZE}" in line["why"]
        (refusal,) = master.ha.statistics().refusals
        assert (refusal.ip, refusal.cause, refusal.count) == ("127.0.0.1", "below_min", 3)


STRANGERS = {
    "nothing": b"",
    "half a report": b"\0\0\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a huge offset": ACK.pack(2**63 - 1),
    "a negative offset": ACK.pack(-(2**40)),
    "a sign of life": ACK.pack(-1),
    "an offset one past the end": ACK.pack(1),
    "a fall": ACK.pack(0) + ACK.pack(-1),
    "noise": bytes(range(256)) * 40,
}


@pytest.mark.parametrize("what", STRANGERS)
async def test_strangers_change_nothing(tmp_path, what):
    """Even from a registered slave's machine: no ack comes of it, at most one line, and the slave is served on."""
    async with master_at(tmp_path, slaves=("127.0.0.1", "127.0.0.1")) as master, slave_at(tmp_path) as slave:
        slave.ha.set_master(master.address)
        await until(lambda: len(master.ha.statistics().connections) == 1)
        await until(lambda: master.ha.statistics().connections[0].counted)
        with capture_logs() as lines:
            stream = await trio.open_tcp_stream("127.0.0.1", master.port)
            with trio.fail_after(5), suppress(trio.BrokenResourceError):  # It may be closed before all is sent.
                await stream.send_all(STRANGERS[what])
                await stream.send_eof()
                while await stream.receive_some():
                    pass
            await stream.aclose()
            await until(lambda: len(master.ha.statistics().connections) == 1)
        ended = [line for line in lines if "ended" in line["event"] or "refused" in line["event"]]
        assert len(ended) == (0 if what == "nothing" else 1)
        assert master.ha.group_transfer.push2_slave_max_offset == 0
        sink = RecordingSink()
        end = put(master.store, b"x")
        master.ha.group_transfer.wait(end, sink, b"frame")
        await until(lambda: sink.answered == [b"frame"])
        assert slave.store.max_offset == end


async def test_silent_strangers_make_room(tmp_path):
    """At the limit the oldest connection that asked for nothing leaves; a slave keeps its place."""
    async with (
        master_at(tmp_path, connections_max=4) as master,
        slave_at(tmp_path) as slave,
    ):
        slave.ha.set_master(master.address)
        await until(lambda: len(master.ha.group_transfer.slaves) == 1)
        streams = []
        for _ in range(10):
            streams.append(await connect(master, ip="127.0.0.9"))
        for stream in streams[:7]:
            with trio.fail_after(5):
                assert await stream.receive_some() == b""
        await until(lambda: len(master.ha.connection_admission.pending.connections) == 3)
        assert len(master.ha.statistics().connections) == 1
        end = put(master.store, b"x")
        await until(lambda: slave.store.max_offset == end)
        for stream in streams:
            await stream.aclose()


async def test_strangers_that_ask_leave_no_room_for_other_strangers(tmp_path):
    """A slave gets its place nevertheless."""
    async with master_at(tmp_path, connections_max=2) as master, slave_at(tmp_path) as slave:
        streams = [await connect(master, 0, ip="127.0.0.9"), await connect(master, 0, ip="127.0.0.9")]
        await until(lambda: master.asked >= 2)
        async with await connect(master, ip="127.0.0.9") as refused:
            assert await refused.receive_some() == b""
        assert master.ha.statistics().refused["too_many"] == 1
        slave.ha.set_master(master.address)
        await until(lambda: len(master.ha.group_transfer.slaves) == 1)
        for stream in streams:
            await stream.aclose()


LIFE = {
    "connected": [],
    "half a request": [b"\0\0\0"],
    "request": [ACK.pack(0)],
    "request and half an ack": [ACK.pack(0), b"\0\0"],
    "ack": [ACK.pack(0), ACK.pack(100)],
    "forged ack": [ACK.pack(0), ACK.pack(2**62)],
}


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("at", LIFE)
@pytest.mark.parametrize("ip", ["127.0.0.1", "127.0.0.9"], ids=["slave", "stranger"])
async def test_a_peer_that_breaks_off(tmp_path, at, ip, reads):
    """By a reset, at each point of its life."""
    async with master_at(tmp_path, slaves=("127.0.0.1",) * 2) as master, slave_at(tmp_path) as slave:
        end = put(master.store, b"x" * 200)
        slave.ha.set_master(master.address)
        await until(lambda: master.ha.group_transfer.push2_slave_max_offset == end)
        stream = await connect(master, ip=ip)
        with suppress(trio.BrokenResourceError):
            for piece in LIFE[at]:
                await stream.send_all(piece)
                with trio.move_on_after(0.02):
                    if reads:
                        await stream.receive_some()
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await stream.aclose()
        await until(lambda: len(master.ha.statistics().connections) == 1)
        await until(lambda: not master.ha.connection_admission.pending.connections)
        assert master.ha.group_transfer.push2_slave_max_offset == end
        sink = RecordingSink()
        master.ha.group_transfer.wait(put(master.store, b"y"), sink, b"frame")
        await until(lambda: sink.answered == [b"frame"])


async def test_one_ip_takes_no_more_than_its_share(tmp_path):
    async with master_at(tmp_path, slaves=("127.0.0.1",) * 5, connections_per_address_max=3) as master:
        streams = [await connect(master, 0) for _ in range(3)]
        await until(lambda: len(master.ha.group_transfer.slaves) == 3)
        async with await connect(master) as refused:
            assert await refused.receive_some() == b""
        async with await connect(master, ip="127.0.0.9") as other:
            await until(lambda: len(master.ha.connection_admission.pending.connections) == 1)
            await other.send_eof()
            assert await other.receive_some() == b""
        for stream in streams:
            await stream.aclose()


async def test_a_stranger_cannot_be_served_by_waiting(tmp_path):
    """Signs of life, a byte now and then, half a request: sent away like one that says nothing."""
    limits = {"housekeeping_interval_ms": 400, "admission_timeout_ms": 400}
    async with master_at(tmp_path, slaves=(), **limits) as master, trio.open_nursery() as nursery:
        put(master.store, b"secret")

        async def try_it(pieces: list[bytes]) -> None:
            stream = await connect(master, ip="127.0.0.9")
            with trio.fail_after(5), suppress(trio.BrokenResourceError):
                for piece in pieces:
                    await stream.send_all(piece)
                    await trio.sleep(0.1)
                assert await stream.receive_some() == b""
            await stream.aclose()

        for pieces in ([], [b"\0"] * 3, [ACK.pack(-1)] * 3, [b"\0\0\0"], [ACK.pack(0), ACK.pack(6)]):
            nursery.start_soon(try_it, pieces)
    assert master.ha.statistics().refused["stranger"] == 5


async def test_log_lines_about_strangers_are_few(tmp_path):
    """However many IPs they have."""
    async with master_at(tmp_path, slaves=(), admission_timeout_ms=1) as master:
        with capture_logs() as lines:
            streams = [await connect(master, 2**40, ip=f"127.0.9.{number}") for number in range(100)]
            await until(lambda: master.ha.statistics().refused["stranger"] == 100)
        assert 1 <= len(lines) <= 12
        for stream in streams:
            await stream.aclose()


async def test_lag_has_an_age(tmp_path):
    async with master_at(tmp_path) as master:
        stream = await connect(master, 0)
        await until(lambda: len(master.ha.statistics().connections) == 1)
        put(master.store, b"x")
        await trio.sleep(0.3)
        (connection,) = master.ha.statistics().connections
        assert connection.lag_bytes == master.store.max_offset
        assert connection.lag_seconds is not None
        assert 0.15 < connection.lag_seconds < 5
        await stream.aclose()


async def test_a_frame_larger_than_a_socket_takes_at_once(tmp_path):
    """Half a frame is out and the peer reads nothing: the rest goes out once it does."""
    store = open_store(tmp_path / "large", file_size=1 << 24)
    end = put(store, *[os.urandom(1 << 20)] * 12)
    async with trio.open_nursery() as nursery:
        ha = HAService(store, HAConfig(listen_host="127.0.0.1"), lambda: ["127.0.0.1"], lambda: None)
        port = await nursery.start(ha.run)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(ACK.pack(0))
        await trio.sleep(0.1)
        (connection,) = ha.statistics().connections
        assert 0 < connection.sent_offset < end
        received = bytearray()
        frames = -(-end // (4 * 1024 * 1024 - 12))
        while len(received) < end + frames * BATCH_HEADER.size:
            received += await stream.receive_some(1 << 20)
        log = log_bytes(store)
        assert received[:12] == BATCH_HEADER.pack(0, 4 * 1024 * 1024 - 12)
        assert received[12 : 4 * 1024 * 1024] == log[: 4 * 1024 * 1024 - 12]
        assert received[-1000:] == log[-1000:]
        await stream.aclose()
        nursery.cancel_scope.cancel()
    await store.close()


@pytest.mark.slow
@pytest.mark.parametrize("messages", [100, 20_000], ids=["waits in the kernel", "waits here too"])
async def test_a_slave_that_reports_and_never_drains_is_dropped(tmp_path, messages):
    """What it does not take may lie in the socket's buffer, where nobody waits for it. Others go on."""
    async with (
        master_at(tmp_path, slaves=("127.0.0.1", "127.0.0.7"), housekeeping_interval_ms=1500) as master,
        slave_at(tmp_path, send_heartbeat_interval_ms=100) as slave,
    ):
        put(master.store, *[b"x" * 1000] * messages)
        slave.ha.set_master(master.address)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.bind(("127.0.0.7", 0))
        stuck.connect(("127.0.0.1", master.port))
        with capture_logs() as lines, stuck, suppress(BrokenPipeError, ConnectionResetError), trio.fail_after(20):
            while not any("took none of" in line.get("why", "") for line in lines):
                stuck.send(ACK.pack(0))
                await trio.sleep(0.1)
        await until(lambda: len(master.ha.statistics().connections) == 1)
        assert master.ha.statistics().connections[0].address.startswith("127.0.0.1:")
        await until(lambda: slave.store.max_offset == master.store.max_offset)
        assert slave.ha.client.statistics().connections == 1


async def test_a_claim_to_bytes_that_nobody_was_sent_releases_no_producer(tmp_path):
    """A slave of a log that this master has lost since: its request may name any offset, and is no ack."""
    async with master_at(tmp_path) as master:
        sink = RecordingSink()
        put(master.store, b"m" * 100)
        stream = await trio.open_tcp_stream("127.0.0.1", master.port)
        async with stream:
            await stream.send_all(ACK.pack(master.store.max_offset))
            await until(lambda: any(each.counted for each in master.ha.statistics().connections))
            assert master.ha.group_transfer.push2_slave_max_offset == 0
            end = put(master.store, b"n" * 100)
            master.ha.group_transfer.wait(end, sink, b"frame")
            with trio.fail_after(10):
                received = b""
                while len(received) <= BATCH_HEADER.size:
                    received += await stream.receive_some()
            assert sink.calls == 0
            await stream.send_all(ACK.pack(end))
            await until(lambda: sink.answered == [b"frame"])
