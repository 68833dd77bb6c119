"""A role change as HTML: what it would do, why it may not be, how far it is. Pure."""

from collections.abc import Iterable, Mapping

from twinlog.cluster.admin.roles import ChangeOutcome, Prepared, lost_words
from twinlog.cluster.broker.peers.role_messages import StepState
from twinlog.cluster.dashboard.model.text import latency
from twinlog.cluster.dashboard.view.html import Markup, join, tag
from twinlog.cluster.dashboard.view.marks import mark
from twinlog.cluster.dashboard.view.tables import named
from twinlog.cluster.http.operations import Operation
from twinlog.cluster.http.server.errors import HttpError

Names = Mapping[str, str]  # Of members, by address.


def plan_section(prepared: Prepared) -> Markup:
    """What `--dry-run` prints."""
    group, state = prepared.group, prepared.state
    names = {each.member.address: each.member.name for each in group.members}
    accepted = [
        tag("p", f"accepted: {lost_words(each.lost, group)}")
        for each in state.judgements
        if each.forced and each.lost is not None
    ]
    words = f"{prepared.candidate.name} would become the master of {group.name}, in these steps. Nothing was changed."
    return join(tag("p", words, id="role-words"), _steps(state.steps, names), accepted)


def refusal_section(error: HttpError) -> Markup:
    """Which rule speaks against it, line by line."""
    lines = [line for text in (error.why, error.next_step) for line in text.splitlines() if line]
    return join(
        tag("p", mark("bad"), error.what, class_="refused", id="role-words"), [tag("p", line) for line in lines]
    )


def operation_section(operation: Operation, names: Names) -> Markup:
    """How far a change is, or what became of it."""
    steps = _steps(operation.steps.steps, names) if operation.steps is not None else None
    return join(_outcome(operation, names), steps)


def _outcome(operation: Operation, names: Names) -> Markup:
    if operation.failure is not None:
        told = operation.failure
        return refusal_section(HttpError(status=200, what=told.error, why=told.why, next_step=told.next))
    result = operation.result
    if not isinstance(result, ChangeOutcome):
        words = f"{operation.verb} of {operation.group} runs: {operation.member} becomes the master."
        return tag("p", words, id="role-words")
    winner = named(result.winner, names)
    words = f"Done: {winner} is the master of {operation.group} in epoch {result.epoch}."
    if result.pause_ms is not None:
        words += f" Sends were held for {latency(result.pause_ms / 1000)}."
    if result.absent:
        words += f" Missing since before this began: {', '.join(named(each, names) for each in result.absent)}."
    if result.late:
        words += f" Not following yet: {', '.join(named(each, names) for each in result.late)}."
    return tag("p", mark("warn" if result.late else "ok"), words, id="role-words")


def _steps(steps: Iterable[StepState], names: Names) -> Markup:
    return tag(
        "ol",
        [
            tag(
                "li",
                tag("span", each.number),
                tag("span", each.name),
                tag("span", named(each.text, names)),
                tag("span", each.state),
                class_=each.state.replace(" ", "-"),
            )
            for each in steps
        ],
        class_="plan",
    )
