"""Signatures of members: whatever is changed, or played again anywhere else, is refused."""

from itertools import permutations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.config.group_secret import GroupSecret, id_of
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import ONEWAY, RESPONSE, RemotingCommand, decode, encode
from twinlog.cluster.remoting.errors import MemberAuthError
from twinlog.cluster.remoting.member_auth import (
    COUNTER,
    FIELDS,
    MAC,
    SECRET,
    SENDER,
    Challenge,
    ClientSession,
    ServerSession,
    Session,
    is_signed,
    wants_signature,
)
from twinlog.ha.wire.protocol import ACK, TICKET_MAX

CHALLENGE = Challenge("c1", "s1", "boot-1", "b")
TEXTS = st.text(max_size=8)
EXTS = st.none() | st.dictionaries(TEXTS.filter(lambda name: name not in FIELDS), TEXTS, max_size=4)


def secret(byte):
    return GroupSecret(id_of(byte * 32), byte * 32)


ONE, TWO = secret(b"1"), secret(b"2")


def find(*known):
    return {each.id: each for each in known}.get


def request(**change):
    fields = {"code": 20004, "ext": {"x": "1", "y": "22"}, "body": b"body"} | change
    return RemotingCommand(fields.pop("code"), 7, **fields)


def wire(command):
    """The command as it arrives."""
    return decode(encode(command)[4:])


def copy(command):
    return evolve(command, ext=dict(command.ext))


def signed_by(client, command, sender="a"):
    signed = client.sign(command, sender)
    return signed, wire(command)


def ends(challenge=CHALLENGE, own=ONE):
    return ClientSession(Session.of(own, challenge)), ServerSession(challenge)


def refused(server, command, *known, why="."):
    before = server.counter
    with pytest.raises(MemberAuthError, match=why):
        server.verify(copy(command), find(*known or (ONE,)))
    assert server.counter == before, "A request that is refused changes nothing"


@given(
    code=st.integers(0, 32_767),
    ext=EXTS,
    body=st.binary(max_size=64),
    sender=TEXTS,
    serialize_type=st.sampled_from((0, 1)),
)
def test_what_was_signed_is_accepted_and_arrives_as_it_was(code, ext, body, sender, serialize_type):
    client, server = ends()
    ours = request(code=code, ext=ext, body=body, serialize_type=serialize_type)
    sent, received = signed_by(client, copy(ours) if ext is not None else evolve(ours), sender)
    assert is_signed(received)
    verified = server.verify(received, find(ONE))
    assert (verified.sender, verified.counter, verified.session) == (
        sender.encode("utf-8", "replace").decode(),
        1,
        sent.session,
    )
    assert (received.ext, bytes(received.body)) == (wire(ours).ext or {}, body)


@given(
    st.integers(0, 10_000),
    st.sampled_from(("code", "flag", "remark", "name", "value", "order", "more", "less", "body", *FIELDS)),
)
def test_a_change_anywhere_is_refused(seed, where):
    client, server = ends()
    _, sent = signed_by(client, request(ext={f"k{i}": str(seed + i) for i in range(3)}, body=b"%d" % seed))
    changed = copy(sent)
    match where:
        case "code":
            changed.code = 20005
        case "flag":
            changed.flag ^= ONEWAY
        case "remark":
            changed.remark = "x"
        case "name":
            changed.ext = {("k9" if name == "k1" else name): value for name, value in changed.ext.items()}
        case "value":
            changed.ext["k1"] += "0"
        case "order":
            changed.ext = {"k1": changed.ext.pop("k1")} | changed.ext
        case "more":
            changed.ext["k4"] = ""
        case "less":
            del changed.ext["k2"]
        case "body":
            changed.body = bytes(changed.body) + b"0"
        case _:
            value = changed.ext[where]
            at = seed % len(value)
            changed.ext[where] = value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
    refused(server, changed, ONE, TWO)
    server.verify(sent, find(ONE))


@given(st.data())
def test_a_changed_byte_of_the_frame_is_refused_or_changes_nothing(data):
    """As it is received: what the codec reads into the same command is the same request."""
    client, server = ends()
    command = request()
    client.sign(command, "a")
    frame = bytearray(encode(command)[4:])
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    try:
        changed = decode(bytes(frame))
    except Exception:
        return
    if any(getattr(changed, name) != getattr(wire(command), name) for name in ("code", "flag", "ext", "body")):
        with pytest.raises(MemberAuthError):
            server.verify(changed, find(ONE))


@pytest.mark.parametrize("missing", FIELDS)
def test_a_signature_that_lacks_a_part_is_refused(missing):
    client, server = ends()
    _, sent = signed_by(client, request())
    del sent.ext[missing]
    assert is_signed(sent)
    refused(server, sent, why=f"lacks {missing}")


@pytest.mark.parametrize("counter", ["", "-1", "0", "1.0", "\u0661", "9" * 19, "9" * 4000, " 1"])
def test_a_counter_that_is_none_is_refused(counter):
    client, server = ends()
    _, sent = signed_by(client, request())
    sent.ext[COUNTER] = counter
    refused(server, sent)


