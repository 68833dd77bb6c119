"""Locks of queues, alone and over changes of the master.

ORDERLY: at no time do two clients of a group both believe that a queue is theirs. A client does for 30 s after it was told so.
"""

import math
import random

from attrs import define, field

from twinlog.cluster.broker.tables.queue_locks import BELIEF_SECONDS, RebalanceLockManager
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.ha.election.queue_locks import LockTable, confirmed_version, last_table
from twinlog.store.epoch_file import EpochId

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
SECOND = EpochId(2, "b")


def make(clock=None):
    clock = [0.0] if clock is None else clock
    return RebalanceLockManager(lambda: clock[0])


def lock(locks, group, client, *queues):
    return list(locks.lock(group, client, queues))


def test_a_queue_is_locked_by_one_client_of_a_group():
    locks = make()
    assert lock(locks, "G", "c1", Q0, Q1) == [Q0, Q1]
    assert lock(locks, "G", "c2", Q0, Q1) == []
    assert lock(locks, "H", "c2", Q0) == [Q0]
    locks.unlock("G", "c2", [Q0])
    assert lock(locks, "G", "c2", Q0) == []
    locks.unlock("G", "c1", [Q0])
    assert lock(locks, "G", "c2", Q0, Q1) == [Q0]


def test_locks_run_out_after_60_seconds_without_renewal():
    clock = [0.0]
    locks = make(clock)
    lock(locks, "G", "c1", Q0)
    clock[0] = 50.0
    assert lock(locks, "G", "c1", Q0) == [Q0]
    clock[0] = 110.0
    assert lock(locks, "G", "c2", Q0) == []
    clock[0] = 110.1
    assert lock(locks, "G", "c2", Q0) == [Q0]
    clock[0] = 200.0
    locks.expire()
    assert len(locks) == 0


def test_a_copy_takes_changes_and_gives_each_holder_its_own_after_a_failover():
    master, slave = make(), make()
    lock(master, "G", "c1", Q0, Q1)
    assert slave.take(master.table()) == master.version
    before = master.version
    master.unlock("G", "c1", [Q1])
    lock(master, "G", "c2", Q1)
    lock(master, "H", "c1", Q0)
    master.unlock("H", "c1", [Q0])
    told = master.table(since=before)
    assert {(each.group, each.client) for each in told.locks} == {("G", "c2"), ("H", "")}
    assert slave.take(told) == master.version
    slave.take_over(SECOND, slave.table(), 0)
    assert lock(slave, "G", "c1", Q0, Q1) == [Q0]
    assert lock(slave, "G", "c2", Q0, Q1) == [Q1]
    assert lock(slave, "H", "c3", Q0) == [Q0]


def test_changes_that_do_not_fit_are_refused_and_all_is_told_instead():
    master, slave = make(), make()
    lock(master, "G", "c1", Q0)
    first = master.version
    lock(master, "G", "c1", Q1)
    slave.forget()
    assert slave.table() is None
    assert slave.take(master.table(since=first)) == 0
    assert slave.take(master.table(since=0)) == master.version
    master.take_over(SECOND, master.table(), 0)
    assert master.table(since=first).since == 0, "what was released before is not known any more"
    assert slave.take(LockTable(epoch=SECOND, version=9, since=slave.version)) == 0, "of another epoch"


def test_an_expired_release_is_not_told_as_a_change_any_more():
    clock = [0.0]
    master = make(clock)
    lock(master, "G", "c1", Q0, Q1)
    before = master.version
    master.unlock("G", "c1", [Q0])
    clock[0] = 61.0
    lock(master, "G", "c1", Q1)
    master.expire()
    assert master.table(since=before).since == 0


def test_nothing_is_given_while_locks_may_be_unknown():
    clock = [0.0]
    locks = make(clock)
    locks.take_over(SECOND, None, 34.0)
    assert lock(locks, "G", "c1", Q0) == []
    assert "34 s" in locks.why_closed
    clock[0] = 34.0
    assert lock(locks, "G", "c1", Q0) == [Q0]


def test_whose_table_is_the_last_one():
    old, new = LockTable(epoch=SECOND, version=1), LockTable(epoch=SECOND, version=2)
    older_epoch = LockTable(epoch=EpochId(1, "a"), version=9)
    assert last_table(None, [older_epoch, new, old], 3) == (new, True)
    assert last_table(None, [new], 2) == (new, False)
    assert last_table(old, [old, older_epoch], 3) == (old, True), "the last master's own"
    assert last_table(older_epoch, [new, older_epoch], 3) == (new, False), "that of a master before the last"
    assert last_table(None, [], 1) == (None, False)


def test_how_many_know_a_version():
    assert confirmed_version([], 1) == math.inf
    assert confirmed_version([5, 3], 2) == 5
    assert confirmed_version([5, 3], 3) == 3
    assert confirmed_version([5], 3) == -math.inf
    assert confirmed_version([5], 3, others=1) == 5


LEASE, CLIENTS = 3.0, ("c1", "c2")


