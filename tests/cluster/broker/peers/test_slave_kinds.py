"""What a master knows of its slaves: RocketMQ's verify nothing, and twinlog's say what they do."""

import pytest
from attrs import define

from twinlog.cluster.broker.peers.slave_kinds import SlaveKind, SlaveKinds, kind_of
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError


@define
class Members:
    """Answers as the members at these addresses would."""

    answers: dict[str, bytes | None]  # None: a RocketMQ broker.

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: float) -> RemotingCommand:
        assert command.code == RequestCode.TWINLOG_MEMBER_STATUS
        if address not in self.answers:
            raise RemotingConnectError(address, "nobody is there")
        body = self.answers[address]
        code = ResponseCode.SUCCESS if body is not None else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return RemotingCommand.response_to(command, code, body=body or b"")


async def test_slaves_are_known_by_their_end_of_the_connection():
    members = Members(
        {
            "10.0.0.1:1": b'{"ackMode": "written", "master": {"localAddress": "10.0.0.1:5001"}}',
            "10.0.0.2:1": b'{"ackMode": "flushed", "name": "a-2", "brokerId": 2, "master": {"localAddress": "10.0.0.2:5002"}}',
            "10.0.0.3:1": None,
        }
    )
    kinds = SlaveKinds(members, lambda: ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"])
    await kinds.ask()
    assert kinds.kinds == {"10.0.0.1:5001": SlaveKind(flushes=False), "10.0.0.2:5002": SlaveKind(True, "a-2", 2)}
    del members.answers["10.0.0.2:1"]
    await kinds.ask()
    assert kinds.kinds.keys() == {"10.0.0.1:5001"}, "who is silent is not known any more"


@pytest.mark.parametrize("status", [{}, {"master": None}, {"master": {"localAddress": None}}, {"master": "x"}])
def test_who_has_no_connection_has_no_kind(status):
    assert kind_of(status) == {}
