"""What users of RocketMQ met with synchronous sends (apache/rocketmq#1244, #3484, #3664, #8875); a master without its tail."""

import errno
import gc
import os
import socket
from contextlib import suppress

import psutil
import pytest
import trio

from tests.helpers import log_bytes
from tests.support.group.group import FILE_SIZE, files_of, fill, level, same_log, started
from twinlog.ha.wire.protocol import ACK
from twinlog.store.config import BrokerRole
from twinlog.store.log.offset_waiters import PutStatus

SYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


async def test_many_who_do_not_wait_beside_few_who_do(autojump_clock, group):
    """#1244: no message that waits is told that time is up though its slave has it."""
    master, slave = await started(group)
    slave.line.delay = 0.02
    waiting = []

    async def flood() -> None:
        while True:
            for _ in range(20):
                master.send(b"f" * 200, wait=False)
            await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        for _ in range(100):
            answer = master.send(b"waits")
            waiting.append(answer)
            await trio.sleep(0.05)
        for answer in waiting:
            await answer.heard.wait()
        nursery.cancel_scope.cancel()
    assert {answer.status for answer in waiting} == {PutStatus.PUT_OK}
    assert max(answer.seconds for answer in waiting) < 0.06  # There and back, and little more.


async def test_a_slave_s_disk_turns_read_only_in_traffic(autojump_clock, group, refusing_disk):
    """#3484: some messages wait out slaveTimeout, then the slave is left out at once and named, and comes back by itself."""
    master, slave = await started(group)
    refusing_disk.append(slave)

    async def send_for(seconds: float) -> list:
        answers = []
        with trio.move_on_after(seconds):
            while True:
                answers.append(master.send(b"m" * 100))
                await trio.sleep(0.1)
        for answer in answers:
            await answer.heard.wait()
        return answers

    before = await send_for(2)
    assert {answer.status for answer in before} == {PutStatus.PUT_OK}
    slave.disk_refuses = errno.EROFS
    during = await send_for(30)
    assert PutStatus.PUT_OK not in {answer.status for answer in during}
    late = [answer for answer in during if answer.sent_at > during[0].sent_at + 10]
    assert max(answer.seconds for answer in late) < 0.01, "the group does not stand still for one slave"
    assert {answer.status for answer in late} == {PutStatus.SLAVE_NOT_AVAILABLE}
    assert all(slave.ip in answer.reason for answer in late), late[0].reason
    slave.disk_refuses = 0
    await level(master, slave)
    await trio.sleep(2)
    after = await send_for(2)
    assert {answer.status for answer in after} == {PutStatus.PUT_OK}
    assert same_log(master, slave)


@pytest.mark.parametrize("delay", [0.002, 0.02])
async def test_a_long_link_costs_its_delay_and_no_more(autojump_clock, group, delay):
    """#3664: 256 senders, one message each at a time: within 10 % of what the link's round trip allows."""
    master, slave = await started(group)
    slave.line.delay = delay
    done = 0

    async def sender() -> None:
        nonlocal done
        while True:
            answer = master.send(b"s" * 100)
            await answer.heard.wait()
            assert answer.status is PutStatus.PUT_OK
            done += 1

    seconds = 100 * delay
    async with trio.open_nursery() as nursery:
        for _ in range(256):
            nursery.start_soon(sender)
        await trio.sleep(4 * delay)
        done, began = 0, trio.current_time()
        await trio.sleep(seconds)
        rate = done / (trio.current_time() - began)
        nursery.cancel_scope.cancel()
    assert rate > 0.9 * 256 / (2 * delay)


async def test_health_checks_probe_the_ha_port(autojump_clock, group):
    """#8875: two a second, for ten minutes: no memory, no task, no socket, and no producer is told anything."""
    master, _ = await started(group)
    process = psutil.Process()

    async def probe_for(seconds: int) -> None:
        for second in range(seconds):
            for kind in range(2):
                ours, theirs = socket.socketpair()
                if (second + kind) % 3 == 0:
                    theirs.send(ACK.pack(1 << 40)[: 8 if second % 2 else 3])
                master.ha.connection_admission.take(ours, "127.0.0.9:5", "127.0.0.9")
                await trio.sleep(0.02)
                theirs.close()
                await trio.sleep(0.02)
            answer = master.send(b"p" * 10)
            await answer.heard.wait()
            assert answer.status is PutStatus.PUT_OK

    await probe_for(100)
    gc.collect()
    tasks, sockets, memory = _tasks(), _sockets(), process.memory_info().rss
    await probe_for(600)
    gc.collect()
    assert (_tasks(), _sockets()) == (tasks, sockets)
    assert process.memory_info().rss - memory < 16 << 20  # Of stores, which grow with each message.
    assert master.ha.statistics().push2_slave_max_offset == master.max_offset


def _sockets() -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # What the listing itself was opened with.
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return count


def _tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def test_a_master_comes_back_without_its_newest_bytes(autojump_clock, group):
    """The slave holds 55 KB more; then 120 synchronous sends. RocketMQ answers SEND_OK to 119, and the logs differ for ever."""
    master, slave = await started(group)
    fill(master, 6)
    await level(master, slave)
    lost = master.max_offset - 55_000
    await master.stop()
    for path in files_of(master):
        start = int(path.name)
        if start + FILE_SIZE > lost:
            with path.open("r+b") as file:
                file.seek(max(0, lost - start))
                file.write(bytes(FILE_SIZE - max(0, lost - start)))
    for side in (master.root / "twinlog").iterdir():
        if side.is_file():
            side.unlink()
    (master.root / "abort").touch()
    await master.start()
    assert master.max_offset <= lost
    kept = log_bytes(slave.store)
    answers = []
    for number in range(120):
        answers.append(master.send(b"%d" % number * 100))
        await trio.sleep(0.5)
    for answer in answers:
        await answer.heard.wait()
    assert PutStatus.PUT_OK not in {answer.status for answer in answers}
    assert log_bytes(slave.store) == kept, "not a byte was taken"
    assert slave.client.state in {"ahead", "diverged"}
    assert slave.client.finding.offset is not None
    assert all(slave.ip in answer.reason for answer in answers[60:])
