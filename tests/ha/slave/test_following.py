"""A slave and the master that its log fits, or does not: two stores, a stream in memory, virtual time.

The master is ours, or plays RocketMQ.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import memory_stream_pair

from tests.ha.following import FILE_SIZE, Pair, bodies, follow, master_of, open_again_as_master, parted, slave_with
from tests.helpers import StorePeer, log_bytes, open_store, put, replicate
from tests.support.stream_transport import StreamTransport
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.config import HAConfig
from twinlog.ha.slave.client import HAClient
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.ha.wire.transport import Transport
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import DispatchEntry, scan_records

KINDS = pytest.mark.parametrize("is_twinlog", [True, False], ids=["twinlog", "rocketmq"])


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize(
    ("others", "state"), [(0, "ahead"), (20, "diverged"), (200, "diverged")], ids=["shorter", "shorter again", "longer"]
)
async def test_a_slave_that_does_not_fit_takes_nothing(autojump_clock, nursery, tmp_path, is_twinlog, others, state):
    """F1 and F4: the master lost its end; it is shorter, or has grown beyond the slave's end meanwhile."""
    pair = parted(tmp_path, others=others)
    master = master_of(nursery, pair.master, is_twinlog=is_twinlog)
    before = log_bytes(pair.slave)
    with capture_logs() as lines:
        client = follow(nursery, pair.slave, master)
        await trio.sleep(600)
    assert (client.state, client.finding.kind, client.finding.offset) == (state, state, pair.common)
    assert log_bytes(pair.slave) == before
    assert master.connections == 0  # It has reported nothing, so that it counts for nobody.
    assert [line["state"] for line in lines if line["event"] == "replication interrupted"] == [state]
    assert client.statistics().master_max_offset == pair.master.max_offset


@KINDS
async def test_it_follows_once_the_master_has_its_log_back(autojump_clock, nursery, tmp_path, is_twinlog):
    pair = parted(tmp_path)
    master = master_of(nursery, pair.master, is_twinlog=is_twinlog)
    client = follow(nursery, pair.slave, master)
    await trio.sleep(30)
    assert client.state == "ahead"
    restored = open_store(tmp_path / "restored", file_size=FILE_SIZE)
    restored.commit_log.append_raw(log_bytes(pair.slave))
    put(restored, b"new")
    master.store, master.peer = restored, StorePeer(restored, is_twinlog, boot_ms=2)
    await trio.sleep(30)
    assert (client.state, client.finding) == ("streaming", None)
    assert log_bytes(pair.slave) == log_bytes(restored)
    master.peer.is_up = False  # What was found before is forgotten: this master is followed without an answer, too.
    await master.break_connections()
    await trio.sleep(30)
    assert (client.state, master.connections) == ("streaming", 2)


@KINDS
@pytest.mark.parametrize("others", [0, 20, 200])
async def test_haautoresync_cuts_what_does_not_fit(autojump_clock, nursery, tmp_path, is_twinlog, others):
    pair = parted(tmp_path, others=others)
    was = log_bytes(pair.slave)
    master = master_of(nursery, pair.master, is_twinlog=is_twinlog)
    with capture_logs() as lines:
        client = follow(nursery, pair.slave, master, auto_resync=True)
        await trio.sleep(30)
    assert client.state == "streaming"
    assert log_bytes(pair.slave) == log_bytes(pair.master)
    said = [line for line in lines if line["event"].startswith("haAutoResync")]
    assert [(line["ended_at"], line["ends_at"]) for line in said] == [(len(was), pair.common)]
    (kept,) = [path for path in (tmp_path / "slave" / "twinlog" / "divergent").iterdir() if path.is_dir()]
    assert kept.name == f"{pair.common:020d}-{len(was) - pair.common}"


@pytest.mark.parametrize(
    ("make", "config", "why"),
    [
        (lambda path: parted(path, common=0, others=0), {}, "the master's log is empty"),
        (lambda path: parted(path, common=0, others=20), {}, "no byte is known to be common"),
        (parted, {"auto_resync_bytes_max": 10_000}, "haAutoResyncBytesMax is 10000"),
    ],
)
async def test_haautoresync_leaves_what_may_be_the_last_copy(autojump_clock, nursery, tmp_path, make, config, why):
    """A master that lost its disk, or was restored from an old copy, must not make its slaves throw theirs away."""
    pair = make(tmp_path)
    before = log_bytes(pair.slave)
    client = follow(nursery, pair.slave, master_of(nursery, pair.master), auto_resync=True, **config)
    await trio.sleep(60)
    assert client.state in ("ahead", "diverged")
    assert why in client.finding.text
    assert log_bytes(pair.slave) == before


