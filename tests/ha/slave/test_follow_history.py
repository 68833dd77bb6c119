"""A slave asks for its master's history first: what it follows, what it cuts, what it leaves to a person."""

import pytest
import trio
from attrs import evolve
from structlog.testing import capture_logs

from tests.ha.following import bodies, master_of, parted, slave_with
from tests.ha.histories import A, B, C, Slave, entry, group, history, member
from tests.helpers import log_bytes, open_store, put
from twinlog.ha.compare.finding import Finding
from twinlog.ha.compare.preflight import OwnLog, Verdict
from twinlog.ha.election.epochs import compare_histories
from twinlog.ha.peer import PeerLog
from twinlog.ha.policy.auto_resync import BeginAnew, Cut
from twinlog.ha.slave.follow_history import given_up_cut, is_older
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochId
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import Pause


def kept(store: MessageStore) -> list[str]:
    directory = store.config.root / "twinlog" / "divergent"
    return sorted(path.name for path in directory.iterdir() if path.is_dir()) if directory.exists() else []


@pytest.fixture
def elected(tmp_path, nursery):
    """B was elected where both logs ended, and wrote; A, isolated, wrote 40 more messages, and is a slave now."""
    pair = parted(tmp_path, others=20)
    master = master_of(nursery, pair.master)
    master.peer.told = history(FIRST, entry(1, A, 0), entry(2, B, pair.common), record=group(A, B))
    slave = Slave(pair.slave, (FIRST, entry(1, A, 0)), EpochId(1, A), group(A, B), address=A)
    return pair, master, slave


async def test_what_the_history_gives_up_is_cut_and_kept(autojump_clock, nursery, elected):
    """F3, F18. Cut, adopted, connected, in this order; and nobody had to be asked."""
    pair, master, slave = elected
    was = pair.slave.max_offset
    with capture_logs() as lines:
        client = slave.follow(nursery, master)
        await trio.sleep(5)
    assert client.state == "streaming"
    assert log_bytes(pair.slave) == log_bytes(pair.master)
    assert slave.done == [f"adopted epoch 2 at {pair.common}"]
    assert kept(pair.slave) == [f"{pair.common:020d}-{was - pair.common}"]
    (line,) = [line for line in lines if "where the master's history diverges" in line["event"]]
    assert line["why"] == "given up in epoch 2, when b:10911 became master (failover, 2023-11-14T22:13:20+00:00)"


async def test_two_elections_at_one_offset_are_told_apart(autojump_clock, nursery, elected):
    """RocketMQ compares where epochs end, and finds nothing: both logs part at an offset where both began an epoch."""
    pair, master, slave = elected
    slave.entries, slave.promised = (FIRST, entry(1, A, 0), entry(2, C, pair.common)), EpochId(2, C)
    master.peer.told = history(FIRST, entry(1, A, 0), entry(3, B, pair.common), record=group(A, B))
    client = slave.follow(nursery, master)
    await trio.sleep(5)
    assert client.state == "streaming"
    assert log_bytes(pair.slave) == log_bytes(pair.master)
    assert slave.entries == master.peer.told.entries


@pytest.mark.parametrize(
    ("config", "record", "why"),
    [
        ({"auto_rewind": False}, group(A, B), "haAutoRewind is false"),
        ({}, group(A, B, paused=Pause(until_ms=None, reason="a person looks")), "the group is paused: a person looks"),
    ],
)
async def test_a_person_may_want_to_look_first(autojump_clock, nursery, elected, config, record, why):
    pair, master, slave = elected
    master.peer.told = evolve(master.peer.told, group=record)
    before = log_bytes(pair.slave)
    client = slave.follow(nursery, master, **config)
    await trio.sleep(60)
    assert (client.state, client.finding.kind, client.finding.offset) == ("diverged", "given up", pair.common)
    assert why in client.finding.text
    assert "twinlog rewind" in client.finding.text
    assert (log_bytes(pair.slave), slave.done, master.connections) == (before, [], 0)


async def test_a_paused_group_follows_where_nothing_is_cut(autojump_clock, nursery, tmp_path):
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    record = group(A, B, paused=Pause(until_ms=None, reason="quiet"))
    master.peer.told = history(FIRST, entry(1, A, 0), record=record)
    slave = Slave(slave_with(tmp_path, b""), record=record)
    client = slave.follow(nursery, master, auto_rewind=False)
    await trio.sleep(5)
    assert (client.state, slave.done) == ("streaming", ["adopted epoch 1 at 0"])


