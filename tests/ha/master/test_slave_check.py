"""A master asks RocketMQ slaves what they hold before it serves them: they do not compare."""

import errno
from collections.abc import Collection
from pathlib import Path

import pytest
import trio
from attrs import define, field
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from tests.helpers import StorePeer, log_bytes, open_store, put, replicate
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAError, HALogError, HARefusedError
from twinlog.ha.master.connection import HAConnection
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.master.slave_check import slave_fits
from twinlog.ha.peer import Peer
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.config import BrokerRole
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore

SIZE = 250


@define(eq=False)
class Slave:
    """Its store, its remoting port, and who asks for it. `data` is all of its log."""

    directory: Path
    data: bytes
    store: MessageStore = field(init=False)
    peer: StorePeer = field(init=False)
    peers: Collection[Peer] | None = field(init=False)
    asked: list[tuple[str, int]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.store = open_store(self.directory, role=BrokerRole.SLAVE)
        replicate(self.store, self.data)
        self.peer = StorePeer(self.store, is_twinlog=False)
        self.peers = [self.peer]

    async def find(self, address: str, requested: int) -> Collection[Peer] | None:
        await trio.lowlevel.checkpoint()
        self.asked.append((address, requested))
        return self.peers


@pytest.fixture
def master(tmp_path):
    store = open_store(tmp_path / "master")
    put(store, *(b"%02d" % number * SIZE for number in range(40)))
    return store


def other_tail(tmp_path: Path, common: bytes) -> tuple[bytes, int]:
    """A log that begins with these bytes, and where it goes on with others."""
    store = open_store(tmp_path / "other", role=BrokerRole.SLAVE)
    replicate(store, common)
    at = store.max_offset
    store._release()
    store = open_store(tmp_path / "other")
    put(store, *(b"%x" % (number + 100) * SIZE for number in range(5)))
    return log_bytes(store), at


def half_of(store: MessageStore) -> bytes:
    """Its first 20 records, which are of one size."""
    data = log_bytes(store)
    return data[: 20 * int.from_bytes(data[:4], "big")]


async def test_a_log_that_is_a_beginning_of_ours(tmp_path, master):
    slave = Slave(tmp_path / "slave", half_of(master))
    assert await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find) is True
    assert slave.asked == [("10.0.0.1:5", slave.store.max_offset)]
    assert "record" in {question.split()[0] for question in slave.peer.questions}


async def test_a_log_that_ends_within_a_record(tmp_path, master):
    """RocketMQ's slave keeps pieces of records: what it has not whole is no difference."""
    slave = Slave(tmp_path / "slave", half_of(master))
    assert await slave_fits(master, "10.0.0.1:5", slave.store.max_offset + 40, slave.find) is True


async def test_a_log_with_a_tail_of_its_own(tmp_path, master):
    data, at = other_tail(tmp_path, half_of(master))
    slave = Slave(tmp_path / "slave", data)
    with pytest.raises(HARefusedError, match=f"from byte {at} on") as refused:
        await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find)
    assert refused.value.cause == "diverged"


async def test_one_of_several_slaves_of_an_address_fits(tmp_path, master):
    """It cannot be told which of them it is."""
    slave = Slave(tmp_path / "slave", half_of(master))
    bad = Slave(tmp_path / "bad", other_tail(tmp_path, half_of(master))[0])
    slave.peers = [bad.peer, slave.peer]
    assert await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find) is True


async def test_nobody_to_ask(tmp_path, master):
    slave = Slave(tmp_path / "slave", half_of(master))
    slave.peer.is_up = False
    assert await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find) is None
    slave.peers = []
    assert await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find) is None
    slave.peers = None  # It compares by itself.
    assert await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find) is True


@define(eq=False)
class Served:
    """A connection of a slave to a master, and how it ended."""

    connection: HAConnection
    transfer: GroupTransferService
    stream: trio.StapledStream
    error: HAError | None = None

    async def run(self) -> None:
        try:
            await self.connection.run()
        except HAError as error:
            self.error = error


async def serve(nursery: trio.Nursery, master: MessageStore, slave: Slave, *, sent: int) -> Served:
    """The slave asks for what comes behind its log; other slaves were sent bytes up to `sent`."""
    ours, theirs = memory_stream_pair()
    transfer = GroupTransferService()
    transfer.members_changed(["10.0.0.1"])
    connection = HAConnection(
        StreamTransport(ours),
        "10.0.0.1:5",
        "10.0.0.1",
        master,
        transfer,
        HAConfig(),
        holdable=lambda: sent,
        find_slave=slave.find,
    )
    served = Served(connection, transfer, theirs)
    nursery.start_soon(served.run)
    await theirs.send_all(ACK.pack(slave.store.max_offset))
    await wait_all_tasks_blocked(0.02)
    return served


