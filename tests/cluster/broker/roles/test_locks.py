"""Locks of queues over changes of the master, in virtual time. ORDERLY: tests/cluster/broker/tables/test_queue_locks.py."""

import trio

from tests.support.group.group import until
from tests.support.group.kept import EtcdModel
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import AutoFailoverRequest
from twinlog.cluster.broker.tables.queue_locks import LOCK_SECONDS_MAX
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.config import FlushDiskType

QUEUES = tuple(MessageQueue("T", "broker-a", number) for number in range(3))


async def lock(member, client, *numbers):
    """The numbers of the queues that the client has now; None: refused."""
    told = []
    try:
        granted = member.roles.locks.lock("G", client, [QUEUES[number] for number in numbers], told.append)
    except RequestError:
        return None
    if granted is None:
        await until(lambda: told, "an answer", seconds=1, step=0.001)
        (granted,) = told
    return [queue.queue_id for queue in granted]


async def test_after_a_failover_who_holds_a_queue_keeps_it_and_others_wait(autojump_clock, three):
    """A queue that nobody holds is given at once: two of three know all that was told."""
    a, b, c = three.members
    assert await lock(a, "one", 0, 1) == [0, 1]
    assert await lock(a, "other", 0, 2) == [2]
    a.roles.locks.unlock("G", "one", [QUEUES[1]])
    await trio.sleep(0.1)
    await a.kill()
    assert (await three.change("failover", b)).error == ""
    assert await lock(b, "third", 0, 1, 2) == [1]
    assert await lock(b, "one", 0) == [0]
    assert await lock(c, "one", 0) is None, "a slave"
    await trio.sleep(LOCK_SECONDS_MAX - 5)
    assert await lock(b, "third", 0, 2) == []
    assert await lock(b, "one", 0) == [0]
    await trio.sleep(6)
    assert await lock(b, "third", 0, 2) == [2], "who does not come back is forgotten"


async def test_locks_are_handed_over_in_a_switchover_and_back(autojump_clock, pair):
    a, b = pair.members
    assert await lock(a, "one", 0) == [0]
    for number in range(2):
        old, new = (a, b) if number == 0 else (b, a)
        assert (await pair.change("switchover", new)).error == ""
        assert await lock(old, "one", 0) is None
        assert await lock(new, "other", 0, 1) == [1]
        assert await lock(new, "one", 0) == [0]
        new.roles.locks.unlock("G", "other", [QUEUES[1]])


async def test_in_a_group_that_elects_by_itself_only_what_others_know_is_told(autojump_clock, three):
    """A master that is cut off gives and renews nothing once its lease is over: another one may be elected by then."""
    a, _, c = three.members
    await a.roles.role_change("auto-failover", {"mode": "members"})
    await until(lambda: c.roles.member.group.auto_failover == "members", "the mode")
    assert await lock(a, "one", 0) == [0]
    three.isolate(a)
    assert await lock(a, "one", 0, 1) == [0], "its lease is held still"
    await trio.sleep(4)
    assert await lock(a, "one", 0) is None
    three.isolate()
    master = await three.settled()
    await until(lambda: master.roles.member.ha.lease.held(trio.current_time()), "its lease")
    assert await lock(master, "other", 0) == []
    assert await lock(master, "other", 1, 2) == [2], "it was locked, and its client was not told"


async def test_with_etcd_too_a_master_that_is_cut_off_gives_no_locks_and_the_last_copy_does(
    autojump_clock, tmp_path, nursery
):
    """Cut off from everybody: the others elect, and ask nobody whom it gave a queue to."""
    config = {"max_time_slave_not_catchup_ms": 5_000}
    group = role_group(nursery, tmp_path, size=3, config=config, etcd=EtcdModel(), flush=FlushDiskType.SYNC_FLUSH)
    await group.start()
    a, b, c = group.members
    await until(lambda: a.roles.hand_to_etcd._why_not(a.roles.member.group) == "", "all see etcd")
    await a.roles.set_auto_failover(AutoFailoverRequest(mode="etcd"))
    await group.settled()
    assert await lock(a, "one", 0) == [0]
    group.isolate(a)
    await trio.sleep(4)
    assert await lock(a, "one", 0) is None
    group.isolate()
    master = await group.settled()
    for other in {a, b, c} - {master}:
        await other.kill()
    await until(lambda: len(group.etcd.record.in_sync) == 1, "the set shrinks", seconds=60)
    await until(lambda: master.roles.member.ha.lease.held(trio.current_time()), "its lease")
    assert await lock(master, "one", 0, 1) == [0, 1]


async def test_elsewhere_a_master_alone_gives_locks_as_rocketmq_does(autojump_clock, pair):
    a, b = pair.members
    await b.kill()
    await trio.sleep(10)
    before = trio.current_time()
    assert await lock(a, "one", 0) == [0]
    assert trio.current_time() < before + 0.1
    assert await lock(a, "other", 0) == []


async def test_a_master_that_is_started_again_learns_what_it_gave(autojump_clock, three):
    a, *_ = three.members
    assert await lock(a, "one", 0) == [0]
    await a.kill()
    await a.start()
    await until(lambda: a.is_serving and not a.roles.locks.table.why_closed, "locks are given", seconds=10)
    assert await lock(a, "other", 0, 1) == [1]
    assert await lock(a, "one", 0) == [0]


async def test_where_locks_may_be_unknown_none_is_given_until_nobody_believes_in_one(autojump_clock, three):
    """Those who elect were restarted since: they knew who holds a queue."""
    a, b, c = three.members
    assert await lock(a, "one", 0) == [0]
    await a.kill()
    for member in (b, c):
        await member.kill()
        await member.start()
    assert (await three.change("failover", b)).error == ""
    assert await lock(b, "one", 0) is None
    await trio.sleep(30)
    assert await lock(b, "other", 0) is None
    await trio.sleep(4)
    assert await lock(b, "other", 0) == [0]
