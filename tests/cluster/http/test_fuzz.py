"""Arbitrary requests: each is answered, none with 500, and every error says what, why and next."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.http.conftest import TOKEN, Member
from twinlog.cluster.http.query import Query
from twinlog.cluster.http.server.responses import HttpError

PATHS = [
    "/",
    "/livez",
    "/readyz",
    "/slave",
    "/metrics",
    "/v1/cluster",
    "/v1/check",
    "/v1/history",
    "/v1/lag",
    "/v1/operations",
]
PATHS += [
    "/v1/switchover",
    "/v1/failover",
    "/v1/pause",
    "/v1/auto-failover",
    "/v1/rewind",
    "/v1/reinit",
    "/v1/topics/T/messages",
    "/v1/explain/a-0",
]
NAMES = ["lag", "mode", "group", "all", "count", "queue", "offset", "key", "broker", "warn_lag", "warn_behind"]
FIELDS = [
    "candidate",
    "member",
    "group",
    "reason",
    "accept_data_loss",
    "timeout_seconds",
    "dry_run",
    "for_seconds",
    "mode",
]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
bodies = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(st.sampled_from(FIELDS) | text, values, max_size=4).map(lambda found: json.dumps(found).encode()),
)
header_names = st.sampled_from(
    ["authorization", "idempotency-key", "content-type", "accept", "host", "content-length", "expect", "range"]
)
header_values = st.one_of(
    st.sampled_from([f"Bearer {TOKEN}", "application/json", "application/openmetrics-text", "127.0.0.1", "5"]),
    st.text(string.printable, max_size=30),
).map(lambda value: value.encode("latin-1"))


async def answered(member: Member, method: str, path: str, query: bytes, headers, body: bytes) -> tuple[int, bytes]:
    """The ASGI application, as hypercorn calls it: raw bytes in headers and query."""
    sent = []
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return pending.pop() if pending else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    await member.app(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


@pytest.mark.slow
@settings(max_examples=500)
@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "X"]),
    path=st.sampled_from(PATHS) | text.map(lambda found: f"/{found}") | text.map(lambda found: f"/v1/{found}"),
    query=st.binary(max_size=60)
    | st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(["1", "-1", "16MB", "true", "x", "", "9" * 30, "nan"])
    ).map(lambda found: "&".join(f"{name}={value}" for name, value in found.items()).encode()),
    headers=st.lists(st.tuples(header_names.map(str.encode), header_values), max_size=4),
    body=bodies,
)
async def test_whatever_comes_is_answered(tmp_path_factory, method, path, query, headers, body):
    member = Member(tmp_path_factory.getbasetemp(), FakeCluster())
    status, answer = await answered(member, method, path, query, headers, body)
    assert status < 500 or status in (502, 503), answer
    if status >= 400 and path != "/livez" and b'"ok"' not in answer:
        assert set(json.loads(answer)) == {"error", "why", "next"}


async def test_the_fuzzer_meets_every_endpoint(tmp_path):
    """Or it proves little: an endpoint that it does not name is missing in PATHS."""
    found = {
        each.path.replace("{topic}", "T").replace("{member}", "a-0") for each in Member(tmp_path, FakeCluster()).routes
    }
    rest = {"/master", "/sync", "/async", "/v1/topics", "/v1/topics/T", "/v1/groups", "/v1/groups/{group}"}
    rest |= {"/v1/schema/{document}", "/v1/operations/{id}", "/events", "/v1/resume"}
    assert found - rest == set(PATHS)


@pytest.mark.parametrize("value", ["1e400", "-0", "\u0661", "0x10", "1_000", " 1", "9" * 5000])
def test_numbers_are_plain_digits(value):
    query = Query({"count": value})
    with pytest.raises(HttpError):
        query.number("count", 0, 100)
