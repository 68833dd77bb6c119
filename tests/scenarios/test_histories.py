"""What users met when a master was cut off, and when two masters were chosen at one offset (apache/rocketmq#7017)."""

import pytest
import trio

from tests.helpers import log_bytes
from tests.support.group.group import Group, Member, same_log, until
from tests.support.group.stores import role_group
from twinlog.store.log.offset_waiters import PutStatus

LEASE = 3.0


@pytest.fixture
async def rooms(nursery, tmp_path):
    """A master and two slaves, each in a room of its own; a message is safe once two of them have it."""
    group = role_group(nursery, tmp_path, size=3)
    await group.start()
    yield group
    await group.kill()


async def produce(member: Member, seconds: float, word: str) -> None:
    """Twenty messages a second."""
    for number in range(round(seconds * 20)):
        member.produce(b"%s %d" % (word.encode(), number))
        await trio.sleep(0.05)


async def all_level(group: Group) -> None:
    await until(
        lambda: (
            len({member.max_offset for member in group.members}) == 1
            and sum(member.ha.client.state == "streaming" for member in group.members) == len(group.members) - 1
        ),
        "all have one log",
    )
    assert all(same_log(group.members[0], member) for member in group.members)


def kept_bytes(member: Member) -> bytes:
    """What was cut, as it is kept."""
    directory = member.root / "twinlog" / "divergent"
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()] if directory.exists() else []
    return b"".join(path.read_bytes() for path in files)


async def test_the_room_of_the_master_is_cut_off(autojump_clock, rooms):
    """It acknowledges nothing more; another one takes over; when the room is back, it follows by itself. No message that
    was acknowledged anywhere is missing, and what was not is kept beside the log.
    """
    old, new, other = rooms.members
    await produce(old, 2, "before")
    await trio.sleep(0.1)
    assert len(old.acknowledged) == 40
    rooms.isolate(old)
    cut_off_at = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, old, 10, "isolated")
        await trio.sleep(1)
        await rooms.change("failover", new)
        assert new.is_serving
        nursery.start_soon(produce, new, 5, "after")
    await trio.sleep(5)
    told = [answer for body, answer in old.answers if body.startswith(b"isolated")]
    assert all(answer.status is not PutStatus.PUT_OK or answer.answered_at <= cut_off_at + LEASE for answer in told)
    assert sum(answer.status is PutStatus.PUT_OK for answer in told) == 0, "nobody else has them"
    assert len(new.acknowledged) == 100
    lost = log_bytes(old.store)[new.roles.member.epochs()[-1].start_offset :]
    assert b"isolated 199" in lost

    rooms.isolate()
    await all_level(rooms)
    assert [member.is_serving for member in rooms.members] == [False, True, False]
    log = log_bytes(old.store)
    assert all(body in log for body in old.acknowledged + new.acknowledged)
    assert b"isolated 199" not in log
    assert lost in kept_bytes(old)
    assert old.roles.member.epochs() == new.roles.member.epochs() == other.roles.member.epochs()
    await produce(new, 1, "all together")
    await all_level(rooms)
    assert old.send(b"to the old one").status is PutStatus.SERVICE_NOT_AVAILABLE


async def test_a_master_that_is_heard_by_nobody_stops_within_its_lease(autojump_clock, rooms):
    """Acknowledgements still arrive over the HA port; who may have been elected meanwhile, it cannot know."""
    old = rooms.members[0]
    rooms.deaf.add(old)
    cut_off_at = trio.current_time()
    await produce(old, 8, "half deaf")
    await trio.sleep(5)
    late = [answer for _, answer in old.answers if answer.sent_at > cut_off_at + LEASE]
    assert late
    assert {answer.status for answer in late} == {PutStatus.FLUSH_SLAVE_TIMEOUT}
    assert "no lease" in late[-1].reason
    assert old.answers[0][1].status is PutStatus.PUT_OK
    rooms.deaf.clear()
    await until(lambda: old.ha.lease.held(trio.current_time()), "the lease is held again", seconds=5)
    old.produce(b"heard again")
    await trio.sleep(0.1)
    assert old.answers[-1][1].status is PutStatus.PUT_OK


async def test_two_elections_without_a_write_between_them(autojump_clock, rooms):
    """Both masters begin their epoch at one offset, and write other bytes there. RocketMQ compares where epochs begin and end,
    and finds the two logs equal.
    """
    first, second, third = rooms.members
    await produce(first, 1, "before")
    await trio.sleep(0.1)
    await first.kill()
    await rooms.change("failover", second)
    assert second.is_serving
    await until(lambda: third.ha.client.state == "streaming", "the third follows the second")
    rooms.isolate(second)
    await first.start()
    await until(lambda: first.ha.client.state != "idle" or first.word == "fenced", "the first is back")
    await rooms.change("failover", third)
    assert third.is_serving
    starts = [entry.start_offset for entry in third.roles.member.epochs()[-2:]]
    assert starts[0] == starts[1], "nothing was written between the two elections"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, second, 3, "by the second")
        nursery.start_soon(produce, third, 3, "by the third")
    await trio.sleep(5)
    assert second.acknowledged == []
    assert len(third.acknowledged) == 60
    given_up = log_bytes(second.store)[starts[0] :]
    assert b"by the second 59" in given_up

    rooms.isolate()
    await all_level(rooms)
    assert third.is_serving
    assert given_up in kept_bytes(second)
    log = log_bytes(second.store)
    assert all(body in log for body in first.acknowledged + third.acknowledged)
    assert b"by the second" not in log
