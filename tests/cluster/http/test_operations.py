"""Operations: begun once for a key, told of, kept until others need the room."""

import orjson
import pytest
import trio

from twinlog.cluster.admin.roles import ChangeOutcome, RoleRefusedError
from twinlog.cluster.dashboard.view.roles import operation_section
from twinlog.cluster.http import operations as module
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.server.responses import HttpError


def begin(operations: Operations, work, key=(None, b"")):
    return operations.begin("reinit", "a", "a-1", "", work, key)


async def done(_update) -> None:
    await trio.lowlevel.checkpoint()


async def long(_update) -> None:
    await trio.sleep(100)


async def test_each_step_is_told_to_who_listens(autojump_clock):
    told = []
    operations = Operations(lambda event, data: told.append((event, orjson.loads(data)["state"])))
    begun = begin(operations, done)
    await trio.sleep(1)
    assert operations.find(begun.operation).state == "done"
    assert told == [("operation", "running"), ("operation", "done")]


@pytest.mark.parametrize(("absent", "state"), [((), "partial"), (("h:1",), "done")])
async def test_who_was_away_before_leaves_nothing_to_be_done(autojump_clock, absent, state):
    """A failover that has a dead master to follow it some day is done; one that waits for a member that answered is not."""

    async def change(_update) -> ChangeOutcome:
        return outcome

    outcome = ChangeOutcome(
        epoch=2,
        winner="h:2",
        start_offset=0,
        pause_ms=None,
        lost_bytes=0,
        kept=(),
        not_following=("h:1",),
        absent=absent,
    )
    operations = Operations()
    begun = begin(operations, change)
    await trio.sleep(1)
    found = operations.find(begun.operation)
    assert (found.state, found.result) == (state, outcome)
    text = str(operation_section(found, {"h:1": "a-0", "h:2": "a-1"}))
    assert ("Missing since before this began: a-0." in text) is (state == "done")
    assert ("Not following yet: a-0." in text) is (state == "partial")


async def test_what_fails_says_why_and_ends_nothing_else(autojump_clock):
    async def refused(update) -> None:
        update({"done_bytes": 1, "total_bytes": 2})
        raise RoleRefusedError("first line", "second line")

    async def bug(_update) -> None:
        await trio.sleep(5)
        raise RuntimeError("x")

    operations = Operations()
    first, second = begin(operations, refused), begin(operations, bug)
    await trio.sleep(10)
    found = operations.find(first.operation)
    assert (found.state, found.failure.error, found.failure.why) == ("failed", "first line", "second line")
    assert operations.find(second.operation).failure.error == "The change failed."


async def test_what_is_refused_at_once_leaves_nothing_behind(autojump_clock):
    """The same key may be used again: nothing was begun."""

    async def refused(_update) -> None:
        raise RoleRefusedError("it is paused")

    operations = Operations()
    begun = begin(operations, refused, ("key", b"request"))
    with pytest.raises(HttpError):
        await operations.settled(begun)
    assert operations.all().operations == ()
    assert operations.same("key", b"request") is None


async def test_a_key_means_one_request(autojump_clock):
    operations = Operations()
    begun = begin(operations, done, ("key", b"request"))
    assert operations.same("key", b"request").operation == begun.operation
    assert operations.same("other", b"request") is None
    with pytest.raises(HttpError) as caught:
        operations.same("key", b"another request")
    assert caught.value.status == 409


async def test_requests_with_one_key_come_one_after_the_other(autojump_clock):
    """Two that come at once make one operation."""
    operations, begun = Operations(), []

    async def request() -> None:
        async with operations.turn("key"):
            if operations.same("key", b"") is None:
                await trio.sleep(1)
                begun.append(begin(operations, done, ("key", b"")))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(request)
    assert len(begun) == 1
    assert operations._turns == {}


async def test_old_ones_make_room_and_running_ones_stay(monkeypatch, autojump_clock):
    monkeypatch.setattr(module, "KEPT_MAX", 3)
    operations = Operations()
    running = begin(operations, long)
    for _ in range(10):
        begin(operations, done)
        await trio.sleep(0.1)
    kept = operations.all().operations
    assert len(kept) <= 4
    assert kept[-1].operation == running.operation


async def test_so_many_run_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "RUNNING_MAX", 2)
    operations = Operations()
    for _ in range(2):
        begin(operations, long)
    with pytest.raises(HttpError) as caught:
        begin(operations, done)
    assert caught.value.status == 503
