"""Requests of RocketMQ that no server here serves, with the reason. The answer is code 3, and says so.

Codes that the releases define but that none of their own servers serve are here, too: no client sends them.
Source: RequestCode.java (RocketMQ 4.9.8 and 5.3.3).
"""

from collections.abc import Mapping

from attrs import frozen


@frozen
class NotServed:
    """A request code by its name in RocketMQ. `reason` ends the sentence that a caller reads."""

    name: str
    reason: str


_CONTROLLER = "there is no controller; roles change with twinlog switchover"
_POP = "there is no pop consumption; consume by push or pull"
_QUEUES = "clients assign queues to themselves"
_TIMER = "there are no timer messages; there are delay levels"
_COLD = "cold data is not limited by group"
_ACL_2 = "there is no ACL 2.0; users and rights are in plain_acl.yml"
_ROCKSDB = "there is no RocksDB"
_ACTING_MASTER = "slaves do not act as masters"
_UNUSED = "no RocketMQ 4.9 or 5.3 serves it, either"
_FILTER_SERVER = "there are no filter servers; filter by tags or SQL92"
_REASONS = {
    _CONTROLLER: {
        1001: "CONTROLLER_ALTER_SYNC_STATE_SET",
        1002: "CONTROLLER_ELECT_MASTER",
        1003: "CONTROLLER_REGISTER_BROKER",
        1004: "CONTROLLER_GET_REPLICA_INFO",
        1005: "CONTROLLER_GET_METADATA_INFO",
        1006: "CONTROLLER_GET_SYNC_STATE_DATA",
        1008: "NOTIFY_BROKER_ROLE_CHANGED",
        1009: "UPDATE_CONTROLLER_CONFIG",
        1010: "GET_CONTROLLER_CONFIG",
        1011: "CLEAN_BROKER_DATA",
        1012: "CONTROLLER_GET_NEXT_BROKER_ID",
        1013: "CONTROLLER_APPLY_BROKER_ID",
        1014: "BROKER_CLOSE_CHANNEL_REQUEST",
        1015: "CHECK_NOT_ACTIVE_BROKER_REQUEST",
        1016: "GET_BROKER_LIVE_INFO_REQUEST",
        1017: "GET_SYNC_STATE_DATA_REQUEST",
        1018: "RAFT_BROKER_HEART_BEAT_EVENT_REQUEST",
    },
    _POP: {
        200050: "POP_MESSAGE",
        200051: "ACK_MESSAGE",
        200052: "PEEK_MESSAGE",
        200053: "CHANGE_MESSAGE_INVISIBLETIME",
        200054: "NOTIFICATION",
        200055: "POLLING_INFO",
        200056: "POP_ROLLBACK",
        200151: "BATCH_ACK_MESSAGE",
    },
    _QUEUES: {400: "QUERY_ASSIGNMENT", 401: "SET_MESSAGE_REQUEST_MODE", 402: "GET_ALL_MESSAGE_REQUEST_MODE"},
    _TIMER: {60: "GET_TIMER_CHECK_POINT", 61: "GET_TIMER_METRICS", 370: "RECALL_MESSAGE"},
    _COLD: {
        2001: "UPDATE_COLD_DATA_FLOW_CTR_CONFIG",
        2002: "REMOVE_COLD_DATA_FLOW_CTR_CONFIG",
        2003: "GET_COLD_DATA_FLOW_CTR_INFO",
        2004: "SET_COMMITLOG_READ_MODE",
    },
    _ACL_2: {
        3001: "AUTH_CREATE_USER",
        3002: "AUTH_UPDATE_USER",
        3003: "AUTH_DELETE_USER",
        3004: "AUTH_GET_USER",
        3005: "AUTH_LIST_USER",
        3006: "AUTH_CREATE_ACL",
        3007: "AUTH_UPDATE_ACL",
        3008: "AUTH_DELETE_ACL",
        3009: "AUTH_GET_ACL",
        3010: "AUTH_LIST_ACL",
    },
    _ROCKSDB: {354: "CHECK_ROCKSDB_CQ_WRITE_PROGRESS", 355: "EXPORT_ROCKSDB_CONFIG_TO_JSON"},
    _ACTING_MASTER: {
        905: "NOTIFY_MIN_BROKER_ID_CHANGE",
        906: "EXCHANGE_BROKER_HA_INFO",
        908: "RESET_MASTER_FLUSH_OFFSET",
    },
    _UNUSED: {
        13: "QUERY_BROKER_OFFSET",
        22: "GET_TOPIC_CONFIG_LIST",
        23: "GET_TOPIC_NAME_LIST",
        27: "TRIGGER_DELETE_FILES",
        47: "GET_CLIENT_CONFIG",
        209: "SUSPEND_CONSUMER",
        210: "RESUME_CONSUMER",
        211: "RESET_CONSUMER_OFFSET_IN_CONSUMER",
        212: "RESET_CONSUMER_OFFSET_IN_BROKER",
        213: "ADJUST_CONSUMER_THREAD_POOL",
        214: "WHO_CONSUME_THE_MESSAGE",
    },
    _FILTER_SERVER: {301: "REGISTER_FILTER_SERVER", 302: "REGISTER_MESSAGE_FILTER_CLASS"},
    "who consumes what is told by the other side: 300 by topic, 203 by group": {
        343: "QUERY_TOPICS_BY_CONSUMER",
        345: "QUERY_SUBSCRIPTION_BY_CONSUMER",
    },
    "a group is closed with consumeEnable (200)": {353: "UPDATE_AND_GET_GROUP_FORBIDDEN"},
    "there are no static topics": {513: "UPDATE_AND_CREATE_STATIC_TOPIC"},
    "a process is one broker": {902: "ADD_BROKER", 903: "REMOVE_BROKER"},
}

NOT_SERVED: Mapping[int, NotServed] = {
    code: NotServed(name, reason) for reason, codes in _REASONS.items() for code, name in codes.items()
}


def refusal(code: int) -> str:
    """The remark of code 3: RocketMQ's words, and why where that is known."""
    known = NOT_SERVED.get(code)
    return f" request type {code} not supported{f': {known.reason}' if known else ''}"
