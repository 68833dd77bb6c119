"""Findings on a slave and its master as text: the place, the meaning, the next step."""

from typing import Literal

from attrs import frozen

from twinlog.store.epoch_file import EpochId
from twinlog.store.errors import MessageFormatError
from twinlog.store.record.message import decode_message

FindingKind = Literal[
    "diverged",  # From `offset` on the two logs hold different records.
    "ahead",  # The slave's log goes on behind `offset`, where its master's ends.
    "below min",  # The master has deleted the byte that the slave needs next, `offset`.
    "file size",  # Their log files differ in size: they can never have the same log.
    "history",  # The master has bytes below `offset`, where the slave's log begins. Not an error.
    "damaged",  # One of the two lost the record at `offset` on its disk; those behind it are equal.
    "not compared",  # Nothing below `offset` was compared with the master's log. Not an error.
    "stalled",  # Nothing arrives at `offset`, although the master has more.
    "bad record",  # Invalid records arrive at `offset`, repeatedly.
    "dispatch",  # The slave's own queues are stuck at `offset`.
    "given up",  # By the master's history the bytes from `offset` on are not part of the log any more.
    "older epoch",  # The master is of an epoch that is older than what this slave has promised.
    "not a member",  # The master does not count this slave yet, or it may not count: it waits.
]
NO_ERRORS: tuple[FindingKind, ...] = ("history", "not compared")
REPAIR = (
    "If the master is right, set haAutoResync=true here, or let this slave start with an empty log; where roles can change: "
    "twinlog rewind MEMBER --accept-data-loss BYTES, or twinlog reinit MEMBER. If this slave is right, make it the master"
)


@frozen
class Finding:
    """One finding, for status and log. `offset` in bytes. `is_lost_there`: this slave has a record that its master lost."""

    kind: FindingKind
    offset: int
    text: str
    is_lost_there: bool = False


def diverged(
    offset: int, own_max: int, own_record: bytes | None, peer_record: bytes | None, *, has_common: bool
) -> Finding:
    """`has_common`: the logs are equal, from where both have bytes up to `offset`."""
    where = (
        f"from byte {offset} on, {own_max - offset} bytes before this log's end"
        if has_common
        else f"from the first byte that both have, {offset}: nothing says that these two ever were one log"
    )
    return Finding(
        "diverged",
        offset,
        f"this slave's log differs from its master's {where}. Here: {describe(own_record)}; there: "
        f"{describe(peer_record)}. Nothing is taken from this master. Compare them with: twinlog log diff --live. {REPAIR}",
    )


def diverged_in_overlap(offset: int, own_max: int, own_record: bytes | None) -> Finding:
    """Found in bytes that the master sent again."""
    return Finding(
        "diverged",
        offset,
        f"this slave's log differs from its master's from byte {offset} on or before, at least {own_max - offset} bytes before "
        f"this log's end: asked for its last bytes again, the master sent others. Here: {describe(own_record)}. Nothing is "
        f"taken from this master. {REPAIR}",
    )


def not_compared(offset: int, why: str) -> Finding:
    """The master's remoting port does not answer."""
    return Finding(
        "not compared",
        offset,
        f"history below {offset} not compared: the master's remoting port gave no answer ({why}). Is it reachable from here?",
    )


def damaged(offset: int, own_record: bytes | None) -> Finding:
    """The histories are equal; one of the two logs has no valid record there."""
    if own_record is None:
        text = (
            f"this slave's log is damaged at {offset}: no sound record is there, its master has one, and what follows is equal. "
            "Look at it with: twinlog log verify"
        )
    else:
        text = (
            f"the master's log is damaged at {offset}: no sound record is there, while this slave has one "
            f"({describe(own_record)}), and what follows is equal again. Nothing is taken from this master, which may have "
            "given the numbers of the lost messages to others. Repair its log from this one, or make this slave the master"
        )
    return Finding("damaged", offset, text, is_lost_there=own_record is not None)


def ahead(common_end: int | None, own_max: int, peer_max: int) -> Finding:
    """`common_end`: what both have is equal, and ends there; None: they have nothing in common."""
    equal = "what both have is equal" if common_end is not None else "they have no byte in common"
    lost = (
        "The master's log is empty: has it lost its disk, or been set up anew? Then the messages are here"
        if peer_max == 0
        else "The master may have lost these bytes in a crash, or been restored from an older copy"
    )
    return Finding(
        "ahead",
        peer_max if common_end is None else common_end,
        f"this slave's log ends at {own_max}, its master's at {peer_max}: {own_max - peer_max} bytes are here only; "
        f"{equal}. {lost}. Nothing is taken from this master. {REPAIR}",
    )


