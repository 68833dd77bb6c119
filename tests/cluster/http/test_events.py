"""/events: what is told, to whom, and that nobody is asked while nobody listens."""

import orjson
import pytest
import trio
from attrs import evolve

from tests.cluster.fake_cluster import A_AND_SLAVE, NAMESRV, A
from tests.cluster.observe.role_facts import RECORD
from twinlog.cluster.http import events as module
from twinlog.cluster.http.events import Feed
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.store.util.plain import to_plain


def parsed(text: bytes) -> tuple[str, dict]:
    fields = dict(line.split(": ", 1) for line in text.decode().strip().splitlines())
    return fields["event"], orjson.loads(fields["data"])


async def next_of(channel, kind: str) -> dict:
    with trio.fail_after(60):
        while True:
            text = await channel.receive()
            if text.startswith(b"retry"):
                continue
            event, data = parsed(text)
            if event == kind:
                return data


async def test_who_comes_hears_the_cluster_and_then_what_changes(member, fake, nursery, autojump_clock):
    nursery.start_soon(member.feed.run)
    with member.feed.listening() as first:
        before = await next_of(first, "cluster")
        assert [each["name"] for each in before["members"]] == ["a-0", "b-0"]
        with member.feed.listening() as second:
            assert await next_of(second, "cluster") == before
            fake.groups = A_AND_SLAVE
            after = [await next_of(channel, "cluster") for channel in (first, second)]
    assert after[0] == after[1]
    assert [each["name"] for each in after[0]["members"]] == ["a-0", "b-1"]


async def test_a_member_that_talks_nonsense_does_not_end_http(member, fake, nursery, autojump_clock):
    """Anybody may register at a name server; health checks of all members hang on this loop."""
    fake.answers = {(A, 20001): RemotingCommand(0, body=b'{"epoch": 5}')}
    nursery.start_soon(member.feed.run)
    with member.feed.listening() as channel:
        found = await next_of(channel, "cluster")
        assert [each["state"] for each in found["members"] if each["name"] == "a-0"] == ["failing"]
        assert "MemberStatus.epoch is 5" in found["issues"][0]
        fake.answers.clear()
        found = await next_of(channel, "cluster")
        assert "MemberStatus" not in str(found["issues"])
        assert [each["name"] for each in found["members"]] == ["a-0", "b-0"]


async def test_elections_are_told_as_they_happen(member, fake, nursery, autojump_clock):
    def says(**own: object) -> dict:
        body = {
            "role": "SLAVE",
            "state": "streaming",
            "roleState": "following",
            "groupRecord": to_plain(evolve(RECORD, auto_failover="members")),
            "autoFailover": {"mode": "members", **own},
        }
        return {(A, 20001): RemotingCommand(0, body=orjson.dumps(body))}

    fake.answers = says()
    nursery.start_soon(member.feed.run)
    with member.feed.listening() as channel:
        (group,) = (await next_of(channel, "cluster"))["failovers"]
        assert (group["group"], group["mode"]) == ("a", "members")
        fake.answers = says(suspected=True, why="not heard for 5.1 s")
        told = await next_of(channel, "election")
        assert told.items() >= {"member": "a-0", "what": "suspected", "why": "not heard for 5.1 s"}.items()
        fake.answers = says(suspected=True, why="not heard for 7.1 s", tried=1, givenUp=1, whyGivenUp="too few votes")
        assert (await next_of(channel, "election"))["what"] == "begun"
        assert (await next_of(channel, "election"))["why"] == "too few votes"
        fake.answers = says(tried=2, givenUp=1, won=1)
        assert [(await next_of(channel, "election"))["what"] for _ in range(2)] == ["begun", "won"]


async def test_without_a_change_nothing_is_told(member, nursery, autojump_clock):
    nursery.start_soon(member.feed.run)
    with member.feed.listening() as channel:
        await next_of(channel, "cluster")
        await trio.sleep(60)
        with pytest.raises(trio.WouldBlock):
            channel.receive_nowait()


@pytest.fixture
def asked(fake, monkeypatch) -> list[str]:
    """Who was asked, from now on."""
    asked: list[str] = []
    request = fake.request

    async def counting(address, command, **more):
        asked.append(address)
        return await request(address, command, **more)

    monkeypatch.setattr(type(fake), "request", lambda _self, *arguments, **more: counting(*arguments, **more))
    return asked


async def test_nobody_is_asked_while_nobody_listens(member, asked, nursery, autojump_clock):
    nursery.start_soon(member.feed.run)
    await trio.sleep(60)
    assert asked == []
    with member.feed.listening() as channel:
        await next_of(channel, "cluster")
        await trio.sleep(10)
    assert asked.count(NAMESRV) in range(9, 13)  # Once a second.
    asked.clear()
    await trio.sleep(60)
    assert len(asked) <= 6  # One look that was under way.


async def test_many_listeners_cost_one_question(member, asked, nursery, autojump_clock):
    nursery.start_soon(member.feed.run)

    async def listen():
        with member.feed.listening():
            await trio.sleep(10.5)

    async with trio.open_nursery() as listening:
        for _ in range(50):
            listening.start_soon(listen)
    assert asked.count(NAMESRV) < 15


async def test_a_name_server_that_is_gone_is_news_too(member, fake, nursery, autojump_clock):
    nursery.start_soon(member.feed.run)
    with member.feed.listening() as channel:
        await next_of(channel, "cluster")
        fake.answers = {(NAMESRV, 106): None}
        gone = await next_of(channel, "cluster")
        assert (gone["members"], "no name server answers" in gone["issues"][0]) == ([], True)
        fake.answers = {(A, 20001): None}
        assert (await next_of(channel, "cluster"))["members"]


async def test_who_does_not_keep_up_is_dropped_and_others_are_not(autojump_clock):
    feed = Feed(open_admin=lambda: None)
    with feed.listening() as slow, feed.listening() as quick:
        for number in range(module.BACKLOG_MAX * 2):
            feed.publish("operation", b"%d" % number)
            while quick.statistics().current_buffer_used:
                await quick.receive()
        with trio.fail_after(5):
            heard = [text async for text in slow]  # Its end comes.
        assert len(heard) <= module.BACKLOG_MAX
        feed.publish("operation", b"last")
        assert b"last" in await quick.receive()


async def test_so_many_may_listen(member):
    member.feed.listeners_max = 1
    with member.feed.listening():
        async with member.client() as http:
            assert (await http.get("/events")).status_code == 503


async def test_a_reader_that_leaves_is_forgotten_at_once(member, autojump_clock):
    """And one that stays hears a sign of life while nothing happens."""
    told: list[bytes] = []
    leaves = trio.Event()

    async def receive():
        if not told:
            return {"type": "http.request", "body": b"", "more_body": False}
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        told.append(message.get("body", b""))
        if b": still here\n\n" in told:
            leaves.set()

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
    }
    with trio.fail_after(60):
        await member.app(scope, receive, send)
    assert told[1].startswith(b"retry: ")
    assert not member.feed._listeners
