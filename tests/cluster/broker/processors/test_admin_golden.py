"""Our answers to administrators beside those of a real broker, request by request of the same dialogue."""

import inspect
import json

import pytest

from tests.cluster.broker.helpers import Client, opened
from tests.cluster.broker.parts import Parts, make_parts
from tests.cluster.broker.wire import frames
from twinlog.cluster.remoting import fastjson

CAPTURE = "rocketmq-4.9.7", "admin"
PULL, STATISTICS = 11, 315
TABLES = {"offsetTable", "table", "data", "subscriptionTable", "correctionOffsets"}  # Their keys are data.
# 25: a key of the black list is refused, as 4.9.8 does; 4.9.7 passes over it. 321: an index outside is answered with a body.
DIFFERENT = {(25, b"rocketmqHome=/tmp\n"), (321, "100")}
# The directory has another name here, and nothing was delivered: no service runs.
NOT_HERE = {"commitLogDiskRatio_/tmp/rocketmq-4.9.7/broker/store/commitlog", "scheduleMessageOffset_3"}


def conversation():
    """The capture's requests, each with its answer."""
    asked = {}
    for frame in frames(*CAPTURE):
        if not frame.is_response:
            asked[frame.opaque] = frame
        elif frame.opaque in asked:
            yield asked[frame.opaque], frame


async def answers(parts: Parts):
    """The same requests to ours; yields request, the real answer and our own."""
    client, send = Client(parts), parts.send()
    parts.stats.sample(0.0)
    looked = False
    for request, theirs in conversation():
        if request.code == STATISTICS and not looked:
            looked = True
            parts.store.dispatch_pending()
            parts.stats.sample(10.0)
        if request.code == 10:
            send.process(client.connection, [request])
            continue
        if request.code == PULL:
            parts.store.dispatch_pending()
        handler = client.table[request.code]
        is_async = inspect.iscoroutinefunction(handler.function)
        ours = (
            await client.ask_async(request.code, bytes(request.body), **(request.ext or {}))
            if is_async
            else client.ask(request.code, bytes(request.body), **(request.ext or {}))
        )
        yield request, theirs, ours


@pytest.fixture
async def pairs(tmp_path):
    parts = make_parts(tmp_path / "broker-a-0")
    parts.serve(
        parts.clients(),
        parts.broker_admin(),
        parts.group_admin(),
        parts.offset(),
        parts.pull(),
        parts.query(),
        parts.send_back(),
        parts.topic_admin(),
        parts.transactions(),
    )
    async with opened(parts):
        yield [each async for each in answers(parts)]


def shape(value, key=""):
    """Names and types: what a reader in Java depends on."""
    if isinstance(value, dict) and (key in TABLES or key == "consumeStatsList"):
        kinds = {json.dumps(shape(inner, "*"), sort_keys=True) for inner in value.values()}
        return {"*": sorted(kinds)}
    if isinstance(value, dict):
        return {name: shape(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(shape(inner, key), sort_keys=True) for inner in value})
    return type(value).__name__


def is_compared(request):
    return (request.code, bytes(request.body)) not in DIFFERENT and (
        request.code,
        (request.ext or {}).get("index"),
    ) not in DIFFERENT


async def test_every_code_is_the_same(pairs):
    assert len(pairs) > 45
    for request, theirs, ours in pairs:
        if is_compared(request):
            assert (request.code, request.ext, ours.code) == (request.code, request.ext, theirs.code)


async def test_refusals_have_the_same_words(pairs):
    different = {323}  # Ours says what is wrong.
    for request, theirs, ours in pairs:
        if theirs.code != 0 and request.code not in different:
            assert ours.remark == theirs.remark


async def test_bodies_have_the_same_names_and_types(pairs):
    compared = set()
    for request, theirs, ours in pairs:
        if request.code in (PULL, 26, 28) or not is_compared(request):
            continue
        assert bool(ours.body) == bool(theirs.body), request.code
        if theirs.body:
            assert shape(fastjson.loads(ours.body)) == shape(fastjson.loads(theirs.body)), request.code
            compared.add(request.code)
    assert compared == {202, 203, 204, 208, 300, 303, 305, 308, 315, 317, 321, 328}


async def test_statistics_have_the_same_values(pairs):
    """But for how long a pull took, and what the broker puts itself, which counts here."""
    counted = [each for each in pairs if each[0].code == STATISTICS and each[1].code == 0]
    compared = [each for each in counted if each[0].ext["statsName"] not in ("GROUP_GET_LATENCY", "BROKER_PUT_NUMS")]
    assert len(compared) == 8
    for request, theirs, ours in compared:
        assert ours.body == theirs.body, request.ext


async def test_progress_has_the_same_values(pairs):
    for request, theirs, ours in pairs:
        if request.code == 317:
            theirs, ours = fastjson.loads(theirs.body), fastjson.loads(ours.body)
            assert ours["totalDiff"] == theirs["totalDiff"]
        elif request.code in (300, 308):
            assert ours.body == theirs.body
        elif request.code == 305:
            assert sorted(fastjson.loads(ours.body)["topicList"]) == sorted(fastjson.loads(theirs.body)["topicList"])


async def test_runtime_information_lacks_no_key(pairs):
    (theirs, ours) = next((theirs, ours) for request, theirs, ours in pairs if request.code == 28)
    real, own = fastjson.loads(theirs.body)["table"], fastjson.loads(ours.body)["table"]
    assert real.keys() - own.keys() - NOT_HERE == set()
    assert {type(value) for value in own.values()} == {str}
    for key, value in real.items():
        if value.lstrip("-").isdecimal() and key in own:
            assert own[key].lstrip("-").isdecimal(), key


async def test_the_configuration_is_shown_in_the_same_form(pairs):
    (theirs, ours) = next((theirs, ours) for request, theirs, ours in pairs if request.code == 26)
    assert json.loads(ours.ext["version"]).keys() == json.loads(theirs.ext["version"]).keys()
    real = dict(line.split("=", 1) for line in bytes(theirs.body).decode().splitlines())
    own = dict(line.split("=", 1) for line in ours.body.decode().splitlines())
    both = real.keys() & own.keys()
    assert len(both) > 70
    booleans = {key for key in both if real[key] in ("true", "false")}
    assert {own[key] for key in booleans} <= {"true", "false"}
