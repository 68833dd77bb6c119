"""Messages at an even rate, each waiting for its answer: how long the longest waited, while roles changed."""

import time
from itertools import count
from struct import Struct

import trio
from attrs import define, field, frozen

from scripts.benchmarks.store_directory import TOPIC
from tests.support.process_group.ports import HOST
from twinlog.cluster.remoting.command import FrameReader, decode

TICK_SECONDS, ANSWERS_SECONDS_MAX = 0.005, 5.0
BODY = bytes(1024)
_SIZES = Struct(">ii")
_HEADER = (
    '{"code":310,"extFields":{"a":"bench","b":"%s","c":"TBW102","d":"8","e":"%d","f":"0","g":"%d","h":"0",'
    '"i":"WAIT\\u0001true","j":"0","k":"false","l":"0","m":"false"},"flag":0,"language":"JAVA","opaque":%d,"version":409}'
)


@frozen
class Answer:
    """What a message was told. `sent` and `came` in seconds of trio's clock."""

    code: int
    sent: float
    came: float

    @property
    def wait_ms(self) -> float:
        return (self.came - self.sent) * 1000


@define
class EvenLoad:
    """A producer that has one connection, and looks for no other."""

    port: int
    per_second: int
    answers: list[Answer] = field(factory=list)
    _under_way: dict[int, float] = field(factory=dict)
    _stop: bool = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until stop(), then wait for the last answers; started() with the first answer."""
        async with await trio.open_tcp_stream(HOST, self.port) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._read, stream, task_status)
            numbers, begin = count(1), trio.current_time()
            size = max(1, round(self.per_second * TICK_SECONDS))
            while not self._stop:
                await trio.sleep_until(begin)
                begin += size / self.per_second
                now = trio.current_time()
                chosen = [next(numbers) for _ in range(size)]
                self._under_way.update(dict.fromkeys(chosen, now))
                await stream.send_all(b"".join(map(_frame, chosen)))
            with trio.move_on_after(ANSWERS_SECONDS_MAX):
                while self._under_way:
                    await trio.sleep(TICK_SECONDS)
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """Send nothing more."""
        self._stop = True

    @property
    def unanswered(self) -> int:
        return len(self._under_way)

    async def _read(self, stream: trio.abc.Stream, task_status: trio.TaskStatus[None]) -> None:
        reader = FrameReader()
        async for data in stream:
            now = trio.current_time()
            if not self.answers:
                task_status.started()
            for frame in reader.feed(data):
                answer = decode(frame)
                if (sent := self._under_way.pop(answer.opaque, None)) is not None:
                    self.answers.append(Answer(answer.code, sent, now))


async def wait_send_ok(port: int, seconds_max: float) -> float:
    """Send single messages to a port until one is SEND_OK; the moment when that came, in trio's time."""
    with trio.fail_after(seconds_max):
        for number in count(1):
            try:
                if await _send_one(port, number) == 0:
                    return trio.current_time()
            except (OSError, trio.BrokenResourceError):
                pass
            await trio.sleep(TICK_SECONDS)
    raise AssertionError("unreachable")


async def _send_one(port: int, number: int) -> int | None:
    """The code of the answer; None when the other side leaves without one."""
    reader = FrameReader()
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(_frame(number))
        async for data in stream:
            for frame in reader.feed(data):
                return decode(frame).code
    return None


def _frame(number: int) -> bytes:
    header = (_HEADER % (TOPIC, number % 8, time.time_ns() // 1_000_000, number)).encode()
    return _SIZES.pack(4 + len(header) + len(BODY), len(header)) + header + BODY
