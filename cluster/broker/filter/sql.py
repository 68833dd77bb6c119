"""SQL92 filters, compiled once for each text. Source: SqlFilter, ExpressionMessageFilter (RocketMQ 4.9.7)."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from attrs import define, field

from twinlog.cluster.broker.filter.evaluate import Evaluator, evaluator
from twinlog.cluster.broker.filter.expression import SelectorError, property_names
from twinlog.cluster.broker.filter.java_values import NotComparable
from twinlog.cluster.broker.filter.parser import parse
from twinlog.store.record.properties import parse_properties

_SEARCHED_MAX = 6  # Names; for more the whole text is split.
_REMEMBERED = 128  # Texts, also invalid ones, which clients send repeatedly.


@define(eq=False)
class SqlFilter:
    """Compiled expression."""

    text: str
    evaluate: Evaluator = field(repr=False)  # True, False or None (null); raises NotComparable.
    _read: "PropertyReader" = field(repr=False)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """True when the message matches; null and values that cannot be compared do not."""
        try:
            return self.evaluate(properties) is True
        except NotComparable:
            return False

    def accepts(self, raw_properties: bytes) -> bool:
        """True when properties in the form of a record match."""
        return self.matches(self._read(raw_properties))


PropertyReader = Callable[[bytes], Mapping[str, str]]


def property_reader(names: frozenset[str]) -> PropertyReader:
    """Make a reader of these names' values in properties in the form of a record; the names are ASCII.

    Messages usually have more properties than filters use: a search for each name is three times as fast as splitting.
    """
    if len(names) > _SEARCHED_MAX:
        return lambda raw: parse_properties(raw.decode("utf-8", "replace"))
    searched = [(name, f"\x02{name}\x01".encode()) for name in names]

    def read(raw: bytes) -> Mapping[str, str]:
        raw, found = b"\x02" + raw, {}
        for name, key in searched:
            at = raw.rfind(key)  # The last value counts, unless it is empty.
            while at >= 0:
                start = at + len(key)
                end = raw.find(b"\x02", start)
                if value := raw[start:] if end < 0 else raw[start:end]:
                    found[name] = value.decode("utf-8", "replace")
                    break
                at = raw.rfind(key, 0, at)
        return found

    return read


@lru_cache(_REMEMBERED)
def _compiled(text: str) -> SqlFilter | str:
    try:
        expression = parse(text)
        return SqlFilter(text, evaluator(expression), property_reader(property_names(expression)))
    except SelectorError as error:
        return str(error)


def compile_sql(text: str) -> SqlFilter:
    """Compile a text; cached texts return the same object. Raises SelectorError."""
    found = _compiled(text)
    if isinstance(found, str):
        raise SelectorError(found)
    return found


def prepare() -> None:
    """Import the parser and build its tables, which takes 0.1 s, before a client waits for it."""
    compile_sql("TRUE")


RawFilter = Callable[[bytes], bool]
"""Function that is True when a message with these properties, in the form of a record, matches."""
