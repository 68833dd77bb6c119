"""SQL92 expressions as trees, and RocketMQ's rules for combining their parts. Pure.

Types are known without a message: properties are strings, constants have their own type. So each part has a kind, and all that
RocketMQ refuses when it compiles is refused here.
Sources: ComparisonExpression, ConstantExpression, LogicExpression, UnaryExpression, SelectorParser (RocketMQ 4.9.7, filter).
"""

from enum import Enum
from typing import TypeAlias

from attrs import frozen

from twinlog.cluster.broker.filter.java_values import INT_MAX, LONG_MAX

DEPTH_MAX = 100  # Ours: depth of nesting; RocketMQ is limited by its stack.


class SelectorError(ValueError):
    """An invalid expression; the text is the reason."""


class Kind(Enum):
    """Type of a part's value when it is not null."""

    STRING = "string"
    INTEGER = "integer"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NOTHING = "null"  # Always null.


NUMBERS = frozenset((Kind.INTEGER, Kind.LONG, Kind.DOUBLE))


@frozen
class Constant:
    kind: Kind
    value: str | int | float | bool | None
    depth: int = 1

    def __str__(self) -> str:
        if self.kind is Kind.STRING:
            return "'" + str(self.value).replace("'", "''") + "'"
        return "NULL" if self.value is None else str(self.value).upper()


@frozen
class Property:
    name: str
    kind: Kind = Kind.STRING
    depth: int = 1

    def __str__(self) -> str:
        return self.name


@frozen
class Negation:
    """Negation `-x`: null unless x is a number."""

    right: "Expression"
    kind: Kind
    depth: int

    def __str__(self) -> str:
        return f"(- {self.right})"


@frozen
class Not:
    right: "Expression"
    depth: int
    kind: Kind = Kind.BOOLEAN

    def __str__(self) -> str:
        return f"(NOT {self.right})"


@frozen
class Truth:
    """Property as a condition: null without it, else false, as strings are not true."""

    right: Property
    depth: int = 2
    kind: Kind = Kind.BOOLEAN

    def __str__(self) -> str:
        return str(self.right)


@frozen
class Logic:
    """AND or OR of two or more conditions, evaluated in order."""

    is_or: bool
    terms: "tuple[Expression, ...]"
    depth: int
    kind: Kind = Kind.BOOLEAN

    def __str__(self) -> str:
        return "(" + (" OR " if self.is_or else " AND ").join(map(str, self.terms)) + ")"


@frozen
class Comparison:
    symbol: str  # =, <, <=, >, >=
    left: "Expression"
    right: "Expression"
    depth: int
    kind: Kind = Kind.BOOLEAN

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


@frozen
class In:
    name: str
    values: frozenset[str]
    is_negated: bool
    depth: int = 2
    kind: Kind = Kind.BOOLEAN

    def __str__(self) -> str:
        return f"({self.name} {'NOT IN' if self.is_negated else 'IN'} {sorted(self.values)})"


Expression: TypeAlias = Constant | Property | Negation | Not | Truth | Logic | Comparison | In


def property_names(expression: Expression) -> frozenset[str]:
    """Return the properties that an expression uses."""
    match expression:
        case Property() | In():
            return frozenset((expression.name,))
        case Logic():
            return frozenset().union(*map(property_names, expression.terms))
        case Comparison():
            return property_names(expression.left) | property_names(expression.right)
        case Negation() | Not() | Truth():
            return property_names(expression.right)
        case Constant():
            return frozenset()


TRUE, FALSE = Constant(Kind.BOOLEAN, True), Constant(Kind.BOOLEAN, False)
NULL = Constant(Kind.NOTHING, None)


def _short(part: Expression) -> str:
    text = str(part)
    return text if len(text) <= 40 else text[:37] + "..."


def _above(*parts: Expression) -> int:
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise SelectorError(f"it is nested deeper than {DEPTH_MAX} levels")
    return depth


def decimal(text: str) -> Constant:
    """Read an integer, or a long for greater numbers; an L at the end is ignored."""
    digits = text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or (value := int(digits)) > LONG_MAX:
        raise SelectorError(f"the number {digits[:40]} is greater than {LONG_MAX}")
    return Constant(Kind.INTEGER if value <= INT_MAX else Kind.LONG, value)


def floating(text: str) -> Constant:
    """Read a double above zero."""
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise SelectorError(f"the number {text[:40]} is not within the range of a double above 0")
    return Constant(Kind.DOUBLE, value)


def _is_condition(part: Expression) -> bool:
    return part.kind is Kind.BOOLEAN or part == NULL


def as_condition(part: Expression) -> Expression:
    """Return the part as a condition. Raises SelectorError."""
    if isinstance(part, Property):
        return Truth(part)
    if not _is_condition(part):
        raise SelectorError(f"{_short(part)} is not a condition")
    return part


def negate(part: Expression) -> Negation:
    return Negation(part, part.kind if part.kind in NUMBERS else Kind.NOTHING, _above(part))


def negation(part: Expression) -> Not:
    condition = as_condition(part)
    return Not(condition, _above(condition))


def logic(left: Expression, right: Expression, *, is_or: bool) -> Logic:
    """Combine two conditions; a chain of one operator is one node, so its length adds no depth."""
    first, last = as_condition(left), as_condition(right)
    if isinstance(first, Logic) and first.is_or == is_or:
        return Logic(is_or, (*first.terms, last), max(first.depth, _above(last)))
    return Logic(is_or, (first, last), _above(first, last))


def equal(left: Expression, right: Expression) -> Comparison:
    for part in (left, right):
        if part == NULL:
            raise SelectorError("NULL cannot be compared; use IS NULL")
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and left.kind is Kind.BOOLEAN
        and right.kind is not Kind.BOOLEAN
    ):
        raise SelectorError(f"{left} cannot be compared with {_short(right)}")
    return Comparison("=", left, right, _above(left, right))


def is_null(left: Expression) -> Comparison:
    return Comparison("=", left, NULL, _above(left))


def ordered(symbol: str, left: Expression, right: Expression) -> Comparison:
    """Make a comparison by <, <=, > or >=, of numbers and properties."""
    for part in (left, right):
        if _is_condition(part) or (isinstance(part, Constant) and part.kind not in NUMBERS):
            raise SelectorError(f"{_short(part)} cannot be compared by {symbol}, which is for numbers")
    return Comparison(symbol, left, right, _above(left, right))


def between(value: Expression, low: Expression, high: Expression) -> Logic:
    if isinstance(low, Constant) and isinstance(high, Constant) and {low.kind, high.kind} <= NUMBERS:
        assert isinstance(low.value, int | float)
        assert isinstance(high.value, int | float)
        as_doubles = Kind.DOUBLE in (low.kind, high.kind)  # Java then rounds the other one.
        if float(high.value) < float(low.value) if as_doubles else high.value < low.value:
            raise SelectorError(f"nothing is between {low} and {high}")
    return logic(ordered(">=", value, low), ordered("<=", value, high), is_or=False)


def not_between(value: Expression, low: Expression, high: Expression) -> Logic:
    return logic(ordered("<", value, low), ordered(">", value, high), is_or=True)


def is_in(left: Expression, values: list[str], *, is_negated: bool) -> In:
    if not isinstance(left, Property):
        raise SelectorError(f"IN is for properties, and {_short(left)} is not one")
    return In(left.name, frozenset(values), is_negated)
