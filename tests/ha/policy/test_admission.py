"""Who may follow, whose acknowledgements count, and what is remembered of those that were refused."""

from typing import get_args

import pytest

from twinlog.ha.config import HAConfig
from twinlog.ha.errors import Cause
from twinlog.ha.policy.admission import REFUSALS_REMEMBERED, AdmissionRules, Refusals, parse_allowed


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_an_empty_list_allows_nobody(text):
    assert parse_allowed(text) == ((), ())
    assert not AdmissionRules(*parse_allowed(text)).admits("127.0.0.1")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("10.0.0.0/33", "10.0.0.0/33"),
        ("10.0.0.1/8", "host bits"),
        ("10.0.0.1, slave 1", "slave 1"),
        ("10.0.0.300", "10.0.0.300"),
        ("-slave", "-slave"),
    ],
)
def test_a_list_with_a_mistake_stops_the_start(text, wrong):
    with pytest.raises(ValueError, match=wrong):
        HAConfig(allowed_slaves=text)


def test_registered_slaves_and_allowed_networks():
    admission = AdmissionRules(*parse_allowed("10.1.0.0/16, 192.168.1.7, fd00::/8"))
    admission.members_changed(["10.0.0.1", "10.0.0.1", "slave-host"])
    admitted = ["10.0.0.1", "10.1.255.255", "192.168.1.7", "fd00::7", "fd00::7%eth0", "slave-host"]
    refused = ["10.0.0.2", "10.2.0.0", "192.168.1.8", "fe80::1", "127.0.0.1", "", "another-host"]
    assert [ip for ip in admitted + refused if admission.admits(ip)] == admitted
    admission.members_changed([])
    assert not admission.admits("10.0.0.1")
    assert admission.admits("10.1.0.1")


def test_who_is_welcome_does_not_count():
    admission = AdmissionRules()
    admission.members_changed(["10.0.0.1"], ["10.0.0.2"])
    assert admission.admits("10.0.0.2")
    assert not admission.trusts("10.0.0.2")
    assert admission.voices(["10.0.0.2"]) == ["10.0.0.1"]
    assert "10.0.0.2" in admission.why_not("10.0.0.3")


def test_whose_acknowledgements_count():
    """As many as are registered with an IP; of the allowed ones, one of each IP that is connected."""
    admission = AdmissionRules(*parse_allowed("10.0.0.0/8"))
    admission.members_changed(["10.0.0.1", "10.0.0.1", "192.0.2.1"])
    connected = ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "192.0.2.9"]
    assert admission.voices(connected) == ["10.0.0.1", "10.0.0.1", "192.0.2.1", "10.0.0.2"]
    assert admission.voices([]) == ["10.0.0.1", "10.0.0.1", "192.0.2.1"]


def test_the_reason_says_what_would_help():
    admission = AdmissionRules(*parse_allowed("10.0.0.0/8"))
    assert "haAllowedSlaves (10.0.0.0/8)" in admission.why_not("192.0.2.1")
    assert "(these are: none)" in admission.why_not("192.0.2.1")
    admission.members_changed(["192.0.2.7", "192.0.2.7"])
    assert "(these are: 192.0.2.7)" in admission.why_not("192.0.2.1")


def test_a_refusal_is_news_once_for_each_ip_and_cause():
    refusals = Refusals()
    assert refusals.note("192.0.2.1", "stranger", "first", 1.0)
    assert not refusals.note("192.0.2.1", "stranger", "again", 2.0)
    assert refusals.note("192.0.2.2", "stranger", "another", 3.0)
    assert refusals.note("192.0.2.1", "below_min", "something else", 4.0)
    refusals.served("192.0.2.1")
    assert refusals.note("192.0.2.1", "stranger", "after it was served", 5.0)
    assert refusals.counts == dict.fromkeys(get_args(Cause), 0) | {"stranger": 4, "below_min": 1}
    assert [(each.ip, each.cause, each.count, each.at) for each in refusals.last] == [
        ("192.0.2.2", "stranger", 1, 3.0),
        ("192.0.2.1", "stranger", 1, 5.0),
    ]


def test_no_more_than_so_many_are_remembered():
    refusals = Refusals()
    for number in range(10_000):
        refusals.note(f"192.0.2.{number}", "stranger", "why", number)
    assert len(refusals.last) == REFUSALS_REMEMBERED
    assert refusals.last[-1].ip == "192.0.2.9999"
    assert refusals.counts["stranger"] == 10_000
