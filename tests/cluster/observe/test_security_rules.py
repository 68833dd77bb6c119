"""What doctor says of safety, one case each."""

import pytest
from attrs import evolve

from tests.cluster.observe.members import MASTER, SLAVE, cluster, with_status
from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.security_rules import access, encryption, is_reachable, replication_port, secret_files
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
