"""Reads of sockets on which much arrives: several of them in one turn of trio's loop.

A turn of trio's loop arms the socket anew, looks for deadlines and switches tasks: for a message that comes alone, that is more
than the store's part. Here sockets stay armed in an epoll of their own, and one task takes what arrives on all of them. As long
as more comes soon, it waits for that by itself, for a slice of time, instead of going back to trio at once.

    trio ── a socket is readable ──> the task of the read loop: call its step, wait up to 1 ms for the next one, and again
         <── another task can run, nothing came, or the slice of time is over

So other tasks, timers and threads are late by SLICE_SECONDS and WAIT_SECONDS at most. Nothing ever spins.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable
from contextvars import Context

import trio
from attrs import define, field

WAIT_SECONDS = 0.001  # For what comes next; epoll counts in whole milliseconds.
SLICE_SECONDS = 0.001  # A wait begins before this is over.
# Steps that took longer had many messages, for which a turn of trio's loop costs little; meanwhile more of them gather.
MUCH_SECONDS = 0.00025
EVENTS_MAX = 256  # Sockets read before the clock is looked at.
# A wait is worth it where most of them are not in vain: arrivals that came within WAIT_SECONDS count 1, later ones -2.
_LUCK_MAX, _LATE_COSTS = 8, 2

Step = Callable[[], bool]


async def read_each(sock: socket.socket, step: Step) -> None:
    """Call `step` each time that the socket is readable, until it returns False or raises; what it raises is raised here.

    `step` never waits. It is called in the context (contextvars) of this task, and may find nothing to read. Closing the socket,
    see notify_closing(), ends this with trio.ClosedResourceError, as wait_readable() ends.
    """
    try:
        loop = _loop.get()
    except LookupError:
        loop = ReadLoop()
        _loop.set(loop)
        trio.lowlevel.spawn_system_task(loop.run)
    await loop.read_each(sock, step)


def notify_closing(sock: socket.socket) -> None:
    """Tell trio, and those that read here, that this socket is about to be closed."""
    with contextlib.suppress(LookupError):
        _loop.get().closing(sock)
    trio.lowlevel.notify_closing(sock)


@define(eq=False)
class _Reader:
    """A task that waits in read_each()."""

    step: Step
    task: trio.lowlevel.Task
    context: Context
    failure: Exception | None = None


@define(eq=False)
class ReadLoop(trio.abc.Instrument):
    """The sockets of one run of trio."""

    _epoll: select.epoll = field(factory=select.epoll, init=False)
    _readers: dict[int, _Reader] = field(factory=dict, init=False)  # By descriptor.
    _task: trio.lowlevel.Task | None = field(default=None, init=False)
    _others_can_run: bool = field(default=False, init=False)
    _luck: int = field(default=0, init=False)
    _arrived_at: float = field(default=0.0, init=False)  # When a step ended last.

    async def run(self) -> None:
        """Call the steps until cancelled."""
        self._task = trio.lowlevel.current_task()
        trio.lowlevel.add_instrument(self)
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._run_slice()
        finally:
            trio.lowlevel.remove_instrument(self)
            self._epoll.close()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """See trio.abc.Instrument: called whenever a task can run again."""
        if task is not self._task:
            self._others_can_run = True

    async def read_each(self, sock: socket.socket, step: Step) -> None:
        """See the function of this name."""
        fd = sock.fileno()
        if fd < 0:
            raise trio.ClosedResourceError("another task closed this socket")
        if fd in self._readers:
            raise trio.BusyResourceError("another task reads this socket")
        task = trio.lowlevel.current_task()
        reader = self._readers[fd] = _Reader(step, task, task.context)
        self._epoll.register(fd, select.EPOLLIN)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._forget(fd)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if reader.failure is not None:
            raise reader.failure

    def closing(self, sock: socket.socket) -> None:
        """See notify_closing()."""
        if (reader := self._readers.get(fd := sock.fileno())) is not None:
            self._end(fd, reader, trio.ClosedResourceError("another task closed this socket"))

    def _run_slice(self) -> None:
        began, wait = time.monotonic(), 0.0
        ends_at = began + SLICE_SECONDS
        while events := self._epoll.poll(wait, EVENTS_MAX):
            began = time.monotonic() if wait else began
            came_soon = began - self._arrived_at <= WAIT_SECONDS
            self._luck = min(self._luck + 1, _LUCK_MAX) if came_soon else max(self._luck - _LATE_COSTS, 0)
            for fd, _ in events:
                if (reader := self._readers.get(fd)) is not None:  # It may have left meanwhile.
                    self._call(fd, reader)
            self._arrived_at = time.monotonic()
            is_much = self._arrived_at - began > MUCH_SECONDS
            if self._others_can_run or is_much or self._arrived_at >= ends_at or not self._luck:
                break
            wait = WAIT_SECONDS
        self._others_can_run = False  # Whoever can run does before this task runs again.

    def _call(self, fd: int, reader: _Reader) -> None:
        failure = None
        try:
            if reader.context.run(reader.step):
                return
        except Exception as error:
            failure = error
        if self._readers.get(fd) is reader:
            self._end(fd, reader, failure)

    def _end(self, fd: int, reader: _Reader, failure: Exception | None) -> None:
        self._forget(fd)
        reader.failure = failure
        trio.lowlevel.reschedule(reader.task)

    def _forget(self, fd: int) -> None:
        del self._readers[fd]
        with contextlib.suppress(OSError):  # Closed already, and so gone from the set.
            self._epoll.unregister(fd)


_loop: "trio.lowlevel.RunVar[ReadLoop]" = trio.lowlevel.RunVar("read loop")
