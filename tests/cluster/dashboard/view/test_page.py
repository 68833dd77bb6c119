"""The page as HTML, without a browser."""

import re
from html.parser import HTMLParser

import orjson
import pytest
from attrs import evolve

from tests.cluster.dashboard.helpers import END, MB, diverged, member, silent, snapshot_of, with_member, with_set
from twinlog.cluster.admin.message_view import MessageView, PeekedMessage
from twinlog.cluster.dashboard.messages import MessageQuery, QuestionError, found_messages, peek_form
from twinlog.cluster.dashboard.model.events import Event
from twinlog.cluster.dashboard.model.snapshot import GroupSnapshot, Range
from twinlog.cluster.dashboard.view.drawings import Scale, offset_bars, scales
from twinlog.cluster.dashboard.view.html import Markup, join, tag
from twinlog.cluster.dashboard.view.page import PageState, document, sections
from twinlog.cluster.dashboard.view.tables import command_of
from twinlog.cluster.dashboard.watcher import audit_section, read_report
from twinlog.cluster.observe.elections import GroupFailover, MemberElections, Successor
from twinlog.cluster.text import count, day_and_clock

ELECTIONS = MemberElections(
    member="a", mode="members", suspects=False, why=None, tried=0, won=0, given_up=0, why_given_up=None
)
EVIL = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>"


class Tags(HTMLParser):
    """Names of elements and of their attributes."""

    def __init__(self, text):
        super().__init__()
        self.names, self.attributes = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes += [(tag, *each) for each in attrs]


def page_of(snapshot, found="", **more):
    return document(PageState(snapshot=snapshot, **more), peek_form(MessageQuery(), ()), Markup(found))


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "<b>", Markup("<i>"), [1, None, "&"], title='"', hidden=True, lang=None) == (
        '<p title="&quot;" hidden>&lt;b&gt;<i>1&amp;</p>'
    )
    assert tag("input", value="x") == '<input value="x">'
    assert join(tag("br"), "a<b") == "<br>a&lt;b"


def test_who_a_member_is_stands_behind_its_address():
    named = member(member_id="m1", made_ms=1_790_000_000_000, made_address="10.0.9.1:10911")
    titles = [value for tag, name, value in Tags(page_of(snapshot_of(named, member(1)))).attributes if name == "title"]
    assert f"member m1, made {day_and_clock(1_790_000_000)} at 10.0.9.1:10911" in titles


def test_events_name_members_by_their_ids_too():
    moved = snapshot_of(member(member_id="127.0.0.1:10921"), member(1, member_id="m2"))
    assert moved.names == {"127.0.0.1:10911": "broker-a-0", "127.0.0.1:10921": "broker-a-1", "m2": "broker-a-1"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "off"}, "by a person: twinlog failover"),
        ({}, "by the group itself; broker-a-1 would be next"),
        ({"nobody": "2 of 3 members"}, "by the group itself; nobody could be elected now: 2 of 3 members"),
        ({"successors": ()}, "by the group itself"),
        ({"members": (ELECTIONS, evolve(ELECTIONS, member="b", mode="off"))}, "by nobody: the members disagree"),
    ],
)
def test_who_begins_a_failover(changes, words):
    successors = (Successor(member="broker-a-1", rank=0, against=""),)
    failover = GroupFailover(
        group="broker-a", mode="members", successors=successors, nobody=None, holds_off=False, members=(ELECTIONS,)
    )
    snapshot = snapshot_of(member(), member(1))
    groups = (evolve(snapshot.groups[0], failover=evolve(failover, **changes)),)
    assert words in page_of(evolve(snapshot, groups=groups))


