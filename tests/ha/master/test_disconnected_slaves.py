"""What a slave needs that is away is kept, up to a limit; whoever lost bytes for good is named, once."""

import os
from pathlib import Path

import pytest
import trio
from attrs import define
from structlog.testing import capture_logs

from tests.ha.services import connect, master_at, until
from tests.helpers import docs_extension, open_store, put
from twinlog.ha.master.disconnected_slaves import DisconnectedSlaves
from twinlog.ha.policy.disconnected import KNOWN_MAX, KnownSlave, KnownSlaves, decode_slaves, encode_slaves
from twinlog.ha.service import HAService
from twinlog.store.message_store import MessageStore
from twinlog.store.retention import NO_FLOOR, encode_clock

FILE_SIZE, FILES = 16_384, 12
NOW_MS = 1_700_000_000_000
DAY = 24 * 3600
EVERYTHING = 1 << 40


# Who is known


def test_one_that_leaves_is_away_and_one_that_comes_back_is_not():
    slaves = KnownSlaves()
    assert slaves.update({"a": ("10.0.0.1", 100)}, NOW_MS)
    assert not slaves.update({"a": ("10.0.0.1", 100)}, NOW_MS)
    assert slaves.update({"a": ("10.0.0.1", 200)}, NOW_MS)
    assert slaves.floor(1000, EVERYTHING) == NO_FLOOR  # Whoever is connected is asked elsewhere.
    assert slaves.update({}, NOW_MS + 1)
    assert slaves.away == [KnownSlave("10.0.0.1", 200, NOW_MS + 1)]
    assert [slaves.floor(1000, limit) for limit in (EVERYTHING, 800, 799, 0)] == [200, 200, NO_FLOOR, NO_FLOOR]
    assert slaves.update({"b": ("10.0.0.1", 200)}, NOW_MS + 2)
    assert (slaves.away, slaves.floor(1000, EVERYTHING)) == ([], NO_FLOOR)


def test_slaves_of_one_address_are_told_apart_by_how_far_they_are():
    slaves = KnownSlaves()
    slaves.update({"a": ("127.0.0.1", 100), "b": ("127.0.0.1", 500), "c": ("10.0.0.1", 90)}, NOW_MS)
    slaves.update({}, NOW_MS + 1)
    slaves.update({"d": ("127.0.0.1", 490)}, NOW_MS + 2)
    assert sorted(slave.offset for slave in slaves.away) == [90, 100]
    slaves.update({"d": ("127.0.0.1", 490), "e": ("127.0.0.1", 0)}, NOW_MS + 3)  # It lost its disk.
    assert sorted(slave.offset for slave in slaves.away) == [90]


@pytest.mark.parametrize("registered", [0, 1])  # 0: it may follow by haAllowedSlaves.
def test_a_connection_that_is_lost_while_its_slave_has_another_one_is_nobody_away(registered):
    """A link broke without a word: the slave is back before its old connection is given up."""
    slaves = KnownSlaves()
    slaves.update({"old": ("10.0.0.1", 100)}, NOW_MS, lambda _ip: registered)
    slaves.update({"old": ("10.0.0.1", 100), "new": ("10.0.0.1", 500)}, NOW_MS, lambda _ip: registered)
    slaves.update({"new": ("10.0.0.1", 600)}, NOW_MS, lambda _ip: registered)
    assert (slaves.away, slaves.floor(1000, EVERYTHING)) == ([], NO_FLOOR)
    slaves.update({}, NOW_MS, lambda _ip: registered)
    assert [slave.offset for slave in slaves.away] == [600]


def test_one_of_two_slaves_of_an_address_is_away():
    slaves = KnownSlaves()
    slaves.update({"a": ("10.0.0.2", 100), "b": ("10.0.0.2", 500)}, NOW_MS, lambda _ip: 2)
    slaves.update({"b": ("10.0.0.2", 500)}, NOW_MS, lambda _ip: 2)
    assert [slave.offset for slave in slaves.away] == [100]


