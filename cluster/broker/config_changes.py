"""Options that request 25 may change while a broker runs: an allow-list with a range for each number. Pure.

RocketMQ sets any key by reflection, except those in its black list, and ignores unknown ones. Here all other keys are refused,
especially paths, hosts and ports, and those that would weaken what was acknowledged.
Sources: AdminBrokerProcessor.updateBrokerConfig, Configuration.update (RocketMQ 4.9.8).
"""

from collections.abc import Collection, Mapping
from typing import Any, get_type_hints

import attrs
from attrs import fields, frozen

from twinlog.cluster.broker.config import NO_BIT_MAPS, BrokerConfig, SecretMode
from twinlog.cluster.config import rocketmq_keys
from twinlog.cluster.config.config_file import format_value, read_value
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.store.config import StoreConfig

_DAY_MS = 86_400_000
_MINUTE_MS = 60_000

# Key -> allowed numbers; None: by the option's type. All of these apply at once.
CHANGEABLE: Mapping[str, range | None] = {
    # BrokerConfig
    "brokerPermission": range(0, 7, 2),
    "autoCreateTopicEnable": None,
    "autoCreateSubscriptionGroup": None,
    "traceOn": None,
    "storeReplyMessageEnable": None,
    "rejectTransactionMessage": None,
    "enablePropertyFilter": None,
    "filterSupportRetry": None,
    "transactionTimeOut": range(0, _DAY_MS + 1),
    "transactionCheckMax": range(1, 1001),
    "transactionCheckInterval": range(100, _DAY_MS + 1),
    "startAcceptSendRequestTimeStamp": range(0, 1 << 53),
    "flushConsumerOffsetInterval": range(100, 10 * _MINUTE_MS + 1),
    "flushDelayOffsetInterval": range(100, 10 * _MINUTE_MS + 1),
    "longPollingEnable": None,
    "shortPollingTimeMills": range(100, _MINUTE_MS + 1),
    "slaveReadEnable": None,
    "registerNameServerPeriod": range(10_000, _MINUTE_MS + 1),
    "registerBrokerTimeoutMills": range(100, _MINUTE_MS + 1),
    "haSecret": None,  # To required only: anybody may send this request where there is no access control.
    # StoreConfig
    "maxMessageSize": range(1024, (15 << 20) + 1),  # A frame holds 16 MiB.
    "osPageCacheBusyTimeOutMills": range(0, _MINUTE_MS + 1),
    "syncFlushTimeout": range(100, _MINUTE_MS + 1),
    "flushIntervalCommitLog": range(1, _MINUTE_MS + 1),
    "flushCommitLogLeastPages": range(0, 1025),
    "flushCommitLogThoroughInterval": range(100, 10 * _MINUTE_MS + 1),
    "flushIntervalConsumeQueue": range(100, _MINUTE_MS + 1),
    "flushConsumeQueueThoroughInterval": range(1000, 60 * _MINUTE_MS + 1),
    "maxTransferBytesOnMessageInMemory": range(4096, (8 << 20) + 1),
    "maxTransferCountOnMessageInMemory": range(1, 1025),
    "maxTransferBytesOnMessageInDisk": range(4096, (8 << 20) + 1),
    "maxTransferCountOnMessageInDisk": range(1, 1025),
    "accessMessageInMemoryMaxRatio": range(0, 101),
    "maxMsgsNumBatch": range(1, 1025),
    "defaultQueryMaxNum": range(1, 1025),
    "offsetCheckInSlave": None,
    "cleanResourceInterval": range(1000, 60 * _MINUTE_MS + 1),
    "deleteWhen": None,
    "fileReservedTime": range(1, 87_601),
    "deleteFileBatchMax": range(1, 1001),
    "deleteCommitLogFilesInterval": range(0, _MINUTE_MS + 1),
    "deleteConsumeQueueFilesInterval": range(0, _MINUTE_MS + 1),
    "redeleteHangedFileInterval": range(1000, 60 * _MINUTE_MS + 1),
    "destroyMapedFileIntervalForcibly": range(1000, 60 * _MINUTE_MS + 1),
    "diskMaxUsedSpaceRatio": range(30, 96),
    "diskSpaceCleanForciblyRatio": range(50, 101),
    "diskSpaceWarningLevelRatio": range(50, 101),
    "cleanFileForciblyEnable": None,
}
BLACK_LIST = frozenset({"configBlackList", "brokerConfigPath", "rocketmqHome"})
KEYS_MAX = 256  # Of one request.
_NOT_WEAKER = (
    "haSecret=optional would accept members without the secret: this is not done by a request, which anybody may have sent. "
    "Change its configuration file, then restart it"
)

