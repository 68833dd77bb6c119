"""Construction of a broker: each part with the parts that it uses.

A few parts depend on each other in a circle: replication on roles, roles on replication, registration on both. They are connected
by GroupView, or by a lambda that refers to a part made later. Source: BrokerController.java (RocketMQ 4.9.8).
"""

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import trio
from attrs import frozen

from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.config import BrokerConfig, MessageVisibility, SecretMode
from twinlog.cluster.broker.consume.long_polling import PullRequestHoldService
from twinlog.cluster.broker.consume.visibility import Queues, Visibility
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.group_view import GroupView, is_replicated, saved_role, under_role
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.group.registration import RegistrationService
from twinlog.cluster.broker.group.slave_sync import SlaveSynchronize
from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.peers.etcd_check import EtcdCheck
from twinlog.cluster.broker.peers.ha_peer import Peers, RemotingCalls, RemotingPeer
from twinlog.cluster.broker.peers.reach import Reach
from twinlog.cluster.broker.peers.slave_peers import SlaveKinds, SlavePeers
from twinlog.cluster.broker.processors.acl import AclProcessor
from twinlog.cluster.broker.processors.broker_admin import BrokerAdminProcessor
from twinlog.cluster.broker.processors.clients import ClientProcessor
from twinlog.cluster.broker.processors.controller import ControllerProcessor
from twinlog.cluster.broker.processors.digests import DigestProcessor
from twinlog.cluster.broker.processors.group_admin import GroupAdminProcessor
from twinlog.cluster.broker.processors.member_check import MemberCheck
from twinlog.cluster.broker.processors.offset import OffsetProcessor
from twinlog.cluster.broker.processors.pull import PullProcessor
from twinlog.cluster.broker.processors.query import QueryProcessor
from twinlog.cluster.broker.processors.reply import ReplyProcessor
from twinlog.cluster.broker.processors.roles import RoleProcessor
from twinlog.cluster.broker.processors.send import SendProcessor
from twinlog.cluster.broker.processors.send_back import SendBackProcessor
from twinlog.cluster.broker.processors.topic_admin import TopicAdminProcessor
from twinlog.cluster.broker.processors.transactions import TransactionProcessor
from twinlog.cluster.broker.reconfigure import Reconfiguration
from twinlog.cluster.broker.roles.effects import BrokerRoleEffects
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.roles.hand_to_etcd import why_no_place
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.roles.witnesses import Witnesses, answer_witnesses, witnesses_of
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.security.service import AclService, acl_service
from twinlog.cluster.broker.send.requests import SendRequests
from twinlog.cluster.broker.settings import Settings, machine_boot_id, own_ip, wall_clock_ms
from twinlog.cluster.broker.stats.rates import Throughput
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.status import BrokerStatus
from twinlog.cluster.broker.tables.clients import ClientConnections
from twinlog.cluster.broker.tables.tables import DELAYS, BrokerTables
from twinlog.cluster.broker.transactions.records import CheckRules
from twinlog.cluster.broker.transactions.service import TransactionCheckService
from twinlog.cluster.broker.watchdog import Watchdog
from twinlog.cluster.config.group_secret import GroupSecrets
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.remoting.client import RemotingClient, connect_first, tls_connect
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.errors import TlsFilesError
from twinlog.cluster.remoting.member_auth import OwnProof
from twinlog.cluster.remoting.names import HA_PORT_DISTANCE
from twinlog.cluster.remoting.request import handlers_of
from twinlog.cluster.remoting.signing import make_signer
from twinlog.cluster.remoting.streams import Stream
from twinlog.cluster.remoting.tls.config import TlsConfig, TlsMode
from twinlog.cluster.remoting.tls.renewed import RenewedContext, ServerTls, client_tls
from twinlog.ha.config import AutoFailoverMode, HAConfig
from twinlog.ha.election.commit import RecordKeeper
from twinlog.ha.errors import HATlsError
from twinlog.ha.policy.admission import Proofs
from twinlog.ha.service import HAService
from twinlog.ha.slave.repair import RepairService
from twinlog.ha.wire.tls import HATls
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import RoleState