def test_each_that_lost_bytes_is_told_once_and_holds_nothing_back():
    slaves = KnownSlaves()
    slaves.update({"a": ("10.0.0.1", 100), "b": ("10.0.0.2", 500)}, NOW_MS)
    slaves.update({}, NOW_MS)
    assert slaves.shortened(100) == []
    assert [slave.ip for slave in slaves.shortened(101)] == ["10.0.0.1"]
    assert slaves.shortened(300) == []
    assert slaves.floor(1000, EVERYTHING) == 500
    slaves.update({"c": ("10.0.0.1", 0)}, NOW_MS)
    assert [slave.ip for slave in slaves.away] == ["10.0.0.2"]


def test_there_is_an_end_to_those_that_are_known():
    slaves = KnownSlaves()
    for number in range(KNOWN_MAX + 10):
        slaves.update({number: (f"10.0.{number // 256}.{number % 256}", number)}, NOW_MS)
    slaves.update({}, NOW_MS)
    assert len(slaves.away) == KNOWN_MAX
    assert slaves.away[-1].offset == KNOWN_MAX + 9


def test_the_reference_has_all_fields():
    sizes = [
        sum(each.size for each in docs_extension("format_fields").FORMATS[name] if isinstance(each.size, int))
        for name in ("replicas", "replica")
    ]
    assert len(encode_slaves(KnownSlaves(), 0)) == sizes[0]
    assert len(encode_slaves(KnownSlaves(away=[KnownSlave("ip", 0)]), 0)) == sizes[0] + sizes[1] + len("ip")


def test_what_is_written_is_read_again():
    slaves = KnownSlaves()
    slaves.update({"a": ("10.0.0.1", 100), "b": ("fe80::1", 500), "c": ("10.0.0.3", 50)}, NOW_MS)
    slaves.update({"b": ("fe80::1", 500), "c": ("10.0.0.3", 50)}, NOW_MS + 1)
    slaves.update({"b": ("fe80::1", 500)}, NOW_MS + 2)
    slaves.shortened(60)
    raw = encode_slaves(slaves, NOW_MS + 3)
    found = decode_slaves(raw)
    assert found.away == [KnownSlave("10.0.0.1", 100, NOW_MS + 1), KnownSlave("fe80::1", 500, NOW_MS + 3)]
    for damaged in [
        b"",
        raw[:10],
        raw[:-1],
        raw + b"x",
        *(raw[:i] + bytes([raw[i] ^ 1]) + raw[i + 1 :] for i in range(len(raw))),
    ]:
        assert decode_slaves(damaged) is None


# What is kept


@define(eq=False)
class Master:
    """A store whose files are a week old, and who is connected."""

    store: MessageStore
    disconnected_slaves: DisconnectedSlaves
    connected: dict[str, tuple[str, int]]

    async def clean(self) -> int:
        """Where the log begins afterwards."""
        self.store.retention.request()
        with trio.CancelScope(shield=True):
            await self.store.retention.clean()
        self.store.retention.close()
        return self.store.min_offset


async def master(root: Path, bytes_max: int = EVERYTHING) -> Master:
    store = open_store(root, file_size=FILE_SIZE)
    store.hooks.now_ms = lambda: NOW_MS
    (root / "twinlog").mkdir(exist_ok=True)
    (root / "twinlog/clock").write_bytes(encode_clock(NOW_MS / 1000))
    if not store.max_offset:
        put(store, *(bytes(7000) for _ in range(2 * FILES)))
    store.dispatch_pending()
    await store.flusher.flush()
    for file in store.commit_log.files.files:
        os.utime(file.path, (NOW_MS / 1000 - 7 * DAY, NOW_MS / 1000 - 7 * DAY))
    connected: dict[str, tuple[str, int]] = {}
    disconnected_slaves = DisconnectedSlaves(
        path=root / "twinlog/replicas",
        acks=lambda: connected,
        max_offset=lambda: store.max_offset,
        bytes_max=bytes_max,
        now_ms=lambda: NOW_MS,
    )
    disconnected_slaves.load()
    store.hooks.soft_retention_floor = disconnected_slaves.floor
    store.retention.shortened.append(disconnected_slaves.shortened)
    return Master(store, disconnected_slaves, connected)