async def test_haautoresync_cuts_for_a_master_only(autojump_clock, nursery, tmp_path):
    pair = parted(tmp_path)
    master = master_of(nursery, pair.master)
    master.peer.is_master = False
    client = follow(nursery, pair.slave, master, auto_resync=True)
    await trio.sleep(60)
    assert "is no master" in client.finding.text
    assert pair.slave.max_offset > pair.common


@pytest.fixture
def old_slave(tmp_path: Path) -> Pair:
    """A slave that was away until the master had deleted what comes next."""
    master = open_store(tmp_path / "master", file_size=FILE_SIZE)
    put(master, *bodies(20))
    slave = slave_with(tmp_path, log_bytes(master))
    put(master, *bodies(120))
    while master.min_offset <= slave.max_offset:
        master.commit_log.files.drop_first().delete()
    return Pair(master, slave, 0)


@KINDS
@pytest.mark.parametrize("auto_resync", [False, True])
async def test_a_slave_that_was_away_for_too_long(
    autojump_clock, nursery, tmp_path, old_slave, is_twinlog, auto_resync
):
    before = log_bytes(old_slave.slave)
    client = follow(
        nursery, old_slave.slave, master_of(nursery, old_slave.master, is_twinlog=is_twinlog), auto_resync=auto_resync
    )
    await trio.sleep(60)
    if auto_resync:
        assert client.state == "streaming"
        assert old_slave.slave.min_offset == old_slave.master.min_offset
        assert log_bytes(old_slave.slave) == log_bytes(old_slave.master)
    else:
        assert (client.state, client.finding.offset) == ("below min", len(before))
        assert log_bytes(old_slave.slave) == before


@KINDS
@pytest.mark.parametrize("first_files_gone", [0, 2])
async def test_a_fresh_slave_gets_the_whole_history(autojump_clock, nursery, tmp_path, is_twinlog, first_files_gone):
    """F15. RocketMQ's slave gets the last file only, and nobody says so."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    put(store, *bodies(120))
    assert store.max_offset > 3 * FILE_SIZE
    for _ in range(first_files_gone):
        store.commit_log.files.drop_first().delete()
    slave = slave_with(tmp_path, b"")
    client = follow(nursery, slave, master_of(nursery, store, is_twinlog=is_twinlog))
    await trio.sleep(10)
    assert (slave.min_offset, slave.max_offset) == (store.min_offset, store.max_offset)
    assert log_bytes(slave) == log_bytes(store)
    assert (client.state, client.finding) == ("streaming", None)


async def test_without_an_answer_a_fresh_slave_takes_what_rocketmq_gives(autojump_clock, nursery, tmp_path):
    """The last file; and once the remoting port answers it says what is missing."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    put(store, *bodies(120))
    slave = slave_with(tmp_path, b"")
    master = master_of(nursery, store, is_twinlog=False)
    master.peer.is_up = False
    client = follow(nursery, slave, master)
    await trio.sleep(3)
    first = store.max_offset - store.max_offset % FILE_SIZE
    assert (slave.min_offset, slave.max_offset) == (first, store.max_offset)
    master.peer.is_up = True
    await trio.sleep(30)
    assert (client.state, client.finding.kind, client.finding.offset) == ("streaming", "history", first)
    assert f"lacks the first {first} bytes" in client.finding.text


@KINDS
async def test_the_end_is_compared_where_the_remoting_port_does_not_answer(
    autojump_clock, nursery, tmp_path, is_twinlog
):
    """By asking for the last bytes again: here the master has grown past the slave's end with other messages."""
    pair = parted(tmp_path, others=200)
    master = master_of(nursery, pair.master, is_twinlog=is_twinlog)
    master.peer.is_up = False
    before = log_bytes(pair.slave)
    with capture_logs() as lines:
        client = follow(nursery, pair.slave, master)
        await trio.sleep(300)
    assert (client.state, client.finding.kind) == ("diverged", "diverged")
    assert "asked for its last bytes again" in client.finding.text
    assert log_bytes(pair.slave) == before
    assert master.connections < 100
    assert len([line for line in lines if line["event"] == "replication interrupted"]) == 1


async def test_a_difference_is_told_where_the_own_log_cannot_be_read(autojump_clock, nursery, tmp_path, monkeypatch):
    """What is to be shown is on a bad sector by then: no reason to stop the member."""

    async def last_record(_self, _start, _end):
        await trio.lowlevel.checkpoint()
        raise OSError(errno.EIO, "bad sector")

    pair = parted(tmp_path, others=200)
    master = master_of(nursery, pair.master)
    master.peer.is_up = False
    monkeypatch.setattr(OwnReader, "last_record", last_record)
    client = follow(nursery, pair.slave, master)
    await trio.sleep(30)
    assert (client.state, client.finding.kind) == ("diverged", "diverged")


