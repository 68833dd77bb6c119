"""Calls from threads into an event loop that runs in a thread of its own.

A wrapper has the asynchronous object and the portal of the block in which it lives; `blocking(Producer.send)` makes a method that
runs that coroutine in the loop and waits for it, with the same parameters and the same result. There is no logic here.

Threads wait for plain locks. Python's Condition, below its Event and Future and anyio's portal, does not survive an interrupt
everywhere: Ctrl-C would be another error, or leave its lock taken.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import Context, copy_context
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus
from attrs import define, field

from twinlog.cluster.remoting.errors import ClientClosedError

A = TypeVar("A")  # An asynchronous class.
P = ParamSpec("P")
T = TypeVar("T")

WITHIN_LOOP = (
    "a blocking method was called in the client's own event loop, which would wait for itself: functions that the loop calls "
    "(`select`, progress callbacks) may not block. Call it in the code that called the client, or in a handler"
)
NOT_ENTERED = "the client is not running: use it in a with block, `with SyncClient(...) as client:`"
CLOSED = "the block of the client or consumer has ended"
ENDED_MEANWHILE = "the block of the client or consumer ended during the call; what was sent may have been stored"
ENDS_SECONDS = 1.0  # Wait for the error of a service that ends; it may wait for the handler that asks.


def is_interrupt(error: BaseException | None) -> bool:
    """True for what ends the program, such as Ctrl-C."""
    return error is not None and not isinstance(error, Exception)


def taken_lock() -> threading.Lock:
    """A lock to wait for: whoever is awaited releases it once."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@define(eq=False)
class Call(Generic[T]):
    """One call: a task in the loop, for which a thread waits."""

    function: Callable[[], Awaitable[T]]
    ended: threading.Lock = field(factory=taken_lock, init=False)
    results: list[T] = field(factory=list, init=False)  # One, or none with an error.
    error: Exception | None = field(default=None, init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)
    _is_given_up: bool = field(default=False, init=False)

    def begin(self, portal: "Portal") -> None:
        """In the loop: start the task."""
        try:
            if portal.is_over:
                raise ClientClosedError(CLOSED)
            if not self._is_given_up:
                portal.tasks.start_soon(self._run)
        except (ClientClosedError, RuntimeError):  # A service that has just failed: its group takes no tasks any more.
            self.error = ClientClosedError(CLOSED)
            self.ended.release()

    async def _run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                if not self._is_given_up:
                    self.results.append(await self.function())
        except Exception as error:
            self.error = error
        finally:
            self.ended.release()

    def give_up(self) -> None:
        """In the loop: cancel it; nobody waits any more."""
        self._is_given_up = True
        if self._scope is not None:
            self._scope.cancel()


@define(eq=False)
class Portal:
    """Entrance to the loop for the calls of one block. Those under way at its end are cancelled."""

    loop: asyncio.AbstractEventLoop
    context: Context  # Of a task of the loop, as anyio wants to be called.
    thread: int  # Of the loop.
    tasks: TaskGroup
    is_over: bool = field(default=False, init=False)
    failure: Exception | None = field(default=None, init=False)  # The error that ended the block in the loop.
    _ended: threading.Lock = field(factory=taken_lock, init=False)

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run it in the loop and wait for its end; an interrupt of the wait (Ctrl-C) cancels it."""
        if threading.get_ident() == self.thread:
            raise RuntimeError(WITHIN_LOOP)
        call = Call(function)
        try:
            self.post(call.begin, self)
            call.ended.acquire()
        except ClientClosedError:
            raise
        except BaseException:
            self.post(call.give_up)
            raise
        if call.error is not None:
            raise call.error from self._failed() if isinstance(call.error, ClientClosedError) else call.error.__cause__
        if not call.results:
            raise ClientClosedError(ENDED_MEANWHILE) from self._failed()
        return call.results[0]

    def make(self, function: Callable[[], T]) -> T:
        """Call a function that does not wait, in the loop's thread."""

        async def call() -> T:
            return function()

        return self.call(call)

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the loop call a function soon. Raises ClientClosedError when the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments, context=self.context)
        except RuntimeError as error:
            raise ClientClosedError(CLOSED) from error

    def end(self, failure: Exception | None = None) -> None:
        """In the loop: the block has ended."""
        self.is_over, self.failure = True, failure
        self._ended.release()

    def _failed(self) -> Exception | None:
        """The error that ended the block, if it was one."""
        if self._ended.acquire(timeout=ENDS_SECONDS):
            self._ended.release()
        return self.failure


@define(eq=False)
class Held(Generic[T]):
    """An `async with` block in the loop that lasts as long as a `with` block of a thread."""

    manager: AbstractAsyncContextManager[T]
    _leave: anyio.Event = field(factory=anyio.Event, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)
    _error: BaseException | None = field(default=None, init=False)  # Of the thread's block.
    _failure: Exception | None = field(default=None, init=False)

    async def run(self, around: Portal, *, task_status: TaskStatus[tuple[T, Portal]]) -> None:
        """Hold the block open; calls within it go through the portal that it gives."""
        portal: Portal | None = None
        try:
            with anyio.CancelScope() as scope:
                async with self.manager as value:
                    async with anyio.create_task_group() as tasks:
                        portal = Portal(around.loop, around.context, around.thread, tasks)
                        task_status.started((value, portal))
                        await self._leave.wait()
                        portal.is_over = True
                        tasks.cancel_scope.cancel()
                    if isinstance(self._error, Exception):
                        raise self._error
                    if self._error is not None:  # An interrupt would end the loop.
                        scope.cancel()
                        await anyio.sleep_forever()
        except Exception as error:
            if portal is None:
                raise
            self._failure = error if error is not self._error else None
        finally:
            if portal is not None:
                portal.end(self._failure)
            self._ended.set()

    async def leave(self, error: BaseException | None) -> None:
        """End the block, as the thread's has ended, and wait for that. Raises the error of the block in the loop."""
        self._error = error
        self._leave.set()
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure


@define(eq=False)
class Block(Generic[T]):
    """A `with` block for an `async with` block in the loop."""

    _make: Callable[[], AbstractAsyncContextManager[T]]
    _around: Portal
    _on_interrupt: Callable[[], None] = lambda: None  # Called in the loop before an interrupt ends the block.
    portal: Portal | None = field(default=None, init=False)  # Into the block.
    _held: Held[T] | None = field(default=None, init=False)

    def __enter__(self) -> T:
        async def enter() -> tuple[T, Portal]:
            self._held = Held(self._make())
            entered: tuple[T, Portal] = await self._around.tasks.start(self._held.run, self._around)
            return entered

        try:
            value, self.portal = self._around.call(enter)
        except BaseException as error:
            if is_interrupt(error):  # It may have begun all the same.
                self._around.call(partial(self._end, error))
            raise
        return value

    async def _end(self, error: BaseException | None) -> None:
        if is_interrupt(error):
            self._on_interrupt()
        if self._held is not None:
            await self._held.leave(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._around.call(partial(self._end, error))
        except Exception as failure:
            # An interrupt is more important; a closed client has it as its cause.
            if not is_interrupt(error) and not isinstance(error, ClientClosedError) and failure is not error:
                raise


@contextmanager
def running_loop() -> Iterator[Portal]:
    """An asyncio loop in a thread of its own, for as long as the block lasts."""
    started = taken_lock()
    found: list[tuple[Portal, anyio.Event]] = []

    async def serve() -> None:
        async with anyio.create_task_group() as tasks:
            portal = Portal(asyncio.get_running_loop(), copy_context(), threading.get_ident(), tasks)
            over = anyio.Event()
            found.append((portal, over))
            started.release()
            await over.wait()
            portal.is_over = True
            tasks.cancel_scope.cancel()

    thread = threading.Thread(target=anyio.run, args=(serve,), daemon=True, name="twinlog client")
    thread.start()
    started.acquire()
    ((portal, over),) = found
    try:
        yield portal
    finally:
        portal.post(over.set)
        thread.join()


@define(eq=False)
class Wrapper(Generic[A]):
    """An asynchronous object for threads."""

    _inside: A | None = field(default=None, init=False, repr=False)
    _portal: Portal | None = field(default=None, init=False, repr=False)

    @classmethod
    def around(cls, inside: A, portal: Portal) -> Self:
        """Internal: wrap an object that lives in a running block."""
        made = cls.__new__(cls)
        made._inside, made._portal = inside, portal
        return made

    @property
    def asynchronous(self) -> A:
        """Internal: the wrapped object, for functions that run in the loop. Raises ClientClosedError before the block."""
        if self._inside is None:
            raise ClientClosedError(NOT_ENTERED)
        return self._inside

    @property
    def portal(self) -> Portal:
        """Internal: the way into the loop. Raises ClientClosedError before the block."""
        if self._portal is None:
            raise ClientClosedError(NOT_ENTERED)
        return self._portal


def blocking(function: Callable[Concatenate[A, P], Awaitable[T]]) -> Callable[Concatenate[Wrapper[A], P], T]:
    """The method that runs an asynchronous method and waits for its end."""

    @wraps(function)
    def call(self: Wrapper[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call(partial(function, self.asynchronous, *args, **kwargs))

    return _marked(call, "")


def plain(function: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Wrapper[A], P], T]:
    """The method that calls a function that does not wait; in the loop's thread, which may change what it reads."""

    @wraps(function)
    def call(self: Wrapper[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.make(partial(function, self.asynchronous, *args, **kwargs))

    return _marked(call, "")


def block(
    function: Callable[Concatenate[A, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[Wrapper[A], P], AbstractContextManager[T]]:
    """The method whose `async with` block is a `with` block."""

    @wraps(function)
    def call(self: Wrapper[A], /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return Block(partial(function, self.asynchronous, *args, **kwargs), self.portal)

    return _marked(call, "with ")


def _marked(function: Callable[P, T], lead: str) -> Callable[P, T]:
    """The reference shows `lead` before a call."""
    setattr(function, "lead", lead)  # noqa: B010
    return function


S = TypeVar("S", bound=AbstractAsyncContextManager[Any])


@define(eq=False)
class ServiceWrapper(Wrapper[S]):
    """A service for threads: its `async with` block lasts as long as the `with` block."""

    _block: "Block[S] | None" = field(default=None, init=False, repr=False)

    def _make(self) -> S:
        """The service, made in the loop's thread."""
        raise NotImplementedError

    def _around(self) -> Portal:
        """The portal of the block outside."""
        raise NotImplementedError

    def _on_interrupt(self) -> None:
        """In the loop, before an interrupt ends the service."""

    def __enter__(self) -> Self:
        if self._block is not None:
            raise RuntimeError(
                f"this {type(self).__name__} was started before, and cannot be started again: make another one"
            )
        self._block = Block(self._make, self._around(), self._on_interrupt)
        self._inside = self._block.__enter__()
        self._portal = self._block.portal
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None
        self._block.__exit__(kind, error, trace)

    def open(self) -> Self:
        """Begin without a block, as in a notebook; close() ends it."""
        return self.__enter__()

    def close(self) -> None:
        """End, as at the end of the block; nothing if it does not run."""
        if self._block is not None and not self.portal.is_over:
            self.__exit__(None, None, None)