async def test_what_a_slave_lacks_that_is_away_stays(tmp_path, autojump_clock):
    """For a week, twice as long as files stay otherwise, over a restart of the master, until it is back."""
    found = await master(tmp_path)
    found.connected["slave"] = ("10.0.0.1", 3 * FILE_SIZE + 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.disconnected_slaves.run)
        await trio.sleep(6)
        while not (tmp_path / "twinlog/replicas").exists():
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    del found.connected["slave"]
    assert await found.clean() == 3 * FILE_SIZE
    assert found.disconnected_slaves.held_by() == KnownSlave("10.0.0.1", 3 * FILE_SIZE + 100, NOW_MS)
    await found.store.close()
    found = await master(tmp_path)
    assert await found.clean() == 3 * FILE_SIZE
    assert found.disconnected_slaves.held_by() == KnownSlave("10.0.0.1", 3 * FILE_SIZE + 100, NOW_MS)
    found.connected["again"] = ("10.0.0.1", 3 * FILE_SIZE + 100)
    found.disconnected_slaves.look()
    found.connected["again"] = ("10.0.0.1", found.store.max_offset)
    assert await found.clean() > 3 * FILE_SIZE
    assert found.disconnected_slaves.held_by() == KnownSlave("10.0.0.1", found.store.max_offset)
    await found.store.close()


@pytest.mark.parametrize("why", ["limit", "disk"])
async def test_past_the_limit_it_goes_and_who_has_to_begin_anew_is_told_once(
    tmp_path, autojump_clock, monkeypatch, why
):
    lacks = FILES * FILE_SIZE - (3 * FILE_SIZE + 100)
    found = await master(tmp_path, bytes_max=lacks if why == "disk" else lacks // 2)
    found.connected["slave"] = ("10.0.0.1", 3 * FILE_SIZE + 100)
    found.disconnected_slaves.look()
    found.connected.clear()
    if why == "disk":
        assert await found.clean() == 3 * FILE_SIZE
        found.store.hooks.disk_usage = lambda _: 0.86
    with capture_logs() as lines:
        begin = await found.clean()
        await found.clean()
    assert begin > 4 * FILE_SIZE
    (told,) = (line for line in lines if "needs a full copy" in line["event"])
    assert (told["slave"], told["lacks_from"], told["log_begins_at"]) == (
        "10.0.0.1",
        3 * FILE_SIZE + 100,
        4 * FILE_SIZE,
    )
    assert len([line for line in lines if "haRetentionMaxBytes" in line["event"]]) == (why == "limit")
    assert found.disconnected_slaves.held_by() is None
    assert [slave.given_up for slave in found.disconnected_slaves.slaves.away] == [True]
    await found.store.close()


async def test_with_no_limit_set_nobody_is_waited_for(tmp_path, autojump_clock):
    found = await master(tmp_path, bytes_max=0)
    found.connected["slave"] = ("10.0.0.1", 100)
    found.disconnected_slaves.look()
    found.connected.clear()
    with capture_logs() as lines:
        assert await found.clean() > 0
    assert not [line for line in lines if "haRetentionMaxBytes" in line["event"]]
    await found.store.close()


async def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path, autojump_clock):
    path = tmp_path / "twinlog/replicas"
    found = await master(tmp_path)
    path.write_bytes(b"nonsense")
    with capture_logs() as lines:
        found.disconnected_slaves.load()
        path.unlink()
        path.mkdir()
        found.disconnected_slaves.load()
        for _ in range(2):
            found.disconnected_slaves._save(b"")
    assert [line["log_level"] for line in lines] == ["warning"] * 3
    await found.store.close()


async def test_a_slave_is_seen_to_leave(tmp_path):
    """Over sockets, as the service has it."""
    async with master_at(tmp_path) as found:
        end = put(found.store, b"x")
        ha: HAService = found.ha
        async with await connect(found, end):
            await until(lambda: ha.statistics().retention_holder == KnownSlave("127.0.0.1", end))
        await until(lambda: not ha.statistics().connections)
        (away,) = ha.statistics().away
        assert (away.ip, away.offset, away.given_up) == ("127.0.0.1", end, False)
        assert ha.statistics().retention_holder == away
        assert ha.disconnected_slaves.floor() == end
        assert ha.lowest_needed() == NO_FLOOR
