"""What a broker says about itself: numbers put together from its parts, nothing kept here."""

import os
import shutil
from typing import TYPE_CHECKING, Any

import attrs
import trio

from twinlog.cluster.broker import ack_status, role_status
from twinlog.cluster.broker.security.facts import security_facts
from twinlog.cluster.remoting.command import VERSION
from twinlog.cluster.remoting.names import SCHEDULE_TOPIC
from twinlog.ha.compare.finding import NO_ERRORS, Finding
from twinlog.ha.policy.disconnected import KnownSlave
from twinlog.store.util.histogram import percentile

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts

VERSION_TEXT = "V4_9_8"
STATUS_SCHEMA = 1
# Order of the counters that broker.rates samples.
PUTS, PUT_BYTES, GETS_FOUND, GETS_MISSED, GET_MESSAGES = range(5)


def counters(broker: "BrokerParts") -> tuple[int, ...]:
    """Asked for every second: no statistics(), which looks into a directory."""
    (messages, size), pulls = broker.store.put_counts, broker.pulls
    return messages, size, pulls.found, pulls.missed, pulls.messages


# Keys of RocketMQ that exports of mqadmin read, and without which they fail; here they cannot be anything else.
FIXED_OPTIONS = {
    "clientCallbackExecutorThreads": os.cpu_count() or 1,
    "filterServerNums": 0,
}


def rocketmq_options(broker: "BrokerParts") -> dict[str, Any]:
    """The keys that RocketMQ's brokers tell besides, which exportConfigs of mqadmin cannot do without.

    `useTLS`: whether this broker's own requests use TLS; which connections it takes says `tls.server.mode`.
    Sources: BrokerStartup, NettyClientConfig, ExportConfigsCommand (RocketMQ 4.9.7, 5.3.3).
    """
    return {**FIXED_OPTIONS, "useTLS": broker.tls_config.is_client}


def options(broker: "BrokerParts") -> dict[str, Any]:
    """Every option by its key in broker.conf, as it is in force."""
    return {
        field.metadata["key"]: getattr(config, field.name)
        for config in (
            broker.store.config,
            broker.ha.config,
            broker.server_config,
            broker.tls_config,
            broker.config,
            broker.acl_config,
        )
        for field in attrs.fields(type(config))
        if "key" in field.metadata
    }


