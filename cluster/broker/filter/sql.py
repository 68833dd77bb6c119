"""SQL92 filters, compiled once for each text. Source: SqlFilter, ExpressionMessageFilter (RocketMQ 4.9.7)."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from attrs import define, field

from cluster.broker.filter.evaluate import Evaluator, evaluator
from cluster.broker.filter.expression import SelectorError
from cluster.broker.filter.java_values import NotComparable
from cluster.broker.filter.parser import parse
from store.properties import parse_properties

_REMEMBERED = 128  # Texts; also those that are none, because clients come with these again and again.


@define(eq=False)
class SqlFilter:
    """An expression that was understood."""

    text: str
    _evaluate: Evaluator = field(repr=False)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Its truth for a message; None is null. Raises NotComparable."""
        result = self._evaluate(properties)
        assert result is None or isinstance(result, bool)
        return result

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a consumer gets the message: neither null nor what cannot be compared is true."""
        try:
            return self._evaluate(properties) is True
        except NotComparable:
            return False

    def accepts(self, raw_properties: bytes) -> bool:
        """The same for properties as a record has them."""
        return self.matches(parse_properties(raw_properties.decode("utf-8", "replace")))


@lru_cache(_REMEMBERED)
def _compiled(text: str) -> SqlFilter | str:
    try:
        return SqlFilter(text, evaluator(parse(text)))
    except SelectorError as error:
        return str(error)


def compile_sql(text: str) -> SqlFilter:
    """The filter of a text, the same object each time as long as it is remembered. Raises SelectorError."""
    found = _compiled(text)
    if isinstance(found, str):
        raise SelectorError(found)
    return found


RawFilter = Callable[[bytes], bool]
"""Whether a message with these properties, as its record has them, is wanted."""
