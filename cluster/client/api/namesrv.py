"""Requests to name servers. Source: MQClientAPIImpl (RocketMQ 4.9.8)."""

from twinlog.cluster.client.api.calls import Calls, understood
from twinlog.cluster.client.route import BrokerAddresses, TopicRoute, read_cluster, read_route
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.errors import RequestError


class NameServerApi(Calls):
    """What name servers know."""

    __slots__ = ()

    async def topic_route(self, topic: str) -> TopicRoute | None:
        """None when no broker has the topic."""
        try:
            answer = await self._ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        except RequestError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return understood(lambda: read_route(topic, fastjson.loads(answer.body)))

    async def cluster(self) -> tuple[BrokerAddresses, ...]:
        """Every broker group that is registered."""
        answer = await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        return understood(lambda: read_cluster(fastjson.loads(answer.body)))

    async def topics(self) -> tuple[str, ...]:
        """The names of all topics."""
        answer = await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)
        return understood(lambda: tuple(sorted(fastjson.loads(answer.body).get("topicList", ()))))