async def test_a_slave_of_another_history_is_sent_nothing(tmp_path, master, nursery):
    slave = Slave(tmp_path / "slave", other_tail(tmp_path, half_of(master))[0])
    served = await serve(nursery, master, slave, sent=master.max_offset)
    assert isinstance(served.error, HARefusedError)
    assert served.error.cause == "diverged"
    assert await served.stream.receive_some() == b""
    assert served.transfer.push2_slave_max_offset == 0


async def test_a_slave_that_cannot_be_asked_and_holds_what_nobody_was_sent(tmp_path, master, nursery, autojump_clock):
    slave = Slave(tmp_path / "slave", half_of(master))
    slave.peers = []
    served = await serve(nursery, master, slave, sent=slave.store.max_offset - 1)
    await trio.sleep(11)
    assert isinstance(served.error, HARefusedError)
    assert served.error.cause == "unproven"


async def test_one_that_is_about_to_compare_counts_once_it_takes_what_comes(tmp_path, master, nursery):
    """It asks for its last bytes again: until these are equal it may hold anything."""
    slave = Slave(tmp_path / "slave", half_of(master))
    slave.peers = None
    served = await serve(nursery, master, slave, sent=0)
    held = slave.store.max_offset
    assert (served.connection.ack_offset, served.transfer.push2_slave_max_offset) == (held, 0)
    await served.stream.send_all(ACK.pack(held + 1))
    await wait_all_tasks_blocked(0.02)
    assert served.transfer.push2_slave_max_offset == held + 1
    await served.stream.aclose()


async def test_a_copy_made_by_hand_is_compared_and_counts(tmp_path, master, nursery):
    slave = Slave(tmp_path / "slave", half_of(master))
    served = await serve(nursery, master, slave, sent=0)
    with trio.fail_after(10):  # It is read in a thread.
        while served.transfer.push2_slave_max_offset != slave.store.max_offset:
            assert served.error is None
            await trio.sleep(0.01)
    await served.stream.aclose()


async def test_a_slave_whose_remoting_port_comes_up_later_is_sent_nothing_before(
    tmp_path, master, nursery, autojump_clock
):
    slave = Slave(tmp_path / "slave", other_tail(tmp_path, half_of(master))[0])
    slave.peers = []
    served = await serve(nursery, master, slave, sent=master.max_offset)
    await trio.sleep(5)
    assert served.error is None
    slave.peers = [slave.peer]
    assert await served.stream.receive_some() == b""
    await wait_all_tasks_blocked()
    assert isinstance(served.error, HARefusedError)
    assert served.error.cause == "diverged"


async def test_a_slave_that_answers_very_late_is_served_then_refused(tmp_path, master, nursery, autojump_clock):
    """Before it leaves of itself, it is believed; what it holds turns out to be something else."""
    slave = Slave(tmp_path / "slave", other_tail(tmp_path, half_of(master))[0])
    slave.peers = []
    served = await serve(nursery, master, slave, sent=master.max_offset)
    await trio.sleep(11)
    assert served.error is None
    assert len(await served.stream.receive_some(12)) == BATCH_HEADER.size
    slave.peers = [slave.peer]
    await trio.sleep(6)
    assert isinstance(served.error, HARefusedError)
    assert served.error.cause == "diverged"


async def test_a_slave_that_takes_its_time_to_answer_is_served_before_it_leaves(
    tmp_path, master, nursery, autojump_clock, monkeypatch
):
    """A RocketMQ slave hears nothing meanwhile, and leaves after 20 s to begin anew."""
    slave = Slave(tmp_path / "slave", half_of(master))

    async def find(_slave: Slave, _address: str, _requested: int) -> Collection[Peer] | None:
        await trio.sleep(30)
        return [slave.peer]

    monkeypatch.setattr(Slave, "find", find)
    served = await serve(nursery, master, slave, sent=master.max_offset)
    with trio.fail_after(15):
        assert len(await served.stream.receive_some(12)) == BATCH_HEADER.size
    assert served.error is None


async def test_a_log_of_ours_that_cannot_be_read_ends_the_connection_only(tmp_path, master, monkeypatch):
    def read(_self, _offset, _size):
        raise OSError(errno.EIO, "bad sector")

    slave = Slave(tmp_path / "slave", half_of(master))
    monkeypatch.setattr(LogRange, "read", read)
    with pytest.raises(HALogError, match="bad sector"):
        await slave_fits(master, "10.0.0.1:5", slave.store.max_offset, slave.find)
