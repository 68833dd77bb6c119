"""etcd away, slow, stopped or full: reads come from another member, and a write is Unavailable or Unknown, never lost."""

import pytest
import trio

from tests.etcd.clients import Way, config_of, patiently
from tests.support.process_group.etcd import EtcdCluster
from tests.support.process_group.ports import HOST, free_port
from twinlog.cluster.etcd.client import Etcd
from twinlog.cluster.etcd.errors import EtcdError, Unavailable, Unknown
from twinlog.cluster.etcd.protocol import ABSENT, NotSwapped, Swapped

USER = ("twinlog", "secret")


@pytest.fixture
async def way(cluster):
    way = Way(cluster.endpoints[0])
    async with trio.open_nursery() as nursery:
        await nursery.start(way.run)
        yield way
        nursery.cancel_scope.cancel()


async def test_nobody_listens(cluster):
    nobody = f"http://{HOST}:{free_port()}"
    async with Etcd(config_of(cluster, endpoints=(nobody,))) as etcd:
        for ask in (lambda: etcd.get("a"), lambda: etcd.swap("a", ABSENT, b"1"), lambda: etcd.grant(5)):
            with pytest.raises(Unavailable) as raised:
                await ask()
            assert (raised.value.cause, raised.value.endpoint) == ("no connection", nobody)
    async with Etcd(config_of(cluster, endpoints=(nobody, cluster.endpoints[0]), prefix="/nobody/")) as etcd:
        assert isinstance(await etcd.swap("a", ABSENT, b"1"), Swapped)  # Certainly not happened: the next one is asked.
        assert (await etcd.get("a")).value == b"1"
        assert [each.error is None for each in await etcd.health()] == [False, True]


async def test_a_write_whose_answer_is_lost_is_unknown_and_sent_once(cluster, way):
    endpoints = (way.endpoint, cluster.endpoints[0])
    async with Etcd(config_of(cluster, endpoints=endpoints, prefix="/lost/")) as etcd:
        writes = (
            lambda: etcd.put("put", b"1"),
            lambda: etcd.swap("swap", ABSENT, b"1"),
            lambda: etcd.delete("deleted"),
        )
        for write in writes:
            await etcd.put("deleted", b"")
            etcd._transport._first, way.loses, way.requests = 0, True, 0
            with pytest.raises(Unknown):
                await write()
            assert way.requests == 1
            way.loses = False
        assert [each.key for each in (await etcd.get_prefix("")).items] == ["put", "swap"]  # They had all happened.
        assert isinstance(await etcd.swap("swap", ABSENT, b"1"), NotSwapped)


async def test_reads_and_what_may_be_repeated_go_to_the_next_endpoint(cluster, way):
    way.loses = True
    async with Etcd(config_of(cluster, endpoints=(way.endpoint, cluster.endpoints[0]), prefix="/repeat/")) as etcd:
        assert await etcd.get("a") is None
        assert etcd._transport._first == 1  # It is kept.
        for number in range(3):
            etcd._transport._first = 0
            match number:
                case 0:
                    lease = await etcd.grant(30)
                case 1:
                    assert await etcd.keep_alive(lease.id) == lease
                case 2:
                    await etcd.revoke(lease.id)


async def test_a_silent_endpoint_costs_no_more_than_its_share(cluster, way):
    way.late_s = 30
    endpoints = (way.endpoint, cluster.endpoints[0])
    async with Etcd(config_of(cluster, endpoints=endpoints, prefix="/silent/", request_timeout_ms=1200)) as etcd:
        assert await etcd.get("a") is None  # The deadline would be over if the silent one had been waited for.
        etcd._transport._first = 0
        lease = await etcd.grant(30)
        etcd._transport._first = 0
        await etcd.revoke(lease.id)


