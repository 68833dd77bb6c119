"""Masters and epochs, recovery, silence and members' logs: a right run of each, and each wrong one."""

import shutil

import pytest
import trio

from scripts.fault_matrix.checkers.masters import Epoch, one_acking_master
from scripts.fault_matrix.checkers.members import BLOCK, LogDigest, members_equal, wrong_logs
from scripts.fault_matrix.checkers.memory import Sample, memory_flat
from scripts.fault_matrix.checkers.recovery import MAY_NEED_SOMEBODY, NS, nothing_silent, recovered_in_time
from scripts.fault_matrix.checkers.verdict import LINES_MAX, verdict
from scripts.fault_matrix.history import Event
from tests.checkers.events import fault, history, read, seen, send
from tests.store.cutting import feed, open_slave
from tests.store.cutting import history as records

TABLE = (Epoch(0, "", 0), Epoch(1, "b", 200))


def test_each_epoch_has_its_master():
    told = history(send("p-0", 1, 2, 0, node="a"), send("p-1", 3, 4, 2, node="b"), read(["p-0", None, "p-1"]))
    assert one_acking_master(told, {"x": TABLE, "y": TABLE[:1]}).holds


def test_a_master_that_was_replaced_and_acknowledged():
    """At byte 200 b is the master; a said OK to a message there."""
    told = history(send("p-0", 1, 2, 0, node="a"), send("p-1", 3, 4, 2, node="a"), read(["p-0", None, "p-1"]))
    assert not one_acking_master(told, {"x": TABLE}).holds


def test_a_master_that_moved_in_its_epoch_is_the_same_one():
    """c is b's other address."""
    told = history(send("p-0", 1, 2, 2, node="b"), send("p-1", 3, 4, 3, node="c"), read([None, None, "p-0", "p-1"]))
    assert one_acking_master(told, {"x": TABLE}, {"b": "second", "c": "second"}).holds
    assert not one_acking_master(told, {"x": TABLE}, {"b": "second", "c": "third"}).holds
    assert not one_acking_master(told, {"x": TABLE}).holds


def test_two_masters_of_the_first_epoch():
    told = history(send("p-0", 1, 2, 0, node="a"), send("p-1", 3, 4, 1, node="b"), read(["p-0", "p-1"]))
    assert not one_acking_master(told, {"x": TABLE}).holds


def test_what_is_lost_is_nobodys_epoch():
    """Oracle A speaks of it; here it would be told twice, and of a wrong epoch."""
    told = history(send("p-0", 1, 2, 2, node="a"), send("p-1", 3, 4, 2, node="b"), read([None, None, "p-1"]))
    assert one_acking_master(told, {"x": TABLE}).holds


@pytest.mark.parametrize("other", [(Epoch(0, "", 0), Epoch(1, "c", 200)), (Epoch(0, "", 0), Epoch(1, "b", 100))])
def test_members_with_other_histories(other):
    told = history(send("p-0", 1, 2, 0, node="a"), read(["p-0"]))
    assert not one_acking_master(told, {"x": TABLE, "y": other}).holds
    assert not one_acking_master(told, {"x": TABLE[::-1]}).holds


def run(after_s):
    """A fault from 1 to 2 s, a message acknowledged so many seconds after that."""
    at = round((2 + after_s) * NS)
    return fault(0, NS, 2 * NS), send("p-0", at - 1000, at, 0)


def test_time_to_recover():
    assert recovered_in_time(history(*run(9.9)), 10).holds
    assert not recovered_in_time(history(*run(10.1)), 10).holds


def test_what_was_sent_before_the_heal_does_not_show_recovery():
    assert not recovered_in_time(history(fault(0, NS, 2 * NS), send("p-0", 2 * NS - 1, 3 * NS, 0)), 10).holds


def test_no_fault_or_one_that_is_never_healed_shows_nothing():
    assert not recovered_in_time(history(send("p-0", 1, 2, 0)), 10).holds
    assert not recovered_in_time(history(*run(1), fault(1, 5 * NS)), 10).holds


def test_every_fault_leaves_a_trace():
    two = [*fault(0, 1, 2), *fault(1, 3, 4)]
    assert nothing_silent(history(two, seen(0), seen(1))).holds
    assert not nothing_silent(history(two, seen(0))).holds
    assert not nothing_silent(history()).holds


def test_logs_of_blocks():
    same = {0: b"x", BLOCK: b"y"}
    log = LogDigest(0, 2 * BLOCK, same)
    assert not wrong_logs({"a": log, "b": LogDigest(0, 2 * BLOCK, dict(same))})
    assert not wrong_logs({"a": log, "b": LogDigest(BLOCK, 2 * BLOCK, {BLOCK: b"y"})}), (
        "what it never had differs from nothing"
    )
    assert wrong_logs({"a": log, "b": LogDigest(0, 2 * BLOCK, {0: b"x", BLOCK: b"z"})})
    assert wrong_logs({"a": log, "b": LogDigest(0, BLOCK, {0: b"x"})})
    assert wrong_logs({"a": log, "b": LogDigest(0, 2 * BLOCK, {0: b"x"})})
    assert wrong_logs({})


@pytest.fixture
def stores(tmp_path):
    """Two members that hold the same, stopped."""
    told = records(tmp_path / "old")
    for name in ("a", "b"):
        store = open_slave(tmp_path / name)
        feed(store, told)
        trio.run(store.close)
    return {name: tmp_path / name for name in ("a", "b")}


def test_stores_that_are_the_same(stores):
    told = members_equal(stores)
    assert told.holds, told.wrong


@pytest.mark.parametrize("kind", ["record", "queue"])
def test_a_flipped_bit_in_a_store_is_found(stores, kind):
    """In a message both oracles of it see it: the logs differ. In a queue the logs are the same, but not what is made of them."""
    files = {"record": "commitlog/*", "queue": "consumequeue/*/*/*"}
    path = min(stores["b"].glob(files[kind]))
    raw = bytearray(path.read_bytes())
    raw[100 if kind == "record" else 5] ^= 1
    path.write_bytes(raw)
    assert not members_equal(stores).holds


def test_a_lost_queue_file_is_found(stores):
    shutil.rmtree(min(stores["b"].glob("consumequeue/*")))
    assert not members_equal(stores).holds


def life(last: float, *, seconds: float = 1000.0) -> list[Sample]:
    """60 MiB from the start on, and `last` in the last quarter."""
    return [(at, 60.0 if at < 0.75 * seconds else last) for at in range(0, round(seconds) + 1, 10)]


def test_memory_that_stays_what_it_is():
    told = memory_flat({"a": life(67.0), "short": life(500.0, seconds=300.0)})
    assert told.holds
    assert told.facts == "a 60 to 67 MiB"


def test_memory_that_grows_is_found():
    assert not memory_flat({"a": life(60.0), "b": life(69.0)}).holds


def test_memory_that_nobody_looked_at_shows_nothing():
    assert not memory_flat({"a": life(60.0, seconds=300.0)}).holds


def test_a_fault_of_which_no_time_is_promised_is_not_judged_by_its_time():
    late = (
        fault(0, 1, 2),
        send("p-0", 60 * NS, 61 * NS, 0),
        fault(1, 70 * NS, 71 * NS),
        send("p-1", 72 * NS, 73 * NS, 1),
    )
    excuse = [Event(ns=3, kind="note", id=0, text=MAY_NEED_SOMEBODY)]
    assert not recovered_in_time(history(*late), 10).holds
    assert recovered_in_time(history(*late, excuse), 10).holds


def test_a_verdict_is_short():
    assert len(verdict("A", ["x"] * 50, "").wrong) == LINES_MAX + 1
