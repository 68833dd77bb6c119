"""Configuration changes of a running broker (request 25): applied, and written to its file.

Most services read their configuration at each use; those that have a copy get the new values here.
"""

from pathlib import Path

import structlog
import trio
from attrs import define, evolve

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.config_changes import Changes
from twinlog.cluster.broker.consume.long_polling import PullRequestHoldService
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.broker.tables.topics import built_in_topics
from twinlog.cluster.broker.transactions.records import CheckRules
from twinlog.cluster.broker.transactions.service import TransactionCheckService
from twinlog.cluster.config.properties_file import with_values
from twinlog.cluster.remoting.names import AUTO_CREATE_TOPIC
from twinlog.cluster.remoting.route import PERM_INHERIT
from twinlog.store.message_store import MessageStore
from twinlog.store.util.sync import write_durably

log = structlog.get_logger(__name__)


async def save_changes(path: Path, changes: Changes) -> None:
    """Write the new values to a configuration file, durably; comments and other lines are kept. Raises OSError."""
    await trio.to_thread.run_sync(_rewrite, path, dict(changes.texts))


def _rewrite(path: Path, values: dict[str, str]) -> None:
    path = path.resolve()  # A symlink is kept.
    # latin-1 keeps every byte as it is, whatever the file's encoding.
    text = path.read_bytes().decode("latin-1")
    write_durably(path, with_values(text, values).encode("latin-1"))


def _concerns_routes(config: BrokerConfig) -> tuple[object, ...]:
    return config.broker_permission, config.auto_create_topic_enable


@define(eq=False)
class Reconfiguration:
    """Applies changes, also to services that have a copy."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    schedule: ScheduleMessageService
    transactions: TransactionCheckService
    held_pulls: PullRequestHoldService

    def apply(self, changes: Changes) -> None:
        """Apply the new values."""
        before, config = self.settings.config, evolve(self.settings.config, **changes.broker)
        self.store.reconfigure(**changes.store)
        self.settings.replace(config, self.store.now_ms())
        self.tables.topics.auto_create = config.auto_create_topic_enable
        self.tables.groups.auto_create = config.auto_create_subscription_group
        self.schedule.flush_interval_ms = config.flush_delay_offset_interval_ms
        self.held_pulls.long_polling = config.long_polling_enable
        self.transactions.interval_ms = config.transaction_check_interval_ms
        self.transactions.rules = CheckRules.of(config, self.store.config)
        if config.auto_create_topic_enable and not before.auto_create_topic_enable:
            self._restore_model(config)
        if not self.store.config.is_slave and _concerns_routes(before) != _concerns_routes(config):
            self.tables.topics.renew_version()  # Name servers receive it at once.
        log.warning("configuration changed", changes=dict(changes.texts))

    def _restore_model(self, config: BrokerConfig) -> None:
        """Restore the inherit bit of TBW102, removed while topics could not be created; add the topic if it is missing."""
        (model,) = (topic for topic in built_in_topics(config) if topic.name == AUTO_CREATE_TOPIC)
        model = self.tables.topics.table.get(AUTO_CREATE_TOPIC, model)
        self.tables.topics.add_built_in([evolve(model, perm=model.perm | PERM_INHERIT)])
