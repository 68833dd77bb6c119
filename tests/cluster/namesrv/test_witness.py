"""The name server as a witness (20008): it asks the registered master on the connection that this made."""

from collections.abc import Callable

import orjson
import pytest
import trio

from tests.cluster.namesrv.registrations import HERE, A, B, registration
from tests.support.process_group.ports import free_port
from twinlog.cluster.namesrv import witness
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting.client import RemotingClient, not_supported
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.ha.election.witness import MasterAnswer, WitnessReport, judge_report
from twinlog.store.util.plain import from_plain, to_plain

OURS = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
SERVES = MasterAnswer(serves=True, epoch=4)


class Registered:
    """A broker that is registered as master; `answer` makes its answers."""

    def __init__(self, answer: Callable[[RemotingCommand], RemotingCommand | None]) -> None:
        self.asked: list[dict[str, str] | None] = []
        self.answer = answer
        self.client = RemotingClient(self._answer)

    def _answer(self, _address: str, request: RemotingCommand) -> RemotingCommand | None:
        assert request.code == 20008
        self.asked.append(request.ext)
        return self.answer(request)

    async def register(self, nursery, namesrv: str, number: int = 0, address: str = A) -> None:
        await nursery.start(self.client.run)
        given = registration(number, address)
        body = given.pop("body")
        command = RemotingCommand(103, ext={name: str(value) for name, value in given.items()}, body=body)
        assert (await self.client.request(namesrv, command)).code == 0


def answering(body: object) -> Callable[[RemotingCommand], RemotingCommand]:
    return lambda request: RemotingCommand.response_to(request, 0, body=orjson.dumps(to_plain(body)))


@pytest.fixture
async def server(nursery) -> str:
    config = NamesrvConfig(kv_config_path=None, listen_port=0)
    return f"127.0.0.1:{await nursery.start(NameServer(config, HERE).run)}"


@pytest.fixture
async def ask(nursery, server):
    """Ask as a slave that is registered with the name server does."""
    slave = Registered(not_supported)
    await slave.register(nursery, server, 1, B)

    async def ask(**group: str) -> WitnessReport:
        answer = await slave.client.request(server, RemotingCommand(20008, ext=OURS | group))
        assert answer.code == 0, answer.remark
        return from_plain(WitnessReport, orjson.loads(answer.body))

    return ask


@pytest.mark.parametrize(
    ("answer", "told", "hears"),
    [
        (answering(SERVES), SERVES, True),
        (answering(MasterAnswer(serves=False, why="fenced")), MasterAnswer(serves=False, why="fenced"), False),
        (not_supported, MasterAnswer(serves=None), True),
        (answering({"serves": "yes"}), None, False),
        (answering(MasterAnswer(serves=False, why="x" * 9999)), MasterAnswer(serves=False, why="x" * 500), False),
    ],
)
async def test_who_answers_is_heard(nursery, server, ask, answer, told, hears):
    """RocketMQ's brokers do not know the request: they are there, and registered."""
    master = Registered(answer)
    await master.register(nursery, server)
    report = await ask()
    assert (report.members, report.master, report.answer) == (2, A, told)
    assert report.heard_ms is not None
    assert 0 <= report.heard_ms < 5_000
    assert judge_report(server, report).hears is hears
    assert master.asked == [OURS], "With the group's names: a process may be of another"


async def test_a_master_that_hangs_is_not_heard(nursery, server, ask, monkeypatch):
    """It is asked once at a time, and once in a moment, whoever asks how often."""
    monkeypatch.setattr(witness, "ANSWER_MS_MAX", 100)
    master = Registered(lambda _request: None)
    await master.register(nursery, server)
    reports: list[WitnessReport] = []

    async def one() -> None:
        reports.append(await ask())

    async with trio.open_nursery() as several:
        for _ in range(20):
            several.start_soon(one)
    reports.append(await ask())
    assert {report.why_silent for report in reports} == {"no answer within 100 ms"}
    assert len(master.asked) == 1
    await trio.sleep(witness.KEPT_SECONDS)
    master.answer = answering(SERVES)
    assert (await ask()).answer == SERVES


async def test_a_master_whose_connection_ended_is_not_registered(nursery, server, ask):
    """A process that was killed: its kernel ended the connection."""
    report = await ask()
    assert report == WitnessReport(up_ms=report.up_ms, members=1)
    master = Registered(lambda _request: None)
    async with trio.open_nursery() as process:
        await master.register(process, server)
        process.start_soon(ask)
        while not master.asked:
            await trio.sleep(0.01)
        process.cancel_scope.cancel()
    with trio.fail_after(5):
        while (await ask()).master is not None:
            await trio.sleep(0.01)


@pytest.mark.parametrize("group", [{"brokerName": "broker-b"}, {"clusterName": "Other"}])
async def test_of_other_groups_it_knows_nothing(nursery, server, ask, group):
    """And nobody is asked for it."""
    master = Registered(answering(SERVES))
    await master.register(nursery, server)
    report = await ask(**group)
    assert report == WitnessReport(up_ms=report.up_ms, members=0)
    assert not master.asked


async def test_outside_it_tells_the_address_of_outside(nursery):
    """As in every other answer."""
    port = free_port()
    config = NamesrvConfig(kv_config_path=None, listen_port=0, outside_listen_port=port, outside_address="gate.example")
    inside = await nursery.start(NameServer(config, HERE).run)
    master = Registered(answering(SERVES))
    await master.register(nursery, f"127.0.0.1:{inside}")
    answer = await master.client.request(f"127.0.0.1:{port}", RemotingCommand(20008, ext=OURS))
    assert orjson.loads(answer.body)["master"] == "gate.example:10911"