async def test_slow_endpoints_answer_in_time(cluster, way):
    """Two seconds each way: slower than a connection may take, and than each endpoint's share of the time."""
    way.late_s = 2
    async with Etcd(config_of(cluster, endpoints=(way.endpoint,), prefix="/slow/")) as etcd:
        assert isinstance(await etcd.swap("a", ABSENT, b"1"), Swapped)
    async with Etcd(config_of(cluster, endpoints=(way.endpoint,), prefix="/slow/", request_timeout_ms=500)) as etcd:
        with pytest.raises(Unavailable) as raised:
            await etcd.get("a")
        assert raised.value.cause == "no answer"
        with pytest.raises(Unknown):
            await etcd.put("b", b"1")


async def test_three_members(tmp_path, version):
    """Stopped, killed, without a majority, and back."""
    with EtcdCluster(tmp_path, 3, version) as cluster:
        leader = cluster.leader()
        first = (leader.endpoint, *(each.endpoint for each in cluster.followers()))
        async with Etcd(config_of(cluster, endpoints=first, request_timeout_ms=1000)) as etcd:
            one = await etcd.swap("a", ABSENT, b"1")
            leader.pause()
            with pytest.raises(Unknown):
                await etcd.swap("a", one.revision, b"2")  # It waits in the leader's socket.
            found = await patiently(lambda: etcd.get("a"))
            assert found.value == b"1"
            # A read proves nothing: only another swap with the same expectation settles what the first one will do.
            assert isinstance(await etcd.swap("a", one.revision, b"3"), Swapped)
            leader.resume()
            leader.wait_ready()
            await trio.sleep(0.3)
            assert (await patiently(lambda: etcd.get("a"))).value == b"3"

            leader = cluster.leader()
            leader.kill()
            assert (await patiently(lambda: etcd.get("a"))).value == b"3"
            another = cluster.leader()
            another.kill()
            with pytest.raises(Unavailable):
                await etcd.get("a")
            with pytest.raises((Unavailable, Unknown)):
                await etcd.put("b", b"1")
            health = await etcd.health()
            assert sorted(each.error is None for each in health) == [False, False, True]
            (alone,) = [each.status for each in health if each.status]
            assert alone.leader == 0
            assert any("no leader" in each for each in alone.errors)
            cluster.start()
            assert (await patiently(lambda: etcd.get("a"))).value == b"3"


async def test_a_swap_that_is_on_its_way_is_done_later(cluster, way):
    """After a read that found nothing; unless another swap with the same expectation came first."""
    late_s = way.late_s = 3.0  # Much later than the swap is given up, also on a slow machine.
    endpoints = (way.endpoint, *cluster.endpoints)
    async with Etcd(config_of(cluster, endpoints=endpoints, prefix="/late/", request_timeout_ms=400)) as etcd:
        for key in ("read", "swapped"):
            etcd._transport._first = 0
            with pytest.raises(Unknown):
                await etcd.swap(key, ABSENT, b"late")
            assert await etcd.get(key) is None
        assert isinstance(await etcd.swap("swapped", ABSENT, b"settled"), Swapped)
        with trio.fail_after(10):
            while (found := await etcd.get("read")) is None:
                await trio.sleep(0.05)
        assert found.value == b"late"
        await trio.sleep(late_s)
        assert (await etcd.get("swapped")).value == b"settled"


async def test_a_token_that_has_expired(tmp_path, version):
    """By time, by a restart of etcd, and by a change of rights: each is signed in again for, before anything is done."""
    with EtcdCluster(tmp_path, version=version, flags=["--auth-token-ttl=1"]) as cluster:
        cluster.enable_auth({USER[0]: (USER[1], "/twinlog/")})
        async with Etcd(config_of(cluster, signed=USER)) as etcd:
            one = await etcd.swap("a", ABSENT, b"1")
            token = etcd._transport._token
            await trio.sleep(2.1)
            two = await etcd.swap("a", one.revision, b"2")
            assert isinstance(two, Swapped)
            assert etcd._transport._token != token
            cluster.kill()
            cluster.start()
            assert (await patiently(lambda: etcd.get("a"))).value == b"2"
            cluster.ctl("role", "grant-permission", "of-twinlog", "read", "/other", user="root:root")
            assert isinstance(await etcd.swap("a", two.revision, b"3"), Swapped)


