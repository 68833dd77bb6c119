"""HTML and SVG by small functions. Whatever is not Markup already is escaped, so no name and no message body can become a tag.

No element gets a style attribute: the page's policy (app.py) forbids them, and events are attached by static/*.js only.
"""

from collections.abc import Iterable
from html import escape

from twinlog.cluster.dashboard.model.snapshot import Mark

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


def facts(rows: Iterable[tuple[str, object]]) -> Markup:
    """A list of titles and values; those without a value are left out."""
    return tag("dl", [(tag("dt", title), tag("dd", value)) for title, value in rows if value], class_="facts")


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


# A disc with a tick, a triangle, an octagon with a cross, a ring.
SHAPES = {
    "ok": ("M8 0a8 8 0 1 1 0 16a8 8 0 1 1 0-16z", "M4.4 8.3l2.5 2.5 4.7-5.2"),
    "warn": ("M8 .6 16 15H0z", "M8 5.6v4.2M8 12v.6"),
    "bad": ("M4.7 0h6.6L16 4.7v6.6L11.3 16H4.7L0 11.3V4.7z", "M5 5l6 6M11 5l-6 6"),
    "none": ("M8 0a8 8 0 1 1 0 16a8 8 0 1 1 0-16z", "M4.5 8h7"),
}
WORDS: dict[str, str] = {"ok": "fine", "warn": "warning", "bad": "critical", "none": "not known"}


def mark(of: Mark, *, label: bool = False) -> Markup:
    """A shape beside a word; with `label` it stands alone, and has a text alternative."""
    use = tag("use", href=f"#mark-{of}")
    if label:
        return tag("svg", use, class_=f"mark {of}", viewBox="0 0 16 16", role="img", aria_label=WORDS[of])
    return tag("svg", use, class_=f"mark {of}", viewBox="0 0 16 16", aria_hidden="true")


def definitions() -> Markup:
    """Definitions of the shapes that `mark` and the bars use; once in a page."""
    symbols = [
        tag("symbol", tag("path", d=area), tag("path", d=line, class_="ink"), id=f"mark-{name}", viewBox="0 0 16 16")
        for name, (area, line) in SHAPES.items()
    ]
    hatch = tag(
        "pattern",
        tag("rect", width=6, height=6, class_="hatch-ground"),
        tag("path", d="M0 6L6 0M-1 1L1-1M5 7L7 5", class_="hatch-line"),
        id="hatch",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
    )
    return tag("svg", symbols, tag("defs", hatch), class_="definitions", width=0, height=0, aria_hidden="true")
