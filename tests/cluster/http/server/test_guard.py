"""What requests have to pass: the Host header, the body's size and pace."""

import httpx
import pytest
import trio
import trio.testing
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twinlog.cluster.http.server.app import Endpoint, guarded_app
from twinlog.cluster.http.server.guard import BODY_BYTES_MAX, Guard, host_allowed
from twinlog.cluster.http.server.responses import HttpError


async def echo(request: Request) -> Response:
    """What came."""
    return JSONResponse({"size": len(await request.body())})


async def refusing(_request: Request) -> Response:
    """An answer that is no success."""
    raise HttpError(status=409, what="No.", why="It is so.", next_step="Leave it.")


async def broken(_request: Request) -> Response:
    """A bug."""
    raise RuntimeError("a bug")


ROUTES = [Endpoint("/echo", echo, method="POST"), Endpoint("/refusing", refusing), Endpoint("/broken", broken)]


def client(app: Guard, host: str = "127.0.0.1:1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1", headers={"host": host})


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:10914", "localhost", "LOCALHOST:1", "[::1]:80", "10.0.0.7", "broker-a", "x.localhost:9", "a.example"],
)
def test_hosts_under_which_a_port_may_be_addressed(host):
    assert host_allowed(host, ("A.example",))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "a:b:c", "[x]y"]
)
def test_a_strangers_name_is_refused(host):
    """The page of a site whose name was pointed here sends that name."""
    assert not host_allowed(host, ("a.example",))


async def test_a_request_under_a_strangers_name_is_answered_403_with_what_why_and_next():
    async with client(guarded_app(ROUTES), "evil.example") as http:
        answer = await http.post("/echo", content=b"x")
    assert answer.status_code == 403
    assert set(answer.json()) == {"error", "why", "next"}
    assert all(answer.json().values())


async def test_errors_are_json_and_tell_the_allowed_methods():
    async with client(guarded_app(ROUTES)) as http:
        missing, wrong, refused, bug = [await http.get(path) for path in ("/nothing", "/echo", "/refusing", "/broken")]
        options = await http.options("/refusing")
    assert (missing.status_code, wrong.status_code, refused.status_code, bug.status_code) == (404, 405, 409, 500)
    assert sorted(wrong.headers["allow"].split(", ")) == ["OPTIONS", "POST"]
    assert refused.json() == {"error": "No.", "why": "It is so.", "next": "Leave it."}
    assert "bug" not in bug.text
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert "access-control-allow-origin" not in options.headers
    assert {each.headers["cache-control"] for each in (missing, wrong, refused)} == {"no-store"}


async def test_a_body_beyond_the_limit_is_refused_whether_it_says_so_or_not():

    async with client(guarded_app(ROUTES)) as http:
        assert (await http.post("/echo", content=b"x" * BODY_BYTES_MAX)).json() == {"size": BODY_BYTES_MAX}


async def test_a_slow_body_is_given_up(autojump_clock):
    """Whoever sends a byte now and then holds a request for seconds, not for ever."""
    sent: list[dict] = []

    async def receive():
        await trio.sleep(1)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    closed = trio.Event()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/echo",
        "headers": [(b"host", b"localhost")],
        "state": {"close": closed.set},
    }
    with trio.fail_after(30):
        await guarded_app(ROUTES)(scope, receive, send)
    assert sent[0]["status"] == 408
    assert closed.is_set()


async def test_no_more_than_so_many_requests_at_a_time(monkeypatch, nursery):
    monkeypatch.setattr("twinlog.cluster.http.server.guard.REQUESTS_MAX", 2)
    go_on = trio.Event()

    async def waiting(_request: Request) -> Response:
        """Takes its time."""
        await go_on.wait()
        return Response()

    async with client(guarded_app([Endpoint("/", waiting)])) as http:
        for _ in range(2):
            nursery.start_soon(http.get, "/")
        await trio.testing.wait_all_tasks_blocked()
        assert (await http.get("/")).status_code == 503
        go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await http.get("/")).status_code == 200