async def test_a_difference_below_the_cut_is_no_matter_of_history(autojump_clock, nursery, elected):
    """The histories promise that both are equal there. Who of them is wrong is for a person to say."""
    pair, master, slave = elected
    pair.slave.commit_log.files.files[0].write_at(300, b"other bytes")
    before = log_bytes(pair.slave)
    client = slave.follow(nursery, master)
    await trio.sleep(60)
    assert client.finding.kind in ("diverged", "damaged")
    assert client.finding.offset < pair.common
    assert (log_bytes(pair.slave), slave.done) == (before, [])


async def test_equal_bytes_are_not_cut_whatever_the_histories_say(autojump_clock, nursery, tmp_path):
    """A store out of a backup, say, has bytes and no epochs: digests prove them as well."""
    store = open_store(tmp_path / "master")
    put(store, *bodies(20))
    slave = Slave(slave_with(tmp_path, log_bytes(store)), record=group(A, B))
    master = master_of(nursery, store)
    master.peer.told = history(FIRST, entry(1, A, 0), entry(2, B, 1000), record=group(A, B))
    client = slave.follow(nursery, master)
    await trio.sleep(5)
    assert client.state == "streaming"
    assert slave.done == [f"adopted epoch 2 at {store.max_offset}"]
    assert kept(slave.store) == []


async def test_who_has_no_record_proves_nothing(autojump_clock, nursery, elected):
    """Its files are gone, its bytes may be of any epoch: they are cut by the rules for those without a history only."""
    pair, master, slave = elected
    slave.entries, slave.promised, slave.record = (FIRST,), FIRST.id, None
    before = log_bytes(pair.slave)
    client = slave.follow(nursery, master)
    await trio.sleep(60)
    assert (client.state, client.finding.kind) == ("diverged", "diverged")
    assert (log_bytes(pair.slave), slave.done) == (before, [])


async def test_doubt_is_written_down_before_an_unproven_cut(autojump_clock, nursery, elected):
    """haAutoResync cuts what this member may have acknowledged: from then on its promise elects nobody."""
    pair, master, slave = elected
    master.peer.told = history(FIRST, entry(1, A, 0), record=group(A, B))
    was = pair.slave.max_offset
    client = slave.follow(nursery, master, auto_resync=True)
    await trio.sleep(5)
    assert client.state == "streaming"
    assert slave.done == [f"in doubt at {was}", f"adopted epoch 1 at {pair.common}"]


# Who is followed at all


@pytest.mark.parametrize(
    ("told", "promised", "is_followed"),
    [
        (EpochId(1, A), EpochId(1, A), True),
        (EpochId(2, A), EpochId(1, B), True),
        (EpochId(1, A), EpochId(1, B), False),
        (EpochId(1, A), EpochId(2, A), False),
        (EpochId(0, ""), EpochId(0, ""), True),
    ],
)
def test_a_promise_is_to_one_winner(told, promised, is_followed):
    assert is_older(told, promised) is not is_followed


async def test_an_older_epoch_is_not_followed(autojump_clock, nursery, tmp_path):
    """The old master does not know that it was deposed: nothing may be acknowledged to it."""
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    master.peer.told = history(FIRST, entry(1, A, 0), record=group(A, B))
    slave = Slave(slave_with(tmp_path, log_bytes(store)), (FIRST, entry(1, A, 0)), EpochId(2, C), group(A, B))
    with capture_logs() as lines:
        client = slave.follow(nursery, master)
        await trio.sleep(60)
    assert (client.state, client.finding.kind) == ("fenced", "older epoch")
    assert "promised epoch 2 to c:10911" in client.finding.text
    assert (master.connections, slave.done) == (0, [])
    assert sum(line["event"] == "replication interrupted" for line in lines) == 1
    master.peer.told = history(FIRST, entry(1, A, 0), entry(3, A, store.max_offset), record=group(A, B))
    await trio.sleep(2)
    assert (client.state, slave.promised) == ("streaming", EpochId(3, A))


async def test_a_slave_waits_until_the_record_names_it(autojump_clock, nursery, tmp_path):
    """Its question says who it is; acknowledgements of somebody whom elections do not count must not release a producer."""
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    master.peer.told = history(FIRST, entry(1, A, 0), record=group(A, C))
    slave = Slave(slave_with(tmp_path, b""))
    client = slave.follow(nursery, master)
    await trio.sleep(3)
    assert (client.state, client.finding.kind, master.connections) == ("waiting", "not a member", 0)
    assert master.peer.asked_by[0] == member(B, 1)
    assert 5 <= len(master.peer.asked_by) <= 8
    master.peer.told = evolve(master.peer.told, group=group(A, C, B))
    await trio.sleep(1)
    assert (client.state, slave.done) == ("streaming", ["adopted epoch 1 at 0"])


