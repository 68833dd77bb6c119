"""What a person is told when something fails: what, why, and a next step. The command line and HTTP tell it in the same words.

The kinds are the exit statuses of the command line: 1 failed, 2 usage or configuration, 3 not reachable, 4 refused because it
could lose data or break a rule, 5 not within the time, 6 done in part.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from twinlog.cluster.admin.roles import RoleError
    from twinlog.cluster.admin.steps import PartlyDoneError

FAILED, USAGE, UNREACHABLE, REFUSED, TIMED_OUT, PARTIAL = range(1, 7)
NOT_ALLOWED = "You may not do that."


@frozen(kw_only=True)
class NotDone:
    """A part of a change that did not come about."""

    where: str = field(metadata={"doc": "the broker, or what else was to be changed"})
    why: str = field(metadata={"doc": "what failed, or that it was not tried"})


@frozen(kw_only=True)
class Failure:
    """What a command prints with -o json instead of its answer when it fails, or has done only a part."""

    error: str
    why: str = field(metadata={"doc": "one sentence a line; empty: nothing more is known"})
    next: str = field(metadata={"doc": "what to do; empty: nothing in particular"})
    exit_status: int
    done: tuple[str, ...] = field(metadata={"doc": "where it is in force already"})
    not_done: tuple[NotDone, ...]


@frozen
class Told:
    """`why` may have several lines, each a sentence; what is empty is left out. `done`, `not_done`: of a change done in part."""

    what: str
    why: str = ""
    next_step: str = ""
    kind: int = FAILED
    done: tuple[str, ...] = ()
    not_done: tuple[NotDone, ...] = ()

    @property
    def lines(self) -> list[str]:
        """As the command line prints them."""
        return [
            self.what,
            *(line.strip() for line in self.why.splitlines()),
            *([self.next_step] if self.next_step else []),
        ]

    @property
    def failure(self) -> Failure:
        """As -o json has it."""
        return Failure(
            error=self.what,
            why="\n".join(line.strip() for line in self.why.splitlines()),
            next=self.next_step,
            exit_status=self.kind,
            done=self.done,
            not_done=self.not_done,
        )


def sentence(error: BaseException) -> str:
    """Its words with a capital letter and a full stop."""
    words = str(error)
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def explain(error: BaseException, namesrv: Sequence[str]) -> Told | None:
    """Words for an error that is not ours to fix; None for one that is (a bug, which shows its traceback)."""
    from twinlog.cluster.client.routes import NoRouteError
    from twinlog.cluster.config.config_file import ConfigError
    from twinlog.cluster.observe.gather import access_refusal
    from twinlog.cluster.observe.members import NoMemberError
    from twinlog.cluster.remoting.codes import ResponseCode
    from twinlog.cluster.remoting.errors import (
        RemotingConnectError,
        RemotingError,
        RemotingTimeoutError,
        RequestError,
        TlsFilesError,
    )
    from twinlog.store.errors import MessageFormatError

    role_admin = sys.modules.get("twinlog.cluster.admin.roles")  # Whoever raises its errors has imported it.
    if role_admin is not None and isinstance(error, role_admin.RoleError):
        return _role_error(error)
    steps = sys.modules.get("twinlog.cluster.admin.steps")
    if steps is not None and isinstance(error, steps.PartlyDoneError):
        return _partly_done(error, namesrv)
    if (known := _of_operations(error)) is not None:
        return known
    if isinstance(error, ConfigError):
        first, *rest = str(error).splitlines()
        return Told(first, "\n".join(rest), kind=USAGE)
    if isinstance(error, OSError) and error.filename is not None:  # Credentials and certificates.
        return Told(f"{error.filename} cannot be read.", sentence(ValueError(error.strerror)), kind=USAGE)
    if isinstance(error, TlsFilesError):
        return Told("TLS cannot be used as it is configured.", str(error), kind=USAGE)
    if isinstance(error, NoRouteError):
        return Told(sentence(error), next_step="See what there is with: twinlog list; twinlog topic list")
    if isinstance(error, NoMemberError):
        return Told(sentence(error), next_step="See who is there with: twinlog list", kind=USAGE)
    if isinstance(error, (RemotingConnectError, RemotingTimeoutError)):
        which, step = "A broker", "See who is there with: twinlog list"
        if error.address in namesrv:
            which = "The name server"
            step = "Is it running? Start one with: twinlog up. Name another with -n HOST:PORT or NAMESRV_ADDR."
        return Told(f"{which} cannot be reached.", str(error), step, kind=UNREACHABLE)
    if isinstance(error, RequestError):
        if (refusal := access_refusal(error)) is not None:
            return Told(NOT_ALLOWED, sentence(ValueError(refusal)), _CREDENTIALS, kind=REFUSED)
        refused: dict[int, str] = {
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "Is what -n or NAMESRV_ADDR names a name server, not a broker?",
            ResponseCode.SUBSCRIPTION_PARSE_FAILED: "Is --sql as RocketMQ has it? For example: price > 10 AND city = 'Bonn'",
            ResponseCode.NO_PERMISSION: "Is it allowed there? See: twinlog topic show, twinlog config explain",
            ResponseCode.MESSAGE_ILLEGAL: "Is it larger than the broker's maxMessageSize (4 MiB unless set)?",
        }
        return Told("The request was refused.", str(error), refused.get(error.code, ""))
    if isinstance(error, RemotingError):
        return Told("The answer could not be understood.", str(error), "Is a RocketMQ or twinlog listening there?")
    if isinstance(error, MessageFormatError):
        return Told("A message could not be read.", str(error), "Compare the replicas of its broker.")
    return None


_CREDENTIALS = (
    "Give your credentials with TWINLOG_ACCESS_KEY and TWINLOG_SECRET_KEY,"
    " or name their file: twinlog context add --credentials"
)


def _of_operations(error: BaseException) -> Told | None:
    """What operations on topics, groups, messages and configuration refuse, and what to do then."""
    module = sys.modules  # An error of a module that was never imported is nobody's.
    for name, status, step in _NEXT_STEPS:
        path, _, class_name = name.partition(":")
        kind = getattr(module.get(path), class_name, None)
        if kind is not None and isinstance(error, kind):
            return Told(sentence(error), next_step=step.format(name=getattr(error, "name", "")), kind=status)
    return None


_NEXT_STEPS = (
    ("twinlog.cluster.admin.topics:NoTopicError", FAILED, "See what there is with: twinlog topic list --all"),
    ("twinlog.cluster.admin.topics:TopicExistsError", REFUSED, "Change it with: twinlog topic update {name}"),
    ("twinlog.cluster.admin.groups:NoGroupError", FAILED, "See what there is with: twinlog group list --all"),
    ("twinlog.cluster.admin.groups:GroupExistsError", REFUSED, "Change it with: twinlog group update {name}"),
    (
        "twinlog.cluster.admin.groups:GroupOnlineError",
        REFUSED,
        "Stop them first; see them with: twinlog group show {name}",
    ),
    ("twinlog.cluster.observe.consumption:SilentBrokersError", REFUSED, "See who is there with: twinlog list"),
    ("twinlog.cluster.admin.offsets:NothingToMoveError", FAILED, "See how far groups are with: twinlog lag"),
    ("twinlog.cluster.admin.offsets:NoQueueResetError", REFUSED, "Stop its consumers first, or reset it to a time"),
    (
        "twinlog.cluster.admin.messages:NoMessageError",
        FAILED,
        "See the queues of a topic with: twinlog topic show TOPIC",
    ),
    (
        "twinlog.cluster.admin.sending:NoQueueError",
        FAILED,
        "See the queues of a topic with: twinlog topic show TOPIC",
    ),
    ("twinlog.cluster.observe.gather:NoMasterError", FAILED, "See who is there with: twinlog list"),
)


def _role_error(error: "RoleError") -> Told:
    from twinlog.cluster.admin.roles import RoleChoiceError, RoleRefusedError, RoleTimeoutError

    statuses = {RoleRefusedError: REFUSED, RoleTimeoutError: TIMED_OUT, RoleChoiceError: USAGE}
    first, *rest = error.lines
    return Told(first, "\n".join(rest), kind=statuses.get(type(error), FAILED))


def _partly_done(error: "PartlyDoneError", namesrv: Sequence[str]) -> Told:
    why = explain(error.why, namesrv)
    words = " ".join(why.lines[:2]) if why is not None else sentence(error.why)
    lines = [f"Done: {', '.join(error.done)}.", f"Failed: {error.failed}: {words}"]
    lines += [f"Not tried: {', '.join(error.not_tried)}."] if error.not_tried else []
    not_tried = (NotDone(where=each, why="It was not tried, after the failure of another.") for each in error.not_tried)
    return Told(
        "Only a part was done.",
        "\n".join(lines),
        "See how it is now, and give the command for the rest.",
        PARTIAL,
        done=error.done,
        not_done=(NotDone(where=error.failed, why=words), *not_tried),
    )


def innermost(error: BaseException) -> BaseException:
    """What is inside the groups that nurseries make; of several the first."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
