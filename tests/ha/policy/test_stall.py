"""When is a stream that brings nothing stuck? The watch is told how things are, second by second."""

import pytest
from attrs import evolve

from twinlog.ha.peer import PeerLog
from twinlog.ha.policy.stall import CHECK_SECONDS, DISPATCH_SECONDS, STALL_SECONDS, Observation, StallDetector

LEVEL = PeerLog(is_twinlog=True, min_offset=0, max_offset=1000, boot_ms=1)
LONGER = evolve(LEVEL, max_offset=2000)


def watch() -> StallDetector:
    return StallDetector(since=0.0, position=1000, heartbeat_seconds=5.0)


def look(now: float, peer: PeerLog | None = None, position: int = 1000, **more: object) -> Observation:
    facts = {
        "frames": int(now // 5),
        "last_read": now // 5 * 5,
        "max_offset": position,
        "dispatched_offset": position,
        **more,
    }
    return Observation(now=now, position=position, peer=peer, **facts)


def first_finding(found: StallDetector, looks: list[Observation]) -> tuple[float, str] | None:
    for each in looks:
        if (finding := found.check(each)) is not None:
            assert finding.kind == "stalled"
            return each.now, finding.text
    return None


TIMES = [CHECK_SECONDS * number for number in range(1, 100)]


def test_a_master_with_nothing_new():
    found = watch()
    assert first_finding(found, [look(now, LEVEL) for now in TIMES]) is None
    assert found.has_caught_up


def test_a_longer_log_that_brings_nothing():
    at, text = first_finding(watch(), [look(now, LONGER) for now in TIMES])
    assert STALL_SECONDS <= at <= STALL_SECONDS + 2 * CHECK_SECONDS
    assert "heartbeats only" in text
    assert "offset 1000" in text


def test_a_connection_that_brings_nothing_at_all():
    _, text = first_finding(watch(), [look(now, LONGER, last_read=-20.0) for now in TIMES])
    assert "nothing at all" in text


def test_a_stream_that_gets_on_however_slowly():
    looks = [look(now, evolve(LONGER, max_offset=1 << 40), position=1000 + int(now)) for now in TIMES]
    assert first_finding(watch(), looks) is None


def test_a_master_that_has_grown_just_now_gets_its_time():
    looks = [look(now, LEVEL) for now in TIMES[:50]] + [look(TIMES[50], LONGER)]
    assert first_finding(watch(), looks) is None


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        (evolve(LONGER, min_offset=1001), "has deleted the byte that comes next"),
        (evolve(LEVEL, max_offset=999), "has become shorter"),
        (evolve(LEVEL, boot_ms=2), "was started anew"),
    ],
)
def test_what_needs_no_patience(peer, words):
    at, text = first_finding(watch(), [look(5, LEVEL), look(10, peer)])
    assert at == 10
    assert words in text


def test_a_master_that_does_not_answer_is_not_judged():
    assert first_finding(watch(), [look(now) for now in TIMES]) is None


def test_a_comparison_that_stops_short():
    """The master sends heartbeats where the slave has bytes: its log ends there, or begins behind."""
    at, text = first_finding(watch(), [look(now, comparing_to=5000) for now in TIMES])
    assert 10 < at < 25
    assert "this log goes on to 5000" in text


def test_a_comparison_on_a_dead_line_is_not_judged():
    assert first_finding(watch(), [look(now, comparing_to=5000, frames=0) for now in TIMES]) is None


def test_the_master_is_asked_only_while_nothing_comes():
    found = watch()
    assert found.wants_peer(1000)
    assert not found.wants_peer(1001)
    found.check(look(5, position=1001))
    assert found.wants_peer(1001)


def test_queues_that_stand_still():
    found = watch()
    looks = [look(now, position=1000 + int(now), dispatched_offset=500) for now in TIMES]
    said = [(each.now, finding) for each in looks if (finding := found.dispatch(each)) is not None]
    at, finding = said[0]
    assert DISPATCH_SECONDS <= at <= DISPATCH_SECONDS + 2 * CHECK_SECONDS
    assert (finding.kind, finding.offset) == ("dispatch", 500)
    assert found.dispatch(look(1000.0)) is None


def test_queues_that_get_on():
    found = watch()
    assert not any(found.dispatch(look(now, position=10_000, dispatched_offset=int(now))) for now in TIMES)