def test_hostile_names_stay_text():
    """Whoever can register a broker, make a topic or write into an event brings no element along."""
    who = {"member_id": EVIL, "made_ms": 1, "made_address": EVIL}
    snapshot = snapshot_of(
        member(name=EVIL, reason=EVIL, state="failed", ack_policy=EVIL, **who), member(1, address=EVIL)
    )
    snapshot = evolve(
        snapshot, notes=(EVIL,), namesrv=(EVIL,), groups=(evolve(snapshot.groups[0], name=EVIL, changing=EVIL),)
    )
    events = (Event(1.0, "state", "bad", EVIL, EVIL),)
    tags = Tags(page_of(snapshot, events=events, topics=(EVIL,)))
    assert tags.names.count("script") == 2  # Ours.
    assert "img" not in tags.names


def test_hostile_messages_stay_text():
    message = MessageView(
        topic=EVIL, broker=EVIL, queue_id=0, queue_offset=1, message_id=EVIL, offset_message_id="", tags=EVIL, keys=EVIL,
        properties={EVIL: EVIL}, born_ms=0, born_host=EVIL, stored_ms=0, reconsume_times=0, body=EVIL, body_base64=None,
        body_size=len(EVIL),
    )  # fmt: skip
    tags = Tags(found_messages([PeekedMessage(message=message, consumed_by=None)]))
    assert {"script", "img"}.isdisjoint(tags.names)
    assert "script" not in Tags(peek_form(MessageQuery(topic=EVIL, key=EVIL), (EVIL,))).names


def test_the_policy_has_nothing_to_forbid():
    """No inline style, no inline script, no handler in an attribute, nothing from elsewhere."""
    slave, ranges = diverged(2, END - MB)
    snapshot = with_member(snapshot_of(silent(0), member(1), slave), "broker-a-2", diverged=ranges)
    page = page_of(snapshot)
    tags = Tags(page)
    assert not [each for each in tags.attributes if each[1] == "style" or each[1].startswith("on")]
    links = [value for _, name, value in tags.attributes if name in ("href", "src", "action")]
    assert all(re.match(r"^(/(?!/)|#)", each) for each in links), links
    assert not re.search(r"<script[^>]*>[^<]", page)


def test_the_table_says_it_all_without_javascript():
    page = page_of(snapshot_of(member(), member(1), member(2, lag_bytes=34 * MB, lag_seconds=12.0)))
    assert "One slave is behind: broker-a-2 by 34.0 MB, 12 s" in page
    row = page.partition('<span class="name">broker-a-2</span>')[2].partition("</tr>")[0]
    for words in ("slave", "streaming", "34.0 MB", "12 s", count(END)):
        assert words in row


def test_no_state_is_told_by_colour_alone():
    """Beside each mark stands a word, or the mark has one for who cannot see it."""
    snapshot = snapshot_of(silent(0), member(1, state="diverged"), member(2))
    page = page_of(snapshot, events=(Event(1.0, "state", "bad", "a", "b"),))
    for drawn in re.findall(r'<svg class="mark [^>]*>', page):
        assert 'aria-hidden="true"' in drawn or "aria-label=" in drawn


def test_every_issue_has_a_command():
    snapshot = snapshot_of(silent(0), member(1, state="diverged"), member(2, state="below min"))
    commands = {each.subject: command_of(each, snapshot) for each in snapshot.findings}
    assert commands["broker-a-1"] == "twinlog rewind broker-a-1 --dry-run"
    assert commands["broker-a-2"] == "twinlog reinit broker-a-2"
    assert commands["broker-a-0"].startswith("twinlog failover --candidate broker-a-")
    assert all(each.startswith("twinlog ") for each in commands.values())


def test_sections_are_those_of_the_page():
    """The stream of changes finds each of its sections in the document."""
    state = PageState(snapshot=snapshot_of(member(), member(1)))
    page = page_of(state.snapshot)
    for name, inside in sections(state).items():
        assert f'id="{name}"' in page
        assert inside in page


