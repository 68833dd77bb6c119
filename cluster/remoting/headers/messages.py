"""Requests about messages: send, pull, query, send back, end a transaction."""

from typing import ClassVar

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, header, wire


@header
class SendMessage(RequestHeader):
    """10, sent by Go and Python clients. The fields of SendMessageV2 under their full names."""

    code: ClassVar[RequestCode] = RequestCode.SEND_MESSAGE
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    batch: bool = False
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class SendMessageV2(RequestHeader):
    """310, sent by Java clients: SendMessage with names of one letter, which are faster to parse."""

    code: ClassVar[RequestCode] = RequestCode.SEND_MESSAGE_V2
    producer_group: str = field(metadata=wire("a"))
    topic: str = field(metadata=wire("b"))
    default_topic: str = field(metadata=wire("c"))
    default_topic_queue_nums: I32 = field(metadata=wire("d"))
    queue_id: I32 = field(metadata=wire("e"))
    sys_flag: I32 = field(metadata=wire("f"))
    born_timestamp: I64 = field(metadata=wire("g"))
    flag: I32 = field(metadata=wire("h"))
    properties: str | None = field(default=None, metadata=wire("i"))
    reconsume_times: I32 | None = field(default=None, metadata=wire("j"))
    unit_mode: bool = field(default=False, metadata=wire("k"))
    max_reconsume_times: I32 | None = field(default=None, metadata=wire("l"))
    batch: bool = field(default=False, metadata=wire("m"))
    broker_name: str | None = field(default=None, metadata=wire("n"))


@header
class SendBatchMessage(SendMessageV2):
    """320: the body is a sequence of encoded messages."""

    code: ClassVar[RequestCode] = RequestCode.SEND_BATCH_MESSAGE


@header
class SendReplyMessage(SendMessage):
    """324: a consumer's reply to a request message."""

    code: ClassVar[RequestCode] = RequestCode.SEND_REPLY_MESSAGE


@header
class SendReplyMessageV2(SendMessageV2):
    """325"""

    code: ClassVar[RequestCode] = RequestCode.SEND_REPLY_MESSAGE_V2


@header
class PushReplyMessageToClient(RequestHeader):
    """326, broker to producer: the reply to its request message. Hosts are `ip:port`."""

    code: ClassVar[RequestCode] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    born_host: str
    store_host: str
    store_timestamp: I64
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool = False


@header
class PullMessage(RequestHeader):
    """11. sys_flag bits: 1 commit_offset is valid, 2 may be held, 4 use this request's subscription, 16 lite pull."""

    code: ClassVar[RequestCode] = RequestCode.PULL_MESSAGE
    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    sub_version: I64
    subscription: str | None = None
    expression_type: str | None = None  # None is TAG.
    broker_name: str | None = field(default=None, metadata=wire("bname"))
    max_msg_bytes: I32 | None = None  # 5.x
    request_source: I32 | None = None  # 5.x


@header
class LitePullMessage(PullMessage):
    """361, 5.x: sent by lite pull consumers instead of 11."""

    code: ClassVar[RequestCode] = RequestCode.LITE_PULL_MESSAGE


@header
class QueryMessage(RequestHeader):
    """12: records by key, or by UNIQ_KEY when unique_key_query is set."""

    code: ClassVar[RequestCode] = RequestCode.QUERY_MESSAGE
    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool | None = field(default=None, metadata=wire("_UNIQUE_KEY_QUERY"))


@header
class ViewMessageById(RequestHeader):
    """33: the record at a commit log offset."""

    code: ClassVar[RequestCode] = RequestCode.VIEW_MESSAGE_BY_ID
    offset: I64
    topic: str | None = None  # 5.x


@header
class ConsumerSendMsgBack(RequestHeader):
    """36: a record that could not be consumed. delay_level 0: the broker chooses; below 0: dead letter."""

    code: ClassVar[RequestCode] = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class EndTransaction(RequestHeader):
    """37. commit_or_rollback: 0 unknown, 8 commit, 12 rollback."""

    code: ClassVar[RequestCode] = RequestCode.END_TRANSACTION
    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    broker_name: str | None = field(default=None, metadata=wire("bname"))
    topic: str | None = None  # 5.x


@header
class CheckTransactionState(RequestHeader):
    """39, broker to producer, oneway."""

    code: ClassVar[RequestCode] = RequestCode.CHECK_TRANSACTION_STATE
    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))  # 5.x
