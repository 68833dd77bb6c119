"""Requests of clients about themselves and their groups. Source: MQClientAPIImpl (RocketMQ 4.9.8)."""

from collections.abc import Iterable

from twinlog.cluster.client.api.calls import Calls, understood
from twinlog.cluster.client.api.offset_store import queue_object, read_queue
from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.client.subscription import Subscription
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand


class GroupApi(Calls):
    """Heartbeats, members and locks."""

    __slots__ = ()

    async def heartbeat(self, address: str, body: bytes) -> None:
        """Request 34."""
        await self._call(address, RequestCode.HEART_BEAT, None, body)

    async def unregister(self, address: str, client_id: str, *, producer: str = "", consumer: str = "") -> None:
        """Request 35: the client leaves one group."""
        ext = {"clientID": client_id}
        ext |= {"producerGroup": producer} if producer else {}
        ext |= {"consumerGroup": consumer} if consumer else {}
        await self._call(address, RequestCode.UNREGISTER_CLIENT, ext)

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Request 38: the client ids of a group; none when nobody of it is connected there."""
        expected = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        answer = await self._call(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}, expected=expected
        )
        if answer.code != ResponseCode.SUCCESS:
            return []
        return understood(lambda: [str(each) for each in fastjson.loads(answer.body)["consumerIdList"]])

    async def check_filter(self, address: str, client_id: str, group: str, subscription: Subscription) -> None:
        """Request 46. Raises RequestError for a filter that the broker does not take: 1 not at all, 23 not this one."""
        body = {"clientId": client_id, "group": group, "subscriptionData": subscription.plain()}
        await self._call(address, RequestCode.CHECK_CLIENT_CONFIG, None, fastjson.dumps(body))

    async def lock(
        self, address: str, client_id: str, group: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Request 41, to the master: those of the queues of one broker that are this client's now."""
        answer = await self._call(address, RequestCode.LOCK_BATCH_MQ, None, _lock_body(client_id, group, queues))
        return understood(
            lambda: frozenset(read_queue(each) for each in fastjson.loads(answer.body).get("lockOKMQSet", ()))
        )

    async def unlock(self, address: str, client_id: str, group: str, queues: Iterable[MessageQueue]) -> None:
        """Request 42, oneway."""
        command = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, body=_lock_body(client_id, group, queues))
        await self.client.oneway(address, command, timeout_ms=self.timeout_ms)


def _lock_body(client_id: str, group: str, queues: Iterable[MessageQueue]) -> bytes:
    plain = [queue_object(queue) for queue in queues]
    return fastjson.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": plain})
