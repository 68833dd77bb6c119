"""Asks every member what it sees of the others, twice, and compares the logs of those that follow each other."""

from collections.abc import Callable, Iterator

import trio

from twinlog.cluster.client.api.api import ClientApi
from twinlog.cluster.observe.cross_views import Crosscheck, master_of, result, slaves_of
from twinlog.cluster.observe.facts import ClusterFacts, MemberFacts
from twinlog.cluster.observe.gather import gather
from twinlog.cluster.observe.live_diff import LiveDiffReport, live_diff
from twinlog.cluster.remoting.errors import RemotingError

LAST_BYTES = 256 << 20
SECONDS_BETWEEN = 1.0

Tell = Callable[[str], None]


async def crosscheck(api: ClientApi, *, last_bytes: int = LAST_BYTES, tell: Tell = lambda _what: None) -> Crosscheck:
    """`last_bytes`: so much of the logs' common end is compared. `tell` hears what is done. Raises RemotingError without a name
    server.
    """
    tell("asking members")
    before = await gather(api, thorough=True)
    logs = []
    began = trio.current_time()
    for master, slave in _pairs(before):
        tell(f"comparing the logs of {master.member.name} and {slave.member.name}")
        report = await _compare(api, master, slave, last_bytes)
        logs += [report] if report is not None else []
    await trio.sleep_until(began + SECONDS_BETWEEN)
    tell("asking members once more")
    return result(before, await gather(api, thorough=True), tuple(logs))


def _pairs(facts: ClusterFacts) -> Iterator[tuple[MemberFacts, MemberFacts]]:
    for name in facts.group_names:
        for slave in slaves_of(facts, name):
            master = master_of(facts, slave)
            if master is not None and not {master.member.state, slave.member.state} & {
                "unreachable",
                "failing",
                "refusing",
            }:
                yield master, slave


async def _compare(api: ClientApi, master: MemberFacts, slave: MemberFacts, last_bytes: int) -> LiveDiffReport | None:
    """None when one of them is gone: the second look at everybody tells."""
    left, right = ((each.member.name, each.member.address) for each in (master, slave))
    try:
        return await live_diff(api, left, right, last_bytes=last_bytes)
    except RemotingError:
        return None
