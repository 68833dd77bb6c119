"""The codec of etcd's gateway: replies as etcd 3.4 and 3.7 sent them, and what each refusal proves."""

import json
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.etcd import gateway
from twinlog.cluster.etcd.errors import EtcdError, LeaseNotFound, Refused, Unavailable, Unknown
from twinlog.cluster.etcd.gateway import Effect
from twinlog.cluster.etcd.protocol import Again, Changed, KeyValue, NotSwapped, Put, Swapped

HEADER = (
    '"header":{"cluster_id":"16744768533855442284","member_id":"15327479978471372400","revision":"3","raft_term":"2"}'
)
KV = '{"key":"L3QvYQ==","create_revision":"2","mod_revision":"3","version":"2","value":"Mg=="}'
SWAP = gateway.swap("/t/a", 2, [Put("/t/a", b"2")])
GET = gateway.get("/t/a")


def test_numbers_of_64_bits_are_strings():
    assert SWAP.body["compare"] == [{"key": "L3QvYQ==", "target": "MOD", "result": "EQUAL", "mod_revision": "2"}]
    assert json.loads(json.dumps(SWAP.body)) == SWAP.body
    assert SWAP.body["success"] == [{"request_put": {"key": "L3QvYQ==", "value": "Mg==", "lease": "0"}}]


def test_a_swap_that_succeeded_says_so():
    done = gateway.parsed(f'{{{HEADER},"succeeded":true,"responses":[{{"response_put":{{}}}}]}}'.encode())
    assert gateway.swapped(done, "/t/") == Swapped(3)


def test_a_swap_without_that_word_brings_what_is_there():
    not_done = (
        f'{{{HEADER},"responses":[{{"response_range":{{"header":{{"revision":"3"}},"kvs":[{KV}],"count":"1"}}}}]}}'
    )
    assert gateway.swapped(gateway.parsed(not_done.encode()), "/t/") == NotSwapped(KeyValue("a", b"2", 2, 3, 2), 3)
    empty = f'{{{HEADER},"responses":[{{"response_range":{{"header":{{"revision":"3"}}}}}}]}}'
    assert gateway.swapped(gateway.parsed(empty.encode()), "/t/") == NotSwapped(None, 3)


@pytest.mark.parametrize("rest", ["", ',"responses":[]', ',"responses":[{}]', ',"responses":[{"response_put":{}}]'])
def test_a_reply_without_a_response_is_no_lost_swap(rest):
    with pytest.raises((KeyError, IndexError)):
        gateway.swapped(gateway.parsed(f"{{{HEADER}{rest}}}".encode()), "/t/")


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b'"a"', b"{", b'{"result":{}}', b'{"result":1}', b"\xff", b'{"header":7}']
)
def test_what_has_no_header_is_no_answer(body):
    with pytest.raises(gateway.OddReplyError):
        gateway.parsed(body)


