"""End of a running broker's log, as the broker reports it: its files do not say how much is confirmed at the moment."""

import trio

from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.remoting.errors import RemotingError

_SECONDS = 10.0


def ask_broker(address: str) -> int:
    """The confirmed offset that the broker at HOST:PORT reports: no role change cuts its log below.

    Blocks, for seconds at most. Raises ReadRefusedError.
    """
    try:
        confirmed = trio.run(_ask, address)
    except (RemotingError, OSError, trio.TooSlowError) as error:
        raise ReadRefusedError(
            f"{address}: the broker did not report how much of its log is confirmed: {_reason(error)}. Check that it runs, "
            "and that this is its remoting port (listenPort)."
        ) from error
    if confirmed is None:
        raise ReadRefusedError(
            f"{address}: RocketMQ brokers do not report how much of their log is confirmed. To read all sound records, set "
            "option unconfirmed=true and omit option broker."
        )
    return confirmed


def _reason(error: Exception) -> str:
    return f"nothing within {_SECONDS:.0f} s" if isinstance(error, trio.TooSlowError) else str(error)


async def _ask(address: str) -> int | None:
    status, failure = None, None
    with trio.fail_after(_SECONDS):
        async with open_admin(()) as admin:
            try:
                status = await admin.api.member_status(address)
            except RemotingError as error:  # Raised outside of the nursery, which would make a group of it.
                failure = error
    if failure is not None:
        raise failure
    return status.confirmed_offset if status is not None else None
