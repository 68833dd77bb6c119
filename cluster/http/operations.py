"""Operations started over HTTP that go on in the background: role changes and repairs, each until it or this process ends.

The members carry a change out, not this process: when it ends, the change goes on, and the same request again finds it.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import structlog
import trio
from attrs import define, evolve, field, frozen

from twinlog.cluster.admin.documents import document, dumps
from twinlog.cluster.admin.repair import RepairResult
from twinlog.cluster.admin.roles import ChangeOutcome
from twinlog.cluster.broker.peers.role_messages import ChangeState
from twinlog.cluster.http.admin import http_error
from twinlog.cluster.http.server.responses import HttpError

log = structlog.get_logger(__name__)

KEPT_MAX = 256
RUNNING_MAX = 16
SETTLE_SECONDS_MAX = 1.0
TELL_SECONDS = 0.5  # Progress in bytes is told so often at most.

Verb = Literal["switchover", "failover", "pause", "resume", "auto-failover", "rewind", "reinit"]


@frozen
class Failure:
    """The error of an operation."""

    error: str
    why: str
    next: str


@frozen(kw_only=True)
class Operation:
    """One requested change. `steps` of a switchover or failover; bytes of a rewind or reinit."""

    operation: str = field(metadata={"doc": "its id"})
    verb: Verb
    group: str
    member: str | None = field(metadata={"doc": "who is to change; null: the group"})
    reason: str
    state: Literal["running", "done", "partial", "failed"]
    began_ms: int
    ended_ms: int | None = None
    steps: ChangeState | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    result: ChangeOutcome | RepairResult | None = None
    failure: Failure | None = None


@frozen
class OperationList:
    """The newest first."""

    operations: tuple[Operation, ...]


Update = Callable[[dict[str, Any]], None]  # Fields of Operation that have changed.
Key = tuple[str | None, bytes]  # Its Idempotency-Key, and the request.


@define(eq=False)
class Operations:
    """The operations of one process. `publish` is called with each change: an event's name and its data."""

    publish: Callable[[str, bytes], None] = lambda _event, _data: None
    _kept: "OrderedDict[str, Operation]" = field(factory=OrderedDict, init=False)
    _by_key: "OrderedDict[str, tuple[bytes, str]]" = field(factory=OrderedDict, init=False)
    _settled: dict[str, tuple[trio.Event, list[HttpError]]] = field(factory=dict, init=False)
    _turns: dict[str, trio.Lock] = field(factory=dict, init=False)
    _reported_at: float = field(default=0.0, init=False)

    def all(self) -> OperationList:
        """All operations that are kept."""
        return OperationList(tuple(reversed(self._kept.values())))

    def find(self, name: str) -> Operation | None:
        """Find an operation by its id."""
        return self._kept.get(name)

    def running(self) -> list[dict[str, Any]]:
        """Documents of those that run."""
        return [document(each) for each in self._kept.values() if each.state == "running"]

    @asynccontextmanager
    async def turn(self, key: str | None) -> AsyncIterator[None]:
        """Requests with one Idempotency-Key come one after the other."""
        if key is None:
            yield
            return
        lock = self._turns.setdefault(key, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().tasks_waiting:
                self._turns.pop(key, None)

    def same(self, key: str | None, request: bytes) -> Operation | None:
        """The operation of an earlier request with this Idempotency-Key. Raises HttpError when that was another request."""
        if key is None or key not in self._by_key:
            return None
        before, name = self._by_key[key]
        if before != request:
            raise HttpError(
                status=409,
                what="This Idempotency-Key was used for another request.",
                why=f"That is operation {name}.",
                next_step="Send another key.",
            )
        return self._kept.get(name)

    def begin(
        self,
        verb: Verb,
        group: str,
        member: str | None,
        reason: str,
        carry_out: Callable[[Update], Awaitable[Any]],
        key: Key,
    ) -> Operation:
        """Start it behind; `carry_out` gives its result. Raises HttpError when too many run."""
        if sum(each.state == "running" for each in self._kept.values()) >= RUNNING_MAX:
            raise HttpError(
                status=503,
                what="Too many changes run already.",
                why=f"{RUNNING_MAX} may.",
                next_step="See them with: GET /v1/operations",
                headers={"retry-after": "5"},
            )
        operation = self._note(verb, group, member, reason, key)
        self._settled[operation.operation] = (trio.Event(), [])
        trio.lowlevel.spawn_system_task(self._run, operation.operation, carry_out, name=f"{verb} over HTTP")
        return operation

    async def settled(self, operation: Operation) -> Operation:
        """The operation once it got going, or a moment later. Raises HttpError when it was refused at once, and forgets it."""
        if (found := self._settled.get(operation.operation)) is not None:
            with trio.move_on_after(SETTLE_SECONDS_MAX):
                await found[0].wait()
            self._settled.pop(operation.operation, None)
            for error in found[1]:
                self._forget(operation.operation)
                raise error
        return self._kept.get(operation.operation, operation)

    def _forget(self, name: str) -> None:
        del self._kept[name]
        for key, (_, kept) in list(self._by_key.items()):
            if kept == name:
                del self._by_key[key]

    def finished(self, verb: Verb, group: str, reason: str, key: Key) -> Operation:
        """Note one that is done already."""
        return self._note(verb, group, None, reason, key, is_done=True)

    def _note(
        self, verb: Verb, group: str, member: str | None, reason: str, key: Key, *, is_done: bool = False
    ) -> Operation:
        now = _now_ms()
        operation = Operation(
            operation=secrets.token_hex(8),
            verb=verb,
            group=group,
            member=member,
            reason=reason,
            state="done" if is_done else "running",
            began_ms=now,
            ended_ms=now if is_done else None,
        )
        self._keep(operation)
        if key[0] is not None:
            self._by_key[key[0]] = (key[1], operation.operation)
        log.info("asked for over HTTP", verb=verb, group=group, about=member, operation=operation.operation)
        return operation

    async def _run(self, name: str, carry_out: Callable[[Update], Awaitable[Any]]) -> None:
        """A system task: what it raises would end the loop."""
        try:
            result = await carry_out(lambda changes: self._update(name, changes))
        except Exception as error:
            found = http_error(error)
            if found is None:
                log.exception("a change over HTTP failed", operation=name)
                found = HttpError(status=500, what="The change failed.", why=f"{error!r}", next_step="Look at the log.")
            if name in self._settled and not self._settled[name][0].is_set():
                self._settled[name][1].append(found)
            failure = Failure(found.what, found.why, found.next_step)
            self._update(name, {"state": "failed", "failure": failure, "ended_ms": _now_ms()})
        else:
            state = "partial" if isinstance(result, ChangeOutcome) and result.late else "done"
            self._update(name, {"state": state, "result": result, "ended_ms": _now_ms()})

    def _update(self, name: str, changes: dict[str, Any]) -> None:
        if (before := self._kept.get(name)) is None:
            return
        operation = self._kept[name] = evolve(before, **changes)
        if name in self._settled and _got_on(changes):
            self._settled[name][0].set()
        now = time.monotonic()
        if "done_bytes" in changes and now - self._reported_at < TELL_SECONDS:
            return
        self._reported_at = now
        self.publish("operation", dumps(document(operation)))

    def _keep(self, operation: Operation) -> None:
        self._kept[operation.operation] = operation
        over = len(self._kept) - KEPT_MAX
        for name in [each.operation for each in self._kept.values() if each.state != "running"][: max(over, 0)]:
            del self._kept[name]
        while len(self._by_key) > KEPT_MAX:
            self._by_key.popitem(last=False)
        self.publish("operation", dumps(document(operation)))


def _got_on(changes: dict[str, Any]) -> bool:
    """True once a step was done: a refusal after that is a failure of a started operation."""
    steps: ChangeState | None = changes.get("steps")
    return steps is None or any(step.state == "done" for step in steps.steps)


def _now_ms() -> int:
    return round(time.time() * 1000)
