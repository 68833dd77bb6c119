"""Shared parts of the commands: options, tables, progress, errors, completion.

Begin with options.py and render.py.
Imported by the commands.
"""

from typing import TYPE_CHECKING

from twinlog.store.util.late_modules import late_modules

__all__ = ["drawing", "errors", "options"]

if TYPE_CHECKING:
    from . import drawing, errors, options
else:
    __getattr__ = late_modules(__name__)
