"""The first line of the page: is the data safe, who is behind, by how much, until when. Pure.

Safe means: every message that was acknowledged is held by as many members as producers were promised, and by two at least, and
a master takes new ones. The worst group speaks; what else is to say follows in `details`.
"""

from twinlog.cluster.dashboard.model.snapshot import Look, Mark
from twinlog.cluster.dashboard.model.verdict_rules import Verdict, of_group, within

ORDER: tuple[Mark, ...] = ("bad", "warn", "none", "ok")


def verdict_of(look: Look) -> Verdict:
    """What a person should know first."""
    if look.problem is not None:
        return Verdict(
            mark="bad",
            headline=f"Not known: {look.problem}",
            details=("What is below is of the last time that the name server answered.",) if look.groups else (),
        )
    if not look.groups and not look.gone:
        return Verdict(
            mark="warn", headline="Nobody here yet: no broker is registered", details=("Start one with: twinlog up",)
        )
    verdicts = [_of_gone(look)] if look.gone else []
    verdicts += sorted((of_group(each, look) for each in look.groups), key=lambda each: ORDER.index(each.mark))
    if len(verdicts) == 1:
        return verdicts[0]
    return _of_all(verdicts, look)


def _of_gone(look: Look) -> Verdict:
    names = ", ".join(look.gone[:5]) + (" and more" if len(look.gone) > 5 else "")
    if not look.groups:
        return Verdict(mark="bad", headline=f"NOT RUNNING: no broker is registered any more; there were {names}")
    return Verdict(
        mark="bad",
        headline=f"NOT RUNNING: nobody is registered any more of the group of {names}",
        details=("If they were taken away for good, start the dashboard anew: it forgets them.",),
    )


def _of_all(verdicts: list[Verdict], look: Look) -> Verdict:
    fine = sum(each.mark == "ok" for each in verdicts)
    if fine == len(verdicts):
        slaves = [each for group in look.groups for each in group.slaves]
        level = all(each.lag_bytes == 0 for each in slaves)
        follow = "hold every acknowledged message" if level else f"follow within {within(slaves)}"
        headline = f"All data is safe: {len(slaves)} of {len(slaves)} slaves of {fine} groups {follow}"
        return Verdict(mark="ok", headline=headline)
    first, *others = verdicts
    more = tuple(each.headline for each in others if each.mark != "ok")
    rest = (f"{fine} of {len(verdicts)} groups {'is' if fine == 1 else 'are'} fine.",) if fine else ()
    return Verdict(
        mark=first.mark,
        headline=first.headline,
        since=first.since,
        was_so=first.was_so,
        details=(*first.details, *more, *rest),
    )