def make_broker(
    config: BrokerConfig,
    store_config: StoreConfig,
    ha_config: HAConfig | None = None,
    server_config: ServerConfig | None = None,
    *,
    acl_config: AclConfig | None = None,
    tls_config: TlsConfig | None = None,
    etcd_config: EtcdConfig | None = None,
    config_file: Path | None = None,
) -> Broker:
    """Make a broker, with the role saved in its store. `config_file` is changed by request 25.

    Raises StoreDirectoryError, AclError, TlsFilesError, SecretFileError, ValueError.
    """
    ip = config.broker_ip1 or own_ip()
    config = attrs.evolve(config, broker_ip1=ip, broker_ip2=config.broker_ip2 or ip)
    role = saved_role(store_config)
    config, store_config, ha_config = under_role(role, config, store_config, ha_config or HAConfig())
    etcd_config = etcd_config or EtcdConfig()
    _check_mode(ha_config, etcd_config)
    if not ha_config.listen_port and config.listen_port:
        ha_config = attrs.evolve(ha_config, listen_port=config.listen_port + HA_PORT_DISTANCE)
    settings = Settings(
        config=config,
        ha_config=ha_config,
        server_config=server_config or ServerConfig(),
        acl_config=acl_config or AclConfig(),
        tls_config=tls_config or TlsConfig(),
        etcd_config=etcd_config,
        config_file=config_file,
    )
    return _make(settings, store_config, role)


def _check_mode(ha_config: HAConfig, etcd_config: EtcdConfig) -> None:
    """Raises ValueError."""
    if ha_config.auto_failover is not AutoFailoverMode.etcd:
        return
    if not etcd_config.endpoints:
        raise ValueError("autoFailover=etcd needs etcdEndpoints: the URLs of etcd's members, http://HOST:PORT")
    if why := why_no_place(ha_config):
        raise ValueError(f"autoFailover=etcd: {why}")


@frozen
class _Base:
    """Parts that need no other part."""

    settings: Settings
    client: RemotingClient
    gate: Gate
    acl: AclService | None
    tls: ServerTls
    secrets: GroupSecrets
    ha_tls: HATls
    throughput: Throughput = attrs.field(factory=Throughput)
    client_calls: ClientCalls = attrs.field(factory=ClientCalls)


@frozen
class _Data:
    """The log, its queues, the tables; and `group`, which is complete after _services()."""

    store: MessageStore
    tables: BrokerTables
    queues: Queues
    stats: BrokerStatsManager
    held_pulls: PullRequestHoldService
    group: GroupView


@frozen
class _Members:
    """Name servers, other members, replication."""

    registration: RegistrationService
    slave_peers: SlavePeers
    slave_kinds: SlaveKinds
    ha: HAService
    repair: RepairService


@frozen
class _Services:
    """Services that put messages (on a master) or copy its tables (on a slave), and change between these roles."""

    schedule: ScheduleMessageService
    transactions: TransactionCheckService
    slave_sync: SlaveSynchronize
    lost_tables: LostTables
    role_services: BrokerRoleEffects
    roles: RoleService


