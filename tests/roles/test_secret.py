"""Members that prove who they are by their group's secret, on real processes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson
import pytest
import trio

from tests.support.clients.remoting import request
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import twinlog
from tests.support.process_group.roles import TOPIC, Group, RoleBroker, Traffic, in_thread
from tests.support.process_group.status import status
from tests.support.waiting import wait_for
from twinlog.cluster.config.group_secret import GroupSecret, new_secret, write_secrets
from twinlog.cluster.remoting.command import FrameReader, decode, encode

pytestmark = pytest.mark.timeout(120)

OLD, NEW = new_secret(), new_secret()
READ_SECONDS = 1.5  # Until a changed file is in use.
UPDATE_BROKER_CONFIG, NO_PERMISSION = 25, 16
REFUSED = "request refused: it is not proven to be a member's"


def give(broker: RoleBroker, *secrets: GroupSecret) -> None:
    write_secrets(broker.root / "secret", secrets)


def configure(broker: RoleBroker, **settings: str) -> None:
    """For its next start."""
    broker.settings |= settings
    broker.configure()


@contextmanager
def group_of(directory: Path, count: int, *secrets: GroupSecret, relayed: "Relay | None" = None) -> Iterator[Group]:
    """So many members, each with a file of its own; without a secret they have none. The last one may be behind a relay."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(twinlog.NameServer(directory / "namesrv"))
        brokers = [RoleBroker(directory / f"m{number}", namesrv.address, number, {}) for number in range(count)]
        for broker in brokers:
            if secrets:
                give(broker, *secrets)
                configure(broker, haSecretFile=str(broker.root / "secret"))
        if relayed is not None:
            stack.enter_context(relayed)
            relayed.stand_before(brokers[-1])
        group = Group(namesrv, tuple(stack.enter_context(broker) for broker in brokers))
        group.wait_record()
        yield group


