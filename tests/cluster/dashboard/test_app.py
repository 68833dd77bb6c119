"""The dashboard's routes, as ASGI."""

from contextlib import asynccontextmanager

import httpx
import pytest
import trio

from tests.cluster.fake_cluster import NAMESRV, A, FakeCluster
from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.dashboard.app import (
    POLICY,
    DashboardConfig,
    _tokens,
    application,
    live_route,
    opened,
    write_changes,
)
from twinlog.cluster.dashboard.watcher import IDLE_SECONDS, Watcher
from twinlog.cluster.http.server.responses import HttpError
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.cluster.remoting.command import RemotingCommand


class NoCluster:
    """An Admin that cannot be had, and how often it was asked for."""

    def __init__(self):
        self.asked = 0

    @asynccontextmanager
    async def open(self):
        self.asked += 1
        raise HttpError(status=503, what="no", why="no name server is there")
        yield


@pytest.fixture
def cluster():
    return NoCluster()


@pytest.fixture
def client(cluster):
    watcher = Watcher(cluster.open, ("127.0.0.1:1",))
    app, _ = application(watcher, cluster.open, Tokens(None))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


async def test_a_page_without_a_cluster(client):
    page = await client.get("/")
    assert page.status_code == 200
    assert "Not known: no name server is there" in page.text
    assert "read-only" in page.text


@pytest.mark.parametrize(
    "path", ["/", "/messages?topic=a", "/livez", "/static/main.js", "/static/dashboard.css", "/nowhere"]
)
async def test_every_answer_forbids_what_is_not_ours(client, path):
    headers = (await client.get(path)).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


async def test_a_strangers_name_is_refused(client):
    """DNS rebinding: the page of a stranger's site that points to this machine."""
    assert (await client.get("/", headers={"host": "evil.example"})).status_code == 403


async def test_files_are_asked_for_anew(client):
    files = [
        "main.js",
        "live.js",
        "morph.js",
        "charts.js",
        "roles.js",
        "messages.js",
        "copy.js",
        "words.js",
        "parts.css",
    ]
    for name in [*files, "icon.svg", "vendor/uPlot.iife.min.js", "vendor/LICENSE-uPlot"]:
        answer = await client.get(f"/static/{name}")
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache"), name
    assert (await client.get("/static/../app.py")).status_code == 404


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"verb=switchover", "application/x-www-form-urlencoded"),
        (b"{", "application/json"),
        (b"[]", "application/json"),
        (b'{"verb": "reinit"}', "application/json"),
        (b'{"verb": "switchover", "group": 5}', "application/json"),
    ],
)
async def test_a_plan_is_asked_for_in_json(client, body, content_type):
    """A form of a stranger's page cannot send that."""
    answer = await client.post("/plan", content=body, headers={"content-type": content_type})
    assert answer.status_code == 400


async def test_a_change_without_a_token_file_is_refused(client):
    assert (await client.post("/v1/switchover", json={})).status_code == 403


async def test_messages_of_a_bad_question(client):
    assert "belong together" in (await client.get("/messages?topic=a&queue=1")).text


async def test_all_viewers_together_ask_once_a_second(autojump_clock, nursery, cluster):
    """And every five seconds while nobody looks."""
    watcher = Watcher(cluster.open, ("127.0.0.1:1",))
    nursery.start_soon(watcher.run)
    await trio.sleep(10 * IDLE_SECONDS)
    assert cluster.asked <= 12
    before = cluster.asked
    with watcher.viewing(), watcher.viewing(), watcher.viewing():
        for _ in range(40):
            await watcher.refresh()
            await trio.sleep(0.25)
    assert 8 <= cluster.asked - before <= 12


async def test_a_member_that_talks_nonsense_does_not_end_the_dashboard(autojump_clock, nursery):
    """Anybody may register at a name server. Once it talks sense the page is as before."""
    fake = FakeCluster(answers={(A, 20001): RemotingCommand(0, body=b'{"epoch": 5}')})
    watcher = Watcher(opened(Admin(fake.api)), (NAMESRV,))
    nursery.start_soon(watcher.run)
    await trio.sleep(2 * IDLE_SECONDS)
    assert states_of(watcher)["a-0"] == "failing"
    assert "MemberStatus.epoch is 5" in str([each.what for each in watcher.state.snapshot.findings])
    fake.answers.clear()
    await trio.sleep(2 * IDLE_SECONDS)
    assert "MemberStatus" not in str([each.what for each in watcher.state.snapshot.findings])
    assert states_of(watcher).keys() == {"a-0", "b-0"}


def states_of(watcher: Watcher) -> dict[str, str]:
    assert watcher.state.snapshot.problem is None
    return {each.member.name: each.member.state for group in watcher.state.snapshot.groups for each in group.members}


async def test_a_viewer_hears_of_changes_only(autojump_clock, nursery, cluster):
    """The first event has all sections, the next those that differ: the time goes on, nothing else does."""
    watcher = Watcher(cluster.open, ("127.0.0.1:1",))
    nursery.start_soon(watcher.run)
    send, receive = trio.open_memory_channel(1)
    nursery.start_soon(write_changes, watcher, send.send)
    with watcher.viewing():
        assert (await receive.receive()).startswith(b"retry:")
        assert (await receive.receive()).startswith(b"event: series")
        first, _, third = [await receive.receive() for _ in range(3)]
    assert b'"members":' in first
    assert b'"members":' not in third


async def test_a_viewer_that_is_cut_is_forgotten_at_once(cluster):
    """Also in the midst of a piece that it does not take: else the cluster is asked each second for nobody."""
    watcher = Watcher(cluster.open, ("127.0.0.1:1",))
    cut, begun = trio.Event(), trio.Event()

    async def receive():
        await cut.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if b"event: page" in message.get("body", b""):
            begun.set()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live_route(watcher).app, {"type": "http", "method": "GET", "path": "/live"}, receive, send)
        await begun.wait()
        assert watcher.viewers == 1
        cut.set()
    assert watcher.viewers == 0


async def test_who_is_not_on_this_machine_sees_messages_with_a_token_only(cluster, tmp_path):
    """The page asks for it, and sends it in a header."""
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o600)
    watcher = Watcher(cluster.open, ("127.0.0.1:1",))
    app, _ = application(watcher, cluster.open, Tokens(path, guards_bodies=True))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    assert 'id="peek-token"' in (await client.get("/")).text
    assert "This needs a token." in (await client.get("/messages?topic=a")).text
    answer = await client.get("/messages?topic=a", headers={"authorization": "Bearer 0123456789abcdef"})
    assert "no name server is there" in answer.text


async def test_without_a_token_file_others_see_no_messages(cluster):
    app, _ = application(Watcher(cluster.open, ("127.0.0.1:1",)), cluster.open, Tokens(None, guards_bodies=True))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    assert "Messages are not shown" in (await client.get("/messages?topic=a")).text
    assert "peek-token" not in (await client.get("/")).text


def test_what_the_dashboard_needs_credentials_for_needs_a_token_on_this_machine_too(monkeypatch):
    """Else every user of it would read messages in the name of the one who started the dashboard."""
    config = DashboardConfig(namesrv=("127.0.0.1:1",))
    assert not _tokens(config).guards_bodies
    monkeypatch.setenv("TWINLOG_ACCESS_KEY", "reader")
    monkeypatch.setenv("TWINLOG_SECRET_KEY", "12345678")
    assert _tokens(config).guards_bodies
