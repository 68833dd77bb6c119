"""Judges what witnesses say of a master: whether somebody else hears it, where a member's own vote alone would elect. No I/O.

The slave of a pair needs no promise but its own. Alone it cannot tell a dead master from a broken link, so it asks witnesses: the
group's name servers. A wrong answer loses no acknowledged message, as the votes guard these: it costs a failover that was not
needed. Who does not know therefore says so (`hears` None) and counts neither way; `objection` says what is missing.

A name server of ours asks the process that registered as the group's master, on the very connection on which it registered. It
needs no way to the master of its own, and a process that hangs does not answer. RocketMQ's name server says only who is
registered: it drops a broker when its connection breaks, and a silent one after 120 s.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

# A member registers again within about 2 s after a name server's start, and after its connection was reset.
ALL_REGISTERED_MS = 10_000


@frozen(kw_only=True)
class WitnessReply:
    """The word of one witness. `hears` None: it does not know, or does not answer. `why` follows the witness's name."""

    address: str
    hears: bool | None
    why: str

    @property
    def text(self) -> str:
        """A line for people."""
        return f"{self.address} {self.why}"


@frozen(kw_only=True)
class MasterAnswer:
    """Answer of the process that is registered as master. `serves` None: it does not say, as RocketMQ's brokers."""

    serves: bool | None
    epoch: int | None = None
    why: str = ""  # Why it does not serve.


@frozen(kw_only=True)
class WitnessReport:
    """Knowledge of a name server about a group. `heard_ms`: since it received anything from the registered master."""

    up_ms: int  # Since its start.
    members: int  # Registered ones.
    master: str | None = None  # The address that is registered with id 0.
    heard_ms: int | None = None
    answer: MasterAnswer | None = None
    why_silent: str = ""  # Why there is no answer.


def judge_report(address: str, report: WitnessReport) -> WitnessReply:
    """The reply of a name server of ours."""
    hears, why = _judged(report)
    return WitnessReply(address=address, hears=hears, why=why)


def _judged(report: WitnessReport) -> tuple[bool | None, str]:
    if not report.members:
        return None, "knows no member of the group"
    if report.master is None:
        if report.up_ms < ALL_REGISTERED_MS:
            return None, "was started a moment ago, and no master has registered since"
        return False, "has no master registered"
    if report.answer is None:
        heard = "" if report.heard_ms is None else f", last heard {_seconds(report.heard_ms)} ago"
        return False, f"does not hear the master {report.master}{heard}: {report.why_silent or 'no answer'}"
    epoch = "" if report.answer.epoch is None else f" in epoch {report.answer.epoch}"
    if report.answer.serves is False:
        return False, f"hears {report.master}, which serves nobody{epoch}: {report.answer.why or 'it is no master'}"
    serves = "which answers" if report.answer.serves is None else f"which serves{epoch}"
    return True, f"hears the master {report.master}, {serves}"


def judge_registered(address: str, members: Mapping[int, str], own: str, connected_ms: int) -> WitnessReply:
    """The reply of RocketMQ's name server, which reports the group's registered `members` by id.

    `connected_ms`: age of the connection to it. A shorter one may be to a name server that was just started.
    """
    master = members.get(0)
    if not members:
        hears, why = None, "knows no member of the group"
    elif master == own:
        hears, why = None, "has this member itself registered as master"
    elif master is not None:
        hears, why = True, f"has the master {master} registered (RocketMQ: it drops a silent one after 120 s)"
    elif connected_ms < ALL_REGISTERED_MS:
        hears, why = None, "has no master registered, and may have been started a moment ago"
    else:
        hears, why = False, "has no master registered"
    return WitnessReply(address=address, hears=hears, why=why)


def silent(address: str, why: str) -> WitnessReply:
    """The reply of a witness that gives none."""
    return WitnessReply(address=address, hears=None, why=f"gives no answer: {why}")


def objection(replies: Sequence[WitnessReply]) -> str:
    """The objection to an election by the own vote alone; "" when a witness does not hear the master, and none hears it."""
    if hearing := [reply.text for reply in replies if reply.hears]:
        return "; ".join(hearing)
    if any(reply.hears is False for reply in replies):
        return ""
    if not replies:
        return "there is no witness to ask: set namesrvAddr, or autoFailoverWitness"
    return "no witness knows: " + "; ".join(reply.text for reply in replies)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
