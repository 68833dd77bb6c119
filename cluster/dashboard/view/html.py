"""HTML and SVG by small functions. Whatever is not Markup already is escaped, so no name and no message body can become a tag.

No element gets a style attribute: the page's policy (app.py) forbids them, and events are attached by static/*.js only.
"""

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "link", "input", "br", "hr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element. `class_` and `for_` stand for class and for, `data_x` for data-x; None and False leave an attribute out."""
    inside = join(*children)
    start = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(start) if name in VOID else Markup(f"{start}{inside}</{name}>")


def join(*children: object) -> Markup:
    """Children one after the other; None is nothing, lists are taken apart."""
    return Markup("".join(_child(each) for each in children))


def _child(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, Iterable):
        return join(*child)
    return escape(str(child))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
