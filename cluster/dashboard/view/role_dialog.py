"""The dialog for role changes: a plan first, as the command line's --dry-run shows it, then the token and the group's name.

What is in it is fixed when the page is made; static/roles.js asks for the candidates' names as they are then.
"""

from twinlog.cluster.dashboard.model.snapshot import Look
from twinlog.cluster.dashboard.view.html import Markup, tag


def role_dialog(look: Look, *, can_change: bool) -> Markup:
    """Closed at first."""
    groups = [each.name for each in look.groups]
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
