"""Held pulls and a log that is cut."""

import time

import pytest
import trio

from cluster.broker import long_polling
from cluster.broker.long_polling import HeldPull, PullRequestHoldService


async def test_a_pull_behind_the_end_of_its_queue_is_not_held_any_more(autojump_clock, nursery):
    """The log was cut: the consumer is to hear that its offset is beyond the queue, not to wait until that has grown so far."""
    ends = {("T", 0): 5, ("T", 1): 5}
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: ends[topic, queue_id])
    nursery.start_soon(service.run)
    woken = []
    for queue_id in (0, 1):
        deadline, run_again = trio.current_time() + 60, lambda queue_id=queue_id: woken.append(queue_id)
        service.hold(HeldPull("T", queue_id, 5, None, deadline, "connection", run_again))
    await trio.sleep(20)
    assert woken == []
    ends["T", 0] = 3
    await trio.sleep(6)
    assert woken == [0]
    assert len(service) == 1


MANY = 5_000


class Touched(Exception):
    """A pull was looked at that need not be."""


class Untouchable(HeldPull):
    """A pull that arrivals must leave alone."""

    def __getattribute__(self, name):
        if name == "offset":
            raise Touched
        return super().__getattribute__(name)


class Tags(frozenset):
    """Tags codes that count how often they are asked for."""

    asked = 0

    def __contains__(self, code):
        self.asked += 1
        return super().__contains__(code)


def held(service, queue_id, *, kind=HeldPull, wanted=None, accepts=None, connection="connection"):
    woken = []
    pull = kind("T", queue_id, 0, wanted, trio.current_time() + 60, connection, lambda: woken.append(1), accepts)
    service.hold(pull)
    return woken


async def test_5000_pulls_of_other_queues_cost_an_arrival_nothing(autojump_clock, nursery):
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: 0)
    nursery.start_soon(service.run)
    for queue_id in range(1, MANY + 1):
        held(service, queue_id, kind=Untouchable)
    woken = held(service, 0)
    for offset in range(1, 100):
        service.on_arrival("T", 0, offset, [0])
    await trio.sleep(0.001)
    assert woken == [1]
    assert len(service) == MANY
    with pytest.raises(Touched):
        service.on_arrival("T", 1, 1, [0])


async def test_5000_pulls_of_one_queue_are_asked_about_once_an_arrival():
    """Whether they filter by tags or by an expression: not each pull for each message."""
    asked = []

    def any_accepted(topic, queue_id, start, end, accepts):
        asked.append((start, end))
        return False

    def accepts(_properties):
        raise AssertionError("messages are the store's to look at")

    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: 0, any_accepted=any_accepted)
    tags = Tags([7])
    for _ in range(MANY):
        held(service, 0, kind=Untouchable, wanted=tags)
        held(service, 0, kind=Untouchable, accepts=accepts)
    for offset in range(1, 11):
        service.on_arrival("T", 0, offset, [8])
    assert tags.asked == 10
    assert asked == [(offset - 1, offset) for offset in range(1, 11)]
    assert len(service) == 2 * MANY


async def test_an_arrival_is_not_looked_at_for_ever(monkeypatch, autojump_clock, nursery):
    """When the time for asking is over, pulls are woken and ask the store themselves."""
    monkeypatch.setattr("cluster.broker.long_polling.ASK_SECONDS_MAX", -1.0)
    service = PullRequestHoldService(
        trio.current_time, lambda topic, queue_id: 0, any_accepted=lambda *_: pytest.fail("it was asked")
    )
    nursery.start_soon(service.run)
    woken = held(service, 0, accepts=lambda _properties: False)
    service.on_arrival("T", 0, 1, [0])
    await trio.sleep(0.001)
    assert woken == [1]


async def test_many_pulls_are_woken_and_forgotten(autojump_clock, nursery):
    """Those that filter in the same way go together; the others stay, until their connection closes."""
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: 0)
    nursery.start_soon(service.run)
    red = [held(service, 0, wanted=frozenset({1})) for _ in range(MANY)]
    blue = [held(service, 0, wanted=frozenset({2}), connection="other") for _ in range(MANY)]
    service.on_arrival("T", 0, 1, [1])
    await trio.sleep(0.001)
    assert all(woken == [1] for woken in red)
    assert not any(blue)
    assert len(service) == MANY
    service.connection_closed("other")
    assert len(service) == 0


async def test_pulls_that_take_long_leave_time_for_others(nursery):
    """A read of a queue may take a filter a while; a thousand of them are not done in one go."""
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: 0)
    turns, seen, count = 0, [], 10

    def run_again():
        seen.append(turns)
        until = time.monotonic() + long_polling.TURN_SECONDS / 2
        while time.monotonic() < until:
            pass

    for _ in range(count):
        service.hold(HeldPull("T", 0, 0, None, trio.current_time() + 60, "connection", run_again))
    service.on_arrival("T", 0, 1, [1])
    nursery.start_soon(service.run)
    while len(seen) < count:
        await trio.lowlevel.checkpoint()
        turns += 1
    assert len(set(seen)) >= count // 3
    nursery.cancel_scope.cancel()


async def test_what_is_held_has_an_end(monkeypatch):
    """For one connection and in all; texts that a client chose count, and what is forgotten leaves room."""
    monkeypatch.setattr(long_polling, "HELD_PER_CONNECTION_MAX", 3)
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: 0)

    def hold(connection, text_size=0):
        return service.hold(HeldPull("T", 0, 0, None, 1e9, connection, lambda: None, None, text_size))

    assert [hold("one") for _ in range(4)] == [True, True, True, False]
    assert hold("two")
    monkeypatch.setattr(long_polling, "HELD_BYTES_MAX", service.held_bytes + 10_000)
    assert not hold("three", 9_000)
    assert hold("three", 7_000)
    service.connection_closed("three")
    assert hold("three", 7_000)
    for connection in ("one", "two", "three"):
        service.connection_closed(connection)
    assert (service.held_bytes, len(service)) == (0, 0)
