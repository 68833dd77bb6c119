"""Modules of a package that are imported at their first use, so that a command starts with those that it needs."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def late_modules(package: str) -> Callable[[str], ModuleType]:
    """Make the `__getattr__` of a package; type checkers see its modules by an import under TYPE_CHECKING."""

    def imported(name: str) -> ModuleType:
        module = f"{package}.{name}"
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:  # A module that is there needs one that is not.
                raise
            raise AttributeError(f"{package} has no module {name}", name=name) from None

    return imported
