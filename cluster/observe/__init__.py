"""State of a cluster: members, lag, findings, explanations. Reads only.

Begin with gather.py and members.py; the tables at the end of rules.py list all rules.
Imported by admin and the front ends.
"""

from typing import TYPE_CHECKING

from twinlog.store.util.late_modules import late_modules

__all__ = [
    "cross_check",
    "explain",
    "failover",
    "findings",
    "gather",
    "in_sync",
    "live_diff",
    "members",
    "requests",
    "role_views",
    "rules",
]

if TYPE_CHECKING:
    from . import (
        cross_check,
        explain,
        failover,
        findings,
        gather,
        in_sync,
        live_diff,
        members,
        requests,
        role_views,
        rules,
    )
else:
    __getattr__ = late_modules(__name__)