def runtime_table(broker: "BrokerParts") -> dict[str, str]:
    """All values are texts. Three numbers are rates over 10 s, 1 min and 10 min."""
    store, rates, pulls = broker.store.statistics(), broker.rates, broker.pulls
    disk = shutil.disk_usage(broker.store.config.root.expanduser())
    times = broker.store.put_times
    watchdog = broker.watchdog.statistics()
    pending = broker.store.commit_log.pending
    gets = rates.text(GET_MESSAGES)
    average = store.put_bytes / store.put_messages if store.put_messages else 0.0
    table: dict[str, object] = {
        "brokerVersion": VERSION,
        "brokerVersionDesc": VERSION_TEXT,
        "brokerActive": "true",
        "bootTimestamp": broker.started_ms,
        "runtime": duration_text(broker.now_ms() - broker.started_ms),
        "putTps": rates.text(PUTS),
        "getTransferedTps": gets,
        "getTransferredTps": gets,
        "getFoundTps": rates.text(GETS_FOUND),
        "getMissTps": rates.text(GETS_MISSED),
        "getTotalTps": _sum_text(rates.text(GETS_FOUND), rates.text(GETS_MISSED)),
        "putMessageTimesTotal": store.put_messages,
        "putMessageSizeTotal": store.put_bytes,
        "putMessageAverageSize": average,
        "putMessageFailedTimes": store.put_failed,
        "putMessageEntireTimeMax": times.longest_ms,
        "getMessageEntireTimeMax": broker.stats.longest_get_ms,
        "putMessageDistributeTime": times.distribution(),
        "putLatency99": f"{times.percentile_ms(0.99):.2f}",
        "putLatency999": f"{times.percentile_ms(0.999):.2f}",
        "pageCacheLockTimeMills": 0,
        "earliestMessageTimeStamp": broker.earliest_message_ms(),
        "startAcceptSendRequestTimeStamp": broker.config.start_accept_send_request_timestamp,
        "commitLogMinOffset": store.min_offset,
        "commitLogMaxOffset": store.max_offset,
        "dispatchBehindBytes": store.max_offset - store.dispatched_offset,
        "unverifiedBytes": broker.store.unverified_bytes,
        "dispatchMaxBuffer": 0,
        "commitLogDiskRatio": broker.store.disk_usage(broker.store.commit_log.files.directory),
        "consumeQueueDiskRatio": broker.store.disk_usage(broker.store.config.root.expanduser()),
        "commitLogDirCapacity": f"Total : {size_text(disk.total)}, Free : {size_text(disk.free)}.",
        "remainHowManyDataToFlush": size_text(store.max_offset - store.flushed_offset),
        "remainTransientStoreBufferNumbs": pending.pool.available if pending is not None else 2**31 - 1,
        "msgPutTotalYesterdayMorning": broker.puts_by_day.yesterday_morning,
        "msgPutTotalTodayMorning": broker.puts_by_day.today_morning,
        "msgPutTotalTodayNow": store.put_messages,
        "msgGetTotalYesterdayMorning": broker.gets_by_day.yesterday_morning,
        "msgGetTotalTodayMorning": broker.gets_by_day.today_morning,
        "msgGetTotalTodayNow": pulls.messages,
        "eventLoopStalls": watchdog.stalls,
        "eventLoopLongestStallMills": watchdog.longest_ms,
        "eventLoopCpuWaits": watchdog.cpu_waits,
        "unscrubbedBytes": store.unscrubbed_bytes,
        "damagedBytes": store.damaged_bytes,
        "lostBytes": store.lost_bytes,
        "lostStartBytes": store.lost_start_bytes,
        "inDoubtBytes": store.in_doubt_bytes,
        "wrongUnits": store.wrong_units,
        "deletedFiles": broker.store.retention.deleted_files,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": 100000,
    }
    for directory in broker.store.config.commit_log_paths:
        table[f"commitLogDiskRatio_{directory}"] = broker.store.disk_usage(directory)
    for kind, capacity in (("send", 10000), ("pull", 100000), ("query", 20000)):  # There are no such queues here.
        table[f"{kind}ThreadPoolQueueSize"] = 0
        table[f"{kind}ThreadPoolQueueCapacity"] = capacity
        table[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] = 0
    for level, offset in broker.schedule.table.items():
        end = broker.store.queue(SCHEDULE_TOPIC, level - 1).max_offset
        table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return {key: str(value) for key, value in table.items()}


def _sum_text(first: str, second: str) -> str:
    return " ".join(f"{float(a) + float(b):.4f}" for a, b in zip(first.split(), second.split(), strict=False))


