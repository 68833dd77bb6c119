"""A name server and the masters or slaves of two groups, as far as administration asks them; without sockets, or with."""

from collections.abc import Mapping
from functools import partial

import orjson
import trio
from attrs import define, field

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.errors import RemotingConnectError

NAMESRV = "127.0.0.1:9876"
A, B, B_SLAVE = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
TWO_MASTERS = {"a": {0: A}, "b": {0: B}}
A_AND_SLAVE = {"a": {0: A}, "b": {1: B_SLAVE}}  # The master of b is away.
CHANGES = frozenset({15, 17, 25, 200, 207, 215, 216, 222})
ACL = "org.apache.rocketmq.acl.common.AclException: no right, org.apache.rocketmq.acl.Plain.check(Plain.java)"


def refused(remark: str = ACL, code: int = 1) -> RemotingCommand:
    return RemotingCommand(code, remark=remark)


@define(eq=False)
class FakeCluster:
    """Every broker has the topic T with two queues of ten messages, and the group G, that has read four of each.

    `answers`: what a request to an address gets instead; None: no connection. `changed`: each change that was carried out.
    """

    groups: Mapping[str, Mapping[int, str]] = field(factory=lambda: TWO_MASTERS)
    answers: dict[tuple[str, int], RemotingCommand | None] = field(factory=dict)
    clients: dict[str, list[str]] = field(factory=dict)  # Client ids of the group G by address.
    changed: list[tuple[str, int]] = field(factory=list)
    namesrv: str = NAMESRV
    names: dict[str, str] = field(factory=dict)  # By address where they are served.

    @property
    def api(self) -> ClientApi:
        return ClientApi(self, (NAMESRV,))

    async def request(self, address, command, *, timeout_ms=3000):
        await trio.lowlevel.checkpoint()
        answer = self.answers.get((address, command.code), self._answer(address, command))
        if answer is None:
            raise RemotingConnectError(address, "refused")
        if command.code in CHANGES and answer.code == 0:
            self.changed.append((address, int(command.code)))
        return answer

    async def serve(self, nursery):
        """Let the command line reach them at `namesrv`. In `answers` and `changed` they go by the addresses above."""
        at = {}
        for address in (NAMESRV, A, B):
            (listener,) = await nursery.start(
                partial(trio.serve_tcp, partial(self._serve, address), 0, host="127.0.0.1")
            )
            at[address] = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        self.groups = {"a": {0: at[A]}, "b": {0: at[B]}}
        self.names = {there: address for address, there in at.items()}
        self.namesrv = at[NAMESRV]

    async def _serve(self, address, stream):
        reader = FrameReader()
        async for data in stream:
            for frame in reader.feed(data):
                command = decode(frame)
                try:
                    answer = await self.request(address, command)
                except RemotingConnectError:
                    return
                answer = RemotingCommand.response_to(command, answer.code, remark=answer.remark, body=answer.body)
                await stream.send_all(encode(answer))

    def _answer(self, address, command):
        if command.code in CHANGES - {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET}:
            return RemotingCommand(0)
        if command.code == RequestCode.GET_CONSUMER_CONNECTION_LIST and not self.clients.get(address):
            return RemotingCommand(ResponseCode.CONSUMER_NOT_ONLINE)
        body = self._body(address, command)
        if body is None:
            return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
        return RemotingCommand(0, body=body if isinstance(body, bytes) else orjson.dumps(body))

    def _body(self, address, command):
        brokers = {
            name: {"cluster": "C", "brokerName": name, "brokerAddrs": {str(each): at for each, at in members.items()}}
            for name, members in self.groups.items()
        }
        names = {self.names.get(at, at): name for name, members in self.groups.items() for at in members.values()}
        name = names.get(address)
        match command.code:
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                return {"brokerAddrTable": brokers}
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                queues = [{"brokerName": each, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for each in brokers]
                return {"queueDatas": queues, "brokerDatas": list(brokers.values())}
            case RequestCode.GET_TOPIC_CONFIG:
                return TopicConfig(command.ext["topic"], 2, 2).to_json()
            case RequestCode.GET_TOPIC_STATS_INFO:
                keys = ({"topic": command.ext["topic"], "brokerName": name, "queueId": each} for each in range(2))
                ends = {"minOffset": 0, "maxOffset": 10, "lastUpdateTimestamp": 0}
                return {"offsetTable": {orjson.dumps(key).decode(): ends for key in keys}}
            case RequestCode.GET_ALL_CONSUMER_OFFSET:
                return {"offsetTable": {"T@G": {"0": 4, "1": 4}}}
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return {"subscriptionGroupTable": {"G": SubscriptionGroupConfig(name="G").to_json()}}
            case RequestCode.QUERY_TOPIC_CONSUME_BY_WHO:
                return {"groupList": ["G"]}
            case RequestCode.GET_CONSUMER_CONNECTION_LIST:
                return {"connectionSet": [{"clientId": each, "clientAddr": "h:1"} for each in self.clients[address]]}
            case RequestCode.GET_BROKER_CONFIG:
                return b"traceOn=true\n"
            case RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
                return {"offsetTable": {}}
        return None
