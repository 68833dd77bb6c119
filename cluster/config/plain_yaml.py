"""Reader for YAML files with secrets: every scalar stays the text that was written.

YAML 1.1 would read `secretKey: 012345670` as a number, and fail at `admin: !!bool maybe`. An empty value, `~` and `null` are
None. Tags and duplicate names are errors. Errors never contain the content of a line.
"""

from typing import Any

import yaml  # 15 ms: this module is imported only for such a file.

_UNTAGGED = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class PlainYamlError(ValueError):
    """The file is invalid; the message has the line number, but nothing of the content."""


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """A loader for texts, lists and tables only."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if node.tag not in _UNTAGGED:
            raise yaml.MarkedYAMLError(problem_mark=node.start_mark)
        return super().construct_object(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        return None if not node.style and text in _NULLS else text

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        table: dict[str, Any] = {}
        for name_node, value_node in node.value:
            name = self.construct_object(name_node, deep=True)
            if not isinstance(name, str) or name in table:
                raise yaml.MarkedYAMLError(problem_mark=name_node.start_mark)
            table[name] = self.construct_object(value_node, deep=True)
        return table


_Loader.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node, deep=True))


def load_plain(data: bytes) -> Any:
    """Parse into texts, None, lists and tables. Raises PlainYamlError for any problem."""
    try:
        return yaml.load(data, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise PlainYamlError(f"is not plain YAML{f' in line {mark.line + 1}' if mark else ''}") from None
    except Exception as error:
        raise PlainYamlError(f"is not YAML: {type(error).__name__}") from None
