"""`twinlog log ...`, `backup` and `restore` on directories that the real RocketMQ wrote."""

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cluster.cli.json_schema import violations
from tests.store import golden
from tests.store.directories import times_and_names
from twinlog.cluster.cli.main import cli
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.member_file import MemberFile, load_member, save_member
from twinlog.store.role_file import RoleState, load_role, save_role
from twinlog.store.util.sync import take_lock


def twinlog(*arguments: object, status: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result


def checked_json(*arguments: object, status: int = 0) -> list[dict]:
    """The answer's documents, each held against what `-o schema` says of them."""
    command = [argument for argument in arguments if isinstance(argument, str) and not argument.startswith("-")]
    schema = json.loads(twinlog(*command[: 2 if command[0] == "log" else 1], "-o", "schema").stdout)
    found = [json.loads(line) for line in twinlog(*arguments, "-o", "json", status=status).stdout.splitlines()]
    for document in found:
        assert violations(document, schema) == []
    return found


@pytest.fixture(params=golden.VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def master(version, tmp_path):
    return golden.unpack(version, "master", tmp_path)


@pytest.fixture
def slave(version, tmp_path):
    return golden.unpack(version, "slave", tmp_path)


def damage(root: Path, file: int, position: int, data: bytes = b"damage") -> int:
    """Overwrite bytes of the log; where that is."""
    with (root / "commitlog" / f"{file * golden.FILE_SIZE:020d}").open("r+b") as opened:
        opened.seek(position)
        opened.write(data)
    return file * golden.FILE_SIZE + position


def damage_body(root: Path, start: int) -> int:
    """Overwrite bytes in the body of the first large message from an offset on; where that is."""
    large = next(m for m in checked_json("log", "dump", root, "--from", start) if m["body_size"] == 2500)
    file, position = divmod(large["phy_offset"] + 200, golden.FILE_SIZE)
    return damage(root, file, position)


# info


def test_info_tells_what_a_directory_is(version, master):
    before = times_and_names(master)
    (info,) = checked_json("log", "info", master)
    assert times_and_names(master) == before
    assert (info["writer"], info["state"]) == (f"rocketmq-{version[0]}", "stopped")
    assert (info["log"]["min_offset"], info["log"]["file_size"]) == (0, golden.FILE_SIZE)
    assert info["log"]["end_offset"] == {"4.9.7": 269_484, "5.3.3": 276_078}[version]
    assert (
        info["messages"] == sum(queue["messages"] for queue in info["queues"]) == {"4.9.7": 363, "5.3.3": 357}[version]
    )
    assert len(info["index_files"]) == 2
    assert info["checkpoint"]["physic_ms"] == info["last_stored_ms"]
    assert "topics.json" in {file["name"] for file in info["config_files"]}
    assert info["problems"] == []


def test_info_in_words(master):
    lines = twinlog("log", "info", master).stdout.splitlines()
    assert lines[0].split() == ["store", str(master)]
    assert any(line.startswith("state") and line.endswith("stopped cleanly") for line in lines)
    assert any(line.split()[:1] == ["TopicA"] for line in lines)
    assert lines[-1].endswith(f"twinlog log verify {master}")
    wide = twinlog("log", "info", master, "-o", "wide").stdout
    assert f"{golden.FILE_SIZE:020d}" in wide
    assert "topics.json.bak" in wide
    tsv = twinlog("log", "info", master, "-o", "tsv").stdout.splitlines()
    assert tsv[0].split("\t")[:4] == ["topic", "queue", "first", "next"]
    assert all(len(line.split("\t")) == 8 for line in tsv)


def test_info_of_a_running_and_of_a_crashed_store(tmp_path):
    root = golden.unpack("4.9.7", golden.RUNNING, tmp_path)
    assert "not stopped cleanly" in twinlog("log", "info", root).stdout
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import fcntl; f = open('{root}/lock', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(1, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        assert f"running, process {holder.pid}" in twinlog("log", "info", root).stdout
        refused = twinlog("log", "rebuild", root, "--index", "--yes", status=4)
        assert "The store is in use" in refused.stderr
        assert "Stop the broker" in refused.stderr
        assert f"process {holder.pid}" in twinlog("log", "rebuild", root, "--index", "--dry-run").stdout
        save_member(root / "twinlog", MemberFile(id="m1"))
        assert "The store is in use" in twinlog("log", "new-member", root, "--yes", status=4).stderr
        assert f"process {holder.pid}" in twinlog("log", "new-member", root, "--dry-run").stdout
        assert load_member(root / "twinlog") == MemberFile(id="m1")
        made = checked_json("backup", root, tmp_path / "b")[0]
        assert made["source"]["was_running"] is True
    finally:
        holder.communicate(b"\n", timeout=20)


def test_info_notices_a_tail_that_is_no_log(master):
    (before,) = checked_json("log", "info", master)
    damage(master, 2, before["log"]["end_offset"] - 2 * golden.FILE_SIZE + 10, b"rubbish")
    (info,) = checked_json("log", "info", master)
    assert info["log"]["end_offset"] == before["log"]["end_offset"]
    assert not info["log"]["is_clear_behind_end"]
    assert [problem["kind"] for problem in info["problems"]] == ["log-tail"]
    assert "bytes after the last valid message" in twinlog("log", "info", master).stdout


# verify


def test_verify_finds_nothing_in_what_rocketmq_wrote(master):
    (report,) = checked_json("log", "verify", master)
    assert (report["verdict"], report["findings"]) == ("sound", [])
    assert twinlog("log", "verify", master).stdout.splitlines()[-1] == "sound: no errors, no warnings"


def test_verify_lists_what_is_damaged(master):
    where = damage_body(master, 0)
    (report,) = checked_json("log", "verify", master, status=1)
    assert report["verdict"] == "damaged"
    (found,) = [finding for finding in report["findings"] if finding["kind"] == "damaged-record"]
    assert found["phy_offset"] <= where
    lines = twinlog("log", "verify", master, status=1).stdout.splitlines()
    assert lines[0].split()[:3] == ["SEVERITY", "KIND", "WHERE"]
    assert lines[-1].startswith("damaged: ")
    (short,) = checked_json("log", "verify", master, "--max-findings", "1", status=1)
    assert len(short["findings"]) == 1
    assert short["findings_omitted"] == sum(f["count"] for f in report["findings"][1:]) > 0
    assert short["errors"] == report["errors"]


# dump


def test_dump_prints_every_message_in_the_order_of_the_log(version, master):
    (report,) = checked_json("log", "verify", master)
    messages = checked_json("log", "dump", master, "--body")
    assert len(messages) == report["records"]
    offsets = [message["phy_offset"] for message in messages]
    assert offsets == sorted(offsets)
    (info,) = checked_json("log", "info", master)
    assert messages[-1]["phy_offset"] + messages[-1]["size"] == info["log"]["end_offset"]
    assert messages[-1]["stored_ms"] == info["last_stored_ms"]
    assert {m["compression"] for m in messages} == {None, "zlib"}
    for message in messages:
        if message["compression"] is None:
            size = len(message["body"].encode()) if message["body"] is not None else None
            assert size in (None, message["body_size"])


def test_dump_selects(master):
    messages = checked_json("log", "dump", master)
    some = messages[100]

    def offsets(*arguments: object) -> list[int]:
        return [m["phy_offset"] for m in checked_json("log", "dump", master, *arguments)]

    def expected(wanted) -> list[int]:
        return [m["phy_offset"] for m in messages if wanted(m)]

    assert offsets("--topic", "TopicA", "--queue", "1") == expected(
        lambda m: (m["topic"], m["queue_id"]) == ("TopicA", 1)
    )
    topics = ("TopicA", "TopicB")
    assert offsets("--topic", "TopicA", "--topic", "TopicB") == expected(lambda m: m["topic"] in topics)
    assert offsets("--from", some["phy_offset"]) == expected(lambda m: m["phy_offset"] >= some["phy_offset"])
    assert offsets("--from", some["phy_offset"] + 1) == expected(lambda m: m["phy_offset"] > some["phy_offset"])
    assert offsets("--to", some["phy_offset"]) == expected(lambda m: m["phy_offset"] < some["phy_offset"])
    since, until = messages[150]["stored_ms"], messages[300]["stored_ms"]
    in_time = expected(lambda m: since <= m["stored_ms"] < until)
    assert offsets("--from", f"@{since}", "--to", f"@{until}") == in_time
    assert len(in_time) > 100
    assert offsets("--key", some["message_id"]) == expected(lambda m: m["message_id"] == some["message_id"])
    assert offsets("--key", "key13") == expected(lambda m: "key13" in (m["keys"] or "").split(" "))
    assert offsets("--count", 3) == [m["phy_offset"] for m in messages[:3]]


def test_dump_finds_a_key_with_the_index_too(master):
    for key in ("key13", "key29", "delay1", "nobody's"):
        scanned = checked_json("log", "dump", master, "--key", key)
        assert checked_json("log", "dump", master, "--key", key, "--by-index") == scanned
    one = checked_json("log", "dump", master, "--topic", "TopicA")[5]
    found = checked_json("log", "dump", master, "--key", one["message_id"], "--by-index", "--topic", "TopicA")
    assert one in found
    assert "--by-index requires --key" in twinlog("log", "dump", master, "--by-index", status=2).stderr
    shutil.rmtree(master / "index")
    assert checked_json("log", "dump", master, "--key", "key13", "--by-index") == []


def test_dump_takes_times_with_and_without_a_zone(master, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    (first, *_) = checked_json("log", "dump", master)
    stamp = first["stored_ms"]
    from datetime import UTC, datetime

    text = datetime.fromtimestamp((stamp + 1) / 1000, UTC).isoformat()
    assert len(checked_json("log", "dump", master, "--to", text)) == 1
    assert checked_json("log", "dump", master, "--to", "2001-01-01") == []
    assert len(checked_json("log", "dump", master, "--from", "2001-01-01T00:00:00+05:00")) > 300


def test_dumped_bodies_are_what_the_producer_sent(version, master):
    """Those that the client compressed, too."""
    sent = json.loads(lzma.decompress((golden.GOLDEN / f"rocketmq-{version}" / "truth.json.xz").read_bytes()))
    bodies = {
        message["msg_id"]: message["body_sha1"]
        for message in sent["messages"]
        if {"msg_id", "body_sha1"} <= message.keys()
    }
    compared = compressed = 0
    for message in checked_json("log", "dump", master, "--body"):
        if message["topic"].startswith("Topic") and message["message_id"] in bodies:
            text, raw = message["body"], message["body_base64"]
            body = text.encode() if text is not None else b64decode(raw)
            assert hashlib.sha1(body).hexdigest() == bodies[message["message_id"]]
            compared += 1
            compressed += message["compression"] is not None
    assert compared > 200
    assert compressed > 5


def test_a_log_that_lies_elsewhere(master, tmp_path):
    (master / "commitlog").rename(tmp_path / "log")
    elsewhere = ("--commit-log", tmp_path / "log")
    (info,) = checked_json("log", "info", master, *elsewhere)
    assert info["log"]["directories"] == [str(tmp_path / "log")]
    assert len(checked_json("log", "dump", master, *elsewhere, "--count", 3)) == 3
    twinlog("log", "verify", master, *elsewhere)
    twinlog("log", "rebuild", master, *elsewhere, "--consumequeue", "--yes")
    twinlog("log", "verify", master, *elsewhere)
    (made,) = checked_json("backup", master, tmp_path / "b", *elsewhere)
    assert made["end_offset"] == info["log"]["end_offset"]
    twinlog("restore", tmp_path / "b", tmp_path / "r")
    twinlog("log", "diff", master, tmp_path / "r", "--left-log", tmp_path / "log", "--queues")


def test_dump_as_a_table_wide_and_tsv(master):
    lines = twinlog("log", "dump", master, "--topic", "TopicC", "--body", "--count", 2).stdout.splitlines()
    assert lines[0].split() == ["OFFSET", "SIZE", "TOPIC", "QUEUE", "NUMBER", "STORED", "TAGS", "KEYS", "BODY"]
    assert len(lines) == 3
    everything = twinlog("log", "dump", master).stdout.splitlines()
    assert len([line for line in everything if line.startswith(" ") and "OFFSET" in line]) <= 1
    wide = twinlog("log", "dump", master, "--count", 1, "-o", "wide").stdout
    assert "UNIQ_KEY" in wide
    tsv = twinlog("log", "dump", master, "-o", "tsv").stdout.splitlines()
    assert len({line.count("\t") for line in tsv}) == 1
    assert len(tsv) == len(everything)


def test_dump_says_what_is_damaged_and_goes_on(master):
    all_of_them = checked_json("log", "dump", master)
    where = damage_body(master, golden.FILE_SIZE)
    result = twinlog("log", "dump", master, "-o", "json", status=6)
    offsets = [json.loads(line)["phy_offset"] for line in result.stdout.splitlines()]
    lost = [m for m in all_of_them if m["phy_offset"] not in offsets]
    assert len(lost) == 1
    assert lost[0]["phy_offset"] <= where < lost[0]["phy_offset"] + lost[0]["size"]
    assert f"damaged: bytes {lost[0]['phy_offset']} to" in result.stderr


def test_dump_shows_nothing_behind_the_sound_end(master):
    """What an earlier, longer log left there is no message."""
    messages = checked_json("log", "dump", master)
    path = master / "commitlog" / f"{2 * golden.FILE_SIZE:020d}"
    data = path.read_bytes()
    last, new_end = messages[-1]["phy_offset"] % golden.FILE_SIZE, messages[-3]["phy_offset"] % golden.FILE_SIZE
    older = data[: last - new_end]  # Records that do not say that they lie here.
    path.write_bytes(data[:new_end] + older + bytes(len(data) - new_end - len(older)))
    assert [m["phy_offset"] for m in checked_json("log", "dump", master)] == [m["phy_offset"] for m in messages[:-3]]


def test_control_characters_of_a_message_do_not_reach_the_terminal(tmp_path):
    from tests.helpers import open_store, put

    store = open_store(tmp_path / "a")
    put(store, b"\x1b[2Jgone\x07")
    for fmt in ("pretty", "wide"):
        assert r"\x1b[2Jgone\x07" in twinlog("log", "dump", tmp_path / "a", "--body", "-o", fmt).stdout
    (message,) = checked_json("log", "dump", tmp_path / "a", "--body")
    assert message["body"] == "\x1b[2Jgone\x07"


# diff


def test_diff_of_master_and_slave(master, slave):
    (report,) = checked_json("log", "diff", master, slave, "--queues")
    assert (report["verdict"], report["difference"], report["queues"]) == ("equal", None, [])
    assert report["read_bytes"] == report["common_end"] == report["left"]["end_offset"]
    assert twinlog("log", "diff", master, slave).stdout.splitlines()[-1].startswith("equal where they overlap")


def test_diff_shows_the_first_message_that_differs_and_whose_is_broken(master, slave):
    (message,) = checked_json("log", "dump", master, "--topic", "TopicA", "--from", 200_000, "--count", 1)
    at = damage(slave, 1, message["phy_offset"] - golden.FILE_SIZE + message["size"] - 30, b"\0\0\0")
    (report,) = checked_json("log", "diff", master, slave, status=1)
    found = report["difference"]
    assert report["verdict"] == "different"
    assert at <= found["first_offset"] <= found["last_offset"] < at + 3
    assert found["blocks"] == 1
    assert found["left"]["problem"] is None
    assert found["left"]["message"]["message_id"] == message["message_id"]
    words = twinlog("log", "diff", master, slave, status=1).stdout
    assert "different in 1 blocks" in words
    tsv = twinlog("log", "diff", master, slave, "-o", "tsv", status=1).stdout.splitlines()
    assert tsv[1].split("\t")[3] == str(found["first_offset"])


def test_diff_tells_a_broken_body_from_another_message(master, slave):
    damage_body(slave, 0)
    words = twinlog("log", "diff", master, slave, status=1).stdout
    assert "the right one is damaged there: its body does not match its CRC" in words


def test_diff_of_a_log_that_is_behind(master, slave):
    (message,) = checked_json("log", "dump", slave, "--from", 2 * golden.FILE_SIZE, "--count", 1)
    path = slave / "commitlog" / f"{2 * golden.FILE_SIZE:020d}"
    kept = message["size"]
    path.write_bytes(path.read_bytes()[:kept] + bytes(golden.FILE_SIZE - kept))
    (report,) = checked_json("log", "diff", master, slave)
    assert report["verdict"] == "equal"
    assert report["right_behind_bytes"] == report["left"]["end_offset"] - 2 * golden.FILE_SIZE - kept > 0
    assert "the right one is" in twinlog("log", "diff", master, slave).stdout
    assert "the left one is" in twinlog("log", "diff", slave, master).stdout


def test_diff_of_a_log_that_begins_later(master, slave):
    (slave / "commitlog" / f"{0:020d}").unlink()
    (report,) = checked_json("log", "diff", master, slave, "--queues")
    assert (report["verdict"], report["common_start"]) == ("equal", golden.FILE_SIZE)


def test_diff_of_queues(master, slave):
    path = slave / "consumequeue/TopicA/1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[5 * 20 + 19] ^= 1
    path.write_bytes(data)
    shutil.rmtree(slave / "consumequeue/TopicB")
    (report,) = checked_json("log", "diff", master, slave, "--queues", status=1)
    assert [(q["topic"], q["first_offset"]) for q in report["queues"]] == [
        ("TopicA", 5),
        ("TopicB", None),
        ("TopicB", None),
    ]
    assert (
        "queue TopicA/1 differs: first at message 5"
        in twinlog("log", "diff", master, slave, "--queues", status=1).stdout
    )


def test_diff_with_a_file_of_cut_bytes(master):
    start = checked_json("log", "dump", master, "--from", 200_000, "--count", 1)[0]["phy_offset"]
    log = b"".join(path.read_bytes() for path in sorted((master / "commitlog").iterdir()))
    cut = master.parent / f"{start:020d}-1795265744320"
    cut.write_bytes(log[start : start + 20_000])
    (report,) = checked_json("log", "diff", master, cut)
    assert (report["verdict"], report["common_start"]) == ("equal", start)
    cut.write_bytes(log[start : start + 9_000] + b"x" + log[start + 9_001 : start + 20_000])
    (report,) = checked_json("log", "diff", master, cut, status=1)
    assert report["difference"]["first_offset"] == start + 9_000
    assert report["difference"]["right"]["problem"] is not None


def test_diff_of_logs_with_nothing_in_common(master, slave):
    for number in (1, 2):
        (slave / "commitlog" / f"{number * golden.FILE_SIZE:020d}").unlink()
    (master / "commitlog" / f"{0:020d}").unlink()
    (report,) = checked_json("log", "diff", master, slave, status=1)
    assert report["verdict"] == "nothing-in-common"
    assert "nothing in common" in twinlog("log", "diff", master, slave, status=1).stdout


# rebuild, backup, restore


def test_rebuild_asks_unless_told(master):
    before = times_and_names(master)
    nobody = twinlog("log", "rebuild", master, "--index", status=2)
    assert "add --yes" in nobody.stderr
    (dry,) = checked_json("log", "rebuild", master, "--index", "--consumequeue", "--dry-run")
    assert (dry["done"], dry["parts"]) == (None, ["consumequeue", "index"])
    assert "would make  index" in twinlog("log", "rebuild", master, "--index", "--dry-run").stdout
    assert times_and_names(master) == before
    assert "nothing to rebuild" in twinlog("log", "rebuild", master, "--yes", status=2).stderr


def test_rebuild_makes_what_was_lost(master):
    shutil.rmtree(master / "consumequeue")
    shutil.rmtree(master / "index")
    assert twinlog("log", "verify", master, status=1)
    (report,) = checked_json("log", "rebuild", master, "--consumequeue", "--index", "--yes")
    assert report["done"]["queue_messages"] == report["done"]["records"]
    assert "queues" in twinlog("log", "rebuild", master, "--consumequeue", "--yes").stdout
    twinlog("log", "verify", master)


def test_a_copy_becomes_a_new_member(master):
    side = master / "twinlog"
    save_member(side, MemberFile(id="m1", register_codes=("a",), made_ms=7, group="broker-a", cluster="C"))
    promised = EpochId(3, "m1")
    save_role(side, RoleState(role=BrokerRole.SYNC_MASTER, broker_id=0, promised=promised, group=None, member="m1"))
    before = times_and_names(master)
    assert "add --yes" in twinlog("log", "new-member", master, status=2).stderr
    (dry,) = checked_json("log", "new-member", master, "--dry-run")
    assert (dry["old_id"], dry["old_group"], dry["old_role"], dry["new_id"]) == ("m1", "broker-a", "SYNC_MASTER", None)
    assert "would give up  m1 of broker-a, SYNC_MASTER" in twinlog("log", "new-member", master, "--dry-run").stdout
    assert times_and_names(master) == before
    (done,) = checked_json("log", "new-member", master, "--yes")
    member = load_member(side)
    assert member is not None
    assert done["new_id"] == member.id != "m1"
    assert (member.register_codes, member.group, load_role(side)) == ((), "", None)
    said = twinlog("log", "new-member", master, "--yes").stdout
    assert f"was  {member.id}\n" in said
    assert "brokerRole=SLAVE" in said
    twinlog("log", "verify", master)


def test_files_that_cannot_be_read_make_a_new_member_too(master):
    side = master / "twinlog"
    side.mkdir()
    for name in ("member", "role"):
        (side / name).write_bytes(b"nonsense")
    twinlog("log", "verify", master, status=1)
    assert "was  an id that cannot be read\n" in twinlog("log", "new-member", master, "--yes").stdout
    assert not (side / "role").exists()
    assert load_member(side) is not None
    twinlog("log", "verify", master)


def test_a_store_without_an_id_is_left_as_it_is(master):
    before = times_and_names(master)
    (done,) = checked_json("log", "new-member", master)
    assert (done["has_files"], done["new_id"]) == (False, None)
    assert "gets one at its next start" in twinlog("log", "new-member", master).stdout
    assert times_and_names(master) == before


def test_backup_and_restore(master, tmp_path):
    (made,) = checked_json("backup", master, tmp_path / "b")
    assert made["damage"] == []
    again = twinlog("backup", master, tmp_path / "b", status=4)
    assert "holds a backup" in again.stderr
    assert "new or empty" in again.stderr
    (restored,) = checked_json("restore", tmp_path / "b", tmp_path / "r")
    assert restored["rebuilt"]["records"] == made["records"]
    twinlog("log", "verify", tmp_path / "r")
    twinlog("log", "diff", master, tmp_path / "r", "--queues")
    assert twinlog("restore", tmp_path / "b", tmp_path / "r", status=4)
    words = twinlog("restore", tmp_path / "b", tmp_path / "r2").stdout
    assert f"mappedFileSizeCommitLog={golden.FILE_SIZE}" in words
    assert f"storePathRootDir={tmp_path}/r2" in words


@pytest.mark.slow
def test_backup_in_words(master, tmp_path):
    lines = twinlog("backup", master, tmp_path / "b").stdout.splitlines()
    assert lines[0] == f"backed up  {master} (not running) to {tmp_path}/b"
    assert lines[-1] == f"To create a store from it: twinlog restore {tmp_path}/b NEW-DIR"
    tsv = twinlog("backup", master, tmp_path / "b2", "-o", "tsv").stdout.splitlines()
    assert tsv[0].split("\t")[0] == "file"
    assert "commitlog" in twinlog("backup", master, tmp_path / "b3", "-o", "wide").stdout


def test_backup_of_a_damaged_store_is_told(master, tmp_path):
    damage_body(master, golden.FILE_SIZE)
    (master / "timerlog").mkdir()
    result = twinlog("backup", master, tmp_path / "b", status=6)
    assert "damaged in the store, and so in the backup: bytes" in result.stderr
    assert "left out: " in result.stderr
    assert "timerlog" in result.stderr


def test_a_backup_that_changed_cannot_be_restored(master, tmp_path):
    twinlog("backup", master, tmp_path / "b")
    damage(tmp_path / "b", 0, 700)
    result = twinlog("restore", tmp_path / "b", tmp_path / "r", status=1)
    assert "The backup cannot be used." in result.stderr
    assert "is not what it was when the backup was made" in result.stderr


# What is wrong with the arguments


@pytest.mark.parametrize("command", ["info", "verify", "dump"])
def test_what_is_no_store_is_told_in_a_sentence(command, tmp_path):
    result = twinlog("log", command, tmp_path, status=2)
    assert "Error: This is not a store directory." in result.stderr
    assert "neither commitlog/ nor consumequeue/" in result.stderr
    assert "is no directory" in twinlog("log", command, tmp_path / "nowhere", status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dump", "--from", "yesterday"), "--from yesterday: expected an offset of the log"),
        (("dump", "--to", "@soon"), "--to @soon: expected"),
        (("info", "--delay-levels", "1x"), "--delay-levels: '1x' is no delay"),
        (("info", "-o", "xml"), "Invalid value"),
    ],
)
def test_wrong_usage_has_status_2(arguments, words, tmp_path):
    (tmp_path / "commitlog").mkdir()
    command, *rest = arguments
    assert words in twinlog("log", command, tmp_path, *rest, status=2).stderr


def test_files_that_cannot_be_written_are_told(master, tmp_path):
    (tmp_path / "file").touch()
    assert (
        "Error: The files cannot be read or written." in twinlog("backup", master, tmp_path / "file/b", status=1).stderr
    )


def test_another_process_of_ours_is_recognised(master):
    lock = take_lock(master / "lock")
    try:
        assert f"running, process {os.getpid()}" in twinlog("log", "info", master).stdout
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    "command",
    [
        ("log", "info"),
        ("log", "verify"),
        ("log", "dump"),
        ("log", "diff"),
        ("log", "rebuild"),
        ("log", "new-member"),
        ("backup",),
        ("restore",),
    ],
)
def test_every_command_has_examples_and_a_schema(command):
    assert "Examples:" in twinlog(*command, "--help").stdout
    schema = json.loads(twinlog(*command, "-o", "schema").stdout)
    assert schema["properties"]["schema"] == {"const": 1}
    assert schema["description"]
