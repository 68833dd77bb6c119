"""How a slave's connection looks to people: all that its master knows of it, at one moment."""

from twinlog.ha.master.connection import HAConnection
from twinlog.ha.policy.in_sync import Slave
from twinlog.ha.policy.lag import AppendStamps
from twinlog.ha.statistics import ConnectionState, HAConnectionStatistics
from twinlog.ha.wire.protocol import NO_REQUEST_YET


def describe_connection(
    connection: HAConnection,
    slave: Slave | None,
    *,
    is_admitted: bool,
    max_offset: int,
    stamps: AppendStamps,
    now: float,
) -> HAConnectionStatistics:
    """`slave`: what counts of it, None before its request. The log ends at `max_offset`, and grew when `stamps` say."""
    state: ConnectionState = "streaming" if connection.caught_up else "catchup"
    if connection.request_offset == NO_REQUEST_YET:
        state = "connected"
    held = max(connection.ack_offset, 0)
    return HAConnectionStatistics(
        address=connection.address,
        state=state,
        request_offset=connection.request_offset,
        sent_offset=connection.sent_offset,
        ack_offset=connection.ack_offset,
        admitted=is_admitted,
        counted=slave is not None and slave.counted,
        in_sync=slave is not None and slave.in_sync,
        suspended=slave is not None and slave.suspended,
        stalled=slave is not None and slave.stalled,
        reason=slave.reason if slave is not None else "has made no request yet",
        transferred_bytes_per_second=connection.bytes_per_second,
        connected_since=connection.connected_since,
        lag_bytes=max(max_offset - held, 0),
        lag_seconds=stamps.age(held, max_offset, now),
    )
