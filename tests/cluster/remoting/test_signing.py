"""Signatures: as RocketMQ's own client makes them, to the byte."""

import hmac
from base64 import b64encode

import pytest

from tests.cluster.remoting.captures import CAPTURES, frames
from twinlog.cluster.remoting.command import RemotingCommand, decode, encode
from twinlog.cluster.remoting.signing import Credentials, make_mac, make_signer, signed_fields

SECRET = "12345678"


@pytest.mark.parametrize(
    ("body", "signature"), [(b"", "rB7Cahcr7EjlmkQCsvDN4gR6fHs="), (b"hi", "l5sPXL6Qw3Cx7PCJvF3Xn2A+IHg=")]
)
def test_the_vectors_of_rocketmqs_signer(body, signature):
    ext = {"topic": "T1", "queueId": "0"}
    command = RemotingCommand(10, ext=ext, body=body)
    make_signer(Credentials("rocketmq2", SECRET))(command)
    assert command.ext["Signature"] == signature
    assert signed_fields(command.ext) == b"rocketmq20T1"


def test_a_request_that_somebody_signed_is_signed_anew():
    """A request that a member forwards for a client has the member's own signature."""
    command = RemotingCommand(
        10, ext={"topic": "T1", "queueId": "0", "AccessKey": "x", "Signature": "y", "SecurityToken": "z"}
    )
    make_signer(Credentials("rocketmq2", SECRET))(command)
    assert command.ext["Signature"] == "rB7Cahcr7EjlmkQCsvDN4gR6fHs="
    assert "SecurityToken" not in command.ext


def test_a_token_is_signed_too():
    command = RemotingCommand(10)
    make_signer(Credentials("rocketmq2", SECRET, "token"))(command)
    assert signed_fields(command.ext) == b"rocketmq2token"


def test_a_field_can_be_left_out():
    ext = {"a": "1", "_UNIQUE_KEY_QUERY": "true", "Signature": "s"}
    assert signed_fields(ext) == b"true1"
    assert signed_fields(ext, without="_UNIQUE_KEY_QUERY") == b"1"


def test_secrets_are_not_shown():
    assert "12345678" not in repr(Credentials("rocketmq2", SECRET, "12345678"))


def test_views_are_signed_like_bytes():
    mac = make_mac(SECRET)
    assert mac(b"rocketmq20T1", memoryview(b"xhix")[1:3]) == b"l5sPXL6Qw3Cx7PCJvF3Xn2A+IHg="


def test_a_lone_surrogate_does_no_harm():
    assert make_mac(SECRET)(signed_fields({"a": "\ud800"}), b"") == make_mac(SECRET)(b"?", b"")


def captured_requests():
    for capture in CAPTURES:
        for frame in frames(capture):
            command = decode(frame.payload)
            if not command.is_response:
                yield command


def test_requests_of_real_clients_are_signed_over_what_arrives():
    """Signed, sent and read again, in both header forms; the reference is made without our code."""
    sign, count = make_signer(Credentials("rocketmq2", SECRET)), 0
    for command in captured_requests():
        command.ext = dict(command.ext or {})
        sign(command)
        arrived = decode(encode(command)[4:])
        values = "".join(value for name, value in sorted(arrived.ext.items()) if name != "Signature")
        digest = hmac.digest(SECRET.encode(), values.encode() + bytes(arrived.body), "sha1")
        assert arrived.ext["Signature"] == b64encode(digest).decode()
        count += 1
    assert count > 500
