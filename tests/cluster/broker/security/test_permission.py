"""What requests need, and what permissions allow."""

import pytest

from tests.cluster.broker.helpers import heartbeat
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.permission import (
    ANY,
    DENY,
    PUB,
    SUB,
    check_permissions,
    is_permitted,
    needed_by,
    parse_permission,
)
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.names import HEARTBEAT_BYTES_MAX


@pytest.mark.parametrize(
    ("needed", "owned", "allowed"),
    [
        (PUB, DENY, False),
        (ANY, DENY | PUB | SUB, False),
        (PUB, PUB, True),
        (SUB, PUB, False),
        (SUB, PUB | SUB, True),
        (ANY, PUB, True),
        (ANY, SUB, True),
        (ANY, ANY, False),
    ],
)
def test_bits(needed, owned, allowed):
    assert is_permitted(needed, owned) is allowed


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("PUB", PUB),
        (" SUB ", SUB),
        ("PUB|SUB", PUB | SUB),
        ("SUB|PUB", PUB | SUB),
        ("DENY", DENY),
        ("", DENY),
        ("pub", DENY),
    ],
)
def test_words(text, bits):
    assert parse_permission(text) == bits
    assert parse_permission(None) == DENY


@pytest.mark.parametrize(
    ("code", "ext", "needed"),
    [
        (10, {"topic": "T1"}, {"T1": PUB}),
        (10, {"topic": "%RETRY%G", "group": "G"}, {"%RETRY%G": SUB}),
        (10, {"topic": "%RETRY%G"}, {"%RETRY%G": SUB}),
        (10, {"topic": "%RETRY%G", "group": "other"}, {"%RETRY%G": SUB}),
        (310, {"b": "T1", "a": "P"}, {"T1": PUB}),
        (310, {"b": "%RETRY%G", "a": "G"}, {"%RETRY%G": SUB}),
        (310, {"b": "%RETRY%G", "a": "other"}, {"%RETRY%G": SUB}),
        (320, {"b": "T1", "a": "P"}, {}),
        (324, {"b": "T1"}, {}),
        (11, {"topic": "T1", "consumerGroup": "G"}, {"T1": SUB, "%RETRY%G": SUB}),
        (361, {"topic": "T1", "consumerGroup": "G"}, {"T1": SUB, "%RETRY%G": SUB}),
        (12, {"topic": "T1"}, {"T1": SUB}),
        (15, {"topic": "T1", "consumerGroup": "G", "queueId": "0", "commitOffset": "1"}, {"T1": SUB, "%RETRY%G": SUB}),
        (35, {"clientID": "c", "consumerGroup": "G"}, {"%RETRY%G": SUB}),
        (35, {"clientID": "c", "producerGroup": "G"}, {}),
        (36, {"group": "G"}, {"%RETRY%G": SUB}),
        (38, {"consumerGroup": "G"}, {"%RETRY%G": SUB}),
        (17, {"topic": "T1"}, {}),
        (12345, {}, {}),
    ],
)
def test_what_requests_need(code, ext, needed):
    assert needed_by(RemotingCommand(code, ext=ext)) == needed


def test_a_heartbeat_needs_all_groups_and_topics():
    beat = RemotingCommand(34, body=fastjson.dumps(heartbeat("T1", "T2", group="G")))
    assert needed_by(beat) == {"%RETRY%G": SUB, "T1": SUB, "T2": SUB}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"consumerDataSet":[1]}', b'{"consumerDataSet":[{"groupName":[]}]}', b"{"]
)
def test_a_heartbeat_that_cannot_be_read_is_refused(body):
    with pytest.raises(AclError):
        needed_by(RemotingCommand(34, body=body))


def test_a_long_heartbeat_is_not_read():
    with pytest.raises(AclError, match="at most"):
        needed_by(RemotingCommand(34, body=b"{}" + b" " * HEARTBEAT_BYTES_MAX))


def test_a_header_that_lacks_fields_is_refused():
    with pytest.raises(AclError, match="consumerGroup"):
        needed_by(RemotingCommand(38, ext={}))


def test_what_an_administrator_may_set():
    check_permissions(["T1=PUB|SUB", "T2=DENY"])
    check_permissions(None)
    with pytest.raises(AclError, match="Res=Perm"):
        check_permissions(["T1"])
    with pytest.raises(AclError, match="expected permissions"):
        check_permissions(["T1=READ"])
