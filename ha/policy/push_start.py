"""Where a connection's stream begins. A pure decision, and where we part from RocketMQ on purpose.

RocketMQ sends an empty slave its last file only, streams on from any position that it is asked for, and leaves a slave
that asks for something it lacks alive on heartbeats for ever. Source: HAConnection.WriteSocketService.
"""

from twinlog.ha.errors import HARefusedError


def push_start(requested: int, min_offset: int, max_offset: int, file_size: int) -> int:
    """Return the log offset to send from; all bytes from there on can be sent.

    `requested` is the first report, the end of the slave's log. 0 is an empty slave, which gets the whole log,
    beginning with the first file. A position inside a record is normal: a RocketMQ slave takes pieces of records.
    Raises HARefusedError for a place that this log does not have, with the cause bad_request, over_max or below_min.
    """
    if requested < 0:
        raise HARefusedError("bad_request", f"a request for offset {requested}")
    if requested > max_offset:
        raise HARefusedError(
            "over_max",
            f"a request for offset {requested} while this log ends at {max_offset}: "
            f"that slave holds {requested - max_offset} bytes that this master lacks",
        )
    if requested == 0:
        return min_offset - min_offset % file_size
    if requested < min_offset:
        raise HARefusedError(
            "below_min",
            f"a request for offset {requested} while this log begins at {min_offset}: "
            "the bytes between were deleted here, that slave has to begin anew with an empty log",
        )
    return requested
