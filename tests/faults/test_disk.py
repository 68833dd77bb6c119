"""Disks that are full, read-only, broken, stuck, or without power: what was acknowledged is there, and the broker says why.

Each test sends, breaks the disk, sends on, makes it good again, and then reads every acknowledged message by its id: at once, and
after a restart.
"""

import errno
import shutil
import signal
import subprocess
import threading
import time

import pytest

from tests.support.disk.faults import (
    FLUSH_DISK_TIMEOUT,
    OK,
    SERVICE_NOT_AVAILABLE,
    SYSTEM_ERROR,
    Broker,
    Producer,
    Shim,
    ext4,
    make_image,
    tmpfs,
)
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
SYNC = {"flushDiskType": "SYNC_FLUSH"}


@pytest.fixture
def said(tmp_path):
    return tmp_path / "broker.log"


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return Shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def armed(shim):
    shim.disarm()
    yield shim
    shim.disarm()


def restart(broker, number=signal.SIGTERM):
    broker.end(number)
    broker.start()


def into_next_file(producer):
    """Into a file of the log that was made in advance, without a name, in another directory."""
    producer.send_some(40, size=30_000)


def test_a_full_disk_fills_and_empties(tmp_path, said):
    """The log's next file does not fit. Reads go on, a start does, too, and writing within two seconds of the room."""
    with tmpfs(tmp_path / "disk", megabytes=16) as disk, Broker(disk.path / "store", said) as broker:
        producer = Producer(broker)
        producer.send_some(50)
        ballast = disk.fill()
        code, remark = producer.send_until_refused(size=20_000)
        assert code in (SYSTEM_ERROR, SERVICE_NOT_AVAILABLE)
        assert "No space left" in remark
        assert producer.send_until_refused()[0] == SERVICE_NOT_AVAILABLE
        assert "No space left" in producer.refused[-1][1]
        assert (broker.state()["state"], "No space" in broker.state()["whyNotWritable"]) == ("paused", True)
        producer.check()
        restart(broker, signal.SIGKILL)  # On a disk that is still full.
        producer.check()
        producer.send_until_refused(size=20_000)
        ballast.unlink()
        assert producer.seconds_until_taken() < 3
        assert broker.state()["state"] == "serving"
        producer.send_some(50, size=20_000)
        producer.check()
        restart(broker)
        producer.check()
        producer.check_queues()
        assert len(broker.lines("the disk takes writes again")) >= 1


def test_a_start_on_a_disk_too_full_for_the_queues(tmp_path, said):
    """The log has messages that the disk has no room to put into their queues: consumers get them all the same."""
    with tmpfs(tmp_path / "disk", megabytes=16) as disk, Broker(disk.path / "store", said) as broker:
        producer = Producer(broker)
        producer.send_some(1)  # The log's first file takes its room at once; three of the four queues have no file yet.
        ballast = disk.fill()
        producer.send_until_refused()
        restart(broker, signal.SIGKILL)
        assert (broker.state()["state"], "No space" in broker.state()["whyNotWritable"]) == ("paused", True)
        assert producer.send_until_refused()[0] == SERVICE_NOT_AVAILABLE
        producer.check()
        producer.check_queues()
        ballast.unlink()
        assert producer.seconds_until_taken() < 3
        producer.send_some(50)
        restart(broker, signal.SIGKILL)
        producer.check()
        producer.check_queues()


def test_a_start_that_a_full_disk_refuses(tmp_path, said):
    """Even a directory for the queue finds no room: the error says what to do, and nothing is lost."""
    image = make_image(tmp_path / "image", megabytes=16)
    with ext4(image, tmp_path / "disk") as disk, Broker(disk.path / "store", said) as broker:
        producer = Producer(broker)
        producer.send_some(1)
        broker.end(signal.SIGKILL)
        shutil.rmtree(disk.path / "store" / "consumequeue")
        subprocess.run(["sync", "-f", str(disk.path)], check=True)  # ext4 frees the blocks then.
        ballast = disk.fill()
        with pytest.raises(AssertionError, match=r"could not start: the disk is full(.|\n)*Make room"):
            broker.start()
        ballast.unlink()
        broker.start()
        producer.check()
        producer.check_queues()


