"""A running group of an earlier release goes on under this one, member by member, in traffic."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.roles.earlier import BEFORE_TWINLOG_WAS_ONE_PACKAGE, EarlierCode, checked_out
from tests.support.clients.remoting import create_topic
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.process import Process
from tests.support.process_group.roles import TOPIC, Group, RoleBroker, Traffic, in_thread
from tests.support.process_group.status import commit_offset, committed_offset, status
from tests.support.process_group.twinlog import NameServer
from tests.support.waiting import wait_for
from twinlog.client import Batch, Client, From, OutgoingMessage, PushConsumer, Sql

pytestmark = pytest.mark.timeout(180)
QUEUES = 4
READERS, AWAY, AWAY_OFFSET = "readers", "away", 7
DELAYED_TOPIC, DELAYED_LEVEL = "delayed", 3
SETTINGS = {
    "enablePropertyFilter": "true",
    "flushConsumerOffsetInterval": "500",
    "messageDelayLevel": "1s 5s 8s",
    "autoFailover": "members",  # The earlier version warns of a key that it does not know.
}
ROLE = ("brokerRole", "brokerId")
CHANGED = {"fileReservedTime": "50"}  # While it runs, so that a broker writes it down.


def have_run(process: Process, code: EarlierCode | None) -> None:
    """Its next start runs an earlier code; None: this one. Its directory and its configuration stay."""
    ours = process.command()
    process._command = [*code.program, *ours[1:]] if code else [*ours]
    process._environment = {**code.environment} if code else {}


def restart(process: Process, code: EarlierCode | None = None) -> None:
    """As an operator upgrades: a stop, and a start of what is installed now."""
    process.stop()
    have_run(process, code)
    process.start()


@contextmanager
def running(directory: Path, code: EarlierCode) -> Iterator[Group]:
    """A master and two slaves behind a name server, all of the earlier code."""
    with ExitStack() as stack:
        namesrv = NameServer(directory / "namesrv")
        brokers = [RoleBroker(directory / f"m{number}", namesrv.address, number, SETTINGS) for number in range(3)]
        for process in (namesrv, *brokers):
            have_run(process, code)
            stack.enter_context(process)
        group = Group(namesrv, tuple(brokers))
        group.wait_record()
        yield group


class Orders(Traffic):
    """Every other message passes the readers' filter."""

    def message(self, body: bytes) -> OutgoingMessage:
        return OutgoingMessage(topic=self.topic, body=body, properties={"kind": kind_of(body)})

    def odd(self) -> set[bytes]:
        """What readers have to get."""
        return {body for body in self.acknowledged if kind_of(body) == "odd"}


def kind_of(body: bytes) -> str:
    return "odd" if int(body.rpartition(b"-")[2]) % 2 else "even"


@define
class Readers:
    """What a consumer group has got, and how often."""

    read: Counter[bytes] = field(factory=Counter)
    late: Counter[bytes] = field(factory=Counter)

    async def note(self, batch: Batch) -> None:
        for message in batch:
            (self.late if message.topic == DELAYED_TOPIC else self.read)[message.body] += 1

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(30):
            while not condition():
                await trio.sleep(0.05)


def options_of(group: Group) -> dict[str, dict[str, str]]:
    """Every member's options as they are in force, but for those that a change of roles changes."""
    found = {}
    for member in group.members:
        shown = json.loads(group.twinlog("config", "get", member.address, "-o", "json").stdout)
        options = {each["key"]: each["value"] for each in shown["options"]}
        found[member.address] = {key: value for key, value in options.items() if key not in ROLE}
    return found


def modes_of(group: Group) -> dict[str, str]:
    """Who begins a failover, by each member's record."""
    modes: dict[str, str] = json.loads(group.twinlog("auto-failover", "-o", "json").stdout)["members"]
    return modes


async def test_member_by_member_and_once_back(tmp_path: Path):
    """Slaves first, one of them back to the earlier code and forth again; then a switchover, the old master, the name server.

    Nothing acknowledged is lost; consumers go on where they were, by their filter, too; what was delayed arrives; options are
    kept; `twinlog check` is content. The group elects by itself once all members are of this version, and not before.
    """
    earlier = checked_out(BEFORE_TWINLOG_WAS_ONE_PACKAGE, tmp_path / "earlier")
    with running(tmp_path, earlier) as group:
        first, second, third = group.members
        for topic in (TOPIC, DELAYED_TOPIC):
            create_topic(first.address, topic, queues=QUEUES)
        commit_offset(first, AWAY, TOPIC, AWAY_OFFSET)
        changes = [f"{key}={value}" for key, value in CHANGED.items()]
        group.twinlog("config", "set", *(member.label for member in group.members), *changes, "--yes")
        options = options_of(group)

        orders, readers = Orders(group.namesrv.address), Readers()
        async with Client(group.namesrv.address) as client:
            topics = {TOPIC: Sql("kind = 'odd'"), DELAYED_TOPIC: "*"}
            async with (
                PushConsumer(client, READERS, topics, start=From.FIRST, handler=readers.note),
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(orders.produce, "orders")
                await orders.more(20)
                for slave, code in ((third, None), (second, None), (third, earlier), (third, None)):
                    await in_thread(restart, slave, code)
                    await in_thread(group.wait_healthy)
                    await orders.more(20)
                # The earlier code takes it, and this one delivers it: to change masters takes a second or two.
                late = OutgoingMessage(topic=DELAYED_TOPIC, body=b"late", delay_level=DELAYED_LEVEL)
                await client.producer("late").send(late)
                await in_thread(group.twinlog, "switchover", "--candidate", second.label, "--yes")
                await orders.more(20)
                new, old = {second.label: "members", third.label: "members"}, {first.label: "off"}
                await in_thread(wait_for, lambda: modes_of(group) == new | old, "the mode, as far as it is known")
                for process in (first, group.namesrv):
                    await in_thread(restart, process)
                    await in_thread(group.wait_healthy)
                    await orders.more(20)
                await in_thread(wait_for, lambda: {*modes_of(group).values()} == {"members"}, "all know it")
                nursery.cancel_scope.cancel()
            async with PushConsumer(client, READERS, topics, start=From.FIRST, handler=readers.note):
                await readers.until(lambda: readers.late)
                await readers.until(lambda: orders.odd() <= readers.read.keys())

        assert readers.late.keys() == {b"late"}
        assert readers.read.keys() <= {body for body in orders.sent if kind_of(body) == "odd"}
        assert committed_offset(second, AWAY, TOPIC) == AWAY_OFFSET
        orders.check(await orders.consumed())
        assert await in_thread(group.master) is second
        now = await in_thread(options_of, group)  # This version has some that the earlier one had not.
        assert {address: {key: now[address].get(key) for key in known} for address, known in options.items()} == options
        assert all(CHANGED.items() <= each.items() for each in options.values())
        assert "OK" in (await in_thread(group.twinlog, "check")).stdout
        for slave in (first, third):
            wait_for_same_commitlog(second.commit_log, slave.commit_log)
        second.kill()
        elected = [first, third]
        await in_thread(wait_for, lambda: "serving" in {status(each)["roleState"] for each in elected}, "an election")