def _make(settings: Settings, store_config: StoreConfig, role: RoleState | None) -> Broker:
    base = _base(settings)
    data = _data(settings, MessageStore(store_config, is_replicated=is_replicated(role)))
    members = _members(base, data)
    services = _services(base, data, members)
    watchdog = Watchdog(lambda: data.store.flusher.busy_since, on_stall=data.group.stalled)
    status = BrokerStatus(
        settings=settings,
        store=data.store,
        ha=members.ha,
        roles=services.roles,
        group=data.group,
        gate=base.gate,
        lost_tables=services.lost_tables,
        schedule=services.schedule,
        slave_kinds=members.slave_kinds,
        stats=data.stats,
        throughput=base.throughput,
        watchdog=watchdog,
        acl=base.acl,
        secrets=base.secrets,
        client=base.client,
    )
    requests = SendRequests(settings, data.store, data.tables.topics, data.tables.groups, data.stats, base.gate)
    own_id, is_required = partial(_own_id, services.roles), partial(_requires_secret, settings, base.secrets)
    member_check = MemberCheck(base.secrets, own_id, is_required)
    base.client.proof = OwnProof(lambda: base.secrets.current, own_id, is_required, member_check.not_proven)
    for changes in (base.secrets.on_change, settings.on_change):
        changes.append(lambda: members.ha.use_proofs(_proofs(settings, base.secrets)))
    both_ports, pull = _processors(base, data, members, services, status, requests)
    both_ports.append(member_check)
    transfer, writer = members.ha.group_transfer, data.tables.topics_writer
    return Broker(
        settings=settings,
        store=data.store,
        tables=data.tables,
        queues=data.queues,
        acl=base.acl,
        secrets=base.secrets,
        member_check=member_check,
        tls=base.tls,
        remoting=base.client,
        watchdog=watchdog,
        stats=data.stats,
        throughput=base.throughput,
        held_pulls=data.held_pulls,
        gate=base.gate,
        group=data.group,
        registration=members.registration,
        slave_peers=members.slave_peers,
        slave_kinds=members.slave_kinds,
        ha=members.ha,
        repair=members.repair,
        schedule=services.schedule,
        transactions=services.transactions,
        slave_sync=services.slave_sync,
        lost_tables=services.lost_tables,
        roles=services.roles,
        role_services=services.role_services,
        status=status,
        send=SendProcessor(settings, data.store, requests, transfer, writer, data.stats, base.gate),
        main_port=handlers_of(*both_ports, pull),
        fast_port=handlers_of(*both_ports),  # Without pulls: consumers cannot delay its requests.
    )


def _own_id(roles: RoleService) -> str:
    return roles.member.own


def _requires_secret(settings: Settings, secrets: GroupSecrets) -> bool:
    return secrets.current is not None and settings.config.secret_mode is SecretMode.required


def _proofs(settings: Settings, secrets: GroupSecrets) -> Proofs:
    return Proofs(secrets.ids, _requires_secret(settings, secrets))


def _base(settings: Settings) -> _Base:
    client, gate = RemotingClient(), Gate()
    if (own := settings.acl_config.own) is not None:
        client.sign = make_signer(own)
    acl = acl_service(settings.acl_config, wall_clock_ms)
    if acl is not None:  # Only requests checked here may be forwarded with this member's signature.
        gate.forwarder.sign = client.sign
    tls, requests_tls = ServerTls(settings.tls_config), client_tls(settings.tls_config)
    if settings.tls_config.is_client or settings.tls_config.members:
        client.tls = _tls_of_requests(settings, requests_tls)
        gate.forwarder.connect = tls_connect(client.tls)
    secret_file = settings.config.secret_file
    secrets = GroupSecrets.load(Path(secret_file).expanduser() if secret_file else None)
    return _Base(settings, client, gate, acl, tls, secrets, _ha_tls(settings, requests_tls, tls))


def _tls_of_requests(settings: Settings, own: RenewedContext) -> Callable[[str], Awaitable[ssl.SSLContext | None]]:
    """TLS of this member's own requests, by address: its client asks name servers and members of its group."""
    own.prepare()

    async def context(address: str) -> ssl.SSLContext | None:
        if settings.tls_config.is_client or address not in (*settings.config.name_servers, *witnesses_of(settings)):
            return await own.current()
        return None

    return context


def _ha_tls(settings: Settings, own: RenewedContext, server: ServerTls) -> HATls:
    """TLS of the HA stream: with the certificates of requests. Raises TlsFilesError."""
    is_disabled = settings.tls_config.mode is TlsMode.disabled
    if settings.ha_config.tls:
        if is_disabled:
            raise TlsFilesError(
                "haTls=true with tls.server.mode=disabled: as a master this member could serve no slave; set "
                "tls.server.mode=permissive"
            )
        own.prepare()

    async def usable(context: Awaitable[ssl.SSLContext]) -> ssl.SSLContext:
        try:
            return await context
        except TlsFilesError as error:
            raise HATlsError(str(error)) from error

    return HATls(client=lambda: usable(own.current()), server=None if is_disabled else lambda: usable(server.context()))


