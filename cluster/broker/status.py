"""Status of a broker for other members, mqadmin, HTTP and the log: collected from its parts, without state of its own."""

import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio
from attrs import define, evolve

from twinlog.cluster.broker.config import SecretMode
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.group_view import GroupView
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.peers.slave_peers import SlaveKind, SlaveKinds
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.roles.witnesses import witnesses_of
from twinlog.cluster.broker.security.service import AclService
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.rates import GET_MESSAGES, GETS_FOUND, GETS_MISSED, PUT_BYTES, PUTS, Throughput
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.watchdog import Watchdog
from twinlog.cluster.config.group_secret import GroupSecrets
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import VERSION
from twinlog.cluster.remoting.member_status import (
    AutoFailoverStatus,
    DivergentStatus,
    EpochStatus,
    EtcdStatus,
    FindingStatus,
    KnownSlaveStatus,
    LeaseStatus,
    MasterLinkStatus,
    MemberStatus,
    PolicyStatus,
    RefusedStatus,
    SecurityStatus,
    SlaveStatus,
    StandingStatus,
)
from twinlog.cluster.remoting.names import SCHEDULE_TOPIC, member_name
from twinlog.ha.compare.finding import NO_ERRORS
from twinlog.ha.election.election import mode_of, why_nobody
from twinlog.ha.policy.ack_policy import AckPolicy, MasterSide, SlaveSide, effective_policy
from twinlog.ha.policy.admission import Refusal
from twinlog.ha.policy.disconnected import KnownSlave
from twinlog.ha.service import HAService
from twinlog.ha.statistics import HAClientStatistics, HAConnectionStatistics, HAStatistics
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message
from twinlog.store.util.histogram import percentile
from twinlog.store.util.plain import to_plain

VERSION_TEXT = "V4_9_8"


