"""What a running broker says of its log: no file tells what is confirmed now."""

import trio
from attrs import frozen

from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.remoting.errors import RemotingError

_SECONDS = 10.0


@frozen
class Told:
    """Offsets in bytes: `confirmed` is safe from cuts, as far as producers were promised; None: RocketMQ does not tell."""

    confirmed: int | None
    written: int


def ask_broker(address: str) -> Told:
    """Ask the broker at HOST:PORT; blocks, for seconds at most. Raises ReadRefusedError."""
    try:
        told = trio.run(_ask, address)
    except (RemotingError, OSError, trio.TooSlowError) as error:
        raise ReadRefusedError(
            f"{address}: the broker was to tell what of its log is confirmed, and does not answer: {_words(error)}. Is it up, "
            "and is this its remoting port (listenPort)?"
        ) from error
    if told.confirmed is None:
        raise ReadRefusedError(
            f"{address}: this is a RocketMQ broker, which does not tell what of its log is confirmed. Read all that is sound, "
            "option unconfirmed=true without option broker."
        )
    return told


def _words(error: Exception) -> str:
    return f"nothing within {_SECONDS:.0f} s" if isinstance(error, trio.TooSlowError) else str(error)


async def _ask(address: str) -> Told:
    status, failure = None, None
    with trio.fail_after(_SECONDS):
        async with open_admin(()) as admin:
            try:
                status = await admin.api.member_status(address)
            except RemotingError as error:  # Raised outside of the nursery, which would make a group of it.
                failure = error
    if failure is not None:
        raise failure
    return Told(None, 0) if status is None else Told(int(status["confirmedOffset"]), int(status["maxOffset"]))
