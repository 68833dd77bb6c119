"""Six rounds of kill -9 and SIGSTOP of either side in traffic: what was acknowledged is there every time.

The seed of the rounds is printed with a failure; the history of each message is in the test's directory, one JSON line each.
"""

import json
import random
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.up import Up, running
from tests.support.waiting import wait_for
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.remoting.errors import RemotingError

pytestmark = pytest.mark.timeout(240)
ROUNDS, PRODUCERS, SEED = 6, 8, 20261121
MASTER, SLAVE = "broker-a-0", "broker-a-1"
TOPIC, PROBE = "rounds", "probe"
STOPPED_SECONDS = (0.2, 1.5)


@define
class History:
    """What became of each message; a body is sent once, so that a second copy of it is invented by somebody."""

    path: Path
    acknowledged: dict[bytes, int] = field(factory=dict)  # Body: its offset in the log.
    others: Counter[str] = field(factory=Counter)
    sent: set[bytes] = field(factory=set)

    def note(self, body: bytes, outcome: str, log_offset: int = -1) -> None:
        with self.path.open("a") as file:
            line = {"body": body.decode(), "outcome": outcome, "log_offset": log_offset, "at": trio.current_time()}
            file.write(json.dumps(line) + "\n")
        if outcome == SendStatus.SEND_OK.name:
            self.acknowledged[body] = log_offset
        else:
            self.others[outcome] += 1


async def _produce(number: int, namesrv: str, history: History) -> None:
    """Send one message after the other, each once: a second try would look like a second message."""
    async with open_admin((namesrv,), timeout_ms=5000) as admin:
        producer = Producer(admin.api, tries_max=1)
        for count in range(1_000_000):
            body = f"{number}-{count}".encode()
            history.sent.add(body)
            try:
                sent = await producer.send(OutgoingMessage(topic=TOPIC, body=body))
            except RemotingError as error:
                history.note(body, type(error).__name__)
                await trio.sleep(0.05)
            else:
                history.note(body, sent.status.name, int(sent.offset_message_id[16:], 16))


async def _round(number: int, up: Up, rng: random.Random, history: History) -> str:
    """Hurt one side, or both, while messages flow; returns what was done once messages are acknowledged again."""
    victims = rng.choice([[MASTER], [SLAVE], [MASTER, SLAVE]]) if number >= 4 else [[MASTER], [SLAVE]][number % 2]
    kill = rng.random() < 0.5 if number >= 4 else number < 2
    before = len(history.acknowledged)
    with trio.fail_after(30):
        while len(history.acknowledged) < before + 20:
            await trio.sleep(0.02)
    processes = [await trio.to_thread.run_sync(up.member, name) for name in victims]
    for process in processes:
        process.send_signal(signal.SIGKILL if kill else signal.SIGSTOP)
    if not kill:
        await trio.sleep(rng.uniform(*STOPPED_SECONDS))
        for process in processes:
            process.send_signal(signal.SIGCONT)
    done = f"{'SIGKILL' if kill else 'SIGSTOP'} {' and '.join(victims)}"
    before = len(history.acknowledged)
    with trio.move_on_after(60) as scope:
        while len(history.acknowledged) < before + 20:
            await trio.sleep(0.02)
    assert not scope.cancelled_caught, f"no message was acknowledged within 60 s of {done}: {up.stderr}"
    return done


async def _consumed(namesrv: str) -> list[tuple[bytes, int]]:
    found: list[tuple[bytes, int]] = []
    async with open_admin((namesrv,)) as admin:
        await admin.consume(TOPIC, lambda message: found.append((message.body, message.phy_offset)) or True)
    return found


async def test_six_rounds_of_kill_and_stop_lose_nothing_that_was_acknowledged(tmp_path):
    """Afterwards: acknowledged is a part of what is read, once each; nothing invented; each producer's messages in order;
    both logs the same bytes; nobody silent about its state.
    """
    rng = random.Random(SEED)
    history = History(tmp_path / "history.jsonl")
    with running(tmp_path / "data") as up:
        up.wait_ready()
        up.twinlog("send", TOPIC, PROBE)
        rounds = []
        async with trio.open_nursery() as nursery:
            for number in range(PRODUCERS):
                nursery.start_soon(_produce, number, up.namesrv, history)
            for number in range(ROUNDS):
                rounds.append(await _round(number, up, rng, history))
            nursery.cancel_scope.cancel()
        print(f"seed {SEED}", *rounds, f"{len(history.acknowledged)} acknowledged", dict(history.others), sep="\n")
        await trio.to_thread.run_sync(wait_for, partial(_is_level, up), "both members to be level again")
        consumed = [each for each in await _consumed(up.namesrv) if each[0] != PROBE.encode()]
        _check(history, consumed)
        states = [(member["role"], member["state"]) for member in up.members()]
        assert states == [("master", "serving"), ("slave", "streaming")]
        wait_for_same_commitlog(up.directory / MASTER / "commitlog", up.directory / SLAVE / "commitlog")


def _is_level(up: Up) -> bool:
    master, slave = up.members()
    return master["written_offset"] == slave["written_offset"] and slave["lag_bytes"] == 0


def _check(history: History, consumed: list[tuple[bytes, int]]) -> None:
    where = dict(consumed)
    assert len(history.acknowledged) >= 200
    lost = {body: offset for body, offset in history.acknowledged.items() if where.get(body) != offset}
    assert not lost
    assert len(where) == len(consumed), "a message that was sent once is there twice"
    assert where.keys() <= history.sent
    for number in range(PRODUCERS):
        own = [(int(body.split(b"-")[1]), offset) for body, offset in consumed if body.startswith(b"%d-" % number)]
        by_log = [count for count, _ in sorted(own, key=lambda each: each[1])]
        assert by_log == sorted(by_log), f"producer {number}'s messages are not in its order"


def test_the_check_finds_a_message_that_is_missing(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.acknowledged.update({b"0-%d" % count: count for count in range(300)})
    history.sent.update(history.acknowledged)
    everything = list(history.acknowledged.items())
    _check(history, everything)
    for wrong in (
        everything[1:],
        [*everything, everything[0]],
        [*everything, (b"0-300", 300)],
        [*everything[:-1], (b"0-299", 5)],
    ):
        with pytest.raises(AssertionError):
            _check(history, wrong)
