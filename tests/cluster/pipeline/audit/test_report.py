"""Report of an audit: verdict, page, picture, and the repair command of each finding."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import evolve
from click.testing import CliRunner

from tests.cluster.cli.json_schema import violations
from tests.cluster.pipeline.pages import assert_stands_alone, assert_usable_without_sight
from tests.cluster.pipeline.reports import ALL, MASTER, SLAVE, finding, report_of
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.cli.audit import REPAIRS_SHOWN, show_audit
from twinlog.cluster.cli.main import cli
from twinlog.cluster.pipeline.audit.assembly import names_of
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.remedies import repair_of
from twinlog.cluster.pipeline.audit.report import AuditReport, AuditVerdict, to_json, verdict_of
from twinlog.cluster.pipeline.audit.stores import same_places, without_secrets
from twinlog.cluster.pipeline.report.page import page, write_report
from twinlog.cluster.pipeline.report.picture import LOOKS, MEANINGS, as_text, letter, picture
from twinlog.cluster.pipeline.report.summary import headline, sentences


@pytest.mark.parametrize(
    ("classes", "complete", "verdict"),
    [
        ([], True, AuditVerdict.EQUAL),
        (["lag"], True, AuditVerdict.EQUAL),
        (["lag", "unreadable"], True, AuditVerdict.INCOMPLETE),
        ([], False, AuditVerdict.INCOMPLETE),
        (["unreadable", "bit-rot"], False, AuditVerdict.DIVERGENT),
        (["config"], True, AuditVerdict.DIVERGENT),
    ],
)
def test_a_difference_beats_what_could_not_be_read(classes, complete, verdict):
    assert verdict_of(classes, is_complete=complete) is verdict


def test_samples_are_never_called_equal():
    assert verdict_of([], is_complete=True, is_sampled=True) is AuditVerdict.SAMPLES_EQUAL


def test_logs_come_first_then_what_lies_beside_them_then_lag():
    found = [
        finding(FindingClass.LAG, offset=1),
        finding(FindingClass.UNREADABLE, offset=None),
        finding(FindingClass.QUEUE, offset=5),
        finding(FindingClass.BIT_ROT, offset=700),
        finding(FindingClass.HOLE, offset=20),
    ]
    classes = [(each.number, each.cls.value) for each in report_of(*found).findings]
    assert classes == [(1, "hole"), (2, "bit-rot"), (3, "queue"), (4, "unreadable"), (5, "lag")]


def test_how_far_each_is_behind_the_longest():
    report = report_of()
    assert [member.behind_bytes for member in report.members] == [0, 10_000]
    assert (report.start_offset, report.end_offset) == (0, 1_000_000)
    assert "up to lag" in headline(report)


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["/data/a-0", "/data/a-1"], ["a-0", "a-1"]),
        (["/data/0/store", "/data/1/store"], ["0/store", "1/store"]),
        (["/data/store", "s3://backup/store?region=x", "/x/b"], ["data/store", "backup/store", "b"]),
        (["/s", "/s"], ["s", "s (2)"]),
        (["/"], ["/"]),
        (["/data/a?1", "/data/a?2"], ["a?1", "a?2"]),
        (["/a/x;/disk/log", "/b/y"], ["x", "y"]),
    ],
)
def test_short_names_tell_members_apart(places, names):
    assert names_of(places) == names


def test_one_store_by_several_names(tmp_path):
    """It is equal to itself, which proves nothing."""
    (tmp_path / "link").symlink_to(tmp_path / "store")
    store = str(tmp_path / "store")
    assert same_places([store, str(tmp_path / "link"), "s3://b/a"]) == (store, str(tmp_path / "link"))
    assert same_places([store, f"{store}/./"]) == (store, f"{store}/./")
    assert same_places(["s3://b/a?region=x", "s3://b/a/"]) == ("s3://b/a?region=x", "s3://b/a/")
    assert same_places([store, f"{store}2", "s3://b/a", "s3://b/a2"]) is None
    for named in ([store, str(tmp_path / "link")], [store, " "], ["/", ""]):
        found = CliRunner().invoke(cli, ["audit", *named])
        assert found.exit_code == 2, found.output
        assert "the same" in found.output or "without a name" in found.output


def test_the_json_is_what_its_schema_says():
    document = json.loads(to_json(report_of(*ALL)))
    assert violations(document, schema_of(AuditReport)) == []
    assert [each["cls"] for each in document["findings"] if each["offset"] == 4000] == ["divergent"]


def test_what_cannot_be_read_is_named_once():
    gone = evolve(SLAVE, first_offset=None, last_offset=None, problem="there is no such directory")
    report = report_of(
        finding(FindingClass.UNREADABLE, offset=None, end=None, why="there is no such directory"),
        members=(MASTER, gone),
    )
    assert report.not_read == ("broker-a-1: there is no such directory",)
    assert report.verdict is AuditVerdict.INCOMPLETE


# The page


def test_the_page_stands_alone():
    assert_stands_alone(page(report_of(*ALL)))


def test_what_comes_from_stores_is_no_markup():
    """Topics, paths and errors may be anything."""
    text = page(report_of(finding(FindingClass.CONFIG, topic="<script>alert(1)</script>", file='"><b>')))
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text


def test_the_page_can_be_used_without_seeing_it():
    assert_usable_without_sight(page(report_of(*ALL)))


def test_nothing_is_told_by_colour_alone():
    letters = [letter(cls) for cls in LOOKS]
    assert len(set(letters)) == len(letters)
    assert len({inside for _, _, inside in LOOKS.values()}) == len(LOOKS)
    assert MEANINGS.keys() == set(FindingClass)


def test_the_picture_is_well_formed_and_shows_each_finding_where_it_is():
    report = report_of(*ALL)
    drawn = ElementTree.fromstring(picture(report))
    marks = [each for each in drawn.iter("rect") if each.get("class") == "mark"]
    assert len(marks) == len(LOOKS)
    logs = [each for each in drawn.iter("rect") if each.get("class") == "log"]
    assert float(logs[1].get("width", 0)) == pytest.approx(float(logs[0].get("width", 0)) * 0.99, rel=1e-3)
    places = [float(mark.get("x", 0)) for mark in marks]
    assert places == sorted(places)
    assert min(float(mark.get("width", 0)) for mark in marks) >= 4
    patterns = {each.get("id") for each in drawn.iter("pattern")}
    assert {re.sub(r"url\(#(.*)\)", r"\1", mark.get("fill", "")) for mark in marks} == patterns
    assert "divergent at 4000" in as_text(report)


def test_many_findings_do_not_write_over_each_other():
    many = [finding(FindingClass.BIT_ROT, offset=4900 * n, end=4900 * n + 1) for n in range(200)]
    drawn = ElementTree.fromstring(picture(report_of(*many)))
    places = sorted(float(each.get("x", 0)) for each in drawn.iter("text") if re.fullmatch(r"B\d+", each.text or ""))
    assert 1 < len(places) < 200
    assert min(b - a for a, b in pairwise(places)) > 15


def test_without_a_log_there_is_no_picture():
    gone = evolve(SLAVE, first_offset=None, last_offset=None, problem="it is empty")
    text = page(report_of(members=(gone,)))
    assert "<svg" not in text
    assert "it is empty" in text


# The terminal


def test_the_table_in_a_pipe_is_plain_text(capsys):
    show_audit(report_of(*ALL), "pretty")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "D divergent" in shown
    assert "MEMBER" in shown
    assert shown.splitlines()[-1].startswith("divergent: 11 things are not as they should be, in the log first at 2000")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_colour_only_repeats_what_words_say(no_color):
    script = """