@define(eq=False, kw_only=True, repr=False)
class BrokerStatus:
    """Status of a broker, computed at each call."""

    settings: Settings
    store: MessageStore
    ha: HAService
    roles: RoleService
    group: GroupView
    gate: Gate
    lost_tables: LostTables
    schedule: ScheduleMessageService
    slave_kinds: SlaveKinds
    stats: BrokerStatsManager
    throughput: Throughput
    watchdog: Watchdog
    acl: AclService | None
    secrets: GroupSecrets
    client: RemotingClient

    def member(self) -> MemberStatus:
        """Return the response to 20001."""
        store, ha = self.store.statistics(), self.ha.statistics()
        client, policy = ha.client, self._effective_policy(ha)
        waits = self.ha.group_transfer.waits.recent()
        rate = client.transferred_bytes_per_second if client else self.throughput.rates.recent(PUT_BYTES, 3)
        config, identity = self.store.config, self.roles.member.durable.identity
        status = MemberStatus(
            now_ms=self.store.now_ms(),
            boot_ms=self.settings.boot_ms,
            name=config.root.expanduser().name,
            member_id=identity.id or None,
            made_ms=identity.made_ms,
            made_address=identity.made_address or None,
            cluster=self.settings.config.broker_cluster_name,
            group=self.settings.config.broker_name,
            broker_id=self.settings.config.broker_id,
            role=config.broker_role.value,
            address=self.settings.address,
            ha_address=self.settings.ha_address,
            member_address=self.group.me().member_address or None,
            state=self.state_word(client.state if client else "idle"),
            why_not_writable=store.why_not_writable or None,
            file_size=config.mapped_file_size_commit_log,
            min_offset=store.min_offset,
            max_offset=store.max_offset,
            flushed_offset=store.flushed_offset,
            confirmed_offset=self.group.confirmed_offset(),
            dispatched_offset=store.dispatched_offset,
            damaged_bytes=store.damaged_bytes,
            lost_bytes=store.lost_bytes,
            lost_start_bytes=store.lost_start_bytes,
            missing_tables=tuple(self.lost_tables.names),
            in_doubt_bytes=store.in_doubt_bytes,
            commit_log_disk_ratio=max(self.store.retention.disk.ratio, 0.0),
            rate_bytes_per_second=round(rate),
            waiting_messages=ha.waiting_messages,
            ack_wait_p50_seconds=percentile(waits, 0.5),
            ack_wait_p99_seconds=percentile(waits, 0.99),
            divergent=tuple(
                DivergentStatus(path=str(cut.path), first=cut.first, size=cut.size, why=cut.why, when_ms=cut.when_ms)
                for cut in store.divergent
            ),
            ack_policy=policy.words if policy is not None else "takes no messages",
            policy=self._policy(policy) if policy is not None else None,
            ack_mode=self.settings.ha_config.ack_mode.value if self.store.config.is_slave else None,
            slaves=tuple(_slave(slave, self.slave_kinds.kinds) for slave in ha.connections),
            retention_held_by=self._known_slave(ha.retention_holder) if ha.retention_holder is not None else None,
            away=tuple(map(self._known_slave, ha.away)),
            refused={str(cause): count for cause, count in ha.refused.items()},
            refused_last=tuple(_refused(each) for each in ha.refusals),
            master=_master_link(self.group.master.address, client) if self.store.config.is_slave else None,
            security=security_facts(self.settings, self.acl, signs=self.client.sign is not None),
            secret_ids=self.secrets.ids,
            secret_required=self.settings.config.secret_mode is SecretMode.required if self.secrets.ids else None,
            visibility=self.settings.config.visibility.value,
        )
        return self._with_role(status)

    def state_word(self, client_state: str) -> str:
        """Return the state as one word. `client_state`: of replication, on a slave."""
        flags = self.store.flags
        if self.store.config.is_slave and client_state == "resyncing":  # It truncates its log, and receives nothing.
            return client_state
        if flags.why_not_writable and not flags.is_passing:
            return "failed"
        if flags.why_not_appendable if self.store.config.is_slave else flags.why_not_writable:
            return "paused"
        return client_state if self.store.config.is_slave else "serving"

    def runtime_table(self) -> dict[str, str]:
        """Return the table of 28. All values are strings. Three numbers are rates over 10 s, 1 min and 10 min."""
        store, rates, pulls = self.store.statistics(), self.throughput.rates, self.throughput.pulls
        disk = shutil.disk_usage(self.store.config.root.expanduser())
        times = self.store.put_times
        watchdog = self.watchdog.statistics()
        pending = self.store.commit_log.pending
        gets = rates.text(GET_MESSAGES)
        average = store.put_bytes / store.put_messages if store.put_messages else 0.0
        table: dict[str, object] = {
            "brokerVersion": VERSION,
            "brokerVersionDesc": VERSION_TEXT,
            "brokerActive": "true",
            "bootTimestamp": self.settings.boot_ms,
            "runtime": duration_text(self.store.now_ms() - self.settings.boot_ms),
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
            "getMessageEntireTimeMax": self.stats.longest_get_ms,
            "putMessageDistributeTime": times.distribution(),
            "putLatency99": f"{times.percentile_ms(0.99):.2f}",
            "putLatency999": f"{times.percentile_ms(0.999):.2f}",
            "pageCacheLockTimeMills": 0,
            "earliestMessageTimeStamp": _earliest_message_ms(self.store),
            "startAcceptSendRequestTimeStamp": self.settings.config.start_accept_send_request_timestamp,
            "commitLogMinOffset": store.min_offset,
            "commitLogMaxOffset": store.max_offset,
            "dispatchBehindBytes": store.max_offset - store.dispatched_offset,
            "unverifiedBytes": self.store.unverified_bytes,
            "dispatchMaxBuffer": 0,
            "commitLogDiskRatio": self.store.hooks.disk_usage(self.store.commit_log.files.directory),
            "consumeQueueDiskRatio": self.store.hooks.disk_usage(self.store.config.root.expanduser()),
            "commitLogDirCapacity": f"Total : {size_text(disk.total)}, Free : {size_text(disk.free)}.",
            "remainHowManyDataToFlush": size_text(store.max_offset - store.flushed_offset),
            "remainTransientStoreBufferNumbs": pending.pool.available if pending is not None else 2**31 - 1,
            "msgPutTotalYesterdayMorning": self.throughput.puts_by_day.yesterday_morning,
            "msgPutTotalTodayMorning": self.throughput.puts_by_day.today_morning,
            "msgPutTotalTodayNow": store.put_messages,
            "msgGetTotalYesterdayMorning": self.throughput.gets_by_day.yesterday_morning,
            "msgGetTotalTodayMorning": self.throughput.gets_by_day.today_morning,
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
            "deletedFiles": self.store.retention.deleted_files,
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 100000,
        }
        return {key: str(value) for key, value in {**table, **self._runtime_details()}.items()}

    def _runtime_details(self) -> dict[str, object]:
        """Return the rows of each directory, request queue and delay level."""
        table: dict[str, object] = {}
        for directory in self.store.config.commit_log_paths:
            table[f"commitLogDiskRatio_{directory}"] = self.store.hooks.disk_usage(directory)
        for kind, capacity in (("send", 10000), ("pull", 100000), ("query", 20000)):  # twinlog has no such queues.
            table[f"{kind}ThreadPoolQueueSize"] = 0
            table[f"{kind}ThreadPoolQueueCapacity"] = capacity
            table[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] = 0
        for level, offset in self.schedule.table.items():
            end = self.store.queue(SCHEDULE_TOPIC, level - 1).max_offset
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return table

    def options(self) -> dict[str, Any]:
        """Return all options in force by their keys in broker.conf."""
        return {
            field.metadata["key"]: getattr(config, field.name)
            for config in (
                self.store.config,
                self.ha.config,
                self.settings.server_config,
                self.settings.tls_config,
                self.settings.config,
                self.settings.acl_config,
            )
            for field in attrs.fields(type(config))
            if "key" in field.metadata
        }

    def rocketmq_options(self) -> dict[str, Any]:
        """Return further keys of RocketMQ's brokers, which exportConfigs of mqadmin requires.

        `useTLS`: true when this broker's own requests use TLS; `tls.server.mode` is about connections to it.
        Sources: BrokerStartup, NettyClientConfig, ExportConfigsCommand (RocketMQ 4.9.7, 5.3.3).
        """
        return {
            "clientCallbackExecutorThreads": os.cpu_count() or 1,
            "filterServerNums": 0,
            "useTLS": self.settings.tls_config.is_client,
        }

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of every log line: member, role, epoch of the last master that it followed or was. Thread-safe."""
        group, directory = self.settings.config.broker_name, self.store.config.root.name
        return {
            "member": member_name(group, self.settings.config.broker_id, directory),
            "role": "slave" if self.store.config.is_slave else "master",
            "epoch": self.roles.member.durable.entries[-1].epoch,
        }

    def _effective_policy(self, ha: HAStatistics) -> AckPolicy | None:
        """Return the rule for SEND_OK to producers; None on a slave, which takes no messages."""
        if self.store.config.is_slave:
            return None
        master = MasterSide(
            synchronous=self.store.config.broker_role is BrokerRole.SYNC_MASTER,
            sync_flush=self.store.flusher.is_synchronous,
            write_buffers=self.store.config.transient_store_pool_enable,
        )
        kinds = self.slave_kinds.kinds
        slaves = [
            SlaveSide(
                in_sync=slave.in_sync,
                verified=slave.address in kinds,
                flushed=slave.address in kinds and kinds[slave.address].flushes,
            )
            for slave in ha.connections
            if slave.counted
        ]
        group = self.roles.member.group
        in_sync_set = [group.label(id) for id in group.in_sync] if group is not None and group.is_in_etcd else []
        rule = self.settings.ha_config.ack_rule
        registered = len(ha.registered)
        return effective_policy(master, rule, ha.decision, slaves, registered=registered, in_sync_set=in_sync_set)

    def _policy(self, policy: AckPolicy) -> PolicyStatus:
        return PolicyStatus(
            words=policy.words,
            level=policy.level,
            in_sync_replicas=self.settings.ha_config.in_sync_replicas,
            min_in_sync_replicas=self.settings.ha_config.min_in_sync_replicas,
            needed=policy.need,
            in_sync=policy.in_sync,
            members=policy.members,
            warnings=policy.warnings,
        )

    def _with_role(self, status: MemberStatus) -> MemberStatus:
        """Add the recorded role, if there is one."""
        roles, state = self.roles, self.roles.member.role_state()
        if state is None and roles.member.wiped_record is None:
            return evolve(status, etcd=self.etcd())
        phase, why = roles.member.status()
        last, change = roles.member.epochs()[-1], roles.state()
        silent = roles.leases.silence.silent(trio.current_time())
        return evolve(
            status,
            epoch=EpochStatus(
                epoch=last.epoch,
                winner=last.winner,
                winner_label=last.winner_label,
                start_offset=last.start_offset,
                decided_by=last.decided_by,
                reason=last.reason,
            ),
            promised=roles.member.promised(),
            role_state="forwarding" if self.gate.state == "forwarding" and phase == "following" else phase,
            role_why=why or None,
            lease=self._lease() if roles.member.is_serving else None,
            silent={address: round(seconds, 1) for address, seconds in silent.items()},
            group_record=state.group if state is not None else None,
            etcd=self.etcd(),
            auto_failover=self.auto_failover(),
            whole=state is None or state.whole,
            role_change=to_plain(change) if change.steps or change.error else None,
            last_pause_ms=roles.last_pause_ms,
            scheduled=state.scheduled if state is not None else None,
            paused=roles.member.paused() or None,
        )

    def etcd(self) -> EtcdStatus | None:
        """State of the record in etcd, as this member sees it; None: it has no etcdEndpoints."""
        outside = self.roles.outside
        view, kept = outside.view(), outside.kept
        if view is None:
            return None
        record = kept.record if kept is not None else None
        return EtcdStatus(
            cluster=view.cluster or None,
            prefix=self.settings.etcd_config.prefix,
            why=view.why or None,
            since_ms=outside.why_since_ms or None,
            refused=outside.is_refused,
            no_place=outside.why_not or None,
            version=record.version if record is not None else None,
            epoch=record.epoch if record is not None else None,
            in_sync=record.in_sync if record is not None else (),
            master=kept.master or None if kept is not None else None,
            changed_ms=outside.changed_ms or None,
            change_why=outside.change_why or None,
            why_not_changed=outside.set_change.why or None if outside.set_change.kind == "stay" else None,
        )

    def auto_failover(self) -> AutoFailoverStatus | None:
        """Readiness for a failover that needs nobody; None without a record of the group."""
        group, elector, config = self.roles.member.group, self.roles.elector, self.ha.config
        if group is None:
            return None
        hearing, elections = self.roles.voter.hearing, self.roles.voter.elections
        serving, standings = self.roles.member.is_serving, elector.standings()
        return AutoFailoverStatus(
            mode=mode_of(group),
            configured=config.auto_failover.value,
            after_ms=config.auto_failover_after_ms,
            lease_ms=config.lease_ms,
            witnesses=witnesses_of(self.settings),
            decision=elector.decision.kind,
            why=elector.decision.why,
            heard_ms=None if serving else round(hearing.silent_seconds * 1000),
            suspected=not serving and elector.suspected_at is not None,
            tried=elector.tried,
            won=elector.won,
            given_up=elector.given_up,
            why_given_up=elector.why_given_up or None,
            elections=elections.count,
            held_off_ms=elections.held_off_ms(trio.current_time()),
            standings=tuple(
                StandingStatus(member_id=each.member, rank=each.rank, against=each.against) for each in standings
            ),
            why_nobody=(why_nobody(group, standings) or None) if standings else None,
        )

    def _known_slave(self, slave: KnownSlave) -> KnownSlaveStatus:
        group = self.roles.member.group
        member = group.member(slave.ip) if group is not None else None
        ip = self.settings.hosts.ip_of(member.ha_address) if member is not None else slave.ip
        return KnownSlaveStatus(ip=ip, ack_offset=slave.offset, away_since_ms=slave.away_since, given_up=slave.given_up)

    def _lease(self) -> LeaseStatus:
        lease, now = self.ha.lease, trio.current_time()
        left, held = lease.remaining(now), lease.held(now)
        remaining_ms = round(left * 1000) if left < math.inf else None
        return LeaseStatus(held=held, remaining_ms=remaining_ms, why=None if held else lease.why)


def _sum_text(first: str, second: str) -> str:
    return " ".join(f"{float(a) + float(b):.4f}" for a, b in zip(first.split(), second.split(), strict=False))


def duration_text(milliseconds: int) -> str:
    """Format a duration as mqadmin does."""
    minutes, seconds = divmod(max(milliseconds, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(size: int) -> str:
    """Format bytes for people, in powers of 1024."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _master_link(address: str | None, client: HAClientStatistics | None) -> MasterLinkStatus:
    if client is None:
        return MasterLinkStatus(address=address)
    found = client.finding
    return MasterLinkStatus(
        address=address,
        ha_address=client.master_address,
        local_address=client.local_address,
        tls=client.tls,
        state=client.state,
        last_error=client.last_error,
        finding=FindingStatus(
            kind=found.kind, offset=found.offset, text=found.text, is_error=found.kind not in NO_ERRORS
        )
        if found is not None
        else None,
        master_max_offset=client.master_max_offset,
        proven_offset=client.proven_offset,
        unverified_bytes=client.unverified_bytes,
    )


