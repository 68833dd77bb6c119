"""What a checker answers."""

from attrs import frozen

LINES_MAX = 8

ORACLES = {
    "A": "what was acknowledged is there",
    "B": "all members hold the same bytes; queues and index are what a rebuild would make",
    "C": "nothing corrupt or invented was delivered",
    "D": "queues are in order and without gaps: each is one log that was appended to",
    "E": "one epoch has one master that acknowledges",
    "F": "it goes on by itself in time",
    "G": "no fault passes in silence",
    "H": "the group's record names each member once, where it is now",
    "I": "nobody typed anything: the group decided on every master, and none was forced",
    "J": "nobody was elected where the master was healthy and heard, or more often than there was reason to",
    "K": "another member acknowledges in time, though nothing was put right",
    "L": "no acknowledgement waits for etcd",
    "M": "memory stays what it is",
    "P": "some order of all operations explains them by one log a queue: porcupine's judgement",
}


@frozen
class Verdict:
    """Of one oracle. `wrong` is empty when it holds; `facts` say what was looked at: who saw nothing judges nothing."""

    oracle: str
    wrong: tuple[str, ...]
    facts: str

    @property
    def holds(self) -> bool:
        """Whether there is nothing to complain of."""
        return not self.wrong


def verdict(oracle: str, wrong: list[str], facts: str) -> Verdict:
    """The first complaints, and how many more there are."""
    more = len(wrong) - LINES_MAX
    listed = wrong[:LINES_MAX] + ([f"and {more} more"] if more > 0 else [])
    return Verdict(oracle, tuple(listed), facts)
