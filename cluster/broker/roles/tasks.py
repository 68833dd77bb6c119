"""The tasks that run as long as a member has a role, in a process whose role may change."""

from collections.abc import Awaitable, Callable
from typing import Literal

import trio
from attrs import define, field

Role = Literal["master", "slave"]
Task = Callable[[], Awaitable[None]]


@define(eq=False)
class RoleTasks:
    """One set of tasks for each role, of which one runs, or none. `run` carries them."""

    tasks: dict[Role, tuple[Task, ...]]
    role: Role | None = field(default=None, init=False)  # Whose tasks run.
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _ended: trio.Event = field(factory=trio.Event, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def begin(self, role: Role) -> None:
        """Run the tasks of this role; those of another one have ended before. No effect when they run already."""
        if role != self.role:
            await self.end()
            self.begin_now(role)

    def begin_now(self, role: Role) -> None:
        """The same where nothing runs."""
        assert self._nursery is not None
        assert self.role is None
        self.role, self._scope, self._ended = role, trio.CancelScope(), trio.Event()
        self._nursery.start_soon(self._carry, self.tasks[role], self._scope, self._ended)

    async def end(self) -> None:
        """Return once nothing runs any more."""
        if self.role is None:
            return
        self._scope.cancel()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
        self.role = None

    @staticmethod
    async def _carry(tasks: tuple[Task, ...], scope: trio.CancelScope, ended: trio.Event) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    for task in tasks:
                        nursery.start_soon(task)
        finally:
            ended.set()
