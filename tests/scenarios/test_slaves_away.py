"""What users of RocketMQ met when a slave was away, or its disk was bad (apache/rocketmq#3388, alibaba/rocketmq#359)."""

import errno
import os

import pytest
import trio

from tests.support.group.group import FILE_SIZE, files_of, fill, level, queues, same_log, started, until
from twinlog.ha.config import AckMode
from twinlog.store.log.offset_waiters import PutStatus


async def test_the_master_has_deleted_what_a_slave_needs(autojump_clock, group):
    """No riddle of heartbeats: slave and producers are told why, and with haAutoResync the slave begins anew by itself."""
    master, slave = await started(group)
    fill(master, 2)
    await level(master, slave)
    await slave.stop()
    fill(master, 4)
    await master.store.flush()
    master.store.dispatch_pending()
    with trio.fail_after(600):
        while master.min_offset <= 3 * FILE_SIZE:
            master.store.retention.make_room()
            await trio.sleep(1)
    await slave.start()
    await until(lambda: slave.client.state == "below min", "the state")
    assert str(master.min_offset) in slave.client.finding.text
    answer = master.send(b"now")
    assert answer.status is PutStatus.SLAVE_NOT_AVAILABLE
    assert slave.ip in answer.reason
    await trio.sleep(600)
    assert slave.client.state == "below min", "it does nothing by itself unless it may"

    await slave.stop()
    await slave.start(auto_resync=True)
    await level(master, slave)
    assert slave.min_offset == master.min_offset
    assert same_log(master, slave)
    answer = master.send(b"again")
    await answer.heard.wait()
    assert answer.status is PutStatus.PUT_OK
    assert list((slave.root / "twinlog" / "divergent").iterdir()), "what it had is kept"


# alibaba/rocketmq#359: do master and slaves end up with exactly the same log and queues?


async def test_after_a_bad_disk_the_slave_acknowledges_nothing_more_and_says_so(autojump_clock, group, monkeypatch):
    """With haAckMode=flushed a failed fsync on the slave is no acknowledgement, and the other slave's word is enough."""
    master, bad, good = await started(group, slaves=2, ack_mode=AckMode.flushed)
    first = master.send(b"before")
    await first.heard.wait()
    held = bad.max_offset

    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(f"{bad.root}/commitlog"):
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    for number in range(20):
        answer = master.send(b"%d" % number)
        await answer.heard.wait()
        assert answer.status is PutStatus.PUT_OK
    await until(lambda: bad.client.state == "failed", "the slave to say so")
    acked = {slave.address.partition(":")[0]: slave.ack_offset for slave in master.ha.group_transfer.slaves}
    assert acked.get(bad.ip, held) == held
    assert "Input/output error" in bad.store.why_not_writable
    await good.kill()
    answer = master.send(b"alone")
    await answer.heard.wait()
    assert answer.status in (PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT)


async def test_logs_and_queues_are_the_same_after_traffic(autojump_clock, group):
    master, one, other = await started(group, slaves=2)
    for number in range(600):
        master.send(b"%d" % number * (number % 90), wait=number % 3 > 0, topic=f"T{number % 4}")
        if number % 50 == 0:
            await trio.sleep(0.2)
        if number in (150, 400):
            one.line.cut()
    for slave in (one, other):
        await level(master, slave)
        await until(lambda slave=slave: queues(slave) == queues(master), "the queues")
        assert same_log(master, slave)
    assert len(files_of(master)) > 3


async def test_a_slave_that_was_dead_for_two_hours(autojump_clock, group):
    master, slave = await started(group)
    fill(master, 1)
    await level(master, slave)
    await slave.kill()
    for _ in range(120):
        master.send(b"y" * 1000, wait=False)
        await trio.sleep(60)
    await slave.start()
    assert await level(master, slave, seconds=30) < 10
    assert same_log(master, slave)
    assert queues(slave) == queues(master)


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EROFS])
async def test_a_full_disk_that_is_freed_after_ten_minutes(autojump_clock, group, refusing_disk, refusal):
    """The slave says that it pauses, acknowledges nothing that it does not hold, and goes on by itself."""
    master, slave = await started(group)
    first = master.send(b"before")
    await first.heard.wait()
    refusing_disk.append(slave)
    slave.disk_refuses = refusal
    held = slave.max_offset
    answers = [master.send(b"z" * 3000) for _ in range(10)]
    for answer in answers:
        await answer.heard.wait()
        assert answer.status is not PutStatus.PUT_OK
    await until(lambda: slave.client.state == "paused", "the state")
    await trio.sleep(600)
    assert (slave.client.state, slave.max_offset) == ("paused", held)
    slave.disk_refuses = 0
    assert await level(master, slave) < 10
    assert same_log(master, slave)
    await until(lambda: master.send(b"after") and slave.client.state == "streaming", "the slave to stream")
    last = master.send(b"last")
    await last.heard.wait()
    assert last.status is PutStatus.PUT_OK