def _data(settings: Settings, store: MessageStore) -> _Data:
    config = settings.config
    tables = BrokerTables(config, store.config.root)
    queues = Queues(store, tables.topics)
    group = GroupView(settings, store)
    held_pulls = PullRequestHoldService(
        now=trio.current_time,
        max_offset=queues.shown_end,
        long_polling=config.long_polling_enable,
        any_accepted=store.any_accepted,
    )
    store.on_dispatched.append(held_pulls.run_ready)
    if config.visibility is MessageVisibility.all:
        store.on_arrival.append(held_pulls.on_arrival)
    else:
        queues.visibility = visibility = Visibility(
            store=store,
            confirmed=group.confirmed_for_consumers,
            arrived=held_pulls.on_arrival,
            all_arrived=held_pulls.run_ready,
        )
        store.hooks.dispatch_limit = visibility.limit
        store.on_arrival.append(visibility.on_arrival)
        store.on_truncate.append(visibility.truncated)
    store.on_truncate.append(lambda _offset: tables.offsets.lower(queues.end))
    stats = BrokerStatsManager(config.broker_cluster_name, store.queues, takes_puts=lambda: not store.config.is_slave)
    return _Data(store, tables, queues, stats, held_pulls, group)


def _members(base: _Base, data: _Data) -> _Members:
    settings, client, store, group = base.settings, base.client, data.store, data.group
    registration = RegistrationService(
        settings=settings, client=client, topics=data.tables.topics, is_slave=store.config.is_slave, listener=group
    )
    data.tables.topics.on_change.append(lambda _topic: registration.topics_changed())
    peers = Peers(
        client,
        lambda: group.master,
        heard=lambda history: group.roles.member.heard(history),
        ha_end=lambda: group.ha.client.fresh_address,
    )
    slave_peers = SlavePeers(
        client,
        group.slave_addresses,
        registration.ask_members,
        group.behind_ha_ip,
        settings.hosts.ips_of,
        lambda end: group.ha.has_end(end),
    )
    ha = HAService(
        store,
        settings.ha_config,
        group.counted_slaves,
        registration.ask_members,
        welcome=group.admitted_slaves,
        host_ips=settings.hosts.ips,
        tls=base.ha_tls,
        peer_of=peers.peer_of,
        find_slave=slave_peers.find,
    )
    ha.connection_admission.rules.proofs = _proofs(settings, base.secrets)
    store.hooks.retention_floor = ha.lowest_needed
    store.hooks.soft_retention_floor = ha.disconnected_slaves.floor
    store.retention.shortened.append(ha.disconnected_slaves.shortened)
    repair = RepairService(store, partial(_peers_for_repair, store, group, client))
    return _Members(registration, slave_peers, SlaveKinds(client, group.slave_addresses), ha, repair)


def _peers_for_repair(store: MessageStore, group: GroupView, client: RemotingClient) -> list[RemotingPeer]:
    """Return the members that may have the bytes that this log lost."""
    addresses = [group.master.address] if store.config.is_slave else sorted(group.slave_addresses())
    return [RemotingPeer(address, client) for address in addresses if address]


def _services(base: _Base, data: _Data, members: _Members) -> _Services:
    settings, store, tables, queues, group = base.settings, data.store, data.tables, data.queues, data.group
    config = settings.config
    schedule = ScheduleMessageService(
        store=store,
        file=tables.known_file(DELAYS),
        levels_ms=store.delays_ms,
        now_ms=wall_clock_ms,
        confirmed_offset=group.confirmed_offset,
        delivered=data.stats.delivered,
        flush_interval_ms=config.flush_delay_offset_interval_ms,
    )
    transactions = TransactionCheckService(
        store=store,
        tables=tables,
        rules=CheckRules.of(config, store.config),
        interval_ms=config.transaction_check_interval_ms,
        now_ms=wall_clock_ms,
    )
    slave_sync = SlaveSynchronize(client=base.client, tables=tables, schedule=schedule, epoch=group.epoch_followed)
    if store.config.is_slave:
        store.on_arrival.append(slave_sync.on_arrival)
    lost_tables = LostTables(tables, store, schedule, queues, group, base.gate, base.client)
    role_services = BrokerRoleEffects(
        store=store,
        tables=tables,
        queues=queues,
        schedule=schedule,
        transactions=transactions,
        ha=members.ha,
        group=group,
        registration=members.registration,
        slave_sync=slave_sync,
        slave_kinds=members.slave_kinds,
        lost_tables=lost_tables,
        gate=base.gate,
        client=base.client,
    )
    member = Member(
        side=tables.side_directory,
        described=group.me,
        store=store,
        ha=members.ha,
        calls=RemotingCalls(base.client),
        effects=role_services,
        config=settings.ha_config,
        now_ms=wall_clock_ms,
        boot_id=machine_boot_id,
        boot_ms=settings.boot_ms,
        shown_offset=lambda: queues.visibility.shown if queues.visibility is not None else 0,
        group_name=config.broker_name,
        cluster=config.broker_cluster_name,
        ip_of=settings.hosts.ip_of,
        locks=tables.locks,
    )
    settings.hosts.on_change.append(group.hosts_changed)
    roles = RoleService(member, has_name_servers=bool(config.name_servers), keeper=_keeper_of(settings))
    base.gate.role_state, base.gate.ips_of = member.role_state, settings.hosts.ips_of
    base.client.on_request = answer_witnesses(settings, member)
    roles.elector.witnesses = Witnesses(settings, base.client)
    group.ha, group.roles = members.ha, roles
    group.registration, group.slave_sync = members.registration, slave_sync

    async def connect(address: str) -> Stream:
        return await connect_first(group.ways_to(address))

    base.client.connect, tls = connect, base.client.tls
    base.gate.forwarder.connect = connect if tls is None else tls_connect(tls, connect)
    return _Services(schedule, transactions, slave_sync, lost_tables, role_services, roles)


