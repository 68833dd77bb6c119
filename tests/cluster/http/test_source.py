"""A service whose loop stands still: its last word is given, nobody waits long, and the loop is not harmed."""

import threading
import time

import pytest
import trio

from twinlog.cluster.http.source import Source


class Service:
    """A trio loop in a thread of its own, with a Source, that can be made to stand still."""

    def __init__(self, read_node=lambda: {"n": 1}) -> None:
        self._made = threading.Event()
        self.go_on = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, read_node))
        self._thread.start()
        assert self._made.wait(10)

    async def _main(self, read_node) -> None:
        self.source = Source(kind="broker", read_node=read_node, read_snapshot=lambda: "snapshot", namesrv=tuple)
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.source.tick)
                self._made.set()

    def stand_still(self) -> None:
        self._token.run_sync_soon(self.go_on.wait, 30)

    def end(self) -> None:
        self.go_on.set()
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()


async def test_a_running_service_answers_at_once():
    service = Service()
    answer = await service.source.node()
    assert (answer.value, answer.age_seconds < 1) == ({"n": 1}, True)
    assert service.source.is_alive
    assert service.source.stalled_seconds == 0
    service.end()


async def test_a_loop_that_stands_still_gives_its_last_answer_and_its_age():
    """Many may ask meanwhile: that makes one question, which the loop answers when it goes on."""
    calls = []
    service = Service(lambda: calls.append(1) or {"n": len(calls)})
    await service.source.node()
    service.stand_still()
    began = time.monotonic()
    answers = []
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(lambda: _collect(service.source, answers))
    assert time.monotonic() - began < 5
    assert [each.value for each in answers] == [{"n": 1}] * 20
    assert all(each.age_seconds > 1 for each in answers)
    assert service.source.stalled_seconds > 0
    with trio.fail_after(10):
        service.go_on.set()
        while (await service.source.node()).value == {"n": 1}:
            await trio.sleep(0.01)
    assert len(calls) <= 4
    service.end()


async def _collect(source, answers) -> None:
    answers.append(await source.node())


async def test_an_error_in_the_service_reaches_who_asked_and_does_not_end_the_service():
    def failing():
        raise RuntimeError("no")

    service = Service(failing)
    with pytest.raises(RuntimeError, match="no"):
        await service.source.node()
    assert (await service.source.snapshot()).value == "snapshot"
    service.end()


async def test_a_service_that_has_ended_says_its_last():
    service = Service()
    await service.source.node()
    service.end()
    assert (await service.source.node()).value == {"n": 1}
    assert (await service.source.snapshot()).value is None


async def test_whoever_asks_all_the_time_does_not_get_the_loop_for_it():
    """What took the loop a while is not asked for again before it had twenty times as long for its own work."""
    calls = []

    def slow():
        calls.append(time.sleep(0.02))
        return {"n": len(calls)}

    service = Service(slow)
    with trio.move_on_after(0.9):
        while True:
            assert (await service.source.node()).age_seconds < 0.9
            await trio.lowlevel.checkpoint()
    assert 1 <= len(calls) <= 3
    service.end()
