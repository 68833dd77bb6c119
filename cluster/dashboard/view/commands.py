"""Commands inside of sentences: findings name them as `twinlog verb ...`; the page shows them apart, to copy. Pure."""

import re

from twinlog.cluster.dashboard.model.snapshot import Look
from twinlog.cluster.observe.finding import Finding

# A command ends where the sentence goes on: at a comma, a semicolon, a full stop, or at "which".
_COMMAND = re.compile(r"twinlog [a-z]+(?: (?!which\b|which,|or\b|and\b|says\b)[^\s,;]+)*")
# What helps where a finding names no command: by its cause.
BY_CAUSE = {
    "diverged": "twinlog rewind {subject} --dry-run",
    "ahead": "twinlog rewind {subject} --dry-run",
    "below min": "twinlog reinit {subject}",
}


def command_of(finding: Finding, look: Look) -> str:
    """The command that mends it, or tells more about it."""
    if finding.cause in BY_CAUSE:
        return BY_CAUSE[finding.cause].format(subject=finding.subject)
    for text in (finding.fix, finding.what):
        if found := _COMMAND.search(text):
            return found.group().rstrip(".:")
    if finding.subject in {each.member.name for each in look.members}:
        return f"twinlog explain {finding.subject}"
    return "twinlog doctor"
