"""Tables on their way to the disk: in order, several changes at once, and promises that wait for them."""

import time

import pytest
import trio

from tests.cluster.broker.helpers import SlowFile, make_broker
from tests.cluster.broker.sending import Producer, make_parts
from twinlog.cluster.broker.tables.writer import TableWriter


@pytest.fixture
def slow(tmp_path):
    table = {}
    return table, TableWriter(SlowFile(tmp_path / "t.json"), lambda: dict(table))


def change(table, writer, name):
    table[name] = len(table)
    writer.changed(name)


async def test_changes_that_come_together_are_written_together(slow, nursery):
    table, writer = slow
    done = []

    async def promised(name):
        change(table, writer, name)
        await writer.save()
        done.append((name, name in writer.file.saved[-1]))

    nursery.start_soon(promised, "a")
    await trio.testing.wait_all_tasks_blocked(0.01)
    for name in "bcd":
        nursery.start_soon(promised, name)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert (done, writer.is_saved) == ([], False)
    writer.file.go.release()
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert done == [("a", True)]
    assert writer.holds("a")
    assert not writer.holds("ab")
    writer.file.go.release()
    with trio.fail_after(5):
        while len(done) < 4:
            await trio.sleep(0.001)
    assert all(is_there for _, is_there in done)
    assert [sorted(saved) for saved in writer.file.saved] == [["a"], ["a", "b", "c", "d"]]
    assert writer.is_saved
    await writer.save()  # Nothing to do: no save is let through any more.


async def test_what_the_disk_refuses_is_tried_again(slow, nursery, autojump_clock, capsys):
    """Told once. Who waits is told that it is not there; answers to producers, whose messages are, go out."""
    table, writer = slow
    answered = []
    object.__setattr__(writer.file, "error", OSError("full"))
    writer.file.go.release(2)
    change(table, writer, "a")
    writer.when_saved(lambda: answered.append("a"))
    with pytest.raises(OSError, match="full"):
        await writer.save()
    assert answered == ["a"]
    with pytest.raises(OSError, match="full"):
        await writer.save()
    assert capsys.readouterr().out.count("could not be written") == 1
    object.__setattr__(writer.file, "error", None)
    writer.file.go.release(2)
    nursery.start_soon(writer.run)
    while not writer.holds("a"):  # A thread writes, and virtual time does not wait for that.
        await trio.to_thread.run_sync(time.sleep, 0.001)
    assert writer.file.saved == [{"a": 0}]


async def test_a_message_that_makes_its_topic_is_answered_when_the_topic_is_saved(tmp_path, nursery):
    """So that no consumer of an acknowledged message is without its topic after kill -9. Others are not kept waiting."""
    parts = make_parts(tmp_path)
    parts.topics_writer.file = SlowFile(tmp_path / "t.json")
    parts.topics.on_change.append(parts.topics_writer.changed)
    producer = Producer(parts)
    nursery.start_soon(parts.topics_writer.run)
    assert producer.send(producer.command("New")) == []
    assert producer.send(producer.command("New", e=1)) == []
    assert [answer.code for answer in producer.send(producer.command("TBW102"))] == [0]
    parts.topics_writer.file.go.release()
    with trio.fail_after(5):
        while len(producer.wire.answers) < 3:
            await trio.sleep(0.001)
    assert [answer.code for answer in producer.send(producer.command("New"))] == [0]
    assert "New" in parts.topics_writer.file.saved[0]["topicConfigTable"]


async def test_an_acknowledged_topic_is_in_the_file(tmp_path, autojump_clock):
    """Of a broker that ends without another step."""
    broker = make_broker(tmp_path)
    broker.tables.topics.create_in_send_back("%RETRY%G", 1)
    await broker.tables.topics_writer.save()
    again = make_broker(tmp_path)
    again.load_tables()
    assert "%RETRY%G" in again.tables.topics.table