def _keeper_of(settings: Settings) -> RecordKeeper | None:
    """The keeper of the group's record outside of it; None: etcdEndpoints is empty."""
    if not settings.etcd_config.endpoints:
        return None
    from twinlog.cluster.broker.group.etcd_keeper import EtcdKeeper  # With httpx, which most brokers do not need.

    return EtcdKeeper(settings.etcd_config, settings.config.broker_cluster_name, settings.config.broker_name)


def _processors(
    base: _Base,
    data: _Data,
    members: _Members,
    services: _Services,
    status: BrokerStatus,
    requests: SendRequests,
) -> tuple[list[object], PullProcessor]:
    """Make the processors of both ports, and that of pulls, which is for the main port only."""
    settings, gate, client_calls = base.settings, base.gate, base.client_calls
    store, tables, queues, stats = data.store, data.tables, data.queues, data.stats
    topics, groups, offsets, filters = tables.topics, tables.groups, tables.offsets, tables.filters
    consumers, producers, lost_tables = tables.consumers, tables.producers, services.lost_tables
    connections = ClientConnections(
        (data.held_pulls.connection_closed, consumers.connection_closed, producers.connection_closed)
    )
    commits = OffsetProcessor(settings, store, topics, groups, offsets, consumers, queues, gate)
    reconfiguration = Reconfiguration(
        settings, store, tables, services.schedule, services.transactions, data.held_pulls
    )
    reach = Reach(data.group.other_members, RemotingCalls(base.client).who_is_at)
    etcd = EtcdCheck(settings.etcd_config)
    pull = PullProcessor(
        settings=settings,
        store=store,
        topics=topics,
        groups=groups,
        offsets=offsets,
        consumers=consumers,
        filters=filters,
        queues=queues,
        held_pulls=data.held_pulls,
        pulls=base.throughput.pulls,
        stats=stats,
        connections=connections,
        gate=gate,
        commits=commits,
    )
    return [
        # For producers and consumers
        ClientProcessor(settings, store, tables, connections, client_calls, gate, services.roles.locks),
        commits,
        QueryProcessor(store, consumers, filters, queues),
        ReplyProcessor(settings, store, requests, producers, client_calls, gate),
        SendBackProcessor(settings, store, topics, groups, stats, gate),
        TransactionProcessor(settings, store, members.ha.group_transfer, gate),
        # For administrators
        BrokerAdminProcessor(settings, store, topics, stats, members.ha, status, reconfiguration, reach, etcd),
        GroupAdminProcessor(settings, store, tables, stats, queues, services.schedule, lost_tables, gate),
        TopicAdminProcessor(settings, store, tables, stats, queues, members.registration, lost_tables, gate),
        AclProcessor(settings, base.acl),
        # For other members
        DigestProcessor(store),
        RoleProcessor(settings, store, services.roles, members.ha, data.group, members.slave_peers),
        ControllerProcessor(settings, services.roles),
    ], pull
