"""How a broker is asked whose log is compared."""

import pytest
import trio

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.observe.log_side import LogMovedError, LogSide
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingTimeoutError, RequestError
from twinlog.ha.compare.digests import Digests


class Broker:
    """Answers with these, one after the other: a code, or an error that is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def request(self, address, command, *, timeout_ms=3000):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        ext = {"start": "0", "end": "5", "blocksPerDigest": "1"}
        return RemotingCommand.response_to(command, answer, remark="why", ext=ext, body=bytes(16))


def side(*answers) -> LogSide:
    return LogSide(ClientApi(Broker(*answers), ()), "h:1", "broker-a-1")


QUESTION = Digests(0, 5, 1)
LATE = RemotingTimeoutError("h:1", 20002, 3000)


async def test_one_with_too_much_to_do_is_asked_again_after_a_while(autojump_clock):
    began = trio.current_time()
    assert (await side(2, 2, 0).digests(QUESTION)).digests == (bytes(16),)
    assert trio.current_time() - began == 2
    assert (await side(LATE, LATE, 0).digests(QUESTION)).end == 5


@pytest.mark.parametrize(
    ("answers", "error"), [((2, 2, 2), RequestError), ((LATE,) * 3, RemotingTimeoutError), ((1,), RequestError)]
)
async def test_but_not_for_ever(answers, error, autojump_clock):
    with pytest.raises(error):
        await side(*answers).digests(QUESTION)


@pytest.mark.parametrize("code", [22, 3])
async def test_a_log_that_holds_something_else_now(code):
    """Its files were deleted, it was cut, or another program answers."""
    with pytest.raises(LogMovedError):
        await side(code).digests(QUESTION)
