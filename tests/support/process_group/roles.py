"""A group whose roles change. Members are single processes, so that one that is killed stays dead until a test starts it.

A member keeps its name and its place in `members`, whatever role it has; broker-a-0 begins as the master.
"""

import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import define, field

from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.ports import free_broker_port
from tests.support.process_group.process import Process
from tests.support.process_group.status import status
from tests.support.process_group.up import run
from tests.support.waiting import SECONDS_MAX, wait_for
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.remoting.errors import RemotingError

TOPIC = "roles"
# Nothing here depends on how full this machine's disk is.
SETTINGS = {**TEST_SETTINGS, "diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}


class RoleBroker(twinlog.Broker):
    """A broker whose store directory has its name. Ready is when it says so: which role it has, the group decides."""

    def __init__(self, root: Path, namesrv: str, number: int, settings: Mapping[str, str]) -> None:
        self.label = f"broker-a-{number}"
        store = root / self.label
        super().__init__(
            root,
            namesrv,
            role="SLAVE" if number else "SYNC_MASTER",
            broker_id=number,
            settings={
                **SETTINGS,
                "storePathRootDir": str(store),
                "storePathCommitLog": str(store / "commitlog"),
                **settings,
            },
        )
        self.store, self.commit_log = store, store / "commitlog"

    def start(self) -> None:
        Process.start(self)
        self.wait_ready()

    def move(self, host: str, *, broker_id: int | None = None, conf: str = "broker.conf") -> None:
        """From its next start on it is elsewhere; its broker.conf may have another id, and be called otherwise."""
        self.port = free_broker_port()
        self.ha_port, self.address = self.port + 1, f"{host}:{self.port}"
        self.settings |= {"brokerIP1": host, "brokerIP2": host, "listenPort": str(self.port)}
        if broker_id is not None:
            self.settings["brokerId"] = str(broker_id)
        self.conf.unlink()
        self.conf = self.root / conf
        self.configure()
        self._command = list(self.command())

    def recorded(self) -> dict[str, tuple[str, str]]:
        """Id and address of each member, by its name, as this one has them in the group's record."""
        return {each["name"]: (each["id"], each["address"]) for each in status(self)["groupRecord"]["members"]}


@define
class Group:
    """What runs, and `twinlog` to command it."""

    namesrv: twinlog.NameServer
    members: tuple[RoleBroker, ...]

    def twinlog(self, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `status` None: whatever it ends with."""
        done = run(*arguments, namesrv=self.namesrv.address)
        if status is not None:
            assert done.returncode == status, (
                f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}{self.tails()}"
            )
        return done

    def listed(self) -> dict[str, dict]:
        """Every member as `twinlog list` has it."""
        members = json.loads(self.twinlog("list", "-o", "json").stdout)["members"]
        return {member["name"]: member for member in members}

    def master(self) -> RoleBroker:
        """Who serves now."""
        listed = self.listed()
        (found,) = [
            each
            for each in self.members
            if (told := listed.get(each.label)) and told["role"] == "master" and told["state"] == "serving"
        ]
        return found

    def wait_healthy(self) -> None:
        """Until one serves and all others follow it."""
        self.twinlog("wait", "healthy", f"members={len(self.members)}", "--timeout", str(SECONDS_MAX - 5))

    def wait_record(self) -> None:
        """Until all members know each other: before that nobody may change roles."""

        def known() -> bool:
            return all(self.listed().get(each.label, {}).get("epoch") is not None for each in self.members)

        wait_for(known, "the members' record")
        self.wait_healthy()

    def wait_auto_failover(self, mode: str) -> None:
        """Until the records of all have this mode: before that nobody elects."""

        def known() -> bool:
            modes = json.loads(self.twinlog("auto-failover", "-o", "json").stdout)["members"]
            return list(modes.values()) == [mode] * len(self.members)

        wait_for(known, f"autoFailover={mode} in all records")

    def serving(self, *, but: RoleBroker) -> list[RoleBroker]:
        """The members that say that they serve, apart from one that cannot answer."""
        return [each for each in self.members if each is not but and status(each)["roleState"] == "serving"]

    def tails(self) -> str:
        return "\n".join(member.tail(30) for member in self.members)


@contextmanager
def running(directory: Path, count: int = 2, **settings: str) -> Iterator[Group]:
    """So many members, all following, in a record of their own."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(directory / "namesrv"))
        brokers = [RoleBroker(directory / f"m{number}", namesrv.address, number, settings) for number in range(count)]
        group = Group(namesrv, tuple(stack.enter_context(broker) for broker in brokers))
        group.wait_record()
        yield group


@define
class Traffic:
    """Producers, and what they were told. A body is sent once, so that a second copy of it is invented by somebody."""

    namesrv: str
    acknowledged: dict[bytes, tuple[int, float]] = field(factory=dict)  # Body: its offset in the log, when it was told.
    others: dict[str, int] = field(factory=dict)
    sent: set[bytes] = field(factory=set)
    topic: str = TOPIC
    pause_seconds: float = 0.005  # Between two messages: the machine has more to do than to produce.

    async def produce(self, name: str) -> None:
        """One message after the other, for ever."""
        async with open_admin((self.namesrv,), timeout_ms=4000) as admin:
            producer = Producer(admin.api, tries_max=1)
            for number in range(1 << 30):
                body = f"{name}-{number}".encode()
                self.sent.add(body)
                try:
                    result = await producer.send(self.message(body))
                except RemotingError as error:
                    self._note_other(type(error).__name__)
                    producer = Producer(admin.api, tries_max=1)  # With another route.
                    await trio.sleep(max(0.02, self.pause_seconds))
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged[body] = (int(result.offset_message_id[16:], 16), time.monotonic())
                    await trio.sleep(self.pause_seconds)
                else:
                    self._note_other(result.status.name)
                    await trio.sleep(max(0.02, self.pause_seconds))

    @asynccontextmanager
    async def flowing(self, producers: int = 1) -> AsyncIterator[None]:
        """So many producers send meanwhile."""
        async with trio.open_nursery() as nursery:
            for number in range(producers):
                nursery.start_soon(self.produce, f"p{number}")
            yield
            nursery.cancel_scope.cancel()

    def message(self, body: bytes) -> OutgoingMessage:
        """What is sent with this body."""
        return OutgoingMessage(topic=self.topic, body=body)

    def _note_other(self, outcome: str) -> None:
        self.others[outcome] = self.others.get(outcome, 0) + 1

    async def more(self, count: int, seconds: float = 30) -> float:
        """Wait for so many more acknowledgements; when the first of them came."""
        before = len(self.acknowledged)
        with trio.fail_after(seconds):
            while len(self.acknowledged) < before + count:
                await trio.sleep(0.005)
        return list(self.acknowledged.values())[before][1]

    async def consumed(self) -> list[tuple[bytes, int]]:
        """All that can be read, with its offset in the log."""
        found: list[tuple[bytes, int]] = []
        async with open_admin((self.namesrv,)) as admin:
            await admin.consume(self.topic, lambda message: found.append((message.body, message.phy_offset)) or True)
        return found

    def check(self, consumed: list[tuple[bytes, int]]) -> None:
        """Acknowledged is a part of what is read, at its place, once each; nothing is invented."""
        where = dict(consumed)
        lost = {body: at for body, (at, _) in self.acknowledged.items() if where.get(body) != at}
        assert not lost
        assert len(where) == len(consumed), "a message that was sent once is there twice"
        assert where.keys() <= self.sent


async def in_thread(function, *arguments, **named):
    """A command, or whatever else blocks, beside the producers."""
    return await trio.to_thread.run_sync(partial(function, *arguments, **named))