def test_a_disk_above_the_warning_level(tmp_path, said):
    """As RocketMQ: refused before it is really full. Here with its reason."""
    limit = {"diskSpaceWarningLevelRatio": "50"}
    with tmpfs(tmp_path / "disk", megabytes=32) as disk, Broker(disk.path / "store", said) as broker:
        producer = Producer(broker)
        producer.send_some(20)
        disk.fill(leave=8 << 20)
        broker.end()
        broker.settings = limit
        broker.start()
        code, remark = producer.send_until_refused()
        assert code == SERVICE_NOT_AVAILABLE
        assert "diskSpaceWarningLevelRatio=50" in remark
        producer.check()


def test_old_files_make_room(tmp_path, said):
    """A disk as small as eight log files takes any number of messages, when their age does not matter."""
    settings = {"cleanFileForciblyEnable": "true", "deleteCommitLogFilesInterval": "0"}
    with tmpfs(tmp_path / "disk", megabytes=8) as disk, Broker(disk.path / "store", said, settings) as broker:
        producer = Producer(broker)
        with broker.connect() as connection:
            while len(producer.acked) * 60_000 < 14 << 20:
                if producer.send(connection, size=60_000) != OK:
                    time.sleep(0.05)
        assert broker.lines("commit log file deleted")
        newest = producer.acked[-30:]
        producer.acked = newest
        producer.check()
        restart(broker)
        producer.check()


def test_a_disk_that_was_mounted_read_only(tmp_path, said):
    """The kernel refuses that while the broker writes. Between two runs it is one clear error, and nothing is lost."""
    with tmpfs(tmp_path / "disk", megabytes=32) as disk:
        broker = Broker(disk.path / "store", said)
        producer = Producer(broker)
        with broker:
            producer.send_some(20)
            assert not disk.remount("ro")
            producer.send_some(20)
        assert disk.remount("ro")
        with pytest.raises(AssertionError, match=r"could not start: the disk failed(.|\n)*Read-only file system"):
            broker.start()
        assert "Traceback" not in said.read_text()
        assert disk.remount("rw")
        with broker:
            producer.check()
            producer.send_some(20)
            producer.check_queues()


def test_a_disk_that_turned_read_only(tmp_path, said):
    """ext4 found an error in itself. Nothing that was acknowledged is lost; nothing is acknowledged any more."""
    image = make_image(tmp_path / "image", megabytes=32)
    broker = Broker(tmp_path / "disk" / "store", said, SYNC)
    producer = Producer(broker)
    with ext4(image, tmp_path / "disk") as disk, broker:
        producer.send_some(50)
        disk.report_error()
        code, _ = producer.send_until_refused()
        assert code in (SERVICE_NOT_AVAILABLE, FLUSH_DISK_TIMEOUT, SYSTEM_ERROR)
        producer.send_until_refused()
        assert "Read-only file system" in producer.refused[-1][1]
        assert broker.state()["state"] in ("paused", "failed")
        producer.check()
        broker.end(signal.SIGKILL)
    with ext4(image, tmp_path / "disk"), broker:
        producer.check()
        producer.send_some(10)
        producer.check()


def test_power_lost_in_the_middle(tmp_path, said):
    """With SYNC_FLUSH an answer means: on the disk, with the file's length and its name, also right behind a new file's start."""
    image = make_image(tmp_path / "image", megabytes=64)
    broker = Broker(tmp_path / "disk" / "store", said, SYNC)
    producer = Producer(broker)
    with ext4(image, tmp_path / "disk") as disk:
        broker.start()
        rolled = threading.Event()

        def send() -> None:
            with broker.connect() as connection:
                while producer.send(connection, size=30_000) == OK:
                    if len(producer.acked) > 150:  # Four files on.
                        rolled.set()

        thread = threading.Thread(target=send)
        thread.start()
        try:
            assert rolled.wait(60)
            # What is answered in the very moment of the cut proves nothing: a kernel that goes on running may still say yes to a
            # sync whose transaction has just been thrown away.
            promised = len(producer.acked)
            disk.cut_power()
            thread.join(30)
            assert not thread.is_alive()
        finally:
            broker.end(signal.SIGKILL)
            thread.join(30)
    producer.acked = producer.acked[:promised]
    with ext4(image, tmp_path / "disk"), broker:
        producer.check()
        producer.check_queues()
        producer.send_some(10)
        restart(broker)
        producer.check()


