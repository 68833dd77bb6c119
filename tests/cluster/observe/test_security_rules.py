"""What doctor says of safety, one case each."""

import pytest
from attrs import evolve

from tests.cluster.observe.members import MASTER, SLAVE, cluster, with_status
from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.security_rules import (
    access,
    encryption,
    group_secrets,
    is_reachable,
    replication_port,
    secret_files,
)
from twinlog.cluster.remoting.member_status import NO_STATUS

SAFE_CONFIG = {
    "aclEnable": "true",
    "tls.server.mode": "enforcing",
    "tls.test.mode.enable": "false",
    "haAllowedSlaves": "",
}
SAFE_STATUS = {
    "aclEnable": True,
    "signs": True,
    "accounts": 2,
    "admins": 1,
    "adminsWithoutSignature": 0,
    "whiteForAll": False,
    "readableByOthers": [],
}
RULES = (access, encryption, replication_port, secret_files)


def member(config=(), status=(), of=MASTER):
    return with_status(evolve(of, config={**SAFE_CONFIG, **dict(config)}), security={**SAFE_STATUS, **dict(status)})


def causes(*members):
    facts = cluster(*members)
    return [(finding.cause, finding.level) for rule in RULES for finding in rule(facts)]


def test_a_safe_cluster_has_no_findings():
    assert causes(member(), member(of=SLAVE)) == []


@pytest.mark.parametrize(
    ("config", "status", "found"),
    [
        ({"aclEnable": "false"}, {"aclEnable": False}, [("no access control", Level.WARNING)]),
        ({"aclEnable": "false", "bindAddress": "127.0.0.1"}, {"aclEnable": False}, []),
        ({}, {"whiteForAll": True}, [("access control without effect", Level.WARNING)]),
        ({}, {"adminsWithoutSignature": 1}, [("administrator without password", Level.WARNING)]),
        ({}, {"admins": 0}, [("no administrator", Level.WARNING)]),
        ({"tls.server.mode": "permissive"}, {}, [("plain connections", Level.WARNING)]),
        (
            {"tls.server.mode": "permissive", "aclEnable": "true"},
            {"aclEnable": False},
            [("plain connections", Level.NOTE)],
        ),
        ({"tls.test.mode.enable": "true"}, {}, [("no certificate", Level.WARNING)]),
        ({"tls.test.mode.enable": ""}, {}, [("no certificate", Level.WARNING)]),
        ({"tls.test.mode.enable": "", "tls.server.certPath": "/c.pem"}, {}, []),
        ({"haAllowedSlaves": "10.0.0.7, 0.0.0.0/0"}, {}, [("HA port open to all", Level.WARNING)]),
        ({"haAllowedSlaves": "10.0.0.0/8"}, {}, []),
        ({}, {"readableByOthers": ["/etc/rocketmq/conf/plain_acl.yml"]}, [("secrets readable", Level.WARNING)]),
    ],
)
def test_what_is_found(config, status, found):
    assert causes(member(config, status)) == found


def test_members_that_do_not_sign_are_found_in_groups_only():
    lonely = member(status={"signs": False})
    assert causes(lonely) == []
    assert causes(lonely, member(of=SLAVE)) == [("unsigned members", Level.WARNING)]


def test_rocketmqs_own_brokers_tell_less():
    """4.9 tells neither where it listens nor how it does TLS."""
    rocketmq = evolve(MASTER, status=NO_STATUS, config={"aclEnable": "false", "brokerName": "broker-a"})
    assert causes(rocketmq) == [("no access control", Level.WARNING), ("HA port open to all", Level.NOTE)]


def test_who_did_not_tell_is_not_judged():
    assert causes(evolve(MASTER, status=NO_STATUS, config={})) == []


@pytest.mark.parametrize(
    ("address", "bound", "reachable"),
    [
        ("127.0.0.1:10911", None, False),
        ("[::1]:10911", None, False),
        ("localhost:10911", None, False),
        ("10.0.0.1:10911", None, True),
        ("broker:10911", None, True),
        ("127.0.0.1:10911", "0.0.0.0", True),
        ("10.0.0.1:10911", "127.0.0.1", False),
    ],
)
def test_who_can_be_reached(address, bound, reachable):
    config = {} if bound is None else {"bindAddress": bound}
    assert is_reachable(evolve(MASTER, member=evolve(MASTER.member, address=address), config=config)) is reachable


