"""223, 307, 309: requests that only a consumer can answer, forwarded to it.

Sources: AdminBrokerProcessor.callConsumer, Broker2Client.getConsumeStatus (RocketMQ 4.9.8).
"""

from typing import Any

import structlog
import trio
from attrs import define

from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.processors.offset import refuse_old_client
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.clients import ClientInfo, ConsumerManager
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RemotingError, RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.headers import clients as h
from twinlog.cluster.remoting.headers.broker_admin import InvokeBrokerToGetConsumerStatus
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.errors import MessageFormatError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message

log = structlog.get_logger(__name__)

STATUS_MS_MAX = 5_000
STATUS_BYTES_MAX = 256 * 1024  # Of one client's response, which is parsed on the event loop.
FORWARD_SINCE_VERSION = 62  # V3_1_8_SNAPSHOT
CLIENT_ID_SHOWN_MAX = 255
_ID_LENGTHS = (32, 56)  # Store host with an IPv4 or an IPv6 address, and the log's offset: hex digits.


@define(eq=False)
class ClientForwardProcessor:
    """Forwards an administrator's request to a consumer, and its response back."""

    settings: Settings
    store: MessageStore
    consumers: ConsumerManager[Connection]
    client_calls: ClientCalls

    async def get_consumer_running_info(self, header: h.GetConsumerRunningInfo, request: Request) -> Reply:
        """Return the queues of a consumer, and its threads' stacks if asked for."""
        ext = dict(request.command.ext or {})
        return await self._ask(header.consumer_group, header.client_id, RemotingCommand(header.code, ext=ext))

    async def consume_message_directly(self, header: h.ConsumeMessageDirectly, request: Request) -> Reply:
        """Have a consumer consume one message of this log, and return its result."""
        ext = dict(request.command.ext or {}) | {"brokerName": self.settings.config.broker_name}
        body = self._record(header.msg_id)
        return await self._ask(
            header.consumer_group, header.client_id, RemotingCommand(header.code, ext=ext, body=body)
        )

    def _record(self, msg_id: str | None) -> bytes:
        try:
            if msg_id is None or len(msg_id) not in _ID_LENGTHS:
                raise ValueError
            record = self.store.message_at(int(msg_id[-16:], 16))
            if record is None:
                raise ValueError
            decode_message(record, check_crc=False)
        except (ValueError, MessageFormatError):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"message {(msg_id or '')[:56]} is not in this log") from None
        return bytes(record)

    async def _ask(self, group: str, client_id: str | None, command: RemotingCommand) -> Reply:
        """Forward a request to a client of a group, and return its response unchanged."""
        info = self.consumers.find(group)
        client = info.find_client(client_id) if info is not None and client_id else None
        shown = f"{group[: names.GROUP_LENGTH_MAX]}> <{(client_id or 'null')[:CLIENT_ID_SHOWN_MAX]}"
        if client is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{shown}> not online")
        if client.version < FORWARD_SINCE_VERSION:
            remark = (
                f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        try:
            answer = await self.client_calls.call(client.connection, command)
        except RequestError:
            raise
        except RemotingTimeoutError as error:
            remark = f"consumer <{shown}> Timeout: {error}"
            raise RequestError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except RemotingError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"invoke consumer <{shown}> Exception: {error}") from None
        return Reply(answer.code, answer.remark, answer.ext, bytes(answer.body))

    async def get_consumer_status(self, header: InvokeBrokerToGetConsumerStatus, request: Request) -> Reply:
        """Return the progress that each member reports; members that do not respond in time are left out."""
        info = self.consumers.find(header.group)
        if info is None:
            group = header.group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        asked = [each for each in info.clients.values() if header.client_addr in (None, "", each.client_id)]
        for client in asked:
            refuse_old_client(client.version)
        reported: dict[str, Any] = {}
        async with trio.open_nursery() as nursery:
            for client in asked:
                nursery.start_soon(self._ask_status, header, client, reported)
        return shared.json_reply({"consumerTable": reported, "messageQueueTable": {}})

    async def _ask_status(
        self,
        header: InvokeBrokerToGetConsumerStatus,
        client: ClientInfo[Connection],
        reported: dict[str, Any],
    ) -> None:
        question = h.GetConsumerStatusFromClient(header.topic, header.group)
        command = question.command()
        try:
            answer = await self.client_calls.call(client.connection, command, timeout_ms=STATUS_MS_MAX)
            if answer.code == ResponseCode.SUCCESS and 0 < len(answer.body) <= STATUS_BYTES_MAX:
                reported[client.client_id] = _queues(fastjson.loads(bytes(answer.body)))
        except (RemotingError, ValueError) as error:
            log.warning("a consumer did not report its progress", client=client.client_id, why=str(error)[:200])


def _queues(value: Any) -> dict[str, int]:
    """Read a client's table of offsets. Raises ValueError."""
    table = value.get("messageQueueTable") if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(isinstance(offset, int) for offset in table.values()):
        raise ValueError("no messageQueueTable")
    return {_queue_key(key): offset for key, offset in table.items()}


def _queue_key(key: str) -> str:
    """Read a queue that is a map key: fastjson writes an object, other clients a string."""
    if isinstance(key, fastjson.ObjectKey):
        return key
    fields = fastjson.loads(key)
    if not isinstance(fields, dict):
        raise ValueError("a key is not a queue")
    return fastjson.ObjectKey.of(fields)
