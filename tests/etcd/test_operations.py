"""Each operation, against etcd 3.4 and 3.7."""

import pytest
import trio

from twinlog.cluster.etcd.errors import LeaseNotFound
from twinlog.cluster.etcd.protocol import ABSENT, Again, Changed, KeyValue, NotSwapped, Put, Store, Swapped


async def test_keys_are_written_read_and_deleted(etcd):
    assert etcd.cluster_id == 0
    assert await etcd.get("a") is None
    revision = await etcd.put("a", b"\0one")
    found = await etcd.get("a")
    assert found == KeyValue("a", b"\0one", revision, revision, 1)
    assert etcd.cluster_id > 0
    assert etcd.header.revision == revision
    second = await etcd.put("a", b"")
    assert await etcd.get("a") == KeyValue("a", b"", revision, second, 2)
    assert await etcd.delete("a") is True
    assert await etcd.delete("a") is False
    assert await etcd.get("a") is None


async def test_keys_lie_below_the_prefix(cluster, etcd):
    await etcd.put("group/a", b"1")
    assert cluster.ctl("get", f"{etcd.config.prefix}group/a", "--print-value-only") == "1\n"


async def test_a_prefix_is_read_at_one_revision(etcd):
    for key in ("b/2", "b/1", "a", "b0"):
        last = await etcd.put(key, key.encode())
    found = await etcd.get_prefix("b/")
    assert [(each.key, each.value) for each in found.items] == [("b/1", b"b/1"), ("b/2", b"b/2")]
    assert found.revision == last
    assert (await etcd.get_prefix("c/")).items == ()
    assert len((await etcd.get_prefix("")).items) == 4


async def test_a_swap_is_done_only_at_the_expected_revision(etcd):
    done = await etcd.swap("a", ABSENT, b"1")
    assert isinstance(done, Swapped)
    assert await etcd.swap("a", ABSENT, b"2") == NotSwapped(
        KeyValue("a", b"1", done.revision, done.revision, 1), done.revision
    )
    next_one = await etcd.swap("a", done.revision, b"3", also=[Put("also", b"4")])
    assert isinstance(next_one, Swapped)
    assert (await etcd.get("a")).mod_revision == next_one.revision == (await etcd.get("also")).mod_revision
    assert isinstance(await etcd.swap("a", done.revision, b"5", also=[Put("also", b"6")]), NotSwapped)
    assert (await etcd.get("also")).value == b"4"
    assert (await etcd.swap("b", 7, b"1")) == NotSwapped(None, next_one.revision)


async def test_keys_go_with_their_lease(etcd):
    lease = await etcd.grant(30)
    assert lease.ttl == 30
    await etcd.put("a", b"1", lease=lease.id)
    await etcd.swap("b", ABSENT, b"2", lease=lease.id, also=[Put("c", b"3", lease.id)])
    assert (await etcd.get("c")).lease == lease.id
    assert (await etcd.keep_alive(lease.id)) == lease
    await etcd.revoke(lease.id)
    assert (await etcd.get_prefix("")).items == ()
    await etcd.revoke(lease.id)


async def test_a_lease_expires_and_says_so_itself(etcd):
    lease = await etcd.grant(1)
    await etcd.put("a", b"1", lease=lease.id)
    with trio.fail_after(10):
        while await etcd.get("a"):
            await trio.sleep(0.1)
    for write in (
        lambda: etcd.keep_alive(lease.id),
        lambda: etcd.put("a", b"2", lease=lease.id),
        lambda: etcd.swap("a", ABSENT, b"2", lease=lease.id),
        lambda: etcd.swap("a", ABSENT, b"2", also=[Put("b", b"2", lease.id)]),
    ):
        with pytest.raises(LeaseNotFound):
            await write()
    assert (await etcd.get_prefix("")).items == ()


async def test_a_watch_tells_of_all_changes_since_a_revision(etcd):
    first = await etcd.put("a", b"1")
    second = await etcd.put("a", b"2")
    await etcd.put("b", b"not watched")
    async with etcd.watch("a", start_revision=second) as events:
        assert await anext(events) == Changed("a", KeyValue("a", b"2", first, second, 2), second)
        await etcd.delete("a")
        assert await anext(events) == Changed("a", None, etcd.header.revision)


async def test_a_silent_watch_ends_with_a_word_to_start_again(etcd):
    async with etcd.watch("a", start_revision=1, silence_s=0.3) as events:
        assert [each async for each in events] == [Again("nothing new")]


async def test_compaction_ends_a_watch(cluster, etcd):
    await etcd.put("a", b"1")
    last = await etcd.put("a", b"2")
    cluster.ctl("compaction", str(last))
    async with etcd.watch("a", start_revision=last - 1) as events:
        assert [each async for each in events] == [Again(f"revisions below {last} are compacted")]
    assert (await etcd.get("a")).value == b"2"


async def test_a_member_tells_its_status(cluster, etcd):
    (health,) = await etcd.health()
    status = health.status
    assert (health.error, status.endpoint) == (None, cluster.endpoints[0])
    assert status.version.startswith(cluster.version.number)
    assert status.is_leader
    assert status.member_id == status.leader > 0
    assert status.db_size >= status.db_size_in_use > 0
    assert status.alarms == status.errors == ()
    assert 0 < status.latency_ms < 5000
    await etcd.get("a")
    assert etcd.cluster_id == status.cluster_id
    assert etcd.header.raft_term == status.raft_term


async def test_the_client_is_what_the_group_asks_for(etcd):
    store: Store = etcd
    assert await store.get("a") is None
