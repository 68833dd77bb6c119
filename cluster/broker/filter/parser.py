"""Parser of SQL92 expressions. The grammar is in selector.lark; lark is imported with the first expression.

As in RocketMQ, text behind the end of the expression is ignored if its first token is valid. Source: SelectorParser (RocketMQ
4.9.7, filter), whose JavaCC grammar does not require the end of the input.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from importlib import resources
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from twinlog.cluster.broker.filter import expression as make
from twinlog.cluster.broker.filter.expression import Expression, SelectorError

if TYPE_CHECKING:
    from lark import Lark

LENGTH_MAX = 8 * 1024  # Characters; ours.
_SHOWN_MAX = 40


def _unquoted(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


# The actions of the grammar's rules, called with the parts of each.
_ACTIONS: dict[str, Callable[..., Any]] = {
    "selector": make.as_condition,
    "either": partial(make.logic, is_or=True),
    "both": partial(make.logic, is_or=False),
    "equal": make.equal,
    "not_equal": lambda left, right: make.negation(make.equal(left, right)),
    "is_null": make.is_null,
    "is_not_null": lambda left: make.negation(make.is_null(left)),
    "greater": partial(make.ordered, ">"),
    "greater_or_equal": partial(make.ordered, ">="),
    "less": partial(make.ordered, "<"),
    "less_or_equal": partial(make.ordered, "<="),
    "between": make.between,
    "not_between": make.not_between,
    "is_in": partial(make.is_in, is_negated=False),
    "is_not_in": partial(make.is_in, is_negated=True),
    "negate": make.negate,
    "negation": make.negation,
    "text": lambda literal: make.Constant(make.Kind.STRING, _unquoted(literal)),
    "decimal": make.decimal,
    "floating": make.floating,
    "true": lambda: make.TRUE,
    "false": lambda: make.FALSE,
    "null": lambda: make.NULL,
    "name": lambda token: make.Property(str(token)),
    "strings": lambda *literals: [_unquoted(literal) for literal in literals],
}


def _with_parts(action: Callable[..., Any], parts: list[Any]) -> Any:
    return action(*parts)


@cache
def _parser() -> "Lark":
    from lark import Lark

    grammar = resources.files(__package__).joinpath("selector.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        start="selector",
        parser="lalr",
        lexer="basic",  # Tokens do not depend on the parser's state.
        transformer=SimpleNamespace(**{rule: partial(_with_parts, action) for rule, action in _ACTIONS.items()}),
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