@pytest.mark.parametrize("end", [0, 1, END, 1 << 60])
def test_bars_of_any_size(end):
    """Whatever the offsets, nothing is drawn outside."""
    snapshot = snapshot_of(
        member(written_offset=end, min_offset=0), member(1, written_offset=end // 2, flushed_offset=None)
    )
    for percent in re.findall(r'="(-?[0-9.e+]+)%"', offset_bars(snapshot.groups[0])):
        assert 0 <= float(percent) <= 101


def test_the_newest_part_is_enlarged_as_far_as_members_differ():
    snapshot = snapshot_of(member(), member(1, written_offset=END - 100_000, flushed_offset=END - 100_000))
    whole, tail = scales(snapshot.groups[0]) or (Scale(0, 0), Scale(0, 0))
    assert (whole.start, whole.end, tail.end) == (0, END, END)
    assert 100_000 < tail.end - tail.start < MB


def test_ranges_that_part_are_marked():
    slave, ranges = diverged(1, END - MB)
    snapshot = with_member(snapshot_of(member(), slave), "broker-a-1", diverged=(*ranges, Range(0, 10, is_cut=True)))
    bars = offset_bars(snapshot.groups[0])
    assert 'class="parted"' in bars
    assert 'class="kept"' in bars
    assert "differs from its master from 39\u202f000\u202f000 on" in bars


def test_nobody_tells_where_its_log_ends():
    assert "No member reports" in offset_bars(GroupSnapshot(name="g", members=snapshot_of(silent(0)).members))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"queue": "1"}, "belong together"),
        ({"queue": "x", "offset": "1"}, "Queue is a number"),
        ({"queue": "1", "offset": "-1"}, "Offset is a number"),
        ({"queue": "1", "offset": "2", "key": "k"}, "one of the two"),
        ({"count": "٣"}, "Count is a number"),
    ],
)
def test_questions_that_cannot_be_understood(query, words):
    with pytest.raises(QuestionError, match=words):
        MessageQuery.of(query)


def test_a_question_asks_for_no_more_than_fits():
    assert MessageQuery.of({"topic": " orders ", "count": "9999"}) == MessageQuery(topic="orders", count=50)


def test_the_last_audit(tmp_path):
    snapshot = snapshot_of(member(), member(1))
    assert read_report(tmp_path) is None
    assert f"twinlog audit --live broker-a-0 broker-a-1 --out {tmp_path}" in audit_section(None, tmp_path, snapshot)
    report = {"verdict": "divergent", "members": [{"name": "a", "compared_bytes": 5}], "findings": [1], "started_ms": 1}
    (tmp_path / "report.json").write_bytes(orjson.dumps(report))
    shown = audit_section(read_report(tmp_path), tmp_path, snapshot)
    assert "divergent" in shown
    assert "1 thing" in shown
    assert "equal up to offset" not in shown
    report["ledger"] = {"proved_to": 1234, "oldest_proof_ms": 1}
    (tmp_path / "report.json").write_bytes(orjson.dumps(report))
    assert "equal up to offset 1\u202f234" in audit_section(read_report(tmp_path), tmp_path, snapshot)
    (tmp_path / "report.json").write_text("{")
    assert "cannot be read" in audit_section(read_report(tmp_path), tmp_path, snapshot)


def test_the_in_sync_set_and_etcd_have_words_beside_their_marks():
    card = sections(PageState(snapshot=with_set(snapshot_of(member(), silent(1)), 0, of=2, etcd_why="no connection")))
    text = card["picture"]
    assert "1 of the 1 in sync" in text
    assert re.search(r'class="mark bad".*?one copy: broker-a-0 alone is in sync, of 2 members', text)
    assert re.search(r'class="mark warn".*?no member can rely on etcd since [^<]*: no connection', text)
    fine = sections(PageState(snapshot=with_set(snapshot_of(member(), member(1)), 0, 1, of=2)))["picture"]
    assert "2 of 2 in sync: broker-a-0, broker-a-1" in fine
    assert "etcd answers" in fine