@pytest.mark.parametrize(
    ("status", "body", "cause", "of_a_swap"),
    [
        (401, b'{"error":"x","message":"etcdserver: invalid auth token","code":16}', "token expired", Unavailable),
        (401, b'{"code":16, "message":"etcdserver: invalid auth token"}', "token expired", Unavailable),
        (400, b'{"code":3, "message":"etcdserver: revision of auth store is old"}', "token expired", Unavailable),
        (400, b'{"code":3, "message":"etcdserver: user name is empty"}', "sign-in needed", Refused),
        (400, b'{"error":{"code":3,"message":"etcdserver: user name is empty"}}\n', "sign-in needed", Refused),
        (403, b'{"code":7, "message":"etcdserver: permission denied"}', "no permission", Refused),
        (404, b'{"code":5, "message":"etcdserver: requested lease not found"}', "lease not found", LeaseNotFound),
        (404, b"404 page not found\n", "gateway off", Refused),
        (404, b'{"code":5, "message":"Not Found"}', "gateway off", Refused),
        (
            400,
            b"CommonName of client sending a request against gateway will be ignored and not used as expected\n",
            "certificate with a CommonName",
            Refused,
        ),
        (429, b'{"code":8, "message":"etcdserver: mvcc: database space exceeded"}', "no space", Unknown),
        (429, b'{"code":8, "message":"etcdserver: too many requests"}', "busy", Unavailable),
        (503, b'{"code":14, "message":"etcdserver: leader changed"}', "no leader", Unknown),
        (503, b'{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}', "no leader", Unknown),
        (503, b'{"code":14, "message":"etcdserver: request timed out"}', "failing", Unknown),
        (503, b'{"code":14, "message":"write tcp 1->2: write: broken pipe"}', "gateway cut from its server", Unknown),
        (503, b'{"code":14, "message":"remote error: tls: bad certificate"}', "gateway cut from its server", Refused),
        (500, b'{"code":2, "message":"context deadline exceeded"}', "failing", Unknown),
        (500, b'{"code":15, "message":"etcdserver: corrupt cluster"}', "corrupt", Unknown),
        (400, b'{"code":3, "message":"etcdserver: key is not provided"}', "bad request", Refused),
        (400, b'{"code":3, "message":"etcdserver: request is too large"}', "request too large", Refused),
        (400, b"something else", "failing", Unknown),
        (407, b"", "refused by a proxy", Refused),
        (502, b"<html>", "failing", Unknown),
        (502, b"connect: permission denied", "failing", Unknown),
        (502, b'{"message":"upstream: too many requests"}', "failing", Unknown),
        (302, b"", "failing", Unknown),
        (503, b'{"error":null}', "failing", Unknown),
    ],
)
def test_what_a_refusal_proves(status, body, cause, of_a_swap):
    """Of a swap; a read is never Unknown, and both say what, why and what next."""
    failure = gateway.failure_of(status, body)
    error = failure.error(SWAP, "http://127.0.0.1:1")
    assert (failure.cause, type(error)) == (cause, of_a_swap)
    assert str(error).startswith("etcd: http://127.0.0.1:1: cannot swap /t/a: ")
    assert "None" not in str(error)
    assert type(failure.error(GET, "")) is (Unavailable if of_a_swap is Unknown else of_a_swap)
    assert error.fix or cause in ("token expired", "lease not found", "busy", "failing")


@given(st.integers(201, 599), st.one_of(st.binary(), st.recursive(st.none() | st.text(), st.lists).map(json.dumps)))
def test_no_refusal_is_taken_for_a_result(status, body):
    """Whatever it says: there is an error, and a swap is Unknown unless the text is one that etcd is known to send."""
    body = body.encode() if isinstance(body, str) else body
    error = gateway.failure_of(status, body).error(SWAP, "")
    assert isinstance(error, EtcdError)
    assert isinstance(error, Unknown) or status in (401, 403, 404, 405, 407)


def test_a_prefix_ends_before_the_next_key():
    assert b64decode(gateway.end_of("/t/")) == b"/t0"
    assert b64decode(gateway.end_of("/ÿ")) == b"/\xc3\xc0"


def test_a_watch_tells_changes_and_its_end():
    def told(text):
        return gateway.watch_reply(text.encode(), "/t/")

    created = told(f'{{"result":{{{HEADER},"created":true}}}}')
    assert (created.created, created.events, created.ended) == (True, (), "")
    kv = KeyValue("a", b"2", 2, 3, 2)
    assert told(f'{{"result":{{{HEADER},"events":[{{"kv":{KV}}}]}}}}').events == (Changed("a", kv, 3),)
    gone = '{"type":"DELETE","kv":{"key":"L3QvYQ==","mod_revision":"4"}}'
    assert told(f'{{"result":{{{HEADER},"events":[{gone}]}}}}').events == (Changed("a", None, 4),)
    assert told(f'{{"result":{{{HEADER},"canceled":true,"compact_revision":"3"}}}}').ended
    denied = told(f'{{"result":{{{HEADER},"created":true,"canceled":true,"cancel_reason":"permission denied"}}}}')
    assert denied.ended == "permission denied"
    assert told('{"error":{"message":"etcdserver: no leader"}}').ended == "etcdserver: no leader"
    for rubbish in ("", "{}", "[]", '{"result":{"events":[{}]}}', '{"error":7}'):
        with pytest.raises(gateway.OddReplyError):
            told(rubbish)
    assert Again("x") != Changed("x", None, 1)


def test_effects():
    """Only what leaves nothing behind may be sent to two members at a time."""
    assert [call.effect for call in (GET, gateway.keep_alive(1), gateway.STATUS)] == [Effect.NONE] * 3
    assert [call.effect for call in (gateway.grant(1), gateway.revoke(1))] == [Effect.REPEATABLE] * 2
    assert {call.effect for call in (SWAP, gateway.put("a", b"", 0), gateway.delete("a"))} == {Effect.ONCE}