async def test_a_slave_waits_until_its_own_files_allow_it(autojump_clock, nursery, tmp_path):
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    master.peer.told = history(FIRST, entry(1, A, 0), record=group(A, B))
    slave = Slave(slave_with(tmp_path, b""), not_yet="every other voter has to be heard first")
    client = slave.follow(nursery, master)
    await trio.sleep(3)
    assert (client.state, master.connections) == ("waiting", 0)
    assert "every other voter has to be heard first" in client.finding.text
    slave.not_yet = ""
    await trio.sleep(1)
    assert client.state == "streaming"


@pytest.mark.parametrize("is_twinlog", [True, False])
async def test_who_promised_follows_nobody_without_epochs(autojump_clock, nursery, tmp_path, is_twinlog):
    """A RocketMQ master, or an older twinlog."""
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store, is_twinlog=is_twinlog)
    slave = Slave(slave_with(tmp_path, log_bytes(store)), promised=EpochId(1, A), record=group(A, B))
    client = slave.follow(nursery, master)
    await trio.sleep(60)
    assert (client.state, client.finding.kind, master.connections) == ("fenced", "older epoch", 0)
    assert "knows no epochs" in client.finding.text


async def test_who_promised_follows_nobody_who_does_not_answer(autojump_clock, nursery, tmp_path):
    """Without a promise such a master is followed, as before."""
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    master.peer.is_up = False
    slave = Slave(slave_with(tmp_path, log_bytes(store)), promised=EpochId(1, A), record=group(A, B))
    client = slave.follow(nursery, master)
    await trio.sleep(60)
    assert (client.state, master.connections) == ("retrying", 0)
    assert "does not report its history" in client.last_error
    slave.promised, slave.record = FIRST.id, None
    await trio.sleep(10)
    assert client.state == "streaming"


async def test_a_slave_of_a_slave_needs_no_seat_in_a_record(autojump_clock, nursery, tmp_path):
    """Its acknowledgements count for nobody."""
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    master.peer.told = history(FIRST, entry(1, A, 0), record=group(A, C), role=BrokerRole.SLAVE)
    slave = Slave(slave_with(tmp_path, b""))
    client = slave.follow(nursery, master)
    await trio.sleep(3)
    assert client.state == "streaming"


@pytest.mark.parametrize("address", [None, B])
async def test_members_without_a_record_follow_as_ever(autojump_clock, nursery, tmp_path, address):
    store = open_store(tmp_path / "master")
    put(store, *bodies(5))
    master = master_of(nursery, store)
    slave = Slave(slave_with(tmp_path, b""), address=address)
    client = slave.follow(nursery, master)
    await trio.sleep(3)
    assert (client.state, slave.done) == ("streaming", [])
    assert ("history" in master.peer.questions) is (address is not None)


async def test_a_history_that_changes_meanwhile_is_asked_for_again(autojump_clock, nursery, elected):
    """Another election, between the comparison and the cut."""
    pair, master, slave = elected
    first, now = (
        master.peer.told,
        history(*master.peer.told.entries, entry(4, B, pair.master.max_offset), record=group(A, B)),
    )
    asked = []

    def change(question: str) -> None:
        if question == "history":
            asked.append(question)
            master.peer.told = first if len(asked) < 2 else now

    master.peer.before = change
    client = slave.follow(nursery, master)
    await trio.sleep(5)
    assert client.state == "streaming"
    assert slave.done == [f"adopted epoch 4 at {pair.common}"]


# The cut, as a decision

LOG = PeerLog(is_twinlog=True, min_offset=0, max_offset=500)


def verdict(
    kind: str, *, own: tuple[int, int] = (0, 300), offset: int | None = None, common: int | None = None
) -> Verdict:
    found = Finding("diverged", offset, "") if offset is not None else None
    compared = "digests" if common is not None else "nothing"
    return Verdict(
        kind=kind, own=OwnLog(*own, 1 << 20), peer=LOG, finding=found, common_offset=common, compared=compared
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (verdict("diverged", offset=100, common=100), Cut(100, "why")),
        (verdict("diverged", offset=150, common=150), Cut(100, "why")),
        (verdict("diverged", offset=99, common=99), None),
        (verdict("damaged", offset=50), None),
        (verdict("ahead", offset=200, common=200), Cut(100, "why")),
        (verdict("follow", common=300), None),
        (verdict("follow"), Cut(100, "why")),
        (verdict("file size"), None),
        (verdict("diverged", own=(120, 300), offset=150), BeginAnew("why")),
        (verdict("below min", own=(0, 300)), Cut(100, "why")),
    ],
)
def test_what_is_cut(found, expected):
    own, peer = (FIRST, entry(1, A, 0)), (FIRST, entry(1, A, 0), entry(2, B, 100))
    comparison = compare_histories(own, found.own.max_offset, peer, LOG.max_offset)
    assert given_up_cut(comparison, found, "why") == expected
