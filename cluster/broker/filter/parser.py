"""Parser of SQL92 expressions. The grammar is in selector.lark; lark is imported with the first expression.

As in RocketMQ, text behind the end of the expression is ignored if its first token is valid. Source: SelectorParser (RocketMQ
4.9.7, filter), whose JavaCC grammar does not require the end of the input.
"""

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from twinlog.cluster.broker.filter import expression as make
from twinlog.cluster.broker.filter.expression import Expression, SelectorError

if TYPE_CHECKING:
    from lark import Lark

LENGTH_MAX = 8 * 1024  # Characters; ours.
_SHOWN_MAX = 40


class _Actions:
    """Actions of the grammar's rules."""

    def selector(self, parts: list[Any]) -> Expression:
        return make.as_condition(parts[0])

    def either(self, parts: list[Any]) -> Expression:
        return make.logic(*parts, is_or=True)

    def both(self, parts: list[Any]) -> Expression:
        return make.logic(*parts, is_or=False)

    def equal(self, parts: list[Any]) -> Expression:
        return make.equal(*parts)

    def not_equal(self, parts: list[Any]) -> Expression:
        return make.negation(make.equal(*parts))

    def is_null(self, parts: list[Any]) -> Expression:
        return make.is_null(*parts)

    def is_not_null(self, parts: list[Any]) -> Expression:
        return make.negation(make.is_null(*parts))

    def greater(self, parts: list[Any]) -> Expression:
        return make.ordered(">", *parts)

    def greater_or_equal(self, parts: list[Any]) -> Expression:
        return make.ordered(">=", *parts)

    def less(self, parts: list[Any]) -> Expression:
        return make.ordered("<", *parts)

    def less_or_equal(self, parts: list[Any]) -> Expression:
        return make.ordered("<=", *parts)

    def between(self, parts: list[Any]) -> Expression:
        return make.between(*parts)

    def not_between(self, parts: list[Any]) -> Expression:
        return make.not_between(*parts)

    def is_in(self, parts: list[Any]) -> Expression:
        return make.is_in(*parts, is_negated=False)

    def is_not_in(self, parts: list[Any]) -> Expression:
        return make.is_in(*parts, is_negated=True)

    def negate(self, parts: list[Any]) -> Expression:
        return make.negate(*parts)

    def negation(self, parts: list[Any]) -> Expression:
        return make.negation(*parts)

    def text(self, parts: list[Any]) -> Expression:
        return make.Constant(make.Kind.STRING, _unquoted(parts[0]))

    def decimal(self, parts: list[Any]) -> Expression:
        return make.decimal(parts[0])

    def floating(self, parts: list[Any]) -> Expression:
        return make.floating(parts[0])

    def true(self, _parts: list[Any]) -> Expression:
        return make.TRUE

    def false(self, _parts: list[Any]) -> Expression:
        return make.FALSE

    def null(self, _parts: list[Any]) -> Expression:
        return make.NULL

    def name(self, parts: list[Any]) -> Expression:
        return make.Property(str(parts[0]))

    def strings(self, parts: list[Any]) -> list[str]:
        return [_unquoted(part) for part in parts]


def _unquoted(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


@cache
def _parser() -> "Lark":
    from lark import Lark

    grammar = resources.files(__package__).joinpath("selector.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        start="selector",
        parser="lalr",
        lexer="basic",  # Tokens do not depend on the parser's state.
        transformer=_Actions(),
        g_regex_flags=re.ASCII,  # Keywords in any case, but not with non-ASCII letters that fold to these.
        maybe_placeholders=False,
    )


def parse(text: str) -> Expression:
    """Parse an expression. Raises SelectorError."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedInput

    if len(text) > LENGTH_MAX:
        raise SelectorError(f"it has {len(text)} characters, more than {LENGTH_MAX}")
    try:
        return _tree(text)
    except UnexpectedCharacters as error:
        raise SelectorError(f"{error.char!r} {_at(error)} is not the start of a token") from None
    except UnexpectedInput as error:
        token = str(getattr(error, "token", ""))[:_SHOWN_MAX]
        raise SelectorError(f"{token!r} {_at(error)} is unexpected" if token else "it ends too early") from None


def _at(error: Any) -> str:
    return f"in line {error.line}, column {error.column},"


def _tree(text: str) -> Expression:
    from lark.exceptions import UnexpectedToken

    session: Any = _parser().parse_interactive(text)
    for token in session.lexer_thread.lex(session.parser_state):
        try:
            session.feed_token(token)
        except UnexpectedToken as error:
            try:
                result: Expression = session.feed_eof()
                return result
            except UnexpectedToken:
                raise error from None
    result = session.feed_eof()
    return result
