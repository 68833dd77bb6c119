"""Responses by template have the same bytes as responses that are encoded one by one."""

import pytest

from tests.cluster.broker.helpers import FakeConnection
from twinlog.cluster.remoting.command import FRAME_SIZE_MAX, ROCKETMQ, RemotingCommand, decode, encode_header
from twinlog.cluster.remoting.errors import RemotingProtocolError
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.response_template import ResponseTemplate, TemplateReply

NAMES = {"minOffset": "%d", "msgId": "7F00000100002A9F%016X"}
TEXTS = {"minOffset": "%d", "msgId": "%b"}


@pytest.mark.parametrize("serialize_type", [0, ROCKETMQ])
@pytest.mark.parametrize("remark", [None, "FOUND", 'a "quoted" 100 %s remark, %d and @minOffset'])
@pytest.mark.parametrize("opaque", [0, 7, 2**31 - 1])
def test_it_is_what_encoding_makes(serialize_type, remark, opaque):
    constants = {"region": '50 % "x"', "TRACE_ON": "true"}
    request = RemotingCommand(11, opaque, serialize_type=serialize_type)
    ext = {"minOffset": str(2**63 - 1), "msgId": "7F00000100002A9F0000000000ABCDEF", **constants}
    response = RemotingCommand.response_to(request, 3, remark=remark, ext=ext)
    for names, place in ((NAMES, 0xABCDEF), (TEXTS, ext["msgId"].encode())):
        template = ResponseTemplate(3, remark, names, constants)
        for body_size in (0, 1_000):
            assert template.head(request, (2**63 - 1, place), body_size) == encode_header(response, body_size)
        assert template.ext((2**63 - 1, place)) == ext


@pytest.mark.parametrize("serialize_type", [0, ROCKETMQ])
def test_a_body_that_no_peer_takes_is_refused(serialize_type):
    template = ResponseTemplate(0, None, NAMES)
    request = RemotingCommand(11, 1, serialize_type=serialize_type)
    with pytest.raises(RemotingProtocolError, match="bytes, at most"):
        template.head(request, (1, 2), FRAME_SIZE_MAX)


def test_a_reply_by_template_is_sent_like_any_other():
    names = dict.fromkeys(NAMES, "%d")
    template, connection = ResponseTemplate(0, "FOUND", names), FakeConnection()
    reply = TemplateReply(template, (5, 6), [memoryview(b"ab"), memoryview(b"cd")], 4)
    plain = Reply(0, "FOUND", template.ext((5, 6)), [b"ab", b"cd"])
    request = RemotingCommand(11, 77)
    Request(connection, request).reply(reply)
    Request(connection, request).reply(plain)
    assert connection.sent[0] == connection.sent[1]
    assert decode(b"".join(reply.frame(request))[4:]).ext == {"minOffset": "5", "msgId": "6"}


def test_nobody_answers_a_oneway_request():
    connection = FakeConnection()
    Request(connection, RemotingCommand(11, 1, flag=2)).reply(TemplateReply(ResponseTemplate(0, None, {}), ()))
    assert not connection.sent