_OPTIONS = {
    each.metadata["key"]: (cls, each) for cls in (BrokerConfig, StoreConfig) for each in fields(cls) if each.metadata
}


@frozen
class Changes:
    """New values: fields to evolve for each class, and keys with texts for the file."""

    broker: Mapping[str, Any]
    store: Mapping[str, Any]
    texts: Mapping[str, str]


def read_changes(body: bytes | memoryview, broker: BrokerConfig, store: StoreConfig, known: Collection[str]) -> Changes:
    """Read the `key=value` lines of a body. `known`: all options of this broker.

    Raises RequestError, and nothing is changed: code 16 for a key that may not be changed, code 1 for an invalid value.
    """
    try:
        given = {entry.key: entry.value.strip() for entry in parse_properties(bytes(body).decode())}
    except UnicodeDecodeError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the configuration is not UTF-8: {error}") from None
    if given.keys() & BLACK_LIST:
        raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    if len(given) > KEYS_MAX:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{len(given)} keys; at most {KEYS_MAX} in one request")
    for key in sorted(given.keys() - CHANGEABLE.keys()):
        raise RequestError(ResponseCode.NO_PERMISSION, _why_not(key, known))
    values = {key: _value(key, text) for key, text in given.items()}
    if values.get("haSecret") is SecretMode.optional and broker.secret_mode is SecretMode.required:
        raise RequestError(ResponseCode.NO_PERMISSION, _NOT_WEAKER)
    changes: dict[type, dict[str, Any]] = {BrokerConfig: {}, StoreConfig: {}}
    for key, value in values.items():
        cls, option = _OPTIONS[key]
        changes[cls][option.name] = value
    return Changes(
        _checked(broker, changes[BrokerConfig]),
        _checked(store, changes[StoreConfig]),
        {key: format_value(value) for key, value in values.items()},
    )


def _why_not(key: str, known: Collection[str]) -> str:
    if key == "enableCalcFilterBitMap":
        return f"{key} is always false: {NO_BIT_MAPS}"
    if key == "autoFailover":
        return f"{key} is of the group, not of one broker: twinlog auto-failover off, members or etcd"
    if key in known:
        return f"{key} cannot be changed while the broker runs: change its configuration file, then restart it"
    if key in rocketmq_keys.BROKER_FILE:
        return f"{key} has no effect here, so there is nothing to change"
    return f"there is no option {key[:60]}; `twinlog broker -p` and mqadmin getBrokerConfig list all options"


def _value(key: str, text: str) -> Any:
    allowed = CHANGEABLE[key]
    cls, option = _OPTIONS[key]
    try:
        value = read_value(text, get_type_hints(cls)[option.name])
        if allowed is not None and value not in allowed:
            raise ValueError(range_text(allowed))
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key}={text:.60}: expected {error}") from None
    return value


def range_text(allowed: range) -> str:
    """Format the numbers of a range for people."""
    if allowed.step == 1:
        return f"{allowed.start} to {allowed[-1]}"
    return f"{', '.join(map(str, allowed[:-1]))} or {allowed[-1]}"


def _checked(config: BrokerConfig | StoreConfig, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values, if the class accepts them together with the others."""
    try:
        attrs.evolve(config, **values)
    except (TypeError, ValueError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error.args[0] if error.args else error)) from None
    return values