class Relay:
    """Stands at a member's address, hands everything on, and keeps what was sent there, connection by connection."""

    def __init__(self) -> None:
        self.sent: list[bytearray] = []
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._open: list[socket.socket] = []

    def stand_before(self, broker: RoleBroker) -> None:
        broker.move("127.0.0.2")
        configure(broker, bindAddress="127.0.0.1")
        self._listener.bind(("127.0.0.2", broker.port))
        self._listener.listen()
        self.target = ("127.0.0.1", broker.port)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                there = socket.create_connection(self.target)
            except OSError:
                if self._listener.fileno() < 0:
                    return
                client.close()
                continue
            self._open += [client, there]
            kept = bytearray()
            self.sent.append(kept)
            threading.Thread(target=self._carry, args=(client, there, kept), daemon=True).start()
            threading.Thread(target=self._carry, args=(there, client, bytearray()), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        try:
            while data := source.recv(65_536):
                kept += data
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for each in self._open:
            each.close()


def signed_frames(sent: list[bytearray]) -> list[bytes]:
    frames = [encode(decode(frame)) for data in sent for frame in FrameReader().feed(bytes(data))]
    return [frame for frame in frames if b"twinlogMac" in frame]


def answer_to(target: tuple[str, int], frame: bytes) -> tuple[int, str]:
    with socket.create_connection(target, timeout=5) as connection:
        connection.sendall(frame)
        reader, found = FrameReader(), []
        while not found:
            found = [decode(bytes(each)) for each in reader.feed(connection.recv(65_536))]
    return found[0].code, found[0].remark or ""


async def switched(group: Group, candidate: RoleBroker, traffic: Traffic) -> None:
    await in_thread(group.twinlog, "switchover", "--candidate", candidate.label, "--yes")
    await traffic.more(10)


async def test_roles_change_and_the_secret_is_rotated_in_traffic(tmp_path):
    """Also while one member signs with the new one already and another with the old one. Nobody is refused meanwhile."""
    with group_of(tmp_path, 3, OLD) as group:
        first, second, third = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(10)
            await switched(group, second, traffic)
            for member in group.members:
                give(member, OLD, NEW)
            await trio.sleep(READ_SECONDS)
            give(first, NEW, OLD)
            give(second, NEW, OLD)
            await trio.sleep(READ_SECONDS)
            await traffic.more(10)
            await switched(group, third, traffic)
            give(third, NEW, OLD)
            await trio.sleep(READ_SECONDS)
            for member in group.members:
                give(member, NEW)
            await trio.sleep(READ_SECONDS)
            await traffic.more(10)
            await in_thread(third.kill)
            ahead = max((first, second), key=lambda each: status(each)["maxOffset"])
            failover = ("failover", "--candidate", ahead.label, "--yes")
            done = await in_thread(group.twinlog, *failover, status=None)
            assert done.returncode in (0, 6), done.stderr
            await traffic.more(10)
            await in_thread(third.start)
            await in_thread(group.wait_healthy)
        traffic.check(await traffic.consumed())
        assert not [member.label for member in group.members if REFUSED in member.log.read_text()]
        in_use = f'"signs": "{NEW.id}", "accepted": "{NEW.id}"'
        assert all(in_use in member.log.read_text() for member in (first, second))
        for slave in (second, third):
            await in_thread(wait_for_same_commitlog, first.commit_log, slave.commit_log)


def test_who_has_another_secret_is_refused_and_what_was_recorded_is_worthless(tmp_path):
    """The group goes on; with the right secret in its file the member follows without a start."""
    relay = Relay()
    with group_of(tmp_path, 3, OLD, relayed=relay) as group:
        first, second, third = group.members
        group.twinlog("send", TOPIC, "one")
        second.stop()
        give(second, NEW)
        second.start()
        says = f"the secret {NEW.id} is not known here; it is signed with {NEW.id}; known here: {OLD.id}. Next: "
        wait_for(lambda: says in second.log.read_text(), "its word of the wrong secret")
        wait_for(lambda: REFUSED in first.log.read_text(), "the master's word of it")
        assert group.twinlog("send", TOPIC, "two").stdout.startswith("SEND_OK")
        assert [each["counted"] for each in status(first)["slaves"]] == [True]
        assert status(second)["roleState"] != "following"
        give(second, OLD)
        group.wait_healthy()

        recorded = signed_frames(relay.sent)
        assert {decode(frame[4:]).code for frame in recorded} >= {20004}
        before = status(third)["epoch"], status(third)["promised"], third.recorded()
        for frame in (recorded[0], recorded[-1]):
            for target in (relay.target, ("127.0.0.1", second.port)):
                code, remark = answer_to(target, frame)
                assert (code, "there is no challenge on this connection" in remark) == (NO_PERMISSION, True)
        (stream,) = [bytes(data) for data in relay.sent if recorded[0] in bytes(data)][:1]
        with socket.create_connection(relay.target, timeout=5) as connection:
            connection.sendall(stream)  # With its challenge: the answer has another nonce.
            reader, codes = FrameReader(), []
            while len(codes) < len(FrameReader().feed(stream)):
                codes += [decode(bytes(each)).code for each in reader.feed(connection.recv(65_536))]
        assert codes.count(NO_PERMISSION) == len(signed_frames([bytearray(stream)]))
        assert (status(third)["epoch"], status(third)["promised"], third.recorded()) == before
        # Who comes from a member's IP without the secret.
        header, _ = request(f"127.0.0.1:{first.port}", 20004, {}, orjson.dumps({}))
        assert (header["code"], "haSecret=required here" in header["remark"]) == (NO_PERMISSION, True)
        with socket.create_connection(("127.0.0.1", first.ha_port), timeout=10) as stranger:
            stranger.sendall(bytes(8))
            assert not stranger.recv(1), "a registered slave's IP alone is sent no log"


@pytest.mark.long
async def test_a_secret_is_introduced_member_by_member(tmp_path):
    """By haSecret=optional; then it is required, while the members run."""
    with group_of(tmp_path, 3) as group:
        first, second, third = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(10)
            for member in (third, second, first):
                await in_thread(member.stop)
                give(member, OLD)
                configure(member, haSecretFile=str(member.root / "secret"), haSecret="optional")
                await in_thread(member.start)
                # Not `healthy`: that all have the secret, and none requires it yet, is worth a warning.
                await in_thread(group.twinlog, "wait", *(f"{each.label}=streaming" for each in (second, third)))
                await traffic.more(10)
            for member in group.members:
                header, _ = await in_thread(request, member.address, UPDATE_BROKER_CONFIG, {}, b"haSecret=required\n")
                assert header["code"] == 0, header
            await traffic.more(10)
            await in_thread(group.wait_healthy)
            await switched(group, second, traffic)
        traffic.check(await traffic.consumed())
        assert not [member.label for member in group.members if REFUSED in member.log.read_text()]
        await in_thread(third.stop)
        configure(third, haSecretFile="")
        await in_thread(third.start)
        refused = "the request is not signed, and haSecret=required here"
        await in_thread(wait_for, lambda: refused in third.log.read_text(), "its word of the secret")
        assert status(third)["roleState"] != "following"
