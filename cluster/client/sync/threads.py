"""Threads for functions of applications that block: handlers and checks of transactions.

They are daemons, as Python waits for others at its end, and a handler that hangs would keep the program from ending.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import anyio
from attrs import define, field

from twinlog.cluster.client.sync.calls import Portal
from twinlog.cluster.remoting.errors import ClientClosedError

T = TypeVar("T")


@define(eq=False)
class Threads:
    """As many threads as calls at once; idle ones wait for the next call."""

    portal: Portal
    _jobs: "SimpleQueue[Callable[[], object] | None]" = field(factory=SimpleQueue, init=False)
    _count: int = field(default=0, init=False)
    _busy: int = field(default=0, init=False)
    _waits: set[anyio.CancelScope] = field(factory=set, init=False)

    async def run(self, function: Callable[[], T]) -> T:
        """Call it in a thread. Cancellation waits for its end, unless abandon() is called.

        An exit of the thread (SystemExit) is raised as a RuntimeError: it does not end the loop.
        """
        result: Future[T] = Future()
        ended = anyio.Event()
        self._busy += 1
        if self._busy > self._count:
            self._count += 1
            threading.Thread(target=self._work, name=f"twinlog handler {self._count}", daemon=True).start()
        self._jobs.put(partial(copy_context().run, self._carry_out, function, result, ended))
        scope = anyio.CancelScope(shield=True)
        self._waits.add(scope)
        try:
            with scope:
                await ended.wait()
        finally:
            self._waits.discard(scope)
        return result.result()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _carry_out(self, function: Callable[[], T], result: "Future[T]", ended: anyio.Event) -> None:
        try:
            result.set_result(function())
        except Exception as error:
            result.set_exception(error)
        except BaseException as error:
            result.set_exception(RuntimeError(f"{error!r} was raised in a thread of the client"))
        with suppress(ClientClosedError):  # The loop has ended.
            self.portal.post(self._end, ended)

    def _end(self, ended: anyio.Event) -> None:
        self._busy -= 1
        ended.set()

    def abandon(self) -> None:
        """Let cancellation wait for no call that is under way."""
        for scope in self._waits:
            scope.shield = False

    def close(self) -> None:
        """End the threads, each after its call."""
        for _ in range(self._count):
            self._jobs.put(None)