def duration_text(milliseconds: int) -> str:
    """As mqadmin has always shown it."""
    minutes, seconds = divmod(max(milliseconds, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(size: int) -> str:
    """Bytes for people, in powers of 1024."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def member_status(broker: "BrokerParts") -> dict[str, Any]:
    """The body of TWINLOG_MEMBER_STATUS."""
    store, ha = broker.store.statistics(), broker.ha.statistics()
    client, policy = ha.client, ack_status.effective(broker, ha)
    rate = client.transferred_bytes_per_second if client else broker.rates.recent(PUT_BYTES, 3)
    waits = broker.ha.group_transfer.waits.recent()
    master = None
    if broker.is_slave:
        master = {
            "address": broker.master.address,
            "haAddress": client.master_address if client else None,
            "localAddress": client.local_address if client else None,
            "state": client.state if client else "idle",
            "lastError": client.last_error if client else None,
            "finding": _finding(client.finding) if client and client.finding else None,
            "masterMaxOffset": client.master_max_offset if client else None,
            "provenOffset": client.proven_offset if client else None,
            "unverifiedBytes": client.unverified_bytes if client else 0,
        }
    return {
        "schema": STATUS_SCHEMA,
        "nowMs": broker.now_ms(),
        "bootMs": broker.started_ms,
        "name": broker.store.config.root.expanduser().name,
        "cluster": broker.config.broker_cluster_name,
        "group": broker.config.broker_name,
        "brokerId": broker.config.broker_id,
        "role": broker.store.config.broker_role.value,
        "address": broker.address,
        "haAddress": broker.ha_address,
        "state": state_word(broker, client.state if client else "idle"),
        "whyNotWritable": store.why_not_writable or None,
        "fileSize": broker.store.config.mapped_file_size_commit_log,
        "minOffset": store.min_offset,
        "maxOffset": store.max_offset,
        "flushedOffset": store.flushed_offset,
        "confirmedOffset": broker.confirmed_offset(),
        "dispatchedOffset": store.dispatched_offset,
        "damagedBytes": store.damaged_bytes,
        "lostBytes": store.lost_bytes,
        "lostStartBytes": store.lost_start_bytes,
        "missingTables": broker.lost_tables.names,
        "inDoubtBytes": store.in_doubt_bytes,
        "commitLogDiskRatio": max(broker.store.retention.disk.ratio, 0.0),
        "rateBytesPerSecond": round(rate),
        "waitingMessages": ha.waiting_messages,
        "ackWaitP50Seconds": percentile(waits, 0.5),
        "ackWaitP99Seconds": percentile(waits, 0.99),
        "divergent": [
            {"path": str(cut.path), "first": cut.first, "size": cut.size, "why": cut.why, "whenMs": cut.when_ms}
            for cut in store.divergent
        ],
        "ackPolicy": policy.words if policy is not None else "takes no messages",
        "policy": ack_status.plain(broker, policy) if policy is not None else None,
        "ackMode": broker.ha_config.ack_mode.value if broker.is_slave else None,
        "slaves": [
            {
                "address": slave.address,
                "state": slave.state,
                "ackOffset": slave.ack_offset,
                "lagBytes": slave.lag_bytes,
                "lagSeconds": slave.lag_seconds,
                "admitted": slave.admitted,
                "counted": slave.counted,
                "inSync": slave.in_sync,
                "suspended": slave.suspended,
                "stalled": slave.stalled,
                "reason": slave.reason or None,
                "sentOffset": slave.sent_offset,
                "verified": slave.address in broker.slave_kinds.kinds,
                "rateBytesPerSecond": round(slave.transferred_bytes_per_second),
            }
            for slave in ha.connections
        ],
        "retentionHeldBy": _known_slave(ha.retention_holder) if ha.retention_holder is not None else None,
        "away": [_known_slave(slave) for slave in ha.away],
        "refused": dict(ha.refused),
        "refusedLast": [
            {
                "ip": each.ip,
                "cause": each.cause,
                "why": each.why,
                "count": each.count,
                "secondsAgo": round(trio.current_time() - each.at),
            }
            for each in ha.refusals
        ],
        "master": master,
        "security": security_facts(broker),
        **role_status.plain(broker),
    }


def _finding(found: Finding) -> dict[str, Any]:
    is_error = found.kind not in NO_ERRORS
    return {"kind": found.kind, "offset": found.offset, "text": found.text, "isError": is_error}


def _known_slave(slave: KnownSlave) -> dict[str, Any]:
    """`awaySinceMs` is 0 while it is connected; `givenUp`: what it lacks is deleted."""
    return {
        "ip": slave.ip,
        "ackOffset": slave.offset,
        "awaySinceMs": slave.away_since,
        "givenUp": slave.given_up,
    }


def state_word(broker: "BrokerParts", client_state: str) -> str:
    """What it does. `client_state`: of replication, where it is a slave."""
    flags = broker.store.flags
    if broker.is_slave and client_state == "resyncing":  # It takes no bytes while it is cut.
        return client_state
    if flags.why_not_writable and not flags.is_passing:
        return "failed"
    if flags.why_not_appendable if broker.is_slave else flags.why_not_writable:
        return "paused"
    return client_state if broker.is_slave else "serving"
