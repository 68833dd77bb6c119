"""Operations for users, as typed async functions.

Begin with admin.py; errors.py makes the reports of errors.
Imported by cli, http and dashboard, which have no logic of their own.
"""

from typing import TYPE_CHECKING

from twinlog.store.util.late_modules import late_modules

__all__ = [
    "admin",
    "bundle",
    "config",
    "groups",
    "messages",
    "offsets",
    "options",
    "repair",
    "roles",
    "sending",
    "topics",
    "waiting",
]

if TYPE_CHECKING:
    from . import admin, bundle, config, groups, messages, offsets, options, repair, roles, sending, topics, waiting
else:
    __getattr__ = late_modules(__name__)