from twinlog.cluster.cli.audit import show_audit
from tests.cluster.pipeline.pages import assert_stands_alone, assert_usable_without_sight
from tests.cluster.pipeline.reports import ALL, report_of
show_audit(report_of(*ALL), "pretty")
"""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (60, 250))
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": no_color}
    if not no_color:
        del env["NO_COLOR"]
    done = subprocess.run([sys.executable, "-c", script], stdout=theirs, timeout=50, env=env)
    os.close(theirs)
    shown = os.read(ours, 65_536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert ("\x1b[31mdivergent: 11 things" in shown) == (not no_color)
    words = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "D divergent" in words
    assert "divergent: 11 things are not as they should be" in words


def test_tsv_has_the_findings_only(capsys):
    show_audit(report_of(*ALL), "tsv")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(ALL)
    assert lines[0].split("\t")[:4] == ["number", "class", "member", "offset"]


def test_an_equal_report_is_short(capsys):
    show_audit(report_of(), "pretty")
    shown = capsys.readouterr().out
    assert "CLASS" not in shown
    assert "equal up to lag" in shown


def test_one_byte_is_never_rounded_away(capsys):
    slave = evolve(SLAVE, compared_bytes=1 << 40, equal_bytes=(1 << 40) - 1)
    show_audit(report_of(members=(MASTER, slave)), "pretty")
    assert "99.9%" in capsys.readouterr().out


def test_the_sentences_say_what_was_compared():
    report = evolve(report_of(*ALL), seconds=2.0)
    told = list(sentences(report))
    assert "16 blocks of up to 64 KiB were compared by their digests, 1 of them differs" in told
    assert any(line.startswith("read 2.0 MB of log in 2.0 s, 1.0 MB/s") for line in told)


@pytest.mark.parametrize(
    ("blocks", "line"),
    [
        (1, "1 block of up to 64 KiB was compared by its digest, 1 of them differs"),
        (2, "2 blocks of up to 64 KiB were compared by their digests, 1 of them differs"),
    ],
)
def test_counts_are_singular_or_plural(blocks, line):
    assert line in list(sentences(evolve(report_of(), blocks=blocks)))


@pytest.mark.parametrize(("records", "words"), [(1, "1 record is equal"), (7, "7 records are equal")])
def test_samples_are_singular_or_plural(records, words):
    assert words in headline(evolve(report_of(), verdict=AuditVerdict.SAMPLES_EQUAL, records=records))


@pytest.mark.parametrize(("more", "words"), [(1, "and 1 more command;"), (2, "and 2 more commands;")])
def test_commands_that_are_not_shown_are_singular_or_plural(more, words, capsys):
    numbers = range(REPAIRS_SHOWN + more)
    show_audit(
        report_of(*(finding(FindingClass.DIFFERS, offset=1000 * n, end=1000 * n + 1) for n in numbers)), "pretty"
    )
    assert words in capsys.readouterr().out


# Repair of a finding


def commands_of(text: str) -> list[list[str]]:
    return [part.split()[1:] for part in text.split(" && ") if part]


@pytest.mark.parametrize("cls", FindingClass)
@pytest.mark.parametrize("good", ["broker-a-0", None])
@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("is_master", [False, True])
@pytest.mark.parametrize("software", ["twinlog", "RocketMQ 4.9.7", None])
def test_what_mends_it_is_a_command_that_there_is(cls, good, is_live, is_master, software):
    """Its words and options are those that the command line has."""
    member = evolve(SLAVE, place="/data/x", is_live=is_live, is_master=is_master, software=software)
    found = repair_of(finding(cls, good=good), {"broker-a-1": member, "broker-a-0": evolve(MASTER, is_live=is_live)})
    assert found.command.startswith("twinlog ")
    for words in commands_of(found.command):
        command = cli
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (FindingClass.DIVERGENT, "twinlog rewind"),
        (FindingClass.HOLE, "twinlog reinit"),
        (FindingClass.SHIFTED, "twinlog reinit"),
        (FindingClass.QUEUE, "twinlog log rebuild '/data/broker <b>' --consumequeue"),
        (FindingClass.INDEX, "twinlog log rebuild '/data/broker <b>' --index"),
        (FindingClass.DIFFERS, "twinlog log dump"),
        (FindingClass.LAG, "twinlog wait level"),
    ],
)
def test_each_class_has_its_command(cls, words):
    found = repair_of(finding(cls, good="broker-a-0"), {"broker-a-0": MASTER, "broker-a-1": SLAVE})
    assert found.command.startswith(words)


def test_a_master_that_others_went_on_without_is_cut():
    """The one that was named first may be the old master."""
    members = {"broker-a-0": MASTER, "broker-a-1": SLAVE}
    known = repair_of(finding(FindingClass.DIVERGENT, "broker-a-0", good="broker-a-1"), members)
    assert known.command == "twinlog rewind MEMBER"
    unknown = repair_of(finding(FindingClass.DIVERGENT, "broker-a-0", good=None), members)
    assert unknown.command == "twinlog failover --candidate MEMBER --dry-run"


@pytest.mark.parametrize("cls", [FindingClass.BIT_ROT, FindingClass.QUEUE, FindingClass.DIVERGENT])
def test_a_copy_in_an_archive_is_made_anew(cls):
    """No command of ours writes there, and none reads a store there but the audit."""
    member = evolve(SLAVE, place="s3://archive/broker-a")
    found = repair_of(finding(cls, good="broker-a-0"), {"broker-a-0": MASTER, "broker-a-1": member})
    assert found.command == "twinlog backup /data/broker-a-0 BACKUP-DIR"
    wrong = evolve(SLAVE, software="RocketMQ")
    good = evolve(MASTER, place="s3://archive/broker-a")
    found = repair_of(finding(FindingClass.HOLE, good="broker-a-0"), {"broker-a-0": good, "broker-a-1": wrong})
    assert "backup GOOD-DIR " in found.command


def test_a_log_in_directories_of_its_own_is_named_to_commands():
    """They have an option for that, and take no semicolons."""
    members = {"broker-a-0": MASTER, "broker-a-1": evolve(SLAVE, place="/data/b 1;/disk1/log;/disk 2/log")}
    found = repair_of(finding(FindingClass.QUEUE), members)
    where = "'/data/b 1' --commit-log /disk1/log --commit-log '/disk 2/log'"
    assert found.command == f"twinlog log rebuild {where} --consumequeue"


def test_names_that_are_no_text_are_shown_all_the_same():
    """Linux takes any bytes."""
    odd = evolve(SLAVE, name="broker-\udcff", place="/data/broker-\udcff")
    report = report_of(finding(FindingClass.QUEUE, odd.name, topic="T\udcff"), members=(MASTER, odd))
    assert report.members[1].name == report.findings[0].member == r"broker-\udcff"
    assert b"T\\\\udcff" in to_json(report)
    assert r"/data/broker-\udcff" in report.findings[0].mend
    assert page(report).encode()


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/data/a", "/data/a"),
        ("s3://bucket/a?access_key=KEY&secret_key=SECRET", "s3://bucket/a"),
        ("s3://KEY:SECRET@bucket/a", "s3://bucket/a"),
        ("/data/a;s3://K:S@bucket/log?x=y", "/data/a;s3://bucket/log"),
        ("s3://K:S@bucket/a/role?x=y&z=http%3A%2F%2Fh: it is no JSON", "s3://bucket/a/role: it is no JSON"),
        ("name it: 's3://b/a?secret_key=x;DIRECTORY'", "name it: 's3://b/a;DIRECTORY'"),
        ("/what is it? x=y", "/what is it? x=y"),
    ],
)
def test_keys_of_object_storage_are_in_no_report(place, shown):
    assert without_secrets(place) == shown


def test_a_rocketmq_slave_is_replaced_by_a_copy_of_the_good_one():
    """It knows neither rewind nor reinit."""
    slave = evolve(SLAVE, software="RocketMQ")
    found = repair_of(finding(FindingClass.BIT_ROT, good="broker-a-0"), {"broker-a-0": MASTER, "broker-a-1": slave})
    assert found.command == "twinlog backup /data/broker-a-0 BACKUP-DIR && twinlog restore BACKUP-DIR NEW-DIR"


# Files


def test_reports_are_whole_or_not_there(tmp_path: Path):
    written = write_report(report_of(*ALL), tmp_path / "a" / "b", parquet=False)
    assert [path.name for path in written] == ["report.json", "report.html"]
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["report.html", "report.json"]
    assert json.loads(written[0].read_bytes())["schema"] == 1
