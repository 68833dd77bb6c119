"""Requests about messages: send, pull, query, send back, end a transaction."""

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, request_header, wire


@request_header(RequestCode.SEND_MESSAGE)
class SendMessage(RequestHeader):
    """10, sent by Go and Python clients."""

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


@request_header(RequestCode.SEND_MESSAGE_V2)
class SendMessageV2(SendMessage):
    """310, sent by Java clients: SendMessage with names of one letter, which are faster to parse."""

    wire_letters = "abcdefghijklmn"


@request_header(RequestCode.SEND_BATCH_MESSAGE)
class SendBatchMessage(SendMessageV2):
    """320: the body is a sequence of encoded messages."""


@request_header(RequestCode.SEND_REPLY_MESSAGE)
class SendReplyMessage(SendMessage):
    """324: a consumer's reply to a request message."""


@request_header(RequestCode.SEND_REPLY_MESSAGE_V2)
class SendReplyMessageV2(SendMessageV2):
    """325"""


@request_header(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
class PushReplyMessageToClient(RequestHeader):
    """326, broker to producer: the reply to its request message. Hosts are `ip:port`."""

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


@request_header(RequestCode.PULL_MESSAGE)
class PullMessage(RequestHeader):
    """11. sys_flag bits: 1 commit_offset is valid, 2 may be held, 4 use this request's subscription, 16 lite pull."""

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


@request_header(RequestCode.LITE_PULL_MESSAGE)
class LitePullMessage(PullMessage):
    """361, 5.x: sent by lite pull consumers instead of 11."""


@request_header(RequestCode.QUERY_MESSAGE)
class QueryMessage(RequestHeader):
    """12: records by key, or by UNIQ_KEY when unique_key_query is set."""

    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key_query: bool | None = field(default=None, metadata=wire("_UNIQUE_KEY_QUERY"))


@request_header(RequestCode.VIEW_MESSAGE_BY_ID)
class ViewMessageById(RequestHeader):
    """33: the record at a commit log offset."""

    offset: I64
    topic: str | None = None  # 5.x


@request_header(RequestCode.CONSUMER_SEND_MSG_BACK)
class ConsumerSendMsgBack(RequestHeader):
    """36: a record that could not be consumed. delay_level 0: the broker chooses; below 0: dead letter."""

    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@request_header(RequestCode.END_TRANSACTION)
class EndTransaction(RequestHeader):
    """37. commit_or_rollback: 0 unknown, 8 commit, 12 rollback."""

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    broker_name: str | None = field(default=None, metadata=wire("bname"))
    topic: str | None = None  # 5.x


@request_header(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionState(RequestHeader):
    """39, broker to producer, oneway."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))  # 5.x
