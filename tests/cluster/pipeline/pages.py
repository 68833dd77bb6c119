"""What every page of an audit has to be: complete in itself, and usable without seeing it."""

import re
from collections import Counter
from html.parser import HTMLParser


class ParsedPage(HTMLParser):
    """The page as a browser parses it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids.update(value for name, value in attrs if name == "id" and value)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_stands_alone(text: str) -> None:
    """Nothing is loaded from anywhere, no script is needed, every id is there once, every tag is closed."""
    seen = ParsedPage(text)
    assert not seen.open
    assert not seen.tags.keys() & {"script", "link", "img", "iframe", "object"}
    assert not [each for each in seen.attributes if each[1] in ("src", "href", "srcset") or each[1].startswith("on")]
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert set(seen.ids.values()) == {1}
    assert "default-src 'none'" in text
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= seen.ids.keys()


def assert_usable_without_sight(text: str) -> None:
    """Pictures have texts, tables captions, headings an order."""
    seen = ParsedPage(text)
    assert ("html", "lang", "en") in seen.attributes
    labels = [value for tag, name, value in seen.attributes if tag == "svg" and name == "aria-labelledby"]
    hidden = [value for tag, name, value in seen.attributes if tag == "svg" and name == "aria-hidden"]
    assert len(labels) + len(hidden) == seen.tags["svg"]
    assert labels
    assert all(label in seen.ids for each in labels for label in each.split())
    assert seen.tags["h1"] == 1
    assert seen.tags["caption"] == seen.tags["table"]
    assert all(value for tag, name, value in seen.attributes if (tag, name) == ("th", "scope"))
