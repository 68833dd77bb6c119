"""Puts changes of the configuration into force while the broker runs, and keeps them in its file.

Most services look at their configuration each time they need it; those that keep a copy get the new values here.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio
from attrs import evolve

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.config_changes import Changes
from twinlog.cluster.broker.consume.long_polling import SCAN_SECONDS, SCAN_SECONDS_SHORT_POLLING
from twinlog.cluster.broker.tables.tables import built_in
from twinlog.cluster.config.properties_file import with_values
from twinlog.cluster.remoting.names import AUTO_CREATE_TOPIC
from twinlog.cluster.remoting.route import PERM_INHERIT
from twinlog.store.util.sync import write_durably

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts

log = structlog.get_logger(__name__)


async def keep(path: Path, changes: Changes) -> None:
    """Put the new values into a configuration file, durably; comments and other lines stay. Raises OSError."""
    await trio.to_thread.run_sync(_rewrite, path, dict(changes.texts))


def _rewrite(path: Path, values: dict[str, str]) -> None:
    path = path.resolve()  # A link stays one.
    # latin-1 keeps every byte as it is, whatever the file's encoding.
    text = path.read_bytes().decode("latin-1")
    write_durably(path, with_values(text, values).encode("latin-1"))


def _concerns_routes(config: BrokerConfig) -> tuple[object, ...]:
    return config.broker_permission, config.auto_create_topic_enable


def _restore_model(broker: "BrokerParts") -> None:
    """Give TBW102 the bit back that messages took from it while they might create nothing; make it where it never was."""
    (model,) = (topic for topic in built_in(broker.config) if topic.name == AUTO_CREATE_TOPIC)
    model = broker.topics.table.get(AUTO_CREATE_TOPIC, model)
    broker.topics.add_built_in([evolve(model, perm=model.perm | PERM_INHERIT)])


def apply(broker: "BrokerParts", changes: Changes) -> None:
    """Let the new values hold from now on."""
    before = broker.config
    broker.config = config = evolve(broker.config, **changes.broker)
    broker.registration.config = evolve(broker.registration.config, **changes.broker)
    broker.store_config = evolve(broker.store_config, **changes.store)
    broker.store.reconfigure(**changes.store)
    broker.topics.auto_create = config.auto_create_topic_enable
    broker.groups.auto_create = config.auto_create_subscription_group
    broker.schedule.flush_interval_ms = config.flush_delay_offset_interval_ms
    broker.held_pulls.scan_seconds = SCAN_SECONDS if config.long_polling_enable else SCAN_SECONDS_SHORT_POLLING
    transactions = broker.transactions
    transactions.interval_ms = config.transaction_check_interval_ms
    transactions.rules = evolve(
        transactions.rules,
        timeout_ms=config.transaction_timeout_ms,
        check_max=config.transaction_check_max,
        reserved_ms=broker.store_config.file_reserved_time_hours * 3_600_000,
    )
    for changed in broker.on_config_change:
        changed()
    if config.auto_create_topic_enable and not before.auto_create_topic_enable:
        _restore_model(broker)
    broker.config_version = broker.config_version.next(broker.now_ms())
    if not broker.is_slave and _concerns_routes(before) != _concerns_routes(config):
        broker.topics.renew_version()  # Name servers are told at once.
    log.warning("the configuration was changed", changes=dict(changes.texts))
