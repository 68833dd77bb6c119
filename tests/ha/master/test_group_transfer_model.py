"""Producers that wait, against a naive model: random joins, leaves, acks, puts and times."""

from collections.abc import Callable

import trio
import trio.testing
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.ha.config import HAConfig
from twinlog.ha.master.group_transfer import TICK_SECONDS, GroupTransferService
from twinlog.store.log.offset_waiters import PutStatus

IPS = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9")
TIMEOUT = 3.0


@define(frozen=True)
class Connection:
    number: int
    ip: str
    member: str = ""

    @property
    def address(self) -> str:
        return f"{self.ip}:{self.number}"


@define(eq=False)
class Model:
    """Who is there and what they hold, in lists, asked anew each time."""

    transfer: GroupTransferService
    end: int = 0
    registered: list[str] = field(factory=list)
    acks: dict[Connection, int] = field(factory=dict)
    doubts: dict[Connection, int] = field(factory=dict)  # Where the log ended when a newer one of its IP joined.
    messages: "list[Message]" = field(factory=list)

    def counted(self) -> list[Connection]:
        """The newest connections of each IP, those without doubt first, one for each time that it is registered."""
        counted = []
        for ip in set(self.registered):
            newest_first = [connection for connection in reversed(self.acks) if connection.ip == ip]
            newest_first.sort(key=lambda connection: connection in self.doubts)
            counted += newest_first[: self.registered.count(ip)]
        return counted

    def is_held(self, end_offset: int) -> bool:
        """One that is in doubt may be what another one has left behind: all of these are one voice, if there is no other."""
        holders = [connection for connection in self.counted() if self.acks[connection] >= end_offset]
        sure = sum(connection not in self.doubts for connection in holders)
        return max(sure, min(len(holders), 1)) >= self.transfer.decision.need - 1


@define(eq=False)
class Message:
    """A message that waits, and its own sink: it checks what it is told when it is told."""

    model: Model
    end_offset: int
    put_at: float
    outcome: PutStatus | None = None

    def answer(self, frames: list[bytes]) -> None:
        self._settle(PutStatus.PUT_OK)
        assert self.model.is_held(self.end_offset), "acked, and too few hold it"
        assert trio.current_time() <= self.put_at + TIMEOUT

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self._settle(status)
        assert not self.model.is_held(self.end_offset), "refused although it is held"
        assert reason
        if status is PutStatus.SLAVE_NOT_AVAILABLE:
            assert trio.current_time() == self.put_at
        else:
            assert abs(trio.current_time() - self.put_at - TIMEOUT) < 1e-6, "waits have added up"

    def _settle(self, outcome: PutStatus) -> None:
        assert self.outcome is None, "told twice"
        self.outcome = outcome


@define(eq=False)
class OneRead:
    """The messages of one read, which share a sink; their answers say which they are."""

    messages: dict[bytes, Message]

    def answer(self, frames: list[bytes]) -> None:
        for frame in frames:
            self.messages[frame].answer([frame])

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        for frame in frames:
            self.messages[frame].refuse([frame], status, reason)


def change_members(model: Model, ips: list[str]) -> None:
    model.registered = ips
    model.transfer.members_changed(ips)


def join(model: Model, number: int, ip: str, share: float) -> None:
    leave(model, number)
    connection = Connection(number, ip)
    model.doubts |= {other: model.end for other in model.acks if other.ip == ip}
    model.acks[connection] = int(model.end * share)
    model.transfer.join(connection, model.acks[connection])


def leave(model: Model, number: int) -> None:
    for connection in [each for each in model.acks if each.number == number]:
        del model.acks[connection]
        model.doubts.pop(connection, None)
        model.transfer.leave(connection)


def acknowledge(model: Model, number: int, share: float) -> None:
    for connection in [each for each in model.acks if each.number == number]:
        offset = max(model.acks[connection], int(model.end * share))
        if offset != model.acks[connection]:
            model.acks[connection] = offset
            if offset > model.doubts.get(connection, offset):
                del model.doubts[connection]
            model.transfer.acknowledge(connection, offset)


def put(model: Model, size: int, wait: bool) -> None:
    model.end += size
    if wait:
        message = Message(model, model.end, trio.current_time())
        model.messages.append(message)
        model.transfer.wait(model.end, message, b"frame")


def put_several(model: Model, sizes: list[int]) -> None:
    """As the sends of one read are put."""
    answers = []
    for size in sizes:
        model.end += size
        model.messages.append(Message(model, model.end, trio.current_time()))
        answers.append((model.end, str(model.end).encode()))
    read = {frame: message for (_, frame), message in zip(answers, model.messages[-len(sizes) :], strict=True)}
    model.transfer.wait_each(answers, OneRead(read))


NUMBERS, SHARES = st.integers(0, 4), st.sampled_from([0.0, 0.3, 0.9, 1.0, 1.0])
STEPS = st.one_of(
    st.tuples(st.just(change_members), st.lists(st.sampled_from(IPS[:3]), max_size=4)),
    st.tuples(st.just(join), NUMBERS, st.sampled_from(IPS), SHARES),
    st.tuples(st.just(leave), NUMBERS),
    st.tuples(st.just(acknowledge), NUMBERS, SHARES),
    st.tuples(st.just(put), st.integers(1, 400), st.booleans()),
    st.tuples(st.just(put_several), st.lists(st.integers(1, 400), min_size=1, max_size=4)),
    st.sampled_from([0.0, 0.1, 1.0, 2.9, 3.1, 20.0]),
)
CONFIGS = st.builds(
    HAConfig,
    in_sync_replicas=st.integers(1, 3),
    min_in_sync_replicas=st.integers(1, 2),
    auto_in_sync_replicas=st.booleans(),
    all_ack_in_sync_state_set=st.booleans(),
    slave_fallbehind_max=st.sampled_from([500, 1 << 20]),
)
Step = tuple[Callable[..., None], ...] | float


async def carry_out(config: HAConfig, steps: list[Step]) -> None:
    model = Model(transfer := GroupTransferService(config, lambda: model.end))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transfer.run)
        change_members(model, ["10.0.0.1", "10.0.0.2"])
        for step in steps:
            if isinstance(step, float):
                await trio.sleep(step)
            else:
                what, *arguments = step
                what(model, *arguments)
            waiting = [message for message in model.messages if message.outcome is None]
            assert len(waiting) == transfer.waiting
            assert not any(model.is_held(message.end_offset) for message in waiting), "held, and not told"
            if transfer.decision.need > 1:
                assert transfer.confirmed_offset == max(
                    (ack for ack in model.acks.values() if model.is_held(ack)), default=0
                )
        await trio.sleep(TIMEOUT + TICK_SECONDS)
        assert all(message.outcome is not None for message in model.messages)
        nursery.cancel_scope.cancel()


@settings(max_examples=300, deadline=None)
@given(CONFIGS, st.lists(STEPS, max_size=50))
def test_acked_is_held_and_nobody_waits_for_longer_than_slave_timeout(config, steps):
    trio.run(carry_out, config, steps, clock=trio.testing.MockClock(autojump_threshold=0))
