"""Who writes a line of a broker's log: what stands on each of them."""

from typing import TYPE_CHECKING, Any

from twinlog.cluster.remoting.names import member_name
from twinlog.store.config import BrokerRole

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts


def log_fields(broker: "BrokerParts") -> dict[str, Any]:
    """The member's name as `twinlog list` has it, its role, and the epoch of the last master that it followed, or was, as they
    are now. Cheap; from any thread.
    """
    group, directory = broker.config.broker_name, broker.store.config.root.name
    is_slave = broker.store.config.broker_role is BrokerRole.SLAVE
    return {
        "member": member_name(group, broker.config.broker_id, directory),
        "role": "slave" if is_slave else "master",
        "epoch": broker.roles.book.entries[-1].epoch,
    }