@define
class Node:
    """A member. As a master it tells others its locks, and answers clients while it has a lease."""

    locks: RebalanceLockManager
    promised: EpochId = EpochId(0, "a")
    leads: EpochId | None = None
    is_up: bool = True
    held: dict[str, int] = field(factory=dict)  # By other members, of its locks.
    heard: dict[str, float] = field(factory=dict)


class World:
    """Masters, also those that were replaced and do not know it, tell their locks to whom they reach; members are restarted, and
    forget; whoever wins enough votes goes on. One queue of one group.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        size = self.random.randint(2, 4)
        self.need = self.random.randint(1, size)
        self.votes = size - self.need + 1
        self.clock, self.epoch = [100.0], 0
        self.nodes = {name: Node(make(self.clock)) for name in "abcd"[:size]}
        self.nodes["a"].leads = EpochId(0, "a")
        self.believes = dict.fromkeys(CLIENTS, 0.0)  # Until when.
        self.waiting = []
        self.told = self.changes = 0

    def masters(self):
        return [name for name, node in self.nodes.items() if node.is_up and node.leads == node.promised]

    def has_lease(self, node):
        asked = sorted([*node.heard.values(), *[-math.inf] * len(self.nodes)], reverse=True)
        return self.need <= 1 or self.clock[0] < asked[self.need - 2] + LEASE

    def tell(self, name):
        """One round of leases reaches some of the others."""
        node = self.nodes[name]
        for to, follower in self.nodes.items():
            may = to != name and node.leads == node.promised and follower.is_up and follower.promised <= node.leads
            if may and self.random.random() < 0.6:
                follower.promised, follower.leads = node.leads, None
                node.held[to] = follower.locks.take(node.locks.table(since=node.held.get(to, 0)))
                node.heard[to] = self.clock[0]

    def ask(self):
        """A client, which may know only a master that was replaced."""
        if not (masters := self.masters()):
            return
        name, client = self.random.choice(masters), self.random.choice(CLIENTS)
        node = self.nodes[name]
        if self.random.random() < 0.8:
            self.tell(name)
        if self.has_lease(node):
            granted = node.locks.lock("G", client, [Q0])
            if granted:
                self.waiting.append((name, client, granted, node.leads))
        self.tell(name)
        if self.random.random() < 0.8:
            self.answer()

    def answer(self):
        for name, client, granted, epoch in self.waiting:
            node = self.nodes[name]
            may_tell = name in self.masters() and node.leads == epoch and self.has_lease(node)
            if may_tell and node.locks.still("G", granted, confirmed_version(node.held.values(), self.need)):
                self.believes[client] = self.clock[0] + BELIEF_SECONDS
                self.told += 1
        self.waiting = []

    def unlock(self):
        client = self.random.choice(CLIENTS)
        self.believes[client] = 0.0
        self.waiting = [each for each in self.waiting if each[1] != client]
        for name in self.random.sample(self.masters(), min(len(self.masters()), 1)):
            self.nodes[name].locks.unlock("G", client, [Q0])

    def restart(self):
        node = self.nodes[self.random.choice(list(self.nodes))]
        node.is_up = not node.is_up
        node.locks.forget()
        node.leads = None  # It asks to be elected again.

    def elect(self):
        up = [name for name, node in self.nodes.items() if node.is_up]
        if len(up) < self.votes:
            return
        voters = self.random.sample(up, self.random.randint(self.votes, len(up)))
        self.epoch += 1
        epoch, last = (
            EpochId(self.epoch, voters[0]),
            max((n.leads for n in self.nodes.values() if n.leads), default=None),
        )
        masters, told = None, []
        for node in map(self.nodes.get, voters):
            table = node.locks.table()
            told += [table] if table is not None else []
            masters = table if table is not None and node.leads == last == table.epoch else masters
            node.promised, node.leads = epoch, None
        table, is_whole = last_table(masters, told, self.votes)
        winner = self.nodes[voters[0]]
        winner.locks.take_over(epoch, table, 0.0 if is_whole else BELIEF_SECONDS + LEASE)
        winner.leads, winner.held, winner.heard = epoch, {}, dict.fromkeys(voters[1:], self.clock[0])
        self.changes += is_whole

    def wait(self):
        self.clock[0] += self.random.choice((0.5, 2.0, 2.0, 10.0, 31.0, 61.0))
        for name in self.masters():
            self.nodes[name].locks.expire()

    def step(self):
        steps = {self.ask: 8, self.elect: 3, self.wait: 2, self.unlock: 1, self.restart: 1, self.answer: 1}
        (do,) = self.random.choices(list(steps), list(steps.values()))
        do()
        holders = [client for client, until in self.believes.items() if until > self.clock[0]]
        assert len(holders) <= 1, f"ORDERLY: {holders} all consume the queue"


def test_orderly_whatever_happens_to_masters():
    """ORDERLY, and not because nothing is given: locks are told, and most elections know all of them."""
    worlds = [World(seed) for seed in range(1500)]
    for world in worlds:
        for _ in range(30):
            world.step()
    assert sum(world.told for world in worlds) > 2 * len(worlds)
    assert sum(world.changes for world in worlds) > len(worlds)
