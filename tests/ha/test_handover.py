"""Who was master and resigned for another one follows it at once: its log is what the new epoch begins behind."""

import pytest
import trio
from attrs import evolve

from tests.ha.following import FILE_SIZE, bodies, master_of, slave_with
from tests.ha.histories import A, B, Slave, entry, group, history
from tests.helpers import log_bytes, open_store, put
from twinlog.store.epoch_file import FIRST, EpochId

HA_ADDRESS = "master:10912"  # As the tests of following have it.


@pytest.fixture
def resigned(tmp_path, nursery):
    """B took over where both logs end, and has written since; A knows what B told with its first lease question."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    put(store, *bodies(20))
    slave = Slave(
        slave_with(tmp_path, log_bytes(store)), (FIRST, entry(1, A, 0)), EpochId(2, B), group(A, B), address=A
    )
    told = history(FIRST, entry(1, A, 0), entry(2, B, store.max_offset), record=group(A, B))
    master = master_of(nursery, store)
    master.peer.told = evolve(told, max_offset=store.max_offset, ha_address=HA_ADDRESS)
    put(store, *bodies(5))
    return master, slave, master.peer.told


async def test_nothing_is_compared_after_a_handover(autojump_clock, nursery, resigned):
    """One question, once the connection stands: is it still the one that took over?"""
    master, slave, told = resigned
    client = slave.follow(nursery, master)
    client.hand_over(told)
    await trio.sleep(1)
    assert client.state == "streaming"
    assert master.peer.questions == ["history"]
    assert slave.done == [f"adopted epoch 2 at {told.entries[-1].start_offset}"]
    assert log_bytes(slave.store) == log_bytes(master.store)
    assert client.finding is None
    slave.master = None  # It may adopt while a connection stands that is broken.
    await master.break_connections()
    await trio.sleep(1)
    assert "digests" in master.peer.questions, "a later attempt compares as ever"


async def test_a_log_that_does_not_end_there_is_compared(autojump_clock, nursery, resigned):
    master, slave, told = resigned
    client = slave.follow(nursery, master)
    client.hand_over(evolve(told, entries=(*told.entries[:-1], entry(2, B, told.max_offset - 1))))
    await trio.sleep(1)
    assert master.peer.questions[:2] == ["history", "log"]
    assert client.state == "streaming"


@pytest.mark.parametrize("change", [{"boot_ms": 2}, {"id": EpochId(3, B)}])
async def test_a_master_that_is_another_one_by_now_is_not_believed(autojump_clock, nursery, resigned, change):
    """It was started anew since, or elected again."""
    master, slave, told = resigned
    master.peer.boot_ms = change.get("boot_ms", 1)
    master.peer.told = evolve(told, **change)
    client = slave.follow(nursery, master)
    client.hand_over(told)
    slave.master = None  # It adopts twice.
    await trio.sleep(5)
    assert master.peer.questions[:2] == ["history", "history"], "asked as ever once the handover was none"
    assert "digests" in master.peer.questions
    assert client.state == "streaming"


async def test_a_handover_is_for_one_master(autojump_clock, nursery, resigned):
    master, slave, told = resigned
    client = slave.follow(nursery, master)
    client.hand_over(evolve(told, ha_address="another:10912"))
    await trio.sleep(1)
    assert "digests" in master.peer.questions
    assert client.state == "streaming"


async def test_our_end_of_a_connection_is_told_before_anything_is_said_on_it(autojump_clock, nursery, resigned):
    master, slave, told = resigned
    client = slave.follow(nursery, master)
    client.hand_over(told)

    async def connect(address):
        transport = await master.connect(address)
        transport.local_address = "127.0.0.1:5555"
        return transport

    client.connect = connect
    seen = []
    master.peer.before = lambda _question: seen.append(client.fresh_address)
    await trio.sleep(1)
    assert seen == ["127.0.0.1:5555"]
    assert client.fresh_address is None
