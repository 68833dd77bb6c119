"""Held pulls: whom an arrival wakes, what it costs the others, and how they are answered."""

import time
from functools import partial

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs

from tests.loop_turns import LoopTurns
from twinlog.cluster.broker.consume import long_polling
from twinlog.cluster.broker.consume.long_polling import HeldPull, PullRequestHoldService


@define(eq=False)
class Peer:
    """Where a pull came from; it notes what goes out together."""

    sent: list[list[str]] = field(factory=list)
    _gathered: list[str] | None = None

    def cork(self) -> None:
        assert self._gathered is None
        self._gathered = []

    def uncork(self) -> None:
        assert self._gathered is not None
        self.sent.append(self._gathered)
        self._gathered = None

    def write(self, text: str) -> None:
        assert self._gathered is not None
        self._gathered.append(text)


async def test_a_pull_behind_the_end_of_its_queue_is_not_held_any_more(autojump_clock, nursery):
    """The log was cut: the consumer is to hear that its offset is beyond the queue, not to wait until that has grown so far."""
    ends = {("T", 0): 5, ("T", 1): 5}
    service = PullRequestHoldService(trio.current_time, lambda topic, queue_id: ends[topic, queue_id])
    nursery.start_soon(service.run)
    woken = []
    for queue_id in (0, 1):
        deadline, run_again = trio.current_time() + 60, lambda queue_id=queue_id: woken.append(queue_id)
        service.hold(HeldPull("T", queue_id, 5, None, deadline, Peer(), run_again))
    await trio.sleep(20)
    assert woken == []
    ends["T", 0] = 3
    await trio.sleep(6)
    assert woken == [0]
    assert len(service) == 1


MANY = 5_000


@pytest.fixture
async def service():
    return PullRequestHoldService(trio.current_time, lambda topic, queue_id: 0)


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


PEER = Peer()


def arrive(service, queue_id, end, codes):
    service.on_arrival("T", queue_id, end, codes)
    service.run_ready()


def held(service, queue_id, *, kind=HeldPull, wanted=None, accepts=None, connection=PEER):
    woken = []
    pull = kind("T", queue_id, 0, wanted, trio.current_time() + 60, connection, lambda: woken.append(1), accepts)
    service.hold(pull)
    return woken


async def test_5000_pulls_of_other_queues_cost_an_arrival_nothing(service):
    for queue_id in range(1, MANY + 1):
        held(service, queue_id, kind=Untouchable)
    woken = held(service, 0)
    for offset in range(1, 100):
        arrive(service, 0, offset, [0])
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


async def test_an_arrival_is_not_looked_at_for_ever(monkeypatch):
    """When the time for asking is over, pulls are woken and ask the store themselves."""
    monkeypatch.setattr("twinlog.cluster.broker.consume.long_polling.FILTER_SECONDS_MAX", -1.0)
    service = PullRequestHoldService(
        trio.current_time, lambda topic, queue_id: 0, any_accepted=lambda *_: pytest.fail("it was asked")
    )
    woken = held(service, 0, accepts=lambda _properties: False)
    arrive(service, 0, 1, [0])
    assert woken == [1]


async def test_many_pulls_are_woken_and_forgotten(autojump_clock, nursery, service):
    """Those that filter in the same way go together; the others stay, until their connection closes."""
    nursery.start_soon(service.run)
    red = [held(service, 0, wanted=frozenset({1})) for _ in range(MANY)]
    other = Peer()
    blue = [held(service, 0, wanted=frozenset({2}), connection=other) for _ in range(MANY)]
    arrive(service, 0, 1, [1])
    await trio.sleep(1)
    assert all(woken == [1] for woken in red)
    assert not any(blue)
    assert len(service) == MANY
    service.connection_closed(other)
    assert len(service) == 0


async def test_answers_that_a_connection_gets_in_one_turn_go_out_together(service):
    """Two connections, three queues: each is written to once."""
    one, two = Peer(), Peer()
    for peer, queue_id in ((one, 0), (two, 0), (one, 1), (one, 2)):
        text = f"answer of queue {queue_id}"
        run_again = partial(peer.write, text)
        service.hold(HeldPull("T", queue_id, 0, None, trio.current_time() + 60, peer, run_again))
    for queue_id in (0, 1):
        service.on_arrival("T", queue_id, 1, [0])
    service.run_ready()
    assert (one.sent, two.sent) == ([["answer of queue 0", "answer of queue 1"]], [["answer of queue 0"]])
    assert len(service) == 1
    service.run_ready()
    assert len(one.sent) == 1, "nothing was ready"


async def test_one_that_cannot_be_answered_keeps_no_other_waiting(service):
    peer, deadline = Peer(), trio.current_time() + 60
    service.hold(HeldPull("T", 0, 0, None, deadline, peer, lambda: [][0]))
    service.hold(HeldPull("T", 0, 0, None, deadline, peer, partial(peer.write, "an answer")))
    with capture_logs() as lines:
        arrive(service, 0, 1, [0])
    assert peer.sent == [["an answer"]]
    assert [line["event"] for line in lines] == ["a held pull could not be answered"]


async def test_pulls_that_take_long_leave_time_for_others(nursery, service):
    """A read of a queue may take a filter a while; a thousand of them are not done in one go."""
    nursery.start_soon(service.run)
    seen, count = [], 10
    with LoopTurns.counted() as turns:

        def run_again():
            seen.append(turns.count)
            until = time.monotonic() + long_polling.SLICE_SECONDS / 2
            while time.monotonic() < until:
                pass

        for _ in range(count):
            service.hold(HeldPull("T", 0, 0, None, trio.current_time() + 60, PEER, run_again))
        arrive(service, 0, 1, [1])
        while len(seen) < count:
            await trio.lowlevel.checkpoint()
    assert len(set(seen)) >= count // 3
    nursery.cancel_scope.cancel()


async def test_what_is_held_has_an_end(monkeypatch, service):
    """For one connection and in all; texts that a client chose count, and what is forgotten leaves room."""
    monkeypatch.setattr(long_polling, "HELD_PER_CONNECTION_MAX", 3)

    def hold(connection, text_size=0):
        return service.hold(HeldPull("T", 0, 0, None, 1e9, connection, lambda: None, None, text_size))

    one, two, three = Peer(), Peer(), Peer()
    assert [hold(one) for _ in range(4)] == [True, True, True, False]
    assert hold(two)
    monkeypatch.setattr(long_polling, "HELD_BYTES_MAX", service.held_bytes + 10_000)
    assert not hold(three, 9_000)
    assert hold(three, 7_000)
    service.connection_closed(three)
    assert hold(three, 7_000)
    for connection in (one, two, three):
        service.connection_closed(connection)
    assert (service.held_bytes, len(service)) == (0, 0)
