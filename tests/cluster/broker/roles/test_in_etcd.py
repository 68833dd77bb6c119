"""Groups whose record a model of etcd keeps, in virtual time."""

import pytest
import trio

from tests.cluster.broker.cuts import cut_log
from tests.cluster.broker.roles.in_etcd import into_etcd, made, names, with_a_late_swap
from tests.support.group.group import level, until
from tests.support.group.kept import EtcdModel
from tests.support.group.stores import role_group
from twinlog.cluster.broker.peers.role_messages import AutoFailoverRequest, ChangeRequest, RoleRefusedError
from twinlog.cluster.broker.roles.candidate import RoleStepError
from twinlog.cluster.broker.roles.change import RoleChange
from twinlog.ha.election.in_sync_set import with_in_sync
from twinlog.store.config import FlushDiskType


async def test_the_slave_of_a_pair_leaves_the_set_and_comes_back(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    await slave.kill()
    master.produce(b"nobody else has it yet")
    assert not await master.is_acknowledged()
    seconds = await until(lambda: names(group) == {master.name}, "the set shrinks")
    assert 3 < seconds < 12
    assert await master.is_acknowledged()
    master.produce(b"alone")
    assert await master.is_acknowledged()
    await slave.start()
    await until(lambda: names(group) == {master.name, slave.name}, "the set grows")
    await group.settled()
    await slave.kill()
    master.produce(b"has to wait again")
    assert not await master.is_acknowledged()


async def test_the_slave_of_a_pair_is_elected_and_goes_on_alone(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    master.produce(b"both have it")
    assert await master.is_acknowledged()
    await master.kill()
    await until(lambda: slave.is_serving, "the slave serves")
    slave.produce(b"after")
    seconds = await until(lambda: names(group) == {slave.name}, "the set shrinks")
    assert seconds < 0.2, "a master that was passed is not waited for, nor the next round of the lease"
    assert await slave.is_acknowledged()
    await master.start()
    await group.settled()
    assert names(group) == {master.name, slave.name}
    assert group.are_equal()


async def test_a_slave_outside_of_the_set_is_not_elected(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    await slave.kill()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    master.produce(b"only the master has it")
    assert await master.is_acknowledged()
    await master.kill()
    await slave.start()
    await trio.sleep(60)
    assert not slave.is_serving
    assert "not in the in-sync set" in slave.roles.elector.decision.why
    await master.start()
    assert await group.settled() is master
    assert group.are_equal()


async def test_an_outage_of_etcd_stops_nobody(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    away = {"is": True}
    for keeper in group.keepers.values():
        keeper.fate = lambda: "away" if away["is"] else "answered"
    for _ in range(12):
        master.produce(b"while etcd is away")
        assert await master.is_acknowledged()
        await trio.sleep(10)
    await slave.kill()
    await trio.sleep(30)
    master.produce(b"nobody may leave the set now")
    assert not await master.is_acknowledged()
    assert names(group) == {master.name, slave.name}
    away["is"] = False
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    assert await master.is_acknowledged()


async def test_a_master_of_a_pair_that_is_cut_off_goes_on_alone_while_it_says_so(nursery, tmp_path, autojump_clock):
    """Both see etcd: the sign of the master there keeps the slave from an election."""
    group = await made(nursery, tmp_path)
    master, slave = group.members
    group.isolate(slave)
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    await trio.sleep(30)
    assert not slave.is_serving
    master.produce(b"alone")
    assert await master.is_acknowledged()
    group.isolate()
    assert await group.settled() is master
    await until(lambda: names(group) == {master.name, slave.name}, "the set grows")


async def test_of_three_the_side_with_two_goes_on(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, size=3)
    old = group.first
    group.isolate(old)
    await until(lambda: any(each.is_serving for each in group.members[1:]), "another master", seconds=10)
    master = next(each for each in group.members[1:] if each.is_serving)
    assert await master.is_acknowledged()
    old.produce(b"nobody is promised this")
    assert not await old.is_acknowledged()
    await until(lambda: names(group) == {each.name for each in group.members[1:]}, "the set shrinks")
    group.isolate()
    assert await group.settled() is master
    assert group.are_equal()


async def test_a_swap_without_an_answer_is_asked_for_until_it_is_known(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    fates = ["lost answer", "away", "away"]
    keeper = group.keepers[0]
    await slave.kill()
    await trio.sleep(8)
    keeper.fate = lambda: fates.pop(0) if fates else "answered"
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    assert await master.is_acknowledged()
    versions = [each.version for each in group.etcd.versions]
    assert versions == sorted(set(versions)), "one version was written twice"


async def test_a_late_swap_grants_nothing(nursery, tmp_path, autojump_clock):
    """A member is to come back, the answer is lost, the member dies: nobody relies on that it is not in the set."""
    group = await made(nursery, tmp_path)
    (master, slave), keeper = group.members, group.keepers[0]
    answers = await with_a_late_swap(group)
    await trio.sleep(5)
    master.produce(b"not before it is known who has to have it")
    assert not await master.is_acknowledged()
    keeper.late[0]()
    assert names(group) == {master.name, slave.name}
    answers.set()
    await until(lambda: names(group) == {master.name}, "the set shrinks again")
    assert await master.is_acknowledged()


async def test_a_master_that_was_restarted_pursues_what_it_had_begun(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    (master, slave), keeper = group.members, group.keepers[0]
    answers = await with_a_late_swap(group)
    await master.kill()
    await master.start()
    master.produce(b"not before it is known who has to have it")
    assert not await master.is_acknowledged()
    answers.set()
    await until(lambda: names(group) == {master.name, slave.name}, "its version is written")
    keeper.late[0]()
    await until(lambda: names(group) == {master.name}, "the set shrinks again")
    assert await master.is_acknowledged()


async def test_too_few_copies_are_refused_without_sync_flush(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, sync_flush=False)
    master, slave = group.members
    await slave.kill()
    await trio.sleep(60)
    assert names(group) == {master.name, slave.name}
    assert "SYNC_FLUSH" in master.roles.outside.set_change.why
    master.produce(b"nobody else has it")
    assert not await master.is_acknowledged()


async def test_min_in_sync_replicas_refuses(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, min_in_sync_replicas=2)
    master, slave = group.members
    await slave.kill()
    await trio.sleep(60)
    assert names(group) == {master.name, slave.name}
    assert "minInSyncReplicas=2" in master.roles.outside.set_change.why


async def test_back_to_the_members_and_into_etcd_again(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, size=3)
    master = group.first
    await master.roles.set_auto_failover(AutoFailoverRequest(mode="members"))
    await group.settled()
    assert {each.roles.member.group.auto_failover for each in group.members} == {"members"}
    master.produce(b"by the members")
    assert await master.is_acknowledged()
    await into_etcd(group, master)
    await master.kill()
    await until(lambda: any(each.is_serving for each in group.members[1:]), "another master", seconds=10)
    await master.start()
    await group.settled()
    await until(lambda: len(names(group)) == 3, "all are in sync")


async def test_a_group_with_one_copy_does_not_leave_etcd(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    await slave.kill()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    with pytest.raises(RoleRefusedError, match="bring another member back"):
        await master.roles.set_auto_failover(AutoFailoverRequest(mode="members"))


async def test_a_record_that_etcd_lost_is_refused_and_put_there_anew(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    group.etcd.record, group.etcd.revision = None, 0
    await until(lambda: "its data was lost" in master.roles.outside.why, "it is noticed")
    master.produce(b"as before")
    assert await master.is_acknowledged()
    await master.roles.set_auto_failover(AutoFailoverRequest(mode="etcd"))
    assert names(group) == {master.name, slave.name}
    await slave.kill()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    assert await master.is_acknowledged()


async def test_etcd_from_a_backup_elects_nobody(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    backup = group.etcd.record
    await slave.kill()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    await slave.start()
    await group.settled()
    group.etcd.record = backup
    await master.kill()
    await trio.sleep(60)
    assert not slave.is_serving
    assert "restored from a backup" in slave.roles.elector.decision.why


async def test_a_switchover_goes_by_etcd(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    state = await group.change("switchover", slave)
    assert state.error == ""
    assert await group.settled() is slave
    assert group.etcd.record.epoch == 1
    await master.kill()
    await until(lambda: names(group) == {slave.name}, "the set shrinks")


async def test_a_person_decides_where_etcd_and_the_master_are_gone(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    for keeper in group.keepers.values():
        keeper.fate = lambda: "away"
    await master.kill()
    await trio.sleep(60)
    assert not slave.is_serving
    state = await group.change("failover", slave)
    assert "knows the in-sync set" in state.error
    state = await group.change("failover", slave, accept_data_loss="unknown")
    assert state.error == ""
    assert slave.roles.member.group.auto_failover == "off"


async def test_who_was_passed_over_by_force_stops_as_soon_as_etcd_says_so(nursery, tmp_path, autojump_clock):
    """The only member of the set needs nobody's acknowledgement, so that no promise of others would stop it."""
    group = await made(nursery, tmp_path)
    master, slave = group.members
    group.isolate(slave)
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    state = await group.change("failover", slave)
    assert "is in the in-sync set" in state.error
    state = await group.change("failover", slave, accept_data_loss="unknown")
    assert state.error == ""
    assert names(group) == {slave.name}
    last = slave.roles.member.durable.last
    assert (last.kind, last.lost_bytes) == ("forced", None)
    await until(lambda: not master.is_serving, "the old master stops", seconds=5)
    assert "not in its in-sync set" in master.roles.member.why
    await master.kill()
    await master.start()
    await trio.sleep(10)
    assert not master.is_serving
    group.isolate()
    assert await group.settled() is slave
    await until(lambda: names(group) == {master.name, slave.name}, "the set grows")


async def test_of_three_members_the_last_one_goes_on(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, size=3)
    first, second, third = group.members
    await third.kill()
    await until(lambda: names(group) == {first.name, second.name}, "the set shrinks")
    first.produce(b"two have it")
    assert await first.is_acknowledged()
    await first.kill()
    await until(lambda: second.is_serving, "the last one serves")
    await until(lambda: names(group) == {second.name}, "the set shrinks again")
    second.produce(b"alone")
    assert await second.is_acknowledged()


async def test_a_version_that_is_given_up_acknowledges_nothing_by_its_members(nursery, tmp_path, autojump_clock):
    """A third member was to come back into the set, and holds a message that the second one of the set has not: with the version
    the number of acknowledgements falls again, and before that the third one counts no more.
    """
    group = await made(nursery, tmp_path, size=3, in_sync_replicas=3)
    first, second, third = group.members
    await third.kill()
    await until(lambda: names(group) == {first.name, second.name}, "the set shrinks")
    for keeper in group.keepers.values():
        keeper.fate = lambda: "away"
    await third.start()
    await level(first, third)
    group.isolate(second)
    first.produce(b"first and third have it")
    await level(first, third)
    lease = first.roles.leases
    lease._propose(with_in_sync(first.state.group, [each.identity for each in group.members]))
    assert first.ha.group_transfer.decision.need == 3
    lease._propose(None)
    assert first.ha.group_transfer.decision.need == 2
    assert first.acknowledged == [b"before"]


async def test_of_three_members_the_one_that_left_does_not_go_on(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, size=3)
    first, second, third = group.members
    await third.kill()
    await until(lambda: names(group) == {first.name, second.name}, "the set shrinks")
    first.produce(b"two have it")
    assert await first.is_acknowledged()
    await first.kill()
    await second.kill()
    await third.start()
    await trio.sleep(60)
    assert not third.is_serving
    await second.start()
    assert await group.settled() is second
    assert group.are_equal()


async def test_the_last_one_does_not_go_on_with_a_shorter_log(nursery, tmp_path, autojump_clock):
    """Its disk lost what was on it. The other member, outside of the set, has a part of that: only a person may give it up."""
    group = await made(nursery, tmp_path)
    master, slave = group.members
    for number in range(40):
        master.produce(b"%d" % number * 20)
    await group.settled()
    await slave.kill()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    await master.kill()
    cut_log(master, 206)
    master.boot_id = "boot 2"
    await slave.start()
    await master.start()
    await trio.sleep(60)
    assert not master.is_serving
    assert not slave.is_serving
    assert "has all that it alone acknowledged" in master.roles.member.why
    state = await group.change("failover", slave, accept_data_loss="unknown")
    assert state.error == ""
    assert await group.settled() is slave


async def test_both_slaves_of_three_that_die_at_once(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path, size=3)
    first, second, third = group.members
    first.produce(b"two have it")
    assert await first.is_acknowledged()
    await second.kill()
    await third.kill()
    await until(lambda: names(group) == {first.name}, "the set shrinks", seconds=15)
    assert await first.is_acknowledged()
    await second.start()
    await third.start()
    assert await group.settled() is first
    await until(lambda: len(names(group)) == 3, "the set grows")


async def test_a_site_with_two_of_four_is_lost(nursery, tmp_path, autojump_clock):
    """Three have to hold a message: two of them are left, and go on."""
    group = await made(nursery, tmp_path, size=4, in_sync_replicas=3)
    first, second, third, fourth = group.members
    first.produce(b"three have it")
    assert await first.is_acknowledged()
    await third.kill()
    await fourth.kill()
    await until(lambda: names(group) == {first.name, second.name}, "the set shrinks", seconds=15)
    assert await first.is_acknowledged()
    await first.kill()
    await until(lambda: second.is_serving, "the last one serves", seconds=5)
    await until(lambda: names(group) == {second.name}, "the set shrinks again", seconds=3)


async def test_a_swap_that_never_arrived_is_not_taken_for_done(nursery, tmp_path, autojump_clock):
    group = await made(nursery, tmp_path)
    master, slave = group.members
    keeper, answers = group.keepers[0], trio.Event()
    keeper.fate = lambda: "answered" if answers.is_set() or master.state.before is None else "lost"
    await slave.kill()
    await trio.sleep(20)
    assert master.state.before is not None, "it has proposed to go on alone"
    master.produce(b"etcd does not have that yet")
    assert not await master.is_acknowledged()
    answers.set()
    await until(lambda: names(group) == {master.name}, "the set shrinks")
    assert await master.is_acknowledged()


async def test_a_version_of_a_master_that_was_passed_is_not_written(nursery, tmp_path, autojump_clock):
    """Its answer about what etcd holds takes so long that it follows the next master when that comes."""
    group = await made(nursery, tmp_path, size=3)
    (a, b, c), keeper, etcd = group.members, group.keepers[0], group.etcd
    await c.kill()
    keeper.fate = lambda: "away" if a.state.before is not None else "answered"
    await until(lambda: a.state.before is not None and a.roles.outside.why, "a version without c waits")
    keeper.seconds, keeper.fate = 20.0, lambda: "answered"
    await c.start()
    group.isolate(a)
    assert (await group.change("failover", b)).error == ""
    group.isolate()
    await until(lambda: a.roles.member.id == b.roles.member.id, "a follows")
    assert etcd.record.epoch == b.roles.member.id.epoch
    await trio.sleep(40)
    marks = [(each.epoch, each.version) for each in etcd.versions]
    assert marks == sorted(marks)
    assert await group.settled() is b


async def test_a_master_that_was_passed_does_not_hand_its_record_over(nursery, tmp_path, autojump_clock):
    """The next master has done it, when the old one hears what etcd holds."""
    group = role_group(nursery, tmp_path, size=3, etcd=EtcdModel(), flush=FlushDiskType.SYNC_FLUSH)
    await group.start()
    a, b, _c = group.members
    await until(lambda: a.roles.hand_to_etcd._why_not(a.roles.member.group) == "", "all see etcd")
    refused: list[str] = []

    async def hand_over() -> None:
        try:
            await a.roles.set_auto_failover(AutoFailoverRequest(mode="etcd"))
        except RoleRefusedError as error:
            refused.append(str(error))

    group.keepers[0].seconds = 40.0
    nursery.start_soon(hand_over)
    await trio.sleep(1)
    group.isolate(a)
    assert (await group.change("failover", b)).error == ""
    group.isolate()
    await until(lambda: a.roles.member.id == b.roles.member.id, "a follows")
    group.keepers[0].seconds = 0.01
    await into_etcd(group, b)
    written = len(group.etcd.versions)
    await until(lambda: refused, "a is refused", seconds=60)
    assert "changed meanwhile" in refused[0]
    assert len(group.etcd.versions) == written


async def test_a_switchover_that_began_before_the_record_was_handed_over_does_not_win(
    nursery, tmp_path, autojump_clock
):
    """Its candidate was judged by the members' record, and has not begun its epoch in etcd."""
    group = role_group(nursery, tmp_path, size=3, etcd=EtcdModel(), flush=FlushDiskType.SYNC_FLUSH)
    await group.start()
    a, b, _c = group.members
    ask = ChangeRequest(verb="switchover", candidate=b.address, reason="")
    change = RoleChange(b.roles.member, b.roles.voter, b.roles.leases, ask)
    await change._check()
    await into_etcd(group, a)
    await change.pause.begin(change.epoch)
    await change.pause.catch_up()
    with pytest.raises(RoleStepError, match="handed to etcd meanwhile"):
        await change._promise()
    assert not b.is_serving
