"""The routes of a member over a cluster that is faked: forms, errors, the role checks."""

import jsonschema
import orjson
import pytest
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.fake_cluster import NAMESRV
from tests.cluster.http.conftest import AUTHORIZED, TOKEN
from tests.cluster.http.members import MASTER, SLAVE
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.metrics.exposition import METRICS
from twinlog.cluster.metrics.snapshot import NamesrvSnapshot
from twinlog.cluster.remoting.command import RemotingCommand

READS = [
    "/",
    "/livez",
    "/readyz",
    "/master",
    "/slave",
    "/v1/cluster",
    "/v1/check",
    "/v1/explain/a-0",
    "/v1/topics/T",
    "/v1/groups",
    "/v1/groups/G",
    "/v1/lag",
    "/v1/lag?group=G",
    "/v1/operations",
]


def endpoint_of(member, path: str):
    """Which endpoint answers it."""
    for each in member.routes:
        match, _ = each.matches({"type": "http", "method": "GET", "path": path})
        if match.value == 2:
            return each
    raise LookupError(path)


@pytest.mark.parametrize("path", READS)
async def test_an_answer_is_what_its_schema_says(member, path):
    """And the schema is the one that /v1/schema tells under the name that / tells."""
    endpoint = endpoint_of(member, path.partition("?")[0])
    async with member.client() as http:
        answer = await http.get(path)
        head = await http.head(path)
        index = (await http.get("/")).json()["endpoints"]
        (line,) = [each for each in index if each["path"] == endpoint.path and each["method"] == "GET"]
        told = await http.get(f"/v1/schema/{line['document']}")
    assert answer.headers["content-type"] == "application/json"
    assert head.status_code == answer.status_code in (200, 503)
    if path.startswith("/v1"):
        assert told.json() == schema_of(endpoint.document)
    jsonschema.validate(answer.json(), schema_of(endpoint.document))


async def test_every_endpoint_says_what_it_is_for(member):
    for each in member.routes:
        assert each.doc.endswith("."), each.path
        assert all(parameter.doc for parameter in each.parameters), each.path


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nothing", 404, "nothing at"),
        ("/v1/explain/nobody", 404, "nobody"),
        ("/v1/groups/nobody", 404, "nobody"),
        ("/v1/schema/nothing", 404, "cluster"),
        ("/v1/operations/1234", 404, "no such operation"),
        ("/v1/lag?grup=G", 400, "group"),
        ("/v1/topics?all=perhaps", 400, "true or false"),
        ("/v1/check?warn_lag=much", 400, "16MB"),
        ("/v1/check?warn_behind=-1", 400, "seconds"),
        ("/v1/topics/T/messages?queue=1", 400, "belong together"),
        ("/v1/topics/T/messages?count=1000", 400, "1 to 32"),
        ("/readyz?lag=1&mode=sent", 400, "written or flushed"),
    ],
)
async def test_a_slip_is_told_with_what_is_allowed(member, path, status, words):
    async with member.client() as http:
        answer = await http.get(path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "why", "next"}
    assert words in answer.text


async def test_without_a_name_server_reads_are_503_and_livez_is_not(member, fake):
    fake.answers = {(NAMESRV, code): None for code in (105, 106, 206)}
    async with member.client() as http:
        statuses = [(await http.get(path)).status_code for path in ("/v1/cluster", "/livez", "/master")]
    assert statuses == [503, 200, 200]


async def test_the_role_decides_which_check_passes(member):
    async def passing():
        async with member.client() as http:
            return {
                path
                for path in ("readyz", "master", "slave", "sync", "async")
                if (await http.get(f"/{path}")).is_success
            }

    assert await passing() == {"readyz", "master"}
    member.says(SLAVE)
    assert await passing() == {"readyz", "slave"}  # It follows; its master is silent about the rest.
    async with member.client() as http:
        asked = await http.get("/readyz?lag=1GB")
    assert (asked.status_code, asked.json()["lag_bytes"]) == (503, None)
    member.says({**SLAVE, "state": "retrying", "roleWhy": ""})
    assert await passing() == set()
    member.source.is_stopping = True
    assert await passing() == set()


async def test_a_service_that_starts_is_alive_and_not_ready(member):
    member.source.ready = trio.Event()
    async with member.client() as http:
        assert (await http.get("/livez")).status_code == 200
        answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["why"]) == (503, "it is starting")


async def test_ready_is_who_follows_closely_by_its_masters_word(member, fake, autojump_clock):
    """16 MB unless told otherwise; what is not on its disk counts only when asked for."""
    member.says(SLAVE)
    for behind, lag, mode, status in (
        (0, "", "written", 200),
        (16_000_000, "", "written", 200),
        (16_000_001, "", "written", 503),
        (100, "&lag=99", "written", 503),
        (100, "&lag=100", "written", 200),
        (100, "&lag=100", "flushed", 503),
        (100, "&lag=600", "flushed", 200),
    ):
        status_of_master = {**MASTER, "maxOffset": SLAVE["maxOffset"] + behind}
        fake.answers = {(MASTER["address"], 20001): RemotingCommand(0, body=orjson.dumps(status_of_master))}
        await trio.sleep(1)  # Half a second long its last word is kept.
        async with member.client() as http:
            answer = await http.get(f"/readyz?mode={mode}{lag}")
        assert answer.status_code == status, (behind, lag, mode, answer.text)