@pytest.mark.parametrize(
    ("call", "part"),
    [("fdatasync", "commitlog"), ("fsync", "commitlog"), ("fdatasync", "consumequeue"), ("fdatasync", "checkpoint")],
)
def test_a_sync_that_fails_once(tmp_path, said, armed, call, part):
    """Once is for ever: the pages may be gone although the next sync would succeed. Whoever waits for it is told.

    RocketMQ 5.3.3 goes on with SEND_OK.
    """
    broker = Broker(tmp_path / "store", said, {**SYNC, "flushConsumeQueueThoroughInterval": "200"}, armed.env)
    producer = Producer(broker)
    broker.start()
    try:
        producer.send_some(20)
        into_next_file(producer)
        armed.arm(call, errno.EIO, part)
        with broker.connect() as connection:
            wait_for(lambda: producer.send(connection, size=30_000) != OK, "the failure is noticed")
        armed.disarm()
        if part == "commitlog":
            assert producer.refused[0][0] == FLUSH_DISK_TIMEOUT
            assert call in producer.refused[0][1]
        time.sleep(1.5)  # Longer than what passes by itself takes.
        code, remark = producer.send_until_refused()
        assert code == SERVICE_NOT_AVAILABLE
        assert "Input/output error" in remark
        assert call in remark
        assert broker.state()["state"] == "failed"
        producer.check()
        restart(broker)
        producer.check()
        producer.check_queues()
        producer.send_some(10)
    finally:
        armed.disarm()
        broker.end(signal.SIGKILL)


@pytest.mark.parametrize(
    ("number", "part"),
    [
        (errno.ENOSPC, "commitlog"),
        (errno.EDQUOT, "commitlog"),
        (errno.ENOSPC, "consumequeue"),
        (errno.ENOSPC, "checkpoint"),
        (errno.ENOSPC, "index"),
        (errno.ENOSPC, "twinlog"),
    ],
)
def test_a_write_that_stops_half_way(tmp_path, said, armed, number, part):
    """No half record stays, no unit is passed over, and it goes on by itself."""
    broker = Broker(tmp_path / "store", said, {"flushConsumeQueueThoroughInterval": "200"}, armed.env)
    producer = Producer(broker)
    broker.start()
    try:
        producer.send_some(20)
        into_next_file(producer)
        armed.arm("pwrite", number, part)
        if part in ("commitlog", "consumequeue"):
            assert producer.send_until_refused()[0] == SERVICE_NOT_AVAILABLE
            assert broker.state()["state"] == "paused"
        else:
            time.sleep(0.5)
            producer.send_some(20)
        producer.check()
        armed.disarm()
        assert producer.seconds_until_taken() < 3
        producer.send_some(20)
        wait_for(lambda: broker.state()["dispatchedOffset"] == broker.state()["maxOffset"], "the queues are level")
        producer.check()
        producer.check_queues()
        restart(broker, signal.SIGKILL)
        producer.check()
        producer.check_queues()
    finally:
        armed.disarm()
        broker.end(signal.SIGKILL)


def test_a_stuck_disk(tmp_path, said):
    """It takes nothing for a while. The broker says where it hangs while it hangs, and goes on as if nothing had been.

    After a write that takes longer than osPageCacheBusyTimeOutMills the next messages are refused, as RocketMQ does it; how long
    this one takes is up to the machine, so it may take any time.
    """
    image, patient = make_image(tmp_path / "image", megabytes=32), {**SYNC, "osPageCacheBusyTimeOutMills": "60000"}
    with ext4(image, tmp_path / "disk") as disk, Broker(disk.path / "store", said, patient) as broker:
        producer = Producer(broker)
        producer.send_some(20)

        def send() -> None:
            with broker.connect() as connection:
                for _ in range(20):
                    producer.send(connection)

        thread = threading.Thread(target=send)
        disk.freeze()
        try:
            thread.start()
            wait_for(
                lambda: broker.lines("the event loop stalls") or broker.lines("a sync of the disk hangs"), "a line"
            )
        finally:
            disk.thaw()
        thread.join(30)
        assert producer.refused == []
        wait_for(lambda: broker.lines("runs again") or broker.lines("sync of the disk finished"), "the line after")
        # In a write to the log, or of units that came a little before.
        assert all("write_at" in line["stack"] for line in broker.lines("the event loop stalls"))
        counters = broker.counters()
        assert int(counters["eventLoopStalls"]) == len(broker.lines("the event loop stalls"))
        producer.send_some(20)
        producer.check()
        restart(broker)
        producer.check()
        producer.check_queues()
