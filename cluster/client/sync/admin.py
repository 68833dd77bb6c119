"""Blocking administration: see cluster/admin."""

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.config import ConfigAdmin
from twinlog.cluster.admin.groups import GroupAdmin
from twinlog.cluster.admin.messages import MessageAdmin
from twinlog.cluster.admin.offsets import OffsetAdmin
from twinlog.cluster.admin.repair import RepairAdmin
from twinlog.cluster.admin.roles import RoleAdmin
from twinlog.cluster.admin.topics import TopicAdmin
from twinlog.cluster.client.sync.calls import Wrapper, blocking


class SyncTopicAdmin(Wrapper[TopicAdmin]):
    """The operations on topics."""

    summaries = blocking(TopicAdmin.summaries)
    show = blocking(TopicAdmin.show)
    prepare_create = blocking(TopicAdmin.prepare_create)
    prepare_update = blocking(TopicAdmin.prepare_update)
    apply = blocking(TopicAdmin.apply)
    prepare_delete = blocking(TopicAdmin.prepare_delete)
    delete = blocking(TopicAdmin.delete)


class SyncGroupAdmin(Wrapper[GroupAdmin]):
    """The operations on consumer groups."""

    summaries = blocking(GroupAdmin.summaries)
    show = blocking(GroupAdmin.show)
    lag = blocking(GroupAdmin.lag)
    prepare_create = blocking(GroupAdmin.prepare_create)
    prepare_update = blocking(GroupAdmin.prepare_update)
    apply = blocking(GroupAdmin.apply)
    prepare_delete = blocking(GroupAdmin.prepare_delete)
    delete = blocking(GroupAdmin.delete)


class SyncOffsetAdmin(Wrapper[OffsetAdmin]):
    """The operations on offsets of groups."""

    prepare_reset = blocking(OffsetAdmin.prepare_reset)
    prepare_clone = blocking(OffsetAdmin.prepare_clone)
    apply = blocking(OffsetAdmin.apply)


class SyncMessageAdmin(Wrapper[MessageAdmin]):
    """The queries for messages."""

    newest = blocking(MessageAdmin.newest)
    at = blocking(MessageAdmin.at)
    by_key = blocking(MessageAdmin.by_key)
    by_id = blocking(MessageAdmin.by_id)
    with_readers = blocking(MessageAdmin.with_readers)


class SyncConfigAdmin(Wrapper[ConfigAdmin]):
    """The operations on options of members."""

    get = blocking(ConfigAdmin.get)
    diff = blocking(ConfigAdmin.diff)
    prepare_set = blocking(ConfigAdmin.prepare_set)
    apply = blocking(ConfigAdmin.apply)


class SyncRoleAdmin(Wrapper[RoleAdmin]):
    """The changes of roles."""

    prepare = blocking(RoleAdmin.prepare)
    carry_out = blocking(RoleAdmin.carry_out)
    schedule = blocking(RoleAdmin.schedule)
    pause = blocking(RoleAdmin.pause)
    resume = blocking(RoleAdmin.resume)
    auto_failover = blocking(RoleAdmin.auto_failover)
    set_auto_failover = blocking(RoleAdmin.set_auto_failover)
    history = blocking(RoleAdmin.history)


class SyncRepairAdmin(Wrapper[RepairAdmin]):
    """The repairs of members."""

    prepare_rewind = blocking(RepairAdmin.prepare_rewind)
    prepare_reinit = blocking(RepairAdmin.prepare_reinit)
    carry_out = blocking(RepairAdmin.carry_out)


class SyncAdmin(Wrapper[Admin]):
    """Admin for threads, of a SyncClient. To send and to consume, take its producers and consumers."""

    list_members = blocking(Admin.list_members)
    watch_members = blocking(Admin.watch_members)
    explain = blocking(Admin.explain)
    check = blocking(Admin.check)
    diagnose = blocking(Admin.diagnose)
    wait = blocking(Admin.wait)
    crosscheck = blocking(Admin.crosscheck)
    live_diff = blocking(Admin.live_diff)
    bundle = blocking(Admin.bundle)

    @property
    def topics(self) -> SyncTopicAdmin:
        """Topics."""
        return SyncTopicAdmin.around(self.asynchronous.topics, self.portal)

    @property
    def groups(self) -> SyncGroupAdmin:
        """Consumer groups."""
        return SyncGroupAdmin.around(self.asynchronous.groups, self.portal)

    @property
    def offsets(self) -> SyncOffsetAdmin:
        """Offsets of groups."""
        return SyncOffsetAdmin.around(self.asynchronous.offsets, self.portal)

    @property
    def messages(self) -> SyncMessageAdmin:
        """Messages."""
        return SyncMessageAdmin.around(self.asynchronous.messages, self.portal)

    @property
    def config(self) -> SyncConfigAdmin:
        """Options of members."""
        return SyncConfigAdmin.around(self.asynchronous.config, self.portal)

    @property
    def roles(self) -> SyncRoleAdmin:
        """Roles of members."""
        return SyncRoleAdmin.around(self.asynchronous.roles, self.portal)

    @property
    def repairs(self) -> SyncRepairAdmin:
        """Repairs of members."""
        return SyncRepairAdmin.around(self.asynchronous.repairs, self.portal)
