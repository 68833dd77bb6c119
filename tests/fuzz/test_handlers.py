"""Any request whatever, to every handler: a proper answer in time, no failure of ours, and the server serves on.

TWINLOG_FUZZ_EXAMPLES=5000 looks longer than the suite does.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.broker.helpers import make_broker
from tests.fuzz.harness import (
    check_answers,
    check_files,
    check_serves,
    check_tables,
    fuzzed_broker,
    fuzzed_namesrv,
    no_unexpected_errors,
)
from tests.fuzz.requests import EVIL_NAMES, commands, heartbeats, kinds, to_json
from twinlog.cluster.broker.send.requests import HEADERS as SEND_HEADERS
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.request import handlers_of

EXAMPLES = int(os.environ.get("TWINLOG_FUZZ_EXAMPLES", "25"))
thorough = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES <= 25)

pytestmark = pytest.mark.timeout(90 + 3 * EXAMPLES)

with TemporaryDirectory() as directory:
    BROKER_HEADERS = [handler.header for handler in make_broker(Path(directory)).main_port.values()]
BROKER_HEADERS += SEND_HEADERS.values()
NAMESRV_HEADERS = [handler.header for handler in handlers_of(NameServer()).values()]
BEATS = heartbeats.map(lambda beat: RemotingCommand(34, body=to_json(beat)))


@thorough
@given(st.lists(st.one_of(commands(BROKER_HEADERS), BEATS), min_size=10, max_size=60))
def test_a_broker_answers_anything(requests):
    async def run(root: Path):
        async with fuzzed_broker(root) as (broker, server):
            with no_unexpected_errors():
                check_answers(await server.answers(requests))
                broker.store.dispatch_pending()
                check_tables(broker)
                await check_serves(broker, server)
                for callback in list(server.connection.on_close):
                    callback(server.connection)
        check_files(root, {"store"})

    with TemporaryDirectory() as directory:
        trio.run(run, Path(directory))


@thorough
@given(st.lists(commands(NAMESRV_HEADERS), min_size=1, max_size=60))
def test_a_name_server_answers_anything(requests):
    async def run(root: Path):
        controller, server = fuzzed_namesrv(root)
        with no_unexpected_errors():
            check_answers(await server.answers(requests))
            topics = {"FuzzCheck": {"topicName": "FuzzCheck", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}
            table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": topics}
            body = to_json({"topicConfigSerializeWrapper": table})
            ext = {"brokerName": "fuzz-check", "brokerAddr": "127.0.0.1:1", "clusterName": "fuzz-check"}
            ext |= {"haServerAddr": "127.0.0.1:2", "brokerId": "0"}
            registered = await server.ask(103, ext, body)
            assert registered.code == 0, registered.remark
            assert b"fuzz-check" in bytes((await server.ask(105, {"topic": "FuzzCheck"})).body)
            controller.routes.drop(server.connection)
        check_files(root, {"kvConfig.json", "kvConfig.json.bak"})

    with TemporaryDirectory() as directory:
        trio.run(run, Path(directory))


DEFAULTS = {str: "T1", int: "0", bool: "false"}


def with_one_evil_name(headers):
    """Each text field of each header, once with each name that must not become a path."""
    for header in headers:
        found = kinds(header)
        sound = {wire: DEFAULTS[kind] for wire, (kind, _) in found.items()}
        for wire, (kind, _) in found.items():
            if kind is str:
                for name in EVIL_NAMES:
                    yield RemotingCommand(header.code, ext=sound | {wire: name})


def evil_bodies():
    for name in EVIL_NAMES:
        subscription = {"topic": name, "subString": "*", "subVersion": 1}
        yield 34, {"clientID": "c", "consumerDataSet": [{"groupName": name, "subscriptionDataSet": [subscription]}]}
        yield 34, {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [subscription]}]}
        yield 34, {"clientID": name, "producerDataSet": [{"groupName": name}]}
        yield 200, {"groupName": name}
        yield 41, {"clientId": "c", "consumerGroup": name, "mqSet": [{"topic": "T1", "brokerName": "b", "queueId": 0}]}
        yield 41, {"clientId": "c", "consumerGroup": "G", "mqSet": [{"topic": name, "brokerName": "b", "queueId": 0}]}
        yield 46, {"clientId": "c", "group": name, "subscriptionData": subscription}


async def test_no_name_leaves_the_store(tmp_path):
    """Every request of a broker that takes a name, and every body that has one."""
    requests = list(with_one_evil_name(BROKER_HEADERS))
    requests += [RemotingCommand(code, body=to_json(value)) for code, value in evil_bodies()]
    async with fuzzed_broker(tmp_path) as (broker, server):
        with no_unexpected_errors():
            for at in range(0, len(requests), 100):
                check_answers(await server.answers(requests[at : at + 100]))
            broker.store.dispatch_pending()
            check_tables(broker)
            await check_serves(broker, server)
    check_files(tmp_path, {"store"})


async def test_no_name_leaves_the_name_servers_files(tmp_path):
    requests = list(with_one_evil_name(NAMESRV_HEADERS))
    _, server = fuzzed_namesrv(tmp_path)
    with no_unexpected_errors():
        check_answers(await server.answers(requests))
    check_files(tmp_path, {"kvConfig.json", "kvConfig.json.bak"})


@pytest.mark.parametrize("code", sorted({int(header.code) for header in BROKER_HEADERS}))
async def test_an_empty_request_is_answered(tmp_path, code):
    async with fuzzed_broker(tmp_path) as (_, server):
        with no_unexpected_errors():
            check_answers(await server.answers([RemotingCommand(code)]))
