"""Pulls a range of a queue, many pulls in flight on one connection: a broker answers each with 32 messages or 256 KiB at most.

The range is cut into strips, and each lane pulls one strip after the other. Strips are handed over in order, some MiB together;
a few dozen MiB are held at most.
Nothing is handed over twice, and nothing is left out without a word:

| the answer | means | is |
| --- | --- | --- |
| records with gaps, or none, with a filter | filtered messages | no loss |
| the same, and a pull without the filter does not give the range's first message | as without a filter | as without |
| the queue begins behind the offset | retention removed messages | loss |
| a gap behind the queue's first message, RocketMQ | retention removed them, and the queue's start is not corrected yet | loss |
| the same, twinlog | blanks of a queue that was repaired, or damaged records | a warning |
| the queue ends before the range does | this member lags, or the queue was cut | asked again, then loss |

Where a member does not answer another one is asked, and those that name servers know meanwhile, for `brokerWaitMs`.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TypeVar

import trio
from attrs import define, field, frozen

from twinlog.cluster.client.api import ClientApi, PullResponse
from twinlog.cluster.client.subscription import Subscription
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.topics.offsets import Range, cut, cut_text, merged, removed, removed_text, text_of
from twinlog.cluster.pipeline.topics.options import SourceOptions
from twinlog.cluster.pipeline.topics.refusals import is_final, refused
from twinlog.cluster.pipeline.topics.rows import NoRecordsError, Pulled
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RequestError
from twinlog.cluster.remoting.route import MASTER_ID, BrokerAddresses

LANES = 12
STRIP, STRIP_OF_FILTER = 32, 2048  # Messages: what one pull answers with; a filter passes over many.
TOGETHER = 8 << 20  # Bytes that are handed over together, or somewhat more: a batch costs 2 ms by itself.
HELD_MAX = 32 << 20  # Bytes from which on only the oldest strip is pulled, if it is waited for.
_AHEAD = 4 * LANES  # Strips that may wait for an older one.
_PAUSE_SECONDS, _ERROR_SECONDS = 0.2, 5.0
_AVOID_SECONDS = 5.0  # How long a member that did not answer is left alone, if there are others.
CUT_SECONDS = 15.0  # A new master may still be building its queues.

T = TypeVar("T")


@frozen
class QueuePart:
    """A range for one task, with the members of its broker that were known when it was planned.

    `floor`: first offset of the query in this queue: what lies before it is no first copy of a repeated row.
    """

    range: Range
    broker: BrokerAddresses
    floor: int = 0


@define(eq=False)
class _Strip:
    start: int
    end: int
    pieces: list[Pulled] = field(factory=list)
    is_done: bool = False


@define(eq=False)
class RangePuller:
    """Pulls one range. `take` gets its records in order, and may wait; `warn` gets a sentence."""

    api: ClientApi
    part: QueuePart
    options: SourceOptions
    take: Callable[[list[Pulled]], Awaitable[None]]
    warn: Callable[[str], None]
    _range: Range = field(init=False)
    _broker: BrokerAddresses = field(init=False)
    _broker_id: int = field(default=MASTER_ID, init=False)  # As pulls suggest.
    _filter: Subscription = field(init=False)
    _next: int = field(init=False)  # Start of the next strip.
    _begun: deque[_Strip] = field(factory=deque, init=False)  # Not handed over yet, oldest first.
    _held: int = field(default=0, init=False)  # Bytes that are not handed over yet.
    _is_taking: bool = field(default=False, init=False)
    _changed: trio.Event = field(factory=trio.Event, init=False)
    _avoided: dict[str, float] = field(factory=dict, init=False)  # Members that did not answer, and until when.
    _away_since: float = field(default=inf, init=False)
    _renewing: trio.Lock = field(factory=trio.Lock, init=False)
    _renewed_at: float = field(default=-inf, init=False)
    _is_twinlog: bool | None = field(default=None, init=False)
    _removed: list[tuple[int, int]] = field(factory=list, init=False)
    _blank: list[tuple[int, int]] = field(factory=list, init=False)
    _failure: ReadRefusedError | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._range, self._broker = self.part.range, self.part.broker
        self._next = self._range.start
        self._filter = self.options.subscription(self._range.queue.topic)

    async def run(self) -> None:
        """Pull all. Raises ReadRefusedError."""
        try:
            async with trio.open_nursery() as nursery:
                for do in (self._hand_over, *[self._lane] * LANES):
                    nursery.start_soon(self._until_refused, do, nursery.cancel_scope)
        finally:
            self._tell()
        if self._failure is not None:
            raise self._failure

    def _tell(self) -> None:
        """Warn of what was read over, each stretch once."""
        queue = self._range.queue
        for low, high in merged(self._removed):
            self.warn(removed_text(queue, low, high))
        for low, high in merged(self._blank):
            self.warn(
                f"{text_of(queue)}: there are no messages {low} to {high - 1}: they were lost before the queue was repaired, or "
                "their records are damaged; `twinlog audit` tells"
            )

    async def _until_refused(self, do: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await do()
        except ReadRefusedError as error:  # Not in a group: it is for people.
            self._failure = self._failure or error
            scope.cancel()

    async def _hand_over(self) -> None:
        """Hand over what the oldest strip has, also before it is done: a strip of large messages is large."""
        together: list[Pulled] = []
        size, at = 0, self._range.start
        while at < self._range.end:
            while not (self._begun and (self._begun[0].pieces or self._begun[0].is_done)):
                await self._change()
            strip = self._begun[0]
            size += sum(len(piece.data) for piece in strip.pieces)
            together += strip.pieces
            strip.pieces = []
            if strip.is_done:
                self._begun.popleft()
                at = strip.end
                self._notify()
            if size >= TOGETHER or (together and at == self._range.end):
                self._is_taking = True
                await self.take(together)
                self._is_taking = False
                self._held -= size
                together, size = [], 0
                self._notify()

    async def _lane(self) -> None:
        length = STRIP_OF_FILTER if self.options.is_filtered else STRIP
        while True:
            while len(self._begun) >= _AHEAD or self._held >= HELD_MAX:
                await self._change()
            if self._next >= self._range.end:
                return
            strip = _Strip(self._next, min(self._next + length, self._range.end))
            self._next = strip.end
            self._begun.append(strip)
            await self._fill(strip)
            strip.is_done = True
            if strip is self._begun[0]:
                self._notify()

    async def _change(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # ---- One strip

    async def _fill(self, strip: _Strip) -> None:
        """Pull a strip. What decides loss is the master's word, if there is one: a slave may lag, or keep less."""
        at, wants_master, stuck_since = strip.start, False, inf
        is_checked = not self.options.is_filtered or strip.start > self._range.start
        while at < strip.end:
            while self._held >= HELD_MAX and (self._is_taking or strip is not self._begun[0]):
                await self._change()
            (answer, plain), by_master = await self._pull(at, strip.end - at, wants_master, is_checked)
            end = min(answer.next_offset, strip.end)
            if answer.min_offset > at or end <= at:
                stuck_since = min(stuck_since, trio.current_time())
                if not by_master and not wants_master:
                    wants_master = True
                elif answer.min_offset > at:
                    low, at = at, min(answer.min_offset, strip.end)
                    self._lose(low, at, answer.min_offset)
                elif trio.current_time() >= stuck_since + CUT_SECONDS:
                    self._end_early(at, answer)
                    return
                else:
                    await trio.sleep(_PAUSE_SECONDS)
                    await self._renew()
                continue
            found = self._records(answer, at, end)
            if not self.options.is_filtered:
                await self._gaps(found, at, end)
            elif plain is not None:
                await self._check_start(plain, at)
            is_checked = True
            if found.offsets:
                strip.pieces.append(found)
                self._held += len(found.data)
                if strip is self._begun[0]:
                    self._notify()
            at, stuck_since = end, inf

    def _records(self, answer: PullResponse, low: int, high: int) -> Pulled:
        try:
            return Pulled.of(answer.records, low, high)
        except NoRecordsError as error:
            raise ReadRefusedError(
                f"{text_of(self._range.queue)}: the answer to a pull of messages {low} to {high - 1} is no records: {error}. "
                "Check that nothing between here and the broker changes bytes, and the broker's log with `twinlog log verify`."
            ) from error

    def _lose(self, low: int, high: int, first: int) -> None:
        if self.options.fail_on_data_loss:
            raise removed(self._range.queue, low, high, first)
        self._removed.append((low, high))

    def _end_early(self, at: int, answer: PullResponse) -> None:
        """The queue gives nothing at an offset, though it is not removed."""
        queue = self._range.queue
        if answer.max_offset > at:
            raise ReadRefusedError(
                f"{text_of(queue)}: the broker gives no messages from {at} on, though the queue has {answer.min_offset} to "
                f"{answer.max_offset}: {answer.status.name} for {CUT_SECONDS:g} s. Its log tells more."
            )
        if self.options.fail_on_data_loss:
            raise cut(queue, self._range.end, answer.max_offset)
        self.warn(cut_text(queue, self._range.end, answer.max_offset))

    async def _check_start(self, plain: PullResponse, at: int) -> None:
        """Look for what retention removed at the start of the range: a filter hides it while the queue's start does not show it.

        `plain`: answer without the filter. One message that is there is enough: behind it nothing is removed, gaps are filtered.
        """
        while True:
            end = min(plain.next_offset, self._range.end)
            found = self._records(plain, at, end)
            await self._gaps(found, at, end)
            if found.offsets or end <= at or end == self._range.end:
                return
            at = end
            plain, _ = await self._asked(partial(self._pull_plain, at), True)

    async def _gaps(self, found: Pulled, low: int, high: int) -> None:
        for each in found.gaps(low, high):
            await self._gap(*each)

    async def _gap(self, low: int, high: int) -> None:
        """Decide what a gap is that no filter explains."""
        queue = self._range.queue
        first, _ = await self._asked(lambda address: self.api.min_offset(address, queue), True)
        if low < first:
            self._lose(low, min(high, first), first)
            low = min(high, first)
        if low == high:
            return
        if self._is_twinlog is None:
            status, _ = await self._asked(self.api.member_status, True)
            self._is_twinlog = status is not None
        if not self._is_twinlog:
            self._lose(low, high, high)
        else:
            self._blank.append((low, high))

    # ---- Asking, also again

    async def _pull(
        self, at: int, count: int, wants_master: bool, is_checked: bool
    ) -> tuple[tuple[PullResponse, PullResponse | None], bool]:
        """An answer, and by whom. Until the start is checked with the same member's answer without the filter, if that may tell
        more.
        """

        async def ask(address: str) -> tuple[PullResponse, PullResponse | None]:
            answer = await self.api.pull(
                address,
                self._range.queue,
                at,
                group=self.options.reading_group,
                expression=self._filter.expression,
                kind=self._filter.kind,
                count_max=min(count, STRIP),
            )
            is_enough = is_checked or answer.min_offset > at or answer.next_offset <= at
            if is_enough or self._records(answer, at, answer.next_offset).offsets[:1] == [at]:
                return answer, None
            return answer, await self._pull_plain(at, address)

        answers, by_master = await self._asked(ask, wants_master)
        self._broker_id = answers[0].suggested_broker_id
        return answers, by_master

    async def _pull_plain(self, at: int, address: str) -> PullResponse:
        """One message, without the filter."""
        return await self.api.pull(address, self._range.queue, at, group=self.options.reading_group, count_max=1)

    async def _asked(self, ask: Callable[[str], Awaitable[T]], wants_master: bool) -> tuple[T, bool]:
        """An answer, and whether the master gave it or there is none. Raises ReadRefusedError."""
        while True:
            address = self._member(wants_master)
            try:
                if address is None:
                    raise RemotingConnectError(self._range.queue.broker_name, "no member of this broker is registered")
                answer = await ask(address)
            except RemotingError as error:
                await self._recover(error, address)
                continue
            self._away_since = inf
            return answer, self._broker.master in (None, address)

    def _member(self, wants_master: bool) -> str | None:
        """The member to ask: the suggested one, or another one while that does not answer."""
        wanted, now = self._broker.find(MASTER_ID if wants_master else self._broker_id), trio.current_time()
        if wants_master or wanted is None or now >= self._avoided.get(wanted, -inf):
            return wanted
        others = (each for each in self._broker.addresses.values() if now >= self._avoided.get(each, -inf))
        return next(others, wanted)

    async def _recover(self, error: RemotingError, address: str | None) -> None:
        now = trio.current_time()
        self._away_since = min(self._away_since, now)
        seconds = _ERROR_SECONDS if isinstance(error, RequestError) else self.options.broker_wait_ms / 1000
        is_over = now >= self._away_since + seconds
        if is_over or (isinstance(error, RequestError) and is_final(error)):
            tried = f" for {now - self._away_since:.0f} s" if is_over else ""
            raise refused(f"reading {text_of(self._range.queue)} from {address}{tried}", error) from error
        self._broker_id = MASTER_ID
        if address is not None and not isinstance(error, RequestError):
            self._avoided[address] = now + _AVOID_SECONDS
        await trio.sleep(_PAUSE_SECONDS)
        await self._renew()

    async def _renew(self) -> None:
        """Learn which members the broker has now; all lanes together ask once in a while."""
        async with self._renewing:
            if trio.current_time() < self._renewed_at + _PAUSE_SECONDS:
                return
            self._renewed_at = trio.current_time()
            try:
                route = await self.api.topic_route(self._range.queue.topic)
            except RemotingError:
                return  # The members that are known are asked on.
            if route is not None:
                self._broker = route.brokers.get(self._range.queue.broker_name, self._broker)
