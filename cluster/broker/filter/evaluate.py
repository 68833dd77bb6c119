"""Compiler of expressions to Python closures that evaluate one message's properties. Pure.

    properties (names and values, strings) -> True, False or None (null); NotComparable if RocketMQ raises, which ends it

Null and errors follow RocketMQ's evaluation step by step: the side that is null decides, and operands that are not needed are
not evaluated. Sources: the evaluate methods of ComparisonExpression, LogicExpression and UnaryExpression (RocketMQ 4.9.7).
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from twinlog.cluster.broker.filter.expression import (
    NUMBERS,
    Comparison,
    Constant,
    Expression,
    In,
    Kind,
    Logic,
    Negation,
    Not,
    Property,
    Truth,
)
from twinlog.cluster.broker.filter.java_values import (
    NotComparable,
    compare_doubles,
    parse_boolean,
    parse_double,
    parse_int,
    parse_long,
)

Properties: TypeAlias = Mapping[str, str]
Evaluator: TypeAlias = Callable[[Properties], Any]  # A string, a number, a bool or None.

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PARSERS: dict[Kind, Callable[[str], Any]] = {
    Kind.INTEGER: parse_int,
    Kind.LONG: parse_long,
    Kind.DOUBLE: parse_double,
    Kind.BOOLEAN: parse_boolean,
}


def evaluator(expression: Expression) -> Evaluator:
    """Return the closure of a tree; it has no state."""
    match expression:
        case Constant():
            value = expression.value
            return lambda _properties: value
        case Property():
            name = expression.name
            return lambda properties: properties.get(name)
        case Truth():
            name = expression.right.name
            return lambda properties: False if name in properties else None
        case In():
            return _is_in(expression)
        case Not():
            return _not(evaluator(expression.right))
        case Negation():
            return _negative(evaluator(expression.right), expression.kind)
        case Logic():
            terms = tuple(evaluator(term) for term in expression.terms)
            return _logic(terms, decisive=expression.is_or)
        case Comparison():
            return _equal(expression) if expression.symbol == "=" else _ordered(expression)


def _is_in(expression: In) -> Evaluator:
    name, values, is_negated = expression.name, expression.values, expression.is_negated

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in values) != is_negated

    return evaluate


def _not(condition: Evaluator) -> Evaluator:
    def evaluate(properties: Properties) -> bool | None:
        value = condition(properties)
        return None if value is None else not value

    return evaluate


def _negative(right: Evaluator, kind: Kind) -> Evaluator:
    def nothing(properties: Properties) -> None:
        right(properties)  # It may raise.

    def evaluate(properties: Properties) -> Any:
        return -right(properties)  # Numbers are constants: never null.

    return evaluate if kind in NUMBERS else nothing


def _logic(terms: tuple[Evaluator, ...], *, decisive: bool) -> Evaluator:
    """AND or OR. `decisive`: the value of a term that decides it, whatever the others are."""

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for term in terms:
            value: bool | None = term(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def _equal(expression: Comparison) -> Evaluator:
    left, right = evaluator(expression.left), evaluator(expression.right)
    if isinstance(expression.left, Property) and isinstance(expression.right, Constant):
        if expression.right.value is None:
            absent = expression.left.name
            return lambda properties: absent not in properties
        return _property_equal(expression.left.name, expression.right)
    same = _equality(expression.left.kind, expression.right.kind)

    def evaluate(properties: Properties) -> bool | None:
        first, second = left(properties), right(properties)
        if first is None:
            return True if second is None else None
        return False if second is None else same(first, second)

    return evaluate


def _property_equal(name: str, constant: Constant) -> Evaluator:
    """Evaluator of `property = constant`, of which most filters consist."""
    value = constant.value
    if constant.kind is Kind.STRING:

        def evaluate(properties: Properties) -> bool | None:
            text = properties.get(name)
            return None if text is None else text == value

        return evaluate
    parse = _PARSERS[constant.kind]

    def evaluate_parsed(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else parse(text) == value

    return evaluate_parsed


def _equality(left: Kind, right: Kind) -> Callable[[Any, Any], bool]:
    """Compare two values that are not null by =; which of them is the string matters to RocketMQ."""
    if left is right:
        return operator.eq
    if left is Kind.STRING and right in _PARSERS:
        parse = _PARSERS[right]
        return lambda text, value: bool(parse(text) == value)
    if left is Kind.BOOLEAN and right is Kind.STRING:
        return _raise
    if right is Kind.STRING and left in NUMBERS:
        parse = _PARSERS[left]
        return lambda value, text: bool(parse(text) == value)
    if {left, right} <= NUMBERS:
        return (lambda one, other: float(one) == float(other)) if Kind.DOUBLE in (left, right) else operator.eq
    return lambda _left, _right: False


def _raise(left: Any, right: Any) -> bool:
    raise NotComparable(f"{left} and {right}")


def _ordered(expression: Comparison) -> Evaluator:
    left, right, symbol = expression.left, expression.right, expression.symbol
    if isinstance(right, Property) and left.kind in NUMBERS:
        # Numbers are never null, so the order of evaluation does not matter.
        left, right, symbol = right, left, _MIRRORED[symbol]
    if isinstance(left, Property) and isinstance(right, Constant):
        assert isinstance(right.value, int | float)
        return _property_ordered(left.name, symbol, right.kind, right.value)
    first, second = evaluator(left), evaluator(right)
    compare = _order(left.kind, right.kind, _ORDERS[symbol])

    def evaluate(properties: Properties) -> bool | None:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        return None if other is None else compare(one, other)

    return evaluate


def _property_ordered(name: str, symbol: str, kind: Kind, value: int | float) -> Evaluator:
    compare, parse = _ORDERS[symbol], _PARSERS[kind]
    if kind is Kind.DOUBLE:
        compare = _order(Kind.DOUBLE, Kind.DOUBLE, compare)

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else compare(parse(text), value)

    return evaluate


def _order(left: Kind, right: Kind, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Compare two values that are not null by <, <=, > or >=."""
    if left is Kind.STRING and right is Kind.STRING:
        return lambda one, other: compare(compare_doubles(parse_double(one), parse_double(other)), 0)
    if left is Kind.STRING and right in NUMBERS:
        parse, same_kind = _PARSERS[right], _order(right, right, compare)
        return lambda text, value: same_kind(parse(text), value)
    if right is Kind.STRING and left in NUMBERS:
        parse, same_kind = _PARSERS[left], _order(left, left, compare)
        return lambda value, text: same_kind(value, parse(text))
    if Kind.DOUBLE in (left, right):
        return lambda one, other: compare(compare_doubles(float(one), float(other)), 0)
    return compare  # Two integers; others are never compared.
