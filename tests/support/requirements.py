"""What twinlog needs by pyproject.toml, and the installed packages that this means."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def distribution_name(name: str) -> str:
    """The name as lock files have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """The packages that pyproject.toml names for the core, or for these extras and the core; of ours, what its extras name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    texts = list(project["dependencies"])
    waiting = list(extras)
    while waiting:
        texts += project["optional-dependencies"][waiting.pop()]
    for requirement in map(Requirement, texts):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        found |= (
            declared(*requirement.extras) if requirement.name == "twinlog" else {distribution_name(requirement.name)}
        )
    return found


def with_what_they_need(names: Iterable[str]) -> set[str]:
    """These packages and all that they require here, by the metadata of those that are installed."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(distribution_name(requirement.name))
    return found


def owners() -> Mapping[str, set[str]]:
    """The packages that an installed top-level module belongs to."""
    return {module: set(map(distribution_name, names)) for module, names in packages_distributions().items()}
