"""Changes of several brokers, one after the other: what was done when one of them fails is told."""

from collections.abc import Awaitable, Callable, Sequence

from twinlog.cluster.remoting.errors import RemotingError

Step = tuple[str, Callable[[], Awaitable[object]]]  # What a person calls it, and doing it.


class PartlyDoneError(Exception):
    """A change that stopped half-way. `done` is in force, `failed` perhaps: see `why`; the rest was not tried."""

    def __init__(self, done: Sequence[str], failed: str, not_tried: Sequence[str], why: RemotingError) -> None:
        super().__init__(f"{failed}: {why}")
        self.done = tuple(done)
        self.failed = failed
        self.not_tried = tuple(not_tried)
        self.why = why


async def carry_out(steps: Sequence[Step]) -> None:
    """Up to the first that fails. Raises RemotingError as it is when nothing was done yet, else PartlyDoneError."""
    names = [name for name, _ in steps]
    for number, (name, work) in enumerate(steps):
        try:
            await work()
        except RemotingError as error:
            if not number:
                raise
            raise PartlyDoneError(names[:number], name, names[number + 1 :], error) from error
