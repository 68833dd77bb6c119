"""User-facing errors: what failed, why, and the next step, with the exit status and the HTTP status on the class.

Exit statuses of the command line: 1 failed, 2 usage or configuration, 3 not reachable, 4 refused because it could lose data or
break a rule, 5 not within the time, 6 done in part. Command line and HTTP print the same sentences. See also admin/errors.py, for
errors of lower packages.
"""

from typing import ClassVar

from attrs import field, frozen

FAILED, USAGE, UNREACHABLE, REFUSED, TIMED_OUT, PARTIAL = range(1, 7)
HTTP_STATUSES = {FAILED: 502, USAGE: 400, UNREACHABLE: 503, REFUSED: 409, TIMED_OUT: 504, PARTIAL: 502}
FORBIDDEN, NOT_FOUND = 403, 404


@frozen(kw_only=True)
class NotDone:
    """A part of a change that did not come about."""

    where: str = field(metadata={"doc": "the broker, or what else was to be changed"})
    why: str = field(metadata={"doc": "what failed, or that it was not tried"})


@frozen(kw_only=True)
class Failure:
    """The document that a command prints with -o json instead of its answer when it fails, or has done only a part."""

    error: str
    why: str = field(metadata={"doc": "one sentence a line; empty: nothing more is known"})
    next: str = field(metadata={"doc": "what to do; empty: nothing in particular"})
    exit_status: int
    done: tuple[str, ...] = field(metadata={"doc": "where it is in force already"})
    not_done: tuple[NotDone, ...]


@frozen
class ErrorReport:
    """An error in sentences. `why` may have several lines; empty parts are left out. `done`, `not_done`: of a partial change."""

    what: str
    why: str = ""
    next_step: str = ""
    exit_status: int = FAILED
    http_status: int = field(kw_only=True)
    done: tuple[str, ...] = field(default=(), kw_only=True)
    not_done: tuple[NotDone, ...] = field(default=(), kw_only=True)

    @http_status.default
    def _by_exit_status(self) -> int:
        return HTTP_STATUSES.get(self.exit_status, HTTP_STATUSES[FAILED])

    @property
    def lines(self) -> list[str]:
        """The lines that the command line prints."""
        return [self.what, *self._why_lines, *([self.next_step] if self.next_step else [])]

    @property
    def _why_lines(self) -> list[str]:
        return [line.strip() for line in self.why.splitlines()]

    @property
    def failure(self) -> Failure:
        """The document for -o json."""
        return Failure(
            error=self.what,
            why="\n".join(self._why_lines),
            next=self.next_step,
            exit_status=self.exit_status,
            done=self.done,
            not_done=self.not_done,
        )


class UserError(Exception):
    """Parent of errors that the user can resolve. Its message is a sentence; `next_step` may name `{name}`, an attribute."""

    exit_status: ClassVar[int] = FAILED
    http_status: ClassVar[int | None] = None  # None: by the exit status.
    next_step: str = ""

    def report(self) -> ErrorReport:
        """The error for command line and HTTP."""
        step = self.next_step.format(name=getattr(self, "name", ""))
        status = HTTP_STATUSES[self.exit_status] if self.http_status is None else self.http_status
        return ErrorReport(sentence(self), "", step, self.exit_status, http_status=status)


def sentence(error: BaseException) -> str:
    """The error's message with a capital letter and a full stop."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def innermost(error: BaseException) -> BaseException:
    """The error inside the groups that nurseries make; of several the first."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
