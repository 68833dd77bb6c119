"""Requests to clients: each answer to its caller, and silent clients are cheap."""

import pytest
import trio

from tests.cluster.broker.helpers import FakeConnection, settle
from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.request import Reply


def question(body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(307, body=body)


async def test_the_answer_comes_back():
    connection = FakeConnection(answers={307: Reply(5, "why")})
    calls = ClientCalls()
    answer = await calls.call(connection, question())
    assert (answer.code, answer.remark) == (5, "why")
    assert (calls.under_way, calls.bytes_kept) == (0, 0)


async def test_a_silent_client_keeps_its_slots_until_the_time_is_over(autojump_clock):
    silent, lively = FakeConnection(), FakeConnection(answers={307: Reply()})
    calls = ClientCalls(to_one_max=2)
    outcomes = []

    async def ask():
        with pytest.raises(RemotingTimeoutError):
            await calls.call(silent, question(b"four"))
        outcomes.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await settle()
        assert (calls.under_way, calls.bytes_kept) == (2, 8)
        with pytest.raises(RequestError) as busy:
            await calls.call(silent, question())
        assert busy.value.code == ResponseCode.SYSTEM_BUSY
        assert (await calls.call(lively, question())).code == 0, "others are not held up"
    assert outcomes == [start + 10, start + 10]
    assert (calls.under_way, calls.bytes_kept) == (0, 0)


@pytest.mark.parametrize("limits", [{"calls_max": 2}, {"bytes_max": 8}])
async def test_all_calls_together_are_bounded(autojump_clock, limits):
    calls = ClientCalls(**limits)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(calls.call, FakeConnection(), question(b"four"))
        await settle()
        with pytest.raises(RequestError):
            await calls.call(FakeConnection(answers={307: Reply()}), question(b"f"))
        nursery.cancel_scope.cancel()
    assert (calls.under_way, calls.bytes_kept) == (0, 0)
