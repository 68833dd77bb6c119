"""The dialog for role changes: a plan first, as the command line's --dry-run shows it, then the token and the group's name.

What is in it is fixed when the page is made; static/roles.js asks for the candidates' names as they are then.
"""

from collections.abc import Iterable, Mapping

from twinlog.cluster.admin.roles import ChangeOutcome, Prepared, lost_text
from twinlog.cluster.broker.peers.role_messages import StepState
from twinlog.cluster.dashboard.model.snapshot import ClusterSnapshot
from twinlog.cluster.dashboard.view.html import Markup, join, mark, tag
from twinlog.cluster.dashboard.view.tables import named
from twinlog.cluster.http.operations import Operation
from twinlog.cluster.http.server.responses import HttpError
from twinlog.cluster.text import latency


def role_dialog(snapshot: ClusterSnapshot, *, can_change: bool) -> Markup:
    """Closed at first."""
    groups = [each.name for each in snapshot.groups]
    how = "switchover: the master runs", "failover: the master is gone"
    verbs = [tag("option", words, value=words.partition(":")[0]) for words in how]
    form = tag(
        "form",
        tag(
            "div",
            _field("Group", tag("select", [tag("option", each) for each in groups], id="role-group")),
            _field("Change", tag("select", verbs, id="role-verb")),
            _field("New master", tag("select", tag("option", "the best slave", value=""), id="role-candidate")),
            _field("Reason, for the history", tag("input", id="role-reason", maxlength=200, autocomplete="off")),
            class_="fields",
        ),
        tag("button", "Show the plan", type="submit", id="role-plan"),
        id="role-form",
    )
    return tag(
        "dialog",
        tag(
            "div",
            tag("h2", "Change the master", id="role-title"),
            tag("button", "Close", type="button", id="role-close"),
            class_="card-head",
        ),
        form,
        tag("div", id="role-answer", aria_live="polite"),
        _run_form() if can_change else _read_only(),
        id="roles",
        aria_labelledby="role-title",
    )


def _run_form() -> Markup:
    return tag(
        "form",
        tag(
            "div",
            _field("Token", tag("input", id="role-token", type="password", autocomplete="off", required=True)),
            _field("Type the group's name", tag("input", id="role-typed", autocomplete="off", required=True)),
            class_="fields",
        ),
        tag("button", "Change the master now", type="submit", id="role-run", class_="danger"),
        id="role-run-form",
        hidden=True,
    )


def _read_only() -> Markup:
    words = "This dashboard is read-only: it was started without --token-file. The command line does the same: "
    return tag("p", words, tag("code", "twinlog switchover"), class_="quiet", id="role-read-only")


def _field(label: str, control: Markup) -> Markup:
    name = str(control).partition('id="')[2].partition('"')[0]
    return tag("div", tag("label", label, for_=name), control)


Names = Mapping[str, str]  # Of members, by address.


def plan_section(prepared: Prepared) -> Markup:
    """The plan, as `--dry-run` prints it."""
    group, state = prepared.group, prepared.state
    names = {each.member.address: each.member.name for each in group.members}
    accepted = [
        tag("p", f"accepted: {lost_text(each.lost, group)}")
        for each in state.judgements
        if each.forced and each.lost is not None
    ]
    words = f"{prepared.candidate.name} would become the master of {group.name}, in these steps. Nothing was changed."
    return join(tag("p", words, id="role-words"), _steps(state.steps, names), accepted)


def refusal_section(error: HttpError) -> Markup:
    """The rules that refuse the change, line by line."""
    lines = [line for text in (error.why, error.next_step) for line in text.splitlines() if line]
    return join(
        tag("p", mark("bad"), error.what, class_="refused", id="role-words"), [tag("p", line) for line in lines]
    )


def operation_section(operation: Operation, names: Names) -> Markup:
    """Progress of a change, or its outcome."""
    steps = _steps(operation.steps.steps, names) if operation.steps is not None else None
    return join(_outcome(operation, names), steps)


def _outcome(operation: Operation, names: Names) -> Markup:
    if operation.failure is not None:
        failure = operation.failure
        return refusal_section(HttpError(status=200, what=failure.error, why=failure.why, next_step=failure.next))
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