def ahead_by_refusals(own_max: int) -> Finding:
    """A guess, where the master's remoting port does not answer."""
    return Finding(
        "ahead",
        own_max,
        f"this slave holds bytes the master lacks, or so it seems: its log ends at {own_max}, and whenever the master hears "
        "that, it closes the connection. Compare the two logs; if the master is right, let this slave start again with an "
        "empty log. Nothing is deleted here",
    )


def below_min(own_max: int, peer_min: int) -> Finding:
    """The slave was disconnected for too long."""
    return Finding(
        "below min",
        own_max,
        f"this slave's log ends at {own_max}, its master's begins at {peer_min}: the {peer_min - own_max} bytes between were "
        "deleted there. This slave needs a full copy: set haAutoResync=true here, which keeps what it has in "
        "twinlog/divergent/, or empty its store directory",
    )


def other_file_size(own_size: int, peer_size: int) -> Finding:
    """Their logs can never be equal."""
    return Finding(
        "file size",
        0,
        f"mappedFileSizeCommitLog is {own_size} here and {peer_size} on the master: the two can never have the same log. "
        "Set it to the master's, and let this slave start again with an empty log",
    )


def history(own_min: int, peer_min: int) -> Finding:
    """The slave has all from its first byte on, but the master has older ones."""
    return Finding(
        "history",
        own_min,
        f"lacks the first {own_min - peer_min} bytes of the master's history: this log begins at {own_min}, the master's at "
        f"{peer_min}. Messages from before would be lost with the master. To have them, let this slave start again with an "
        "empty log",
    )


def given_up(offset: int, own_max: int, why: str, held_back: str) -> Finding:
    """Proven by the histories, and left to a person."""
    return Finding(
        "given up",
        offset,
        f"bytes {offset} to {own_max} of this slave's log were {why}; below them it is equal to its master's. They are not cut "
        f"by themselves: {held_back}. Nothing is taken from this master. Next: twinlog rewind MEMBER, which keeps them in "
        "twinlog/divergent/",
    )


def older_epoch(address: str, served: EpochId, promised: EpochId, own_max: int) -> Finding:
    """An isolated master that has not yet heard of its successor, say."""
    return Finding(
        "older epoch",
        own_max,
        f"the member at {address} serves epoch {served.epoch} of {served.winner or 'nobody'}, and this slave has promised epoch "
        f"{promised.epoch} to {promised.winner or 'nobody'}. Nothing is taken from it. This ends by itself when the newer master "
        "is heard of; if there is none, next: twinlog failover --candidate MEMBER",
    )


def no_epochs(address: str, promised: EpochId, own_max: int) -> Finding:
    """A RocketMQ master, or one of an earlier version."""
    return Finding(
        "older epoch",
        own_max,
        f"the member at {address} knows no epochs, and this slave has promised epoch {promised.epoch} to "
        f"{promised.winner or 'nobody'}: its log may lack what was acknowledged since. Nothing is taken from it. Next: make a "
        "member of this group the master, or let this one begin anew: twinlog reinit MEMBER",
    )


def not_a_member(address: str, me: str, own_max: int) -> Finding:
    """The master has our request, and adds this slave once enough others have the record."""
    return Finding(
        "not a member",
        own_max,
        f"the record of the group at the master {address} does not name {me} yet. It knows now, and adds this slave once "
        "enough of the others know. If this lasts, next: twinlog list, which says who does not answer; where haMembers of the "
        "master is set, it has to name this slave",
    )


def not_yet(own_max: int, why: str) -> Finding:
    """The reason why a member waits before it follows."""
    return Finding("not a member", own_max, f"this slave may not follow yet: {why}")


def describe(record: bytes | None) -> str:
    """Short description of a record."""
    if record is None:
        return "no record"
    try:
        message = decode_message(record, check_crc=False)
    except MessageFormatError:
        return "bytes that are no record"
    key = message.properties.get("UNIQ_KEY")
    return (
        f"{message.topic} queue {message.queue_id} message {message.queue_offset}, stored at {message.store_timestamp} ms, "
        f"{message.size} bytes" + (f", id {key}" if key else "")
    )
