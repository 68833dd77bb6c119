"""What an acknowledgement is worth. A slave of RocketMQ 4.9.7 and one of ours are fed the same by a master that is played here.

RocketMQ's slave acknowledges what it has received: without looking at it, and before it is on any disk.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import log_bytes, open_store, put
from tests.pairs.fake_master import FakeConnection, FakeMaster
from tests.pairs.group import FILE_SIZE
from tests.support.disk.compare import end_offset
from tests.support.disk.faults import HANG, Shim, tmpfs
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.status import status
from tests.support.waiting import wait_for

QUICK_REPORTS = {
    **TEST_SETTINGS,
    "haSendHeartbeatInterval": "300",  # A slave of RocketMQ's waits as long before its first report.
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "diskSpaceWarningLevelRatio": "100",
    "cleanFileForciblyEnable": "false",
}
SILENCE_S = 1.5  # So long without an acknowledgement is as good as for ever.


class RealSlave(rocketmq.Broker):
    """A slave of RocketMQ's whose disk can be made bad."""

    def __init__(self, root: Path, namesrv: str, master: FakeMaster, shim: Shim | None = None) -> None:
        self._shim = shim
        settings = {**QUICK_REPORTS, "haMasterAddress": master.address}
        super().__init__(root, namesrv, role="SLAVE", settings=settings)

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), **(self._shim.env if self._shim else {})}


class OurSlave(twinlog.Broker):
    """A slave of ours whose disk can be made bad."""

    def __init__(self, root: Path, namesrv: str, master: FakeMaster, shim: Shim | None = None, **settings: str) -> None:
        self._shim = shim
        every = {**QUICK_REPORTS, "haMasterAddress": master.address, **settings}
        super().__init__(root, namesrv, role="SLAVE", broker_id=2, settings=every)

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), **(self._shim.env if self._shim else {})}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("blind")
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def namesrv(place: Path) -> Iterator[str]:
    with twinlog.NameServer(place / "namesrv") as namesrv:
        yield namesrv.address


@pytest.fixture(scope="module")
def shim(place: Path) -> Shim:
    return Shim.build(place)


@pytest.fixture(scope="module")
def real_slave(place: Path, namesrv: str, shim: Shim) -> Iterator[tuple[FakeMaster, RealSlave]]:
    """One for all tests: whatever it was fed, it takes any bytes that come next."""
    with FakeMaster() as master, RealSlave(place / "real", namesrv, master, shim) as slave:
        yield master, slave


@pytest.fixture(scope="module")
def records(place: Path) -> bytes:
    """A log of 6 MiB, as a master would have it from offset 0 on. Its records are of one size."""
    store = open_store(place / "records", file_size=FILE_SIZE)
    while store.max_offset < 6 * FILE_SIZE:
        put(store, *(os.urandom(2000) for _ in range(100)))
    return log_bytes(store)


@pytest.fixture(scope="module")
def record_size(records: bytes) -> int:
    return int.from_bytes(records[:4], "big")


def seconds_for_more(connection: FakeConnection, data: bytes) -> float | None:
    """Feed it bytes, whatever it has; how long until it acknowledges them, None when it leaves."""
    connection.send(data)
    return connection.seconds_until_acked(connection.offset + len(data))


def test_bytes_that_are_no_record(
    real_slave: tuple[FakeMaster, RealSlave], place: Path, namesrv: str, records: bytes, record_size: int
) -> None:
    """1000 random bytes instead of a record: RocketMQ's slave has appended and acknowledged them in no time. Ours
    acknowledges nothing, keeps nothing, ends the connection and says where and why.
    """
    rubbish = os.urandom(1000)
    master, _ = real_slave
    with master.accept() as connection:
        seconds = seconds_for_more(connection, rubbish)
        assert seconds is not None
        assert seconds < 0.5

    good = records[: 40 * record_size]
    with FakeMaster() as master, OurSlave(place / "ours-rubbish", namesrv, master) as slave:
        with master.accept() as connection:
            assert seconds_for_more(connection, good) is not None
        with master.accept() as connection:
            connection.send(good[connection.offset :] + rubbish)  # It compares the last bytes that it has.
            assert connection.seconds_until_acked(len(good) + 1) is None
        why = f"bad record at offset {len(good)}"
        wait_for(lambda: why in (status(slave)["master"]["lastError"] or ""), "the reason in its status")
        assert end_offset(slave.commit_log) == status(slave)["maxOffset"] == len(good)


