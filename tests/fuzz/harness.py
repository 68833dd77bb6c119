"""A broker and a name server whose requests are carried out without a network; and what must hold after any.

Of the broker's services only those run that write tables: sends that make a topic wait for them.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import structlog
import trio
from attrs import define, field

from tests.cluster.broker.helpers import FakeConnection, make_broker
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.processors.send import SEND_CODES
from twinlog.cluster.broker.tables.groups import read_groups
from twinlog.cluster.broker.tables.offsets import read_offsets
from twinlog.cluster.broker.tables.topics import TopicConfig, read_topics
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand, decode, encode
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.errors import RemotingTimeoutError
from twinlog.cluster.remoting.request import handlers_of

SECONDS_MAX = 5.0  # For all answers to a handful of requests; a busy machine needs some.
MAY_BE_SILENT = {11, 361, 37}  # Pulls are held; of a transaction whose state is unknown nothing is said.
_KNOWN_CODES = {int(code) for code in ResponseCode}


@define(eq=False)
class FuzzConnection(FakeConnection):
    """Takes what is written, and answers nothing that it is asked."""

    is_behind: bool = False

    def cork(self):
        pass

    def uncork(self):
        pass

    def answered(self, command):
        pass

    async def call(self, command, timeout_ms):
        await trio.lowlevel.checkpoint()
        raise RemotingTimeoutError(self.remote_address, command.code, timeout_ms)


def is_silent(request: RemotingCommand) -> bool:
    """Whether it may stay without an answer."""
    return request.is_oneway or request.code in MAY_BE_SILENT


@define(eq=False)
class Server:
    """One dispatch table, and what came of the requests to it."""

    dispatcher: Dispatcher
    connection: FuzzConnection = field(factory=FuzzConnection)
    _opaque: int = 0

    async def answers(
        self, requests: Iterable[RemotingCommand]
    ) -> list[tuple[RemotingCommand, RemotingCommand | None]]:
        """Each request with its answer, None without one. Fails when a handler does not come to an end."""
        asked = []
        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                await nursery.start(self.dispatcher.run)
                for command in requests:
                    self._opaque += 1
                    command.opaque = self._opaque
                    asked.append(command)
                    self.dispatcher.work_off(self.connection, [encode(command)[4:]])
                while self.dispatcher.under_way:
                    await trio.sleep(0.002)
                nursery.cancel_scope.cancel()
        with trio.move_on_after(SECONDS_MAX):
            while self._is_waited_for(asked):  # Sends that made a topic, until it is on the disk.
                await trio.sleep(0.002)
        told = self._told()
        return [(command, told.get(command.opaque)) for command in asked]

    def _told(self) -> dict[int, RemotingCommand]:
        return {each.opaque: each for each in self.connection.sent if each.is_response}

    def _is_waited_for(self, asked: list[RemotingCommand]) -> bool:
        told = self._told()
        return any(not (is_silent(each) or each.opaque in told) for each in asked)

    async def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
        """One request that has to be answered."""
        ((_, answer),) = await self.answers([RemotingCommand(code, ext=dict(ext or {}), body=body)])
        assert answer is not None
        return answer


@contextlib.asynccontextmanager
async def fuzzed_broker(root: Path) -> AsyncIterator[tuple[Broker, Server]]:
    broker = make_broker(root / "store")
    broker.load_tables()
    broker.store.load()
    broker._load_role()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.tables.topics_writer.run)
            nursery.start_soon(broker.tables.groups_writer.run)
            yield broker, Server(Dispatcher(broker.main_port, batch=broker.send.process, batch_codes=SEND_CODES))
            nursery.cancel_scope.cancel()
    finally:
        await broker.store.close()


def fuzzed_namesrv(root: Path) -> tuple[NameServer, Server]:
    config = NamesrvConfig(kv_config_path=root / "kvConfig.json")
    namesrv = NameServer(config)
    return namesrv, Server(Dispatcher(handlers_of(namesrv)))


@contextlib.contextmanager
def no_unexpected_errors():
    """Nothing may be logged as a failure of ours."""
    with structlog.testing.capture_logs() as logs:
        yield
    failed = [line for line in logs if line["event"] in ("request failed", "requests failed")]
    if failed:
        error = failed[0]["exc_info"][1] if isinstance(failed[0].get("exc_info"), tuple) else None
        raise AssertionError(f"request {failed[0]['code']} failed: {error!r}") from error


def check_answers(pairs: Iterable[tuple[RemotingCommand, RemotingCommand | None]]) -> None:
    """A code that clients know, an answer that can be sent; silence only where it belongs."""
    for request, answer in pairs:
        if answer is None:
            assert is_silent(request), f"no answer to {request!r}"
            continue
        assert answer.code in _KNOWN_CODES, f"{answer.code} answers {request!r}"
        assert decode(encode(answer)[4:]).code == answer.code


def check_tables(broker: Broker) -> None:
    """Names are names, and what is saved can be loaded."""
    assert [topic for topic in broker.tables.topics.table if names.topic_fault(topic)] == []
    for groups in (broker.tables.groups.table, broker.tables.consumers.groups, broker.tables.producers.groups):
        assert [group for group in groups if names.group_fault(group)] == []
    for read, plain in (
        (read_topics, broker.tables.topics.to_json()),
        (read_groups, broker.tables.groups.to_json()),
        (read_offsets, broker.tables.offsets.to_json()),
    ):
        text = fastjson.dumps(plain)
        assert len(read(fastjson.loads(text))) == len(next(v for k, v in plain.items() if k != "dataVersion"))


def check_files(root: Path, allowed: set[str]) -> None:
    """Nothing lies beside what belongs there; the directories of queues are topics."""
    assert {path.name for path in root.iterdir()} <= allowed
    queues = root / "store" / "consumequeue"
    for topic in queues.iterdir() if queues.is_dir() else ():
        assert names.topic_fault(topic.name) is None
        assert all(queue.name.isdecimal() for queue in topic.iterdir())
    config = root / "store" / "config"
    for path in config.iterdir() if config.is_dir() else ():
        assert path.name.partition(".")[0] in {
            "topics",
            "subscriptionGroup",
            "consumerOffset",
            "delayOffset",
            "consumerFilter",
        }


async def check_serves(broker: Broker, server: Server) -> None:
    """A message can still be sent and fetched."""
    broker.tables.topics.update(TopicConfig("FuzzCheck", 1, 1))
    ext = {
        "a": "P",
        "b": "FuzzCheck",
        "c": "TBW102",
        "d": "1",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "UNIQ_KEY\x01k\x02",
    }
    sent = await server.ask(310, ext, b"still here")
    assert sent.code == 0, sent.remark
    broker.store.dispatch_pending()
    queue: dict[str, Any] = {
        "consumerGroup": "FuzzGroup",
        "topic": "FuzzCheck",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
    }
    queue |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*"}
    pulled = await server.ask(11, {name: str(value) for name, value in queue.items()})
    assert pulled.code == 0, pulled.remark
    assert b"still here" in bytes(pulled.body)
