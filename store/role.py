"""The role of a broker. A module of its own: commands read roles, and start faster without the store's configuration."""

from enum import Enum


class BrokerRole(Enum):
    """The role of a broker: masters take messages, a slave follows its master's log."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"