def test_the_disk_takes_nothing(
    real_slave: tuple[FakeMaster, RealSlave], place: Path, namesrv: str, shim: Shim, records: bytes, record_size: int
) -> None:
    """While no flush comes back, RocketMQ's slave acknowledges on: its word means memory, as that of ours with
    haAckMode=written. With haAckMode=flushed ours acknowledges nothing until the flush has ended.
    """
    data = records[: 90 * record_size]
    master, _ = real_slave
    with master.accept() as connection:
        shim.arm("fsync fdatasync msync", HANG, "commitlog")
        try:
            assert seconds_for_more(connection, data) is not None
        finally:
            shim.disarm()

    for mode in ("written", "flushed"):
        own_shim = Shim(shim.library, place / f"faults-{mode}")
        own_shim.arm("fsync fdatasync msync", HANG, "commitlog")
        with (
            FakeMaster() as master,
            OurSlave(place / f"ours-{mode}", namesrv, master, own_shim, haAckMode=mode) as slave,
            master.accept() as connection,
        ):
            assert status(slave)["ackMode"] == mode
            connection.send(data)
            wait_for(lambda: status(slave)["maxOffset"] == len(data), "all of it in its log")
            if mode == "flushed":
                assert acked_within(connection, SILENCE_S) == 0
                own_shim.disarm()
            assert connection.seconds_until_acked(len(data)) is not None
            own_shim.disarm()


def acked_within(connection: FakeConnection, silence_s: float) -> int:
    """The last offset that it acknowledges, once none that is new has come for so long; it repeats itself all the time."""
    acked, deadline = connection.offset, time.monotonic() + silence_s
    with suppress(TimeoutError):
        while (left := deadline - time.monotonic()) > 0:
            offset = connection.next_report(timeout_s=left)
            if offset is None:
                break
            if offset > acked:
                acked, deadline = offset, time.monotonic() + silence_s
    return acked


@pytest.mark.root
def test_the_disk_is_full(place: Path, namesrv: str, records: bytes) -> None:
    """6 MiB to a disk of 4. RocketMQ's slave acknowledges bytes that no disk has, or its replication dies for good while the
    process stays up. Ours acknowledges what it holds, says why it takes no more, and goes on by itself once there is room.
    """
    disk = place / "real-disk"
    disk.mkdir()
    with (
        tmpfs(disk / "store", megabytes=4) as small,
        FakeMaster() as master,
        RealSlave(disk, namesrv, master) as slave,
        master.accept() as connection,
    ):
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.send(records)
        acked = acked_within(connection, SILENCE_S)
        assert acked > 3 << 20
        assert small.remount("size=32m")
        has_holes = acked > stored_bytes(slave.commit_log)
        assert has_holes or (not reports_again(connection, master) and slave.running)

    disk = place / "our-disk"
    disk.mkdir()
    with (
        tmpfs(disk / "store", megabytes=4) as small,
        FakeMaster() as master,
        OurSlave(disk, namesrv, master) as slave,
    ):
        with master.accept() as connection, suppress(BrokenPipeError, ConnectionResetError):
            connection.send(records)
            acked = acked_within(connection, SILENCE_S)
        assert 0 < acked <= stored_bytes(slave.commit_log)  # Nothing of the stretch that the disk took half of.
        wait_for(lambda: status(slave)["state"] == "paused", "its status")
        assert "No space left" in status(slave)["master"]["lastError"]
        assert small.remount("size=32m")
        for _ in range(20):
            if acked >= len(records):
                break
            with master.accept() as connection, suppress(BrokenPipeError, ConnectionResetError):
                connection.send(records[connection.offset :])
                acked = acked_within(connection, SILENCE_S)
        assert log_content(slave.commit_log)[: len(records)] == records


def stored_bytes(directory: Path) -> int:
    """Bytes that a disk holds for the files of a directory."""
    return sum(path.stat().st_blocks * 512 for path in directory.iterdir())


def log_content(directory: Path) -> bytes:
    """All files of a commit log."""
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def reports_again(connection: FakeConnection, master: FakeMaster) -> bool:
    """Whether it is heard of any more, on this connection or by another one."""
    with suppress(TimeoutError):
        if connection.next_report(timeout_s=3) is not None:
            return True
    with suppress(TimeoutError):
        master.accept(timeout_s=3)
        return True
    return False
