"""The sentences of `twinlog demo` that depend on what happened. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinlog.cluster.cli.demo.ledger import Account

if TYPE_CHECKING:
    from twinlog.cluster.broker.peers.role_messages import ChangeResult, ChangeState
    from twinlog.cluster.observe.live_diff import LiveDiffReport
    from twinlog.store.truncation.divergent import Divergent


def many(count: int, one: str, several: str | None = None) -> str:
    """A number with its noun.

    >>> many(1, "copy", "copies"), many(1200, "message")
    ('1 copy', '1 200 messages')
    """
    return f"{number(count)} {one if count == 1 else several or one + 's'}"


def number(count: int) -> str:
    """With spaces between thousands."""
    return f"{count:,}".replace(",", " ")


def verdict(state: "ChangeState") -> str:
    """What a failover would cost, by the member that would carry it out."""
    if any(each.may and not each.forced for each in state.judgements):
        return "bytes at risk: 0; enough members promise, and it has everything that any of them has"
    lost = [each.lost for each in state.judgements if each.lost is not None]
    if not lost:
        return "bytes at risk: not known"
    return (
        f"bytes at risk: {number(lost[0].end - lost[0].first) if lost[0].end is not None else 'nobody knows how many'}"
    )


def taken_over(winner: str, result: "ChangeResult", seconds: float) -> str:
    """Who is the master now."""
    lost = "an unknown number of" if result.lost_bytes is None else number(result.lost_bytes)
    return f"{winner} is the master in epoch {result.epoch}, after {seconds:.2f} s; acknowledged bytes given up: {lost}"


def waited(seconds: float) -> str:
    """How long producers stood still, in the unit that one reads."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def rewound(name: str, kept: Sequence["Divergent"]) -> str:
    """What the old master cut off."""
    if not kept:
        return f"{name} follows as a slave; its log had nothing that the new master lacks"
    size, where = number(sum(each.size for each in kept)), kept[-1].path.name
    return f"{name} follows; it cut {size} bytes that only it had, without SEND_OK, and keeps them in divergent/{where}"


def account_lines(account: Account) -> list[tuple[str, bool]]:
    """The account in lines, and whether each is good."""
    lines = [
        (f"acknowledged {number(account.acknowledged)}", True),
        (f"found        {number(account.found)}", account.found == account.acknowledged),
        (f"missing      {number(len(account.missing))}{_first(account.missing)}", not account.missing),
    ]
    if account.surplus:
        copies = many(account.surplus, "message") + (" is" if account.surplus == 1 else " are")
        lines.append(
            (f"{copies} there twice: stored, but the answer was lost with the master, so the producer sent again", True)
        )
    else:
        lines.append(("duplicates   0", True))
    if account.unclear:
        lines.append((f"{many(account.unclear, 'message')} found that nobody was promised", True))
    if account.strangers:
        lines.append((f"{many(account.strangers, 'message')} found that nobody sent", False))
    return lines


def _first(missing: Sequence[int]) -> str:
    return f", first number {missing[0]}" if missing else ""


def compared(reports: Sequence["LiveDiffReport"]) -> tuple[str, bool]:
    """What the comparison of the logs says."""
    from twinlog.cluster.observe.live_diff import LiveVerdict

    differing = [each for each in reports if each.verdict is not LiveVerdict.EQUAL or each.right_behind_bytes]
    if not differing:
        end = number(reports[0].common_end) if reports else "0"
        return f"the logs of all {len(reports) + 1} members are equal by digest, byte 0 to {end}", True
    names = "; ".join(f"{each.left.name} and {each.right.name}: {each.verdict.value}" for each in differing)
    return f"the logs are not equal: {names}", False
