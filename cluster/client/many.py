"""Many messages under way at once, out of one task. Source: DefaultMQProducerImpl's asynchronous sends (RocketMQ 4.9.8)."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

from twinlog.cluster.client.api.messages import read_sent
from twinlog.cluster.client.outgoing import OutgoingMessage
from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.client.selectors import Select
from twinlog.cluster.client.sending import Prepared, SendResult, is_retried, result_of
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError, RemotingTimeoutError

if TYPE_CHECKING:
    from twinlog.cluster.client.producer import Producer

IN_FLIGHT_MAX = 256  # Of one call, so that neither side holds more than it can bear.
Outcome = SendResult | RemotingError


async def send_all(producer: "Producer", messages: Iterable[OutgoingMessage], select: Select | None) -> list[Outcome]:
    """What became of each message, in their order."""
    outcomes: list[Outcome] = []
    under_way: deque[Callable[[], Awaitable[Outcome]]] = deque()
    for message in messages:
        if len(under_way) >= IN_FLIGHT_MAX:  # Half of them, so that what follows leaves together, too.
            outcomes += [await under_way.popleft()() for _ in range(IN_FLIGHT_MAX // 2)]
        under_way.append(await _begin(producer, producer.prepare(message), select))
    while under_way:
        outcomes.append(await under_way.popleft()())
    return outcomes


async def _begin(producer: "Producer", prepared: Prepared, select: Select | None) -> Callable[[], Awaitable[Outcome]]:
    queue: MessageQueue | None = None
    timeout_ms = producer.api.timeout_ms
    try:
        where = await producer.routes.publish(prepared.topic)
        queue = producer.choose(where, select)
        command = producer.request(prepared, queue).command()
        answer = await producer.api.client.begin(where.master(queue), command, timeout_ms=timeout_ms)
    except RemotingError as error:
        return partial(_again, producer, prepared, queue, select, error)
    return partial(_end, producer, prepared, queue, select, answer, trio.current_time() + timeout_ms / 1000)


async def _end(
    producer: "Producer",
    prepared: Prepared,
    queue: MessageQueue,
    select: Select | None,
    answer: Callable[[], Awaitable[RemotingCommand]],
    deadline: float,
) -> Outcome:
    error: RemotingError = RemotingTimeoutError(queue.broker_name, prepared.code, producer.api.timeout_ms)
    try:
        with trio.move_on_at(deadline):
            return result_of(prepared, queue, read_sent(await answer()))
    except RemotingError as failure:
        error = failure
    return await _again(producer, prepared, queue, select, error)


async def _again(
    producer: "Producer", prepared: Prepared, queue: MessageQueue | None, select: Select | None, error: RemotingError
) -> Outcome:
    if select is not None or producer.tries_max < 2 or not is_retried(error):
        return error
    producer.routes.forget(prepared.topic)
    try:
        return await producer.deliver(prepared, tried=frozenset({queue.broker_name} if queue else ()))
    except RemotingError as last:
        return last