def test_a_request_is_carried_out_once_and_in_order():
    client, server = ends()
    sent = [signed_by(client, request(body=b"%d" % number))[1] for number in range(3)]
    server.verify(copy(sent[1]), find(ONE))
    refused(server, sent[1], why="was received before")
    refused(server, sent[0], why="was received before: its number is 1, after 2")
    server.verify(copy(sent[2]), find(ONE))


@pytest.mark.parametrize("what", ["client_nonce", "server_nonce", "boot_id", "member"])
def test_a_request_is_worthless_elsewhere(what):
    """On another connection, at another process, at another member: each has another challenge."""
    client, _ = ends()
    _, sent = signed_by(client, request())
    refused(ServerSession(evolve(CHALLENGE, **{what: "other"})), sent, why="does not fit")


def test_parts_cannot_be_moved_between_neighbours():
    """Nonces are as long as the other end says: a byte of one is no byte of the next."""
    keys = {Session.of(ONE, Challenge(*parts))._key for parts in permutations(("", "a", "ab", "b"))}
    assert len(keys) == 24
    client, server = ends()
    _, sent = signed_by(client, request(ext={"a": "bc"}))
    sent.ext = {("ab" if name == "a" else name): ("c" if name == "a" else value) for name, value in sent.ext.items()}
    refused(server, sent)


def test_a_secret_that_is_not_accepted_is_named():
    client, server = ends(own=TWO)
    _, sent = signed_by(client, request())
    refused(server, sent, why=f"the secret {TWO.id} is not known here")
    forged = copy(sent)
    forged.ext[SECRET] = ONE.id
    refused(server, forged, why="does not fit")


def test_while_a_secret_is_rotated_both_are_accepted_and_a_dropped_one_ends():
    old, server = ends()
    new = ClientSession(Session.of(TWO, CHALLENGE))
    new.counter = 1
    server.verify(signed_by(old, request())[1], find(ONE, TWO))
    server.verify(signed_by(new, request())[1], find(TWO, ONE))
    old.counter = 2
    refused(server, signed_by(old, request())[1], TWO, why="is not known here")


def response_to(command, **change):
    return RemotingCommand(0, command.opaque, RESPONSE, {"z": "1"}, b"answer", **change)


def test_the_answer_is_proven_and_arrives_as_it_was():
    client, server = ends()
    sent, received = signed_by(client, request())
    answer = response_to(received, remark="fine")
    server.verify(received, find(ONE)).sign_response(answer)
    answer = wire(answer)
    sent.check_response(answer)
    assert (answer.ext, bytes(answer.body), answer.remark) == ({"z": "1"}, b"answer", "fine")


@pytest.mark.parametrize(
    "change", [{"code": 16}, {"remark": "x"}, {"body": b"answe"}, {"flag": 0}, {"ext": {"z": "2"}}]
)
def test_a_changed_answer_is_refused(change):
    client, server = ends()
    sent, received = signed_by(client, request())
    answer = response_to(received)
    server.verify(received, find(ONE)).sign_response(answer)
    mac = answer.ext[MAC]
    answer = evolve(answer, **change)
    answer.ext[MAC] = mac
    with pytest.raises(MemberAuthError, match="does not fit the answer"):
        sent.check_response(answer)


def test_an_answer_answers_nothing_else():
    client, server = ends()
    first, received = signed_by(client, request())
    answer = response_to(received)
    server.verify(received, find(ONE)).sign_response(answer)
    second, received = signed_by(client, request())
    for other in (
        second,
        Session.of(ONE, evolve(CHALLENGE, server_nonce="s2")).signed("a", 1),
        evolve(first, sender="b"),
    ):
        with pytest.raises(MemberAuthError):
            other.check_response(copy(answer))
    with pytest.raises(MemberAuthError, match="not signed: code 16 no, thanks"):
        second.check_response(RemotingCommand(16, remark="no, thanks"))
    with pytest.raises(MemberAuthError):  # Its own request, sent back.
        second.check_response(copy(received))


@given(st.integers(-(1 << 63), TICKET_MAX), st.integers(1, 1 << 40))
def test_what_is_shown_for_a_ticket_is_a_ticket_and_hides_it(ticket, counter):
    session = Session.of(ONE, CHALLENGE)
    shown = session.signed("a", counter).ticket(ticket)
    assert shown <= TICKET_MAX
    assert len(ACK.pack(shown)) == 8
    assert shown != ticket
    others = [
        session.signed("b", counter).ticket(ticket),
        session.signed("a", counter + 1).ticket(ticket),
        Session.of(TWO, CHALLENGE).signed("a", counter).ticket(ticket),
    ]
    assert shown not in others


def test_the_requests_that_members_sign():
    codes = {code for code in RequestCode if wants_signature(RemotingCommand(code))}
    assert codes == {20004, 20005, 20006}
    assert wants_signature(RemotingCommand(1007, ext={"twinlogMember": "h:1"}))
    assert not wants_signature(RemotingCommand(1007, ext={}))
    assert not is_signed(RemotingCommand(1007))
    assert all(is_signed(RemotingCommand(10, ext={name: ""})) for name in (SENDER, SECRET, COUNTER, MAC))


def test_keys_are_not_shown():
    assert "key" not in repr(Session.of(ONE, CHALLENGE))