def test_each_finding_says_what_to_do():
    bad = member(
        {"aclEnable": "false", "tls.server.mode": "permissive", "haAllowedSlaves": "::/0"}, {"readableByOthers": ["x"]}
    )
    findings = [finding for rule in RULES for finding in rule(cluster(bad))]
    assert len(findings) == 4
    assert all(finding.fix and "broker-a-0" in finding.what for finding in findings)


# ---- Group secrets

OLD, NEW = "3f9a0c1b", "77d0e2a4"


def secrets_of(*members, required=True):
    """The findings for a master, a slave and further ones with these ids."""
    known = [MASTER, SLAVE][: len(members)]
    found = [
        with_status(each, secretIds=ids, secretRequired=required) for each, ids in zip(known, members, strict=True)
    ]
    return list(group_secrets(cluster(*found)))


def told(findings):
    return [(finding.cause, finding.level) for finding in findings]


def test_one_secret_for_all_is_fine():
    assert secrets_of([OLD], [OLD]) == []
    assert secrets_of([OLD]) == []


def test_members_without_any_secret_are_a_remark():
    (found,) = secrets_of([], [])
    assert (found.cause, found.level, found.subject) == ("no group secret", Level.NOTE, "broker-a")
    assert "twinlog group secret new" in found.fix
    assert secrets_of([]) == [], "one member sends no requests to others"


def test_members_of_a_version_without_secrets_have_none():
    older = [with_status(each, secretIds=None, secretRequired=None) for each in (MASTER, SLAVE)]
    assert told(group_secrets(cluster(*older))) == [("no group secret", Level.NOTE)]
    mixed = cluster(MASTER, older[1])
    assert told(group_secrets(mixed)) == [("member without group secret", Level.WARNING)]


def test_rocketmq_is_not_judged():
    rocketmq = evolve(SLAVE, status=NO_STATUS)
    assert list(group_secrets(cluster(with_status(MASTER, secretIds=[OLD], secretRequired=True), rocketmq))) == []


def test_one_without_a_secret_is_refused_or_let_in_for_now():
    (refused,) = secrets_of([OLD], [])
    assert (refused.cause, refused.level) == ("member without group secret", Level.WARNING)
    assert "broker-a-1" in refused.what
    assert "refused by broker-a-0" in refused.what
    (for_now,) = secrets_of([OLD], [], required=False)
    assert (for_now.cause, for_now.level) == ("member without group secret", Level.NOTE)


def test_optional_is_told_once_all_have_one():
    (left_on,) = secrets_of([OLD], [OLD], required=False)
    assert (left_on.cause, left_on.level) == ("group secret not required", Level.NOTE)
    assert "broker-a-0, broker-a-1" in left_on.what


def test_secrets_that_do_not_fit_each_other():
    found = secrets_of([OLD], [NEW])
    assert told(found) == [("group secrets do not fit", Level.WARNING)] * 2 + [("group secret rotation", Level.NOTE)]
    assert f"broker-a-0 signs with the group secret {OLD}, which is not accepted by broker-a-1" in found[0].what
    assert told(secrets_of([NEW, OLD], [OLD])) == [
        ("group secrets do not fit", Level.WARNING),
        ("group secret rotation", Level.NOTE),
    ]


@pytest.mark.parametrize(
    ("master", "slave", "words"),
    [
        (
            [OLD, NEW],
            [OLD],
            f"{OLD} (all sign with it, all accept it); {NEW} (signing: none, not accepted by broker-a-1)",
        ),
        ([OLD, NEW], [OLD, NEW], f"{OLD} (all sign with it, all accept it); {NEW} (signing: none, all accept it)"),
        (
            [NEW, OLD],
            [OLD, NEW],
            f"{NEW} (signing: broker-a-0, all accept it); {OLD} (signing: broker-a-1, all accept it)",
        ),
        ([NEW, OLD], [NEW, OLD], f"{NEW} (all sign with it, all accept it); {OLD} (signing: none, all accept it)"),
        (
            [NEW],
            [NEW, OLD],
            f"{NEW} (all sign with it, all accept it); {OLD} (signing: none, not accepted by broker-a-0)",
        ),
    ],
)
def test_each_step_of_a_rotation_is_a_remark(master, slave, words):
    (found,) = secrets_of(master, slave)
    assert (found.cause, found.level) == ("group secret rotation", Level.NOTE)
    assert words in found.what
