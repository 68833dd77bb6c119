"""The load of scripts/bench client on Python clients of others, in a process and with packages of its own.

    python -m scripts.benchmarks.client_rivals KIND PART NAMESRV TOPIC BODY_BYTES WARM_UP_S SECONDS NUMBER MESSAGES [JVM...]

KIND: `pyrocketmq` (Java's client in this process, by JPype), or `librocketmq` (the package rocketmq: Apache's client in C++, by
ctypes). PART and NUMBER: as in client.py; blocking sends come from threads. Prints one line of JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from scripts.benchmarks.client_meter import Meter

DRAIN_SECONDS_MAX = 120


class Rival(Protocol):
    """One of these clients."""

    def send(self) -> None: ...

    def send_soon(self, answered: Callable[[], None]) -> None: ...

    def send_batch(self, count: int) -> None: ...

    def consume(self, batch_max: int, came: Callable[[int], None]) -> None: ...


class PyRocketMq:
    """pyrocketmq: every object of it holds one of Java."""

    def __init__(self, namesrv: str, topic: str, body: bytes, jvm_options: list[str], *, sends: bool) -> None:
        import jpype
        import jpype.imports

        jpype.startJVM(*jvm_options)
        from pyrocketmq.client import producer as producers
        from pyrocketmq.common.message import Message

        self._namesrv, self._topic, self._body, self._message = namesrv, topic, body, Message
        self._sent, self._callback = producers.SendStatus.SEND_OK, producers.SendCallback
        if sends:
            self._producer = producers.Producer("bench-client")
            self._producer.setNamesrvAddr(namesrv)
            self._producer.setRetryTimesWhenSendFailed(0)
            self._producer.start()

    def _new(self) -> Any:
        return self._message(topic=self._topic, body=self._body)

    def _check(self, result: Any) -> None:
        if result.sendStatus != self._sent:
            raise RuntimeError(f"not SEND_OK: {result.sendStatus}")

    def send(self) -> None:
        self._check(self._producer.send(self._new(), timeout=10_000))

    def send_soon(self, answered: Callable[[], None]) -> None:
        check = self._check

        class Callback(self._callback):  # type: ignore[misc, name-defined]
            def _onSuccess(self, send_result: Any) -> None:  # noqa: N802
                check(send_result)
                answered()

            def _onException(self, e: Any) -> None:  # noqa: N802
                failed(e)

        if not hasattr(self, "_one_callback"):
            self._one_callback = Callback()
        self._producer.send(self._new(), send_callback=self._one_callback, timeout=10_000)

    def send_batch(self, count: int) -> None:
        self._check(self._producer.send([self._new() for _ in range(count)], timeout=10_000))

    def consume(self, batch_max: int, came: Callable[[int], None]) -> None:
        from pyrocketmq.client.consumer import consumer as consumers
        from pyrocketmq.client.consumer import listener as listeners
        from pyrocketmq.common.common import ConsumeFromWhere

        class Listener(listeners.MessageListenerConcurrently):  # type: ignore[misc]
            def _consumeMessage(self, msgs: list[Any], context: Any) -> Any:  # noqa: N802
                came(len(msgs))
                return listeners.ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        consumer = consumers.PushConsumer(f"bench-{time.time_ns()}")
        consumer.setNamesrvAddr(self._namesrv)
        self._listener = Listener()
        consumer.registerMessageListener(self._listener)
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        consumer.setConsumeMessageBatchMaxSize(batch_max)
        consumer.subscribe(self._topic, consumers.MessageSelector.byTag("*"))
        consumer.start()
        self._consumer = consumer


class LibRocketMq:
    """The package rocketmq. Bodies end at their first zero byte."""

    def __init__(self, namesrv: str, topic: str, body: bytes, *, sends: bool) -> None:
        from rocketmq import client

        self._client, self._namesrv, self._topic, self._body = client, namesrv, topic, body
        if sends:
            self._producer = client.Producer("bench-client", timeout=10_000)
            self._producer.set_namesrv_addr(namesrv)
            self._producer.start()

    def _new(self) -> Any:
        message = self._client.Message(self._topic)
        message.set_body(self._body)
        return message

    def _check(self, result: Any) -> None:
        if result.status != self._client.SendStatus.OK:
            raise RuntimeError(f"not SEND_OK: {result.status}")

    def send(self) -> None:
        self._check(self._producer.send_sync(self._new()))

    def send_soon(self, answered: Callable[[], None]) -> None:
        def succeeded(result: Any) -> None:
            self._check(result)
            answered()

        self._producer.send_async(self._new(), succeeded, failed)

    def send_batch(self, count: int) -> None:
        self._check(self._producer.send_batch([self._new() for _ in range(count)]))

    def consume(self, batch_max: int, came: Callable[[int], None]) -> None:
        if batch_max > 1:
            failed("its callback gets one message at a time")
        consumer = self._client.PushConsumer(f"bench-{time.time_ns()}")
        consumer.set_namesrv_addr(self._namesrv)
        consumer.set_thread_count(20)
        consumer.subscribe(self._topic, lambda message: came(1))
        consumer.start()
        self._consumer = consumer


def failed(why: object) -> None:
    """End the process, from any thread, with this as its result."""
    text = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
    print(json.dumps({"failed": text.strip().splitlines()[0]}), flush=True)
    os._exit(0)


def load(rival: Rival, part: str, meter: Meter, number: int) -> None:
    """One part; returns when the meter is over."""
    lock = threading.Lock()  # Answers come in other threads.

    def note(count: int, began: float | None = None) -> None:
        with lock:
            meter.note(count, began)

    def one_by_one() -> None:
        try:
            while not meter.is_over:
                began = time.perf_counter()
                rival.send()
                note(1, began)
        except BaseException as error:
            failed(error)

    if part.startswith("send"):
        rival.send()  # Of many first sends at once, the C++ client has no route for some.
    match part:
        case "send":
            threads = [threading.Thread(target=one_by_one) for _ in range(number)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        case "send-all":
            room = threading.Semaphore(number)

            def answered() -> None:
                room.release()
                note(1)

            while not meter.is_over:
                room.acquire()
                rival.send_soon(answered)
        case "batch":
            while not meter.is_over:
                rival.send_batch(number)
                meter.note(number)
        case "consume":
            rival.consume(number, note)
            until = time.monotonic() + DRAIN_SECONDS_MAX
            while not meter.is_over and time.monotonic() < until:
                time.sleep(0.02)
            if not meter.is_over:
                failed(f"messages did not come within {DRAIN_SECONDS_MAX} s")


def main(kind: str, part: str, namesrv: str, topic: str, *arguments: str) -> None:
    """Run it, print the result, and end at once: a clean stop takes these clients seconds."""
    body_bytes, warm_up_s, seconds, number, messages = map(float, arguments[:5])
    meter, body, sends = Meter(warm_up_s, seconds, messages), b"x" * int(body_bytes), part != "consume"
    rival: Rival
    if kind == "pyrocketmq":
        rival = PyRocketMq(namesrv, topic, body, list(arguments[5:]), sends=sends)
    else:
        rival = LibRocketMq(namesrv, topic, body, sends=sends)
    try:
        load(rival, part, meter, int(number))
    except Exception as error:
        failed(error)
    meter.show()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
