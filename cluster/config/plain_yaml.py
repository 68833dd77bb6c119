"""YAML of people's files with secrets: every scalar stays the text that was written.

YAML 1.1 would make another secret of `secretKey: 012345670`, and a broken broker of `admin: !!bool maybe`. Nothing and `~` and
`null` are None; tags that somebody writes are refused, as are two values of one name. An error never repeats what a line says.
"""

from typing import Any

import yaml  # 15 ms: imported by those only who have such a file.

_UNTAGGED = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class PlainYamlError(ValueError):
    """The file is to be mended; the text says in which line, and nothing of what the file says."""


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Texts, lists and tables only."""

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
    """Texts, None, lists and tables. Raises PlainYamlError, whatever is wrong."""
    try:
        return yaml.load(data, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise PlainYamlError(f"is no plain YAML{f' in line {mark.line + 1}' if mark else ''}") from None
    except Exception as error:
        raise PlainYamlError(f"is no YAML: {type(error).__name__}") from None