async def test_sync_and_async_are_by_the_masters_word(member, fake, autojump_clock):
    member.says(SLAVE)
    for counted, passing in ((True, {"sync"}), (False, {"async"})):
        (connection,) = MASTER["slaves"]
        told = {**MASTER, "slaves": [{**connection, "counted": counted}]}
        fake.answers = {(MASTER["address"], 20001): RemotingCommand(0, body=orjson.dumps(told))}
        await trio.sleep(1)  # Half a second long its last word is kept.
        async with member.client() as http:
            found = {path for path in ("sync", "async") if (await http.get(f"/{path}")).is_success}
        assert found == passing


@pytest.mark.parametrize(
    ("accept", "parser"), [("", text_string_to_metric_families), ("application/openmetrics-text", openmetrics)]
)
async def test_metrics_of_a_loop_that_stands_still(member, accept, parser):
    """They are the last ones, and say for how long; every family is one of the reference page's, in either form."""
    now = 0.0
    source = member.source
    source.clock = source._snapshot.clock = lambda: now
    source._snapshot.read = lambda: NamesrvSnapshot(groups=(), topics=3, now_ms=0, seconds=0.0)
    source._ticked = 0.0
    async with member.client() as http:
        await http.get("/metrics")
        source._token = DeadLoop()
        now = 8.25
        answer = await http.get("/metrics", headers={"accept": accept})
    found = {each.name: each for each in parser(answer.text)}
    assert found["twinlog_event_loop_stalled_seconds"].samples[0].value == 7.25
    assert found["twinlog_snapshot_age_seconds"].samples[0].value == 8.25
    assert found["rocketmq_namesrv_topic_number"].samples[0].value == 3
    assert set(found) == {each.name.removesuffix("_total") for each in METRICS if NamesrvSnapshot in each.of}


class DeadLoop:
    """A service's loop that runs nothing any more."""

    def run_sync_soon(self, *_args) -> None:
        raise trio.RunFinishedError


POSTS = ["switchover", "failover", "pause", "resume", "auto-failover", "rewind", "reinit"]


@pytest.mark.parametrize("verb", POSTS)
async def test_nothing_is_changed_without_a_token(member, fake, verb):
    async with member.client() as http:
        without = await http.post(f"/v1/{verb}", json={})
        wrong = await http.post(f"/v1/{verb}", json={}, headers={"authorization": f"Bearer {TOKEN}x"})
        got = await http.get(f"/v1/{verb}")
        options = await http.options(f"/v1/{verb}")
    assert (without.status_code, wrong.status_code, got.status_code) == (401, 401, 405)
    assert options.headers["allow"] == "POST, OPTIONS"
    assert member.operations.all().operations == ()


@pytest.mark.parametrize(
    ("verb", "body", "status", "words"),
    [
        ("switchover", b"{", 400, "JSON"),
        ("switchover", b"[]", 400, "object"),
        ("switchover", b'{"candidat": "x"}', 400, "candidate"),
        ("switchover", b'{"timeout_seconds": 0}', 400, "seconds"),
        ("switchover", b'{"timeout_seconds": true}', 400, "seconds"),
        ("switchover", b'{"dry_run": "yes"}', 400, "plan"),
        ("switchover", b'{"candidate": "nobody"}', 404, "nobody"),
        ("switchover", b"{}", 400, "several groups"),
        ("switchover", b'{"group": "a"}', 409, "no slave"),
        ("failover", b"{}", 400, "candidate"),
        ("failover", b'{"candidate": "a-0", "accept_data_loss": -1}', 400, "unknown"),
        ("auto-failover", b"{}", 400, "they elect by themselves"),
        ("auto-failover", b'{"mode": "sometimes"}', 400, "off or members"),
        ("auto-failover", b'{"mode": "members"}', 400, "several groups"),
        ("rewind", b"{}", 400, "member"),
        ("rewind", b'{"member": "a-0", "accept_data_loss": "unknown"}', 400, "bytes"),
    ],
)
async def test_a_change_that_cannot_be_is_told_why(member, verb, body, status, words):
    async with member.client() as http:
        answer = await http.post(f"/v1/{verb}", content=body, headers=AUTHORIZED)
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert member.operations.all().operations == ()


async def test_a_form_of_a_browser_is_refused(member):
    """It cannot send application/json to another site without asking, and asking is answered without a permission."""
    headers = {**AUTHORIZED, "content-type": "text/plain"}
    async with member.client() as http:
        assert (await http.post("/v1/resume", content=b"{}", headers=headers)).status_code == 415
