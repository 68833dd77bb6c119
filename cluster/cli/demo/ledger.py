"""What a producer was told, and what is there: the account of a demonstration. Pure; times in seconds of any one clock."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from attrs import define, field, frozen


@frozen(kw_only=True)
class Account:
    """The end of it. `surplus`: copies beyond the first, of messages whose first try got no answer."""

    acknowledged: int
    found: int
    missing: tuple[int, ...]
    surplus: int
    unclear: int  # Found, though no try of theirs was ever acknowledged.
    strangers: int  # Found, and never sent.

    @property
    def is_good(self) -> bool:
        """Whether every acknowledged message is there, and nothing that nobody sent."""
        return not self.missing and not self.strangers


@define
class Ledger:
    """Messages by their numbers."""

    begun: int = field(default=0, init=False)
    acknowledged: dict[int, float] = field(factory=dict, init=False)  # When, in the order of the answers.
    failed_tries: int = field(default=0, init=False)
    last_failure: str = field(default="", init=False)

    def begin(self) -> int:
        """The number of the next message."""
        self.begun += 1
        return self.begun

    def acknowledge(self, number: int, now: float) -> None:
        """A broker promised to keep it."""
        self.acknowledged[number] = now

    def fail(self, why: str) -> None:
        """A try got no promise; the message may be stored all the same."""
        self.failed_tries += 1
        self.last_failure = why

    def longest_pause(self, since: float, until: float) -> float:
        """The longest time without any acknowledgement that lies in this stretch, or reaches into it."""
        times = list(self.acknowledged.values())
        before = max((each for each in times if each <= since), default=since)
        inside = [each for each in times if since < each <= until]
        return max((b - a for a, b in pairwise([before, *inside, until])), default=0.0)

    def counts(self, start: float, step: float, number: int) -> list[int]:
        """How many acknowledgements fell into each of so many steps from `start` on."""
        found = [0] * number
        for at in self.acknowledged.values():
            if 0 <= (index := int((at - start) // step)) < number:
                found[index] += 1
        return found

    def account(self, found: Iterable[int]) -> Account:
        """Compare with the numbers of all messages that a consumer finds."""
        copies = Counter(found)
        sent = {number for number in copies if 1 <= number <= self.begun}
        return Account(
            acknowledged=len(self.acknowledged),
            found=len(self.acknowledged.keys() & copies.keys()),
            missing=tuple(sorted(self.acknowledged.keys() - copies.keys())),
            surplus=sum(count - 1 for count in copies.values()),
            unclear=len(sent - self.acknowledged.keys()),
            strangers=len(copies.keys() - sent),
        )
