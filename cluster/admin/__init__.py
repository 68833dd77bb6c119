"""Operations for users, as typed async functions.

Begin with admin.py; errors.py makes the reports of errors.
Imported by cli, http and dashboard, which have no logic of their own.
"""

from typing import TYPE_CHECKING

from twinlog.store.util.late_modules import late_modules

__all__ = ["bundle", "config", "groups", "messages", "offsets", "repair", "roles", "sending", "topics", "waiting"]

if TYPE_CHECKING:
    from twinlog.cluster.admin import bundle, config, groups, messages, offsets, repair, roles, sending, topics, waiting
else:
    __getattr__ = late_modules(__name__)
