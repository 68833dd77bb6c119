"""Reports of errors that admin operations raise, and changes of several brokers that may stop half-way.

Errors of `cluster/user_errors.py` carry their report. Errors of lower packages know nothing of commands: their report is here.
"""

from collections.abc import Awaitable, Callable, Sequence

from twinlog.cluster.client.routes import NoRouteError
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    RequestError,
    TlsFilesError,
    access_refusal,
)
from twinlog.cluster.user_errors import (
    FORBIDDEN,
    NOT_FOUND,
    PARTIAL,
    REFUSED,
    UNREACHABLE,
    USAGE,
    ErrorReport,
    NotDone,
    UserError,
    sentence,
)
from twinlog.store.errors import MessageFormatError

_CREDENTIALS = (
    "Give your credentials with TWINLOG_ACCESS_KEY and TWINLOG_SECRET_KEY,"
    " or name their file: twinlog context add --credentials"
)
_BY_RESPONSE_CODE: dict[int, str] = {
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "Is what -n or NAMESRV_ADDR names a name server, not a broker?",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "Is --sql as RocketMQ has it? For example: price > 10 AND city = 'Bonn'",
    ResponseCode.NO_PERMISSION: "Is it allowed there? See: twinlog topic show, twinlog config explain",
    ResponseCode.MESSAGE_ILLEGAL: "Is it larger than the broker's maxMessageSize (4 MiB unless set)?",
}


def explain(error: BaseException, namesrv: Sequence[str]) -> ErrorReport | None:
    """Report of an error that the user can resolve; None for a bug, which shows its traceback."""
    match error:
        case PartlyDoneError():
            return _partly_done(error, namesrv)
        case UserError():
            return error.report()
        case ConfigError():
            first, *rest = str(error).splitlines()
            return ErrorReport(first, "\n".join(rest), exit_status=USAGE)
        case OSError() if error.filename is not None:  # Credentials and certificates.
            return ErrorReport(
                f"{error.filename} cannot be read.", sentence(ValueError(error.strerror)), exit_status=USAGE
            )
        case TlsFilesError():
            return ErrorReport("TLS cannot be used as it is configured.", str(error), exit_status=USAGE)
        case NoRouteError():
            step = "See what there is with: twinlog list; twinlog topic list"
            return ErrorReport(sentence(error), next_step=step, http_status=NOT_FOUND)
        case RemotingConnectError() | RemotingTimeoutError():
            return _unreachable(error, namesrv)
        case RequestError():
            if (refusal := access_refusal(error)) is not None:
                why = sentence(ValueError(refusal))
                return ErrorReport("You may not do that.", why, _CREDENTIALS, REFUSED, http_status=FORBIDDEN)
            return ErrorReport("The request was refused.", str(error), _BY_RESPONSE_CODE.get(error.code, ""))
        case RemotingError():
            step = "Is a RocketMQ or twinlog listening there?"
            return ErrorReport("The answer could not be understood.", str(error), step)
        case MessageFormatError():
            return ErrorReport("A message could not be read.", str(error), "Compare the replicas of its broker.")
    return None


def _unreachable(error: RemotingConnectError | RemotingTimeoutError, namesrv: Sequence[str]) -> ErrorReport:
    which, step = "A broker", "See who is there with: twinlog list"
    if error.address in namesrv:
        which = "The name server"
        step = "Is it running? Start one with: twinlog up. Name another with -n HOST:PORT or NAMESRV_ADDR."
    return ErrorReport(f"{which} cannot be reached.", str(error), step, UNREACHABLE)


# ---- Changes of several brokers

Step = tuple[str, Callable[[], Awaitable[object]]]  # A name for the user, and the work.


class PartlyDoneError(UserError):
    """A change that stopped half-way. `done` is in force, `failed` perhaps: see `why`; the rest was not tried."""

    exit_status = PARTIAL
    next_step = "See how it is now, and give the command for the rest."

    def __init__(self, done: Sequence[str], failed: str, not_tried: Sequence[str], why: RemotingError) -> None:
        super().__init__(f"{failed}: {why}")
        self.done = tuple(done)
        self.failed = failed
        self.not_tried = tuple(not_tried)
        self.why = why


async def carry_out(steps: Sequence[Step]) -> None:
    """Run the steps up to the first that fails. Raises RemotingError as it is for the first step, else PartlyDoneError."""
    names = [name for name, _ in steps]
    for number, (name, work) in enumerate(steps):
        try:
            await work()
        except RemotingError as error:
            if not number:
                raise
            raise PartlyDoneError(names[:number], name, names[number + 1 :], error) from error


def _partly_done(error: PartlyDoneError, namesrv: Sequence[str]) -> ErrorReport:
    cause = explain(error.why, namesrv)
    why = " ".join(cause.lines[:2]) if cause is not None else sentence(error.why)
    lines = [f"Done: {', '.join(error.done)}.", f"Failed: {error.failed}: {why}"]
    lines += [f"Not tried: {', '.join(error.not_tried)}."] if error.not_tried else []
    not_tried = (NotDone(where=each, why="It was not tried, after the failure of another.") for each in error.not_tried)
    return ErrorReport(
        "Only a part was done.",
        "\n".join(lines),
        error.next_step,
        error.exit_status,
        done=error.done,
        not_done=(NotDone(where=error.failed, why=why), *not_tried),
    )
