"""What a person is told when something fails: one sentence what, one why, one next step; never a traceback.

Exit status: 0 done, 1 failed or differences found, 2 usage or configuration, 3 not reachable, 4 refused because it could lose
data or break a rule, 5 not within the time, 6 done in part.
"""

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cluster.role_admin import RoleError

FAILED, USAGE, UNREACHABLE, REFUSED, TIMED_OUT, PARTIAL = range(1, 7)


class CliError(click.ClickException):
    """Ends the command. Words go to stderr, `exit_code` to the shell."""

    def __init__(self, what: str, why: str = "", next_step: str = "", *, exit_code: int = FAILED) -> None:
        super().__init__(what)
        self.lines = [line for line in (what, why, next_step) if line]
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the three lines."""
        first, *rest = self.lines
        click.echo(f"Error: {first}", err=True)
        for line in rest:
            click.echo(f"  {line}", err=True)


def sentence(error: BaseException) -> str:
    """Its words with a capital letter and a full stop."""
    words = str(error)
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def explain(error: BaseException, namesrv: Sequence[str]) -> CliError | None:
    """Words for an error that is not ours to fix; None for one that is (a bug, which shows its traceback)."""
    from cluster.client.producer import NoRouteError
    from cluster.config_file import ConfigError
    from cluster.members import NoMemberError
    from cluster.remoting.codes import ResponseCode
    from cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError, RequestError
    from cluster.role_admin import RoleError
    from store.errors import MessageFormatError

    if isinstance(error, RoleError):
        return _role_error(error)
    if isinstance(error, ConfigError):
        first, *rest = str(error).splitlines()
        return CliError(first, "\n  ".join(rest), exit_code=USAGE)
    if isinstance(error, NoRouteError):
        return CliError(sentence(error), next_step="See what there is with: twinlog list; twinlog topic list")
    if isinstance(error, NoMemberError):
        return CliError(sentence(error), next_step="See who is there with: twinlog list", exit_code=USAGE)
    if isinstance(error, (RemotingConnectError, RemotingTimeoutError)):
        which, step = "A broker", "See who is there with: twinlog list"
        if error.address in namesrv:
            which = "The name server"
            step = "Is it running? Start one with: twinlog up. Name another with -n HOST:PORT or NAMESRV_ADDR."
        return CliError(f"{which} cannot be reached.", str(error), step, exit_code=UNREACHABLE)
    if isinstance(error, RequestError):
        refused: dict[int, str] = {
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "Is what -n or NAMESRV_ADDR names a name server, not a broker?",
            ResponseCode.MESSAGE_ILLEGAL: "Is it larger than the broker's maxMessageSize (4 MiB unless set)?",
        }
        return CliError("The request was refused.", str(error), refused.get(error.code, ""))
    if isinstance(error, RemotingError):
        return CliError("The answer could not be understood.", str(error), "Is a RocketMQ or twinlog listening there?")
    if isinstance(error, MessageFormatError):
        return CliError("A message could not be read.", str(error), "Compare the replicas of its broker.")
    return None


def _role_error(error: "RoleError") -> CliError:
    from cluster.role_admin import RoleChoiceError, RoleRefusedError, RoleTimeoutError

    statuses = {RoleRefusedError: REFUSED, RoleTimeoutError: TIMED_OUT, RoleChoiceError: USAGE}
    told = CliError(error.lines[0], exit_code=statuses.get(type(error), FAILED))
    told.lines = list(error.lines)
    return told


def innermost(error: BaseException) -> BaseException:
    """What is inside the groups that nurseries make; of several the first."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