def _slave(slave: HAConnectionStatistics, kinds: Mapping[str, SlaveKind]) -> SlaveStatus:
    return SlaveStatus(
        address=slave.address,
        member_id=slave.member or None,
        tls=slave.tls,
        state=slave.state,
        ack_offset=slave.ack_offset,
        lag_bytes=slave.lag_bytes,
        lag_seconds=slave.lag_seconds,
        admitted=slave.admitted,
        counted=slave.counted,
        in_sync=slave.in_sync,
        suspended=slave.suspended,
        stalled=slave.stalled,
        reason=slave.reason or None,
        sent_offset=slave.sent_offset,
        verified=slave.address in kinds,
        rate_bytes_per_second=round(slave.transferred_bytes_per_second),
    )


def _refused(each: Refusal) -> RefusedStatus:
    seconds_ago = round(trio.current_time() - each.at)
    return RefusedStatus(ip=each.ip, cause=each.cause, why=each.why, count=each.count, seconds_ago=seconds_ago)


def _earliest_message_ms(store: MessageStore) -> int:
    """Return the store time of the log's first message, ms; -1 for none."""
    record = store.message_at(store.min_offset)
    return decode_message(record, check_crc=False).store_timestamp if record is not None else -1


def security_facts(settings: Settings, acl: AclService | None, *, signs: bool) -> SecurityStatus:
    """Return the security status. `acl_enable` is the value in force; rules are counted only with access control."""
    files = tuple(str(path) for path in secret_files(settings, acl) if readable_by_others(path))
    status = SecurityStatus(acl_enable=acl is not None, signs=signs, readable_by_others=files)
    if acl is None:
        return status
    accounts = acl.rules.accounts.values()
    return evolve(
        status,
        accounts=len(accounts),
        admins=sum(account.admin for account in accounts),
        admins_without_signature=sum(account.admin and account.white.everybody for account in accounts),
        white_for_all=any(pattern.everybody for pattern in acl.rules.white),
        refused_requests=sum(acl.refused.values()),
    )


def secret_files(settings: Settings, acl: AclService | None) -> list[Path]:
    """Return the files of this broker that have secrets in clear."""
    tls = settings.tls_config
    files = [path for path in (tls.server_key, tls.client_key) if path is not None]
    if acl is not None:
        files += [file.path for file in acl.rules.files]
    in_configuration = settings.acl_config.credentials or tls.server_key_password or tls.client_key_password
    if in_configuration and settings.config_file is not None:
        files.append(settings.config_file)
    return files


def readable_by_others(path: Path) -> bool:
    """True when other users of this machine may read the file; False when there is no file."""
    try:
        return bool(os.stat(path).st_mode & 0o077)
    except OSError:
        return False