async def test_no_space_is_an_outage_of_writes(tmp_path, version):
    with EtcdCluster(tmp_path, version=version, flags=["--quota-backend-bytes=200000"]) as cluster:
        async with Etcd(config_of(cluster)) as etcd:
            one = await etcd.swap("a", ABSENT, b"1")

            async def fill():
                for _ in range(400):
                    await etcd.put("large", bytes(4000))

            with pytest.raises(Unknown) as raised:  # etcd may have written it all the same.
                await fill()
            assert raised.value.cause == "no space"
            with pytest.raises(Unknown):
                await etcd.swap("a", one.revision, b"2")
            assert (await etcd.get("a")).value == b"1"
            assert (await etcd.health())[0].status.alarms == ("NOSPACE",)


async def test_data_lost(tmp_path, version):
    """With another token it is another cluster; with the same one only its revisions tell."""
    with EtcdCluster(tmp_path, version=version) as cluster:
        async with Etcd(config_of(cluster)) as etcd:
            for _ in range(3):
                await etcd.put("a", b"1")
            before = etcd.header
            cluster.lose_data()
            assert await patiently(lambda: etcd.get("a")) is None
            assert etcd.cluster_id == before.cluster_id
            assert etcd.header.revision < before.revision
            cluster.lose_data(token="two")
            assert await patiently(lambda: etcd.get("a")) is None
            assert etcd.cluster_id != before.cluster_id


async def test_a_watch_ends_when_etcd_does(tmp_path, version):
    with EtcdCluster(tmp_path, version=version) as cluster:
        async with Etcd(config_of(cluster)) as etcd:
            revision = await etcd.put("a", b"1")
            async with etcd.watch("a", start_revision=revision) as events:
                assert (await anext(events)).revision == revision
                cluster.kill()
                (end,) = [each async for each in events]
                assert "connection" in end.why
            async with etcd.watch("a", start_revision=revision) as events:
                (end,) = [each async for each in events]
                assert "no connection" in end.why
            cluster.start()
            await patiently(lambda: etcd.get("a"))
            async with etcd.watch("a", start_revision=revision) as events:
                assert (await anext(events)).revision == revision


async def test_rubbish_is_an_outage(cluster):
    """Whatever answers there: nothing of it is taken for a result."""
    answers = [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b'HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{"header":{"cluster_id":"nobody"}}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{"header":{"cluster_id":"123"}}',
        b'HTTP/1.1 200 OK\r\nContent-Length: 46\r\n\r\n{"header":{"cluster_id":"123"},"responses":[]}',
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    ]

    async def serve(stream):
        async with stream:
            await stream.receive_some()
            await trio.sleep(0.02)
            await stream.send_all(answer)

    port = free_port()
    config = config_of(cluster, endpoints=(f"http://{HOST}:{port}",), request_timeout_ms=1000)
    async with trio.open_nursery() as nursery, Etcd(config) as etcd:
        await nursery.start(trio.serve_tcp, serve, port)
        for answer in answers:
            with pytest.raises(Unknown):
                await etcd.swap("a", ABSENT, b"1")
            if (
                b'"123"}}' not in answer and b'"responses"' not in answer
            ):  # Those are what a key that is not there looks like.
                with pytest.raises(Unavailable):
                    await etcd.get("a")
            async with etcd.watch("a", start_revision=1, silence_s=0.2) as events:
                assert len([each async for each in events]) == 1
        nursery.cancel_scope.cancel()


async def test_a_cancelled_request_leaves_nothing_behind(cluster, way):
    way.late_s = 5
    async with Etcd(config_of(cluster, endpoints=(way.endpoint,))) as etcd:
        with trio.move_on_after(0.1) as scope:
            await etcd.get("a")
        assert scope.cancelled_caught
        with trio.move_on_after(0.1) as scope:
            async with etcd.watch("a", start_revision=1) as events:
                await anext(events)
        assert scope.cancelled_caught
        way.late_s = 0
        with pytest.raises(EtcdError), trio.fail_after(5):
            await etcd.swap("a", ABSENT, b"1", lease=1)