async def test_a_difference_far_from_the_end_is_found_each_time(autojump_clock, nursery, tmp_path):
    """A bit of a header flipped on the way, once; the slave asks for no less the next time, and does not pass it over."""
    pair = parted(tmp_path, own=0)
    data = bytearray(log_bytes(pair.master))
    place = [entry.phy_offset for entry in _entries(bytes(data))][-20]
    data[place + 60] ^= 1  # When it was stored.
    put(pair.master, *bodies(50))
    slave = open_store(tmp_path / "flipped", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    replicate(slave, bytes(data))
    master = master_of(nursery, pair.master, is_twinlog=False)
    master.peer.is_up = False
    client = follow(nursery, slave, master)
    await trio.sleep(600)
    assert (client.state, client.finding.offset) == ("diverged", place)
    assert log_bytes(slave) == data


async def test_a_slave_that_fits_says_what_was_not_compared(autojump_clock, nursery, tmp_path):
    pair = parted(tmp_path, own=0)
    put(pair.master, *bodies(20))
    master = master_of(nursery, pair.master, is_twinlog=False)
    master.peer.is_up = False
    client = follow(nursery, pair.slave, master)
    await trio.sleep(20)
    assert log_bytes(pair.slave) == log_bytes(pair.master)
    assert (client.state, client.finding.kind) == ("streaming", "not compared")
    assert 0 < client.finding.offset < pair.common
    assert "connection refused" in client.finding.text
    assert client.statistics().proven_offset is None


async def test_once_found_unfit_it_waits_for_an_answer(autojump_clock, nursery, tmp_path):
    """Where the logs part may lie deeper than what is asked for again."""
    pair = parted(tmp_path, others=20)
    master = master_of(nursery, pair.master)
    client = follow(nursery, pair.slave, master)
    await trio.sleep(10)
    master.peer.is_up = False
    await trio.sleep(300)
    assert (client.state, master.connections) == ("diverged", 0)


async def test_another_master_is_compared_anew(autojump_clock, nursery, tmp_path):
    """F4: after a fail-over by hand the slave meets a longer log than its own, which parts from it before its end."""
    pair = parted(tmp_path, others=200)
    slave = pair.slave
    old = open_store(tmp_path / "old", file_size=FILE_SIZE)
    old.commit_log.append_raw(log_bytes(slave))
    master = master_of(nursery, old)
    client = follow(nursery, slave, master)
    await trio.sleep(10)
    assert (client.state, client.statistics().proven_offset) == ("streaming", slave.max_offset)
    before = log_bytes(slave)
    master.store, master.peer = pair.master, StorePeer(pair.master)
    client.set_master("other:10912")
    await trio.sleep(10)
    assert (client.state, client.finding.offset) == ("diverged", pair.common)
    assert client.statistics().proven_offset in (None, pair.common)
    assert log_bytes(slave) == before


async def test_a_master_that_restarts_between_comparison_and_connection(autojump_clock, nursery, tmp_path):
    """What was compared is what is followed."""
    pair = parted(tmp_path, own=0, others=0)
    master = master_of(nursery, pair.master)
    other = parted_copy(tmp_path, pair)
    questions = []

    def restart(question: str) -> None:
        questions.append(question)
        if master.connections == 1 and master.store is pair.master:
            master.store, master.peer.store, master.peer.boot_ms = other, other, 2

    master.peer.before = restart
    before = log_bytes(pair.slave)
    client = follow(nursery, pair.slave, master)
    await trio.sleep(30)
    assert master.connections == 1
    assert client.state == "diverged"
    assert log_bytes(pair.slave) == before


def parted_copy(tmp_path: Path, pair: Pair) -> MessageStore:
    """Another history, longer than the pair's."""
    store = open_store(tmp_path / "other", file_size=FILE_SIZE)
    put(store, *bodies(150))
    assert store.max_offset > pair.slave.max_offset
    return store


async def heartbeats_only(stream: trio.StapledStream) -> None:
    (offset,) = ACK.unpack(await stream.receive_some())
    with suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(BATCH_HEADER.pack(offset, 0))
            await trio.sleep(5)


async def silence(stream: trio.StapledStream) -> None:
    await stream.receive_some()


@pytest.mark.parametrize(("behaviour", "words"), [(heartbeats_only, "heartbeats only"), (silence, "nothing at all")])
async def test_a_stream_that_brings_nothing_is_stalled(autojump_clock, nursery, tmp_path, behaviour, words):
    """The master's log goes on, and it says so when asked."""
    pair = parted(tmp_path, own=0, others=50)
    master = master_of(nursery, pair.master)

    async def connect(_address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        master.connections += 1
        ours, theirs = memory_stream_pair()
        if master.connections > 10:
            return await master.connect("")
        nursery.start_soon(behaviour, theirs)
        return StreamTransport(ours)

    client = HAClient(pair.slave, HAConfig(), connect, lambda _address: master.peer)
    client.set_master("master:10912")
    with capture_logs() as lines:
        nursery.start_soon(client.run)
        await trio.sleep(25)
        assert (client.state, client.finding.kind, client.finding.offset) == ("stalled", "stalled", pair.common)
        await trio.sleep(25)
        assert client.state == "stalled"
        assert [line["state"] for line in lines] == ["stalled"]
        await trio.sleep(300)
    assert words in lines[0]["why"]
    assert client.state == "streaming"
    assert [line["event"] for line in lines if "replication" in line["event"]] == [
        "replication interrupted",
        "replication resumed",
    ]
    assert log_bytes(pair.slave) == log_bytes(pair.master)


async def test_a_quiet_master_is_not_taken_for_a_stalled_one(autojump_clock, nursery, tmp_path):
    pair = parted(tmp_path, own=0, others=50)
    master = master_of(nursery, pair.master)
    client = follow(nursery, pair.slave, master)
    await trio.sleep(3600)
    assert (client.state, master.connections, client.finding) == ("streaming", 1, None)


@pytest.mark.parametrize("is_sound_there", [True, False])
async def test_a_record_that_is_bad_time_and_again(autojump_clock, nursery, tmp_path, is_sound_there):
    """Not in a hot loop, in one line, and with what the master says when asked for this record alone."""
    pair = parted(tmp_path, own=0, others=50)
    master = master_of(nursery, pair.master)
    connections = []

    async def connect(_address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        connections.append(trio.current_time())
        ours, theirs = memory_stream_pair()

        async def serve() -> None:
            await theirs.receive_some()
            data = bytearray(log_bytes(pair.master)[pair.common : FILE_SIZE * (pair.common // FILE_SIZE + 1)])
            data[200] ^= 1
            await theirs.send_all(BATCH_HEADER.pack(pair.common, len(data)) + data)

        nursery.start_soon(serve)
        return StreamTransport(ours)

    if not is_sound_there:
        file = pair.master.commit_log.files.file_at(pair.common)
        place = pair.common + 200 - file.start
        os.pwrite(file.fd, bytes([os.pread(file.fd, 1, place)[0] ^ 2]), place)  # Another bit than the way spoils.
    client = HAClient(pair.slave, HAConfig(), connect, lambda _address: master.peer)
    client.set_master("master:10912")
    with capture_logs() as lines:
        nursery.start_soon(client.run)
        await trio.sleep(300)
    assert (client.state, client.finding.kind, client.finding.offset) == ("stalled", "bad record", pair.common)
    assert ("it gives a sound one" in client.finding.text) == is_sound_there
    assert len(connections) < 70
    assert len([line for line in lines if line["event"] == "replication interrupted"]) == 2
    assert pair.slave.max_offset == pair.common


async def test_the_script_of_the_lost_end(autojump_clock, nursery, tmp_path):
    """F1 as a whole: the master loses its last 55 KB, the slave keeps them, 120 sends follow. No byte differs afterwards.

    RocketMQ answers 119 of them with OK, and 55 KB differ for ever.
    """
    before = open_store(tmp_path / "before", file_size=FILE_SIZE)
    put(before, *bodies(150))
    whole = log_bytes(before)
    slave = slave_with(tmp_path, whole)
    ends = [entry.phy_offset + entry.size for entry in _entries(whole)]
    lost_from = min(ends, key=lambda end: abs(end - (len(whole) - 55_000)))
    copy = open_store(tmp_path / "master", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    replicate(copy, whole[:lost_from])
    store = open_again_as_master(tmp_path, copy)
    master = master_of(nursery, store)
    client = follow(nursery, slave, master)
    for _ in range(120):
        put(store, *bodies(1))
        await trio.sleep(1)
    assert store.max_offset > len(whole)
    assert log_bytes(slave) == whole
    assert master.connections == 0
    assert (client.state, client.finding.offset) == ("diverged", lost_from)


def _entries(data: bytes) -> list[DispatchEntry]:
    return scan_records(data, 0, FILE_SIZE, check_crc=True).entries
