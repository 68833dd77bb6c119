"""SQL92 filters beside RocketMQ's own: the same expressions are none, and the others say the same of the same messages."""

import os
import random
from collections.abc import Iterator

import pytest

from tests.support.clients.java_client import JavaClient
from twinlog.cluster.broker.filter.consumer_filters import bloom_positions
from twinlog.cluster.broker.filter.expression import SelectorError
from twinlog.cluster.broker.filter.java_values import NotComparable
from twinlog.cluster.broker.filter.sql import compile_sql
from twinlog.store.record.properties import parse_properties

BETWEEN_TEXTS = "\x03"


def words(text: str) -> list[str]:
    return text.split()


ROUNDS, PER_ROUND = 40, 500
NAMES = ["a", "b", "c", "TAGS", "_x", "$y", "missing"]

VALUES = words("""5 -5 +5 05 5.0 5. .5 5e0 -0.0 0.0 0 NaN Infinity -Infinity inf nan true TRUE True false x abc 'x' 5L 5d 5f 0x1p3
0x5 1_0 2147483647 2147483648 -2147483648 -2147483649 9223372036854775807 9223372036854775808 -9223372036854775808 1e400
1e-400 9007199254740993 9007199254740992.0 tRuE""")
VALUES += [" 5", "5 ", "\t5.0\n", "", "a b", "\u0665", "\uff15", "\U0001d7d3", "\u0131", "\u017f", "\x1f5", "5\xa0"]
CONSTANTS = words("""5 5L 5l 0 0L 05 00 5.0 5. .5 5e0 5E+0 5e-1 5e 0.0 1e400 1e-400 4.9e-324 2147483647 2147483648
9223372036854775807 9223372036854775808 9007199254740993 9007199254740992.0 TRUE false NULL 'x' '5' '5.0' 'true' 'it''s' ''
'''' -5 -2147483648 +5 -TRUE -a +a -'5' - -5""")
PIECES = words("AND OR NOT BETWEEN IN IS NULL ( ) , = <> < <= > >= + - LIKE -- /* */ /**/ ? ! == != #")
PIECES += [*CONSTANTS, *NAMES]


def operand(dice: random.Random, depth: int) -> str:
    roll = dice.random()
    if roll < 0.45:
        return dice.choice(NAMES)
    if roll < 0.85 or depth <= 0:
        return dice.choice(CONSTANTS)
    return f"({condition(dice, depth - 1)})"


def condition(dice: random.Random, depth: int) -> str:
    """Mostly an expression, with each rule of the grammar in it, and much that only looks like one."""

    def inner() -> str:
        return operand(dice, depth)

    texts = ", ".join(dice.choice(["'x'", "'5'", "''", "'it''s'", "5"]) for _ in range(dice.randint(1, 6)))
    forms = [
        lambda: f"{inner()} {dice.choice(['=', '<>', '<', '<=', '>', '>='])} {inner()}",
        lambda: f"{inner()} {dice.choice(['=', '<>', '<', '<=', '>', '>='])} {inner()}",
        lambda: f"{inner()} {dice.choice(['IS NULL', 'IS NOT NULL', 'is Null'])}",
        lambda: f"{inner()} {dice.choice(['', 'NOT '])}BETWEEN {inner()} AND {inner()}",
        lambda: f"{dice.choice(NAMES)} {dice.choice(['', 'NOT '])}IN ({texts})",
        lambda: f"NOT {dice.choice([inner(), '(' + condition(dice, depth - 1) + ')'])}",
        lambda: f"{condition(dice, depth - 1)} {dice.choice(['AND', 'OR', 'and', 'oR'])} {condition(dice, depth - 1)}",
        inner,
    ]
    return dice.choice(forms[:-2] if depth <= 0 else forms)()


def expression(dice: random.Random) -> str:
    roll = dice.random()
    if roll < 0.7:
        return condition(dice, dice.randint(0, 3))
    if roll < 0.85:  # One piece of it is another one.
        pieces = condition(dice, 2).split(" ")
        pieces[dice.randrange(len(pieces))] = dice.choice(PIECES)
        return " ".join(pieces)
    return dice.choice(["", " ", "\n"]).join(dice.choices(PIECES, k=dice.randint(1, 12)))


def message(dice: random.Random) -> str:
    names = dice.sample(NAMES[:-1], dice.randint(0, 5))
    return "\x02".join(f"{name}\x01{dice.choice(VALUES)}" for name in names)


def own_verdicts(text: str, messages: list[str]) -> str:
    try:
        compiled = compile_sql(text)
    except SelectorError:
        return "X"
    verdicts = ""
    for properties in map(parse_properties, messages):
        try:
            verdicts += {True: "T", False: "F", None: "N"}[compiled.evaluate(properties)]
        except NotComparable:
            verdicts += "E"
    return verdicts


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(tmp_path_factory.mktemp("client")) as java:
        yield java


@pytest.fixture(scope="module")
def filters(client: JavaClient) -> int:
    return client.new("SqlFilters", {})


def test_the_same_verdicts(client: JavaClient, filters: int) -> None:
    """Of 20,000 expressions over 20 messages each; TWINLOG_SEED gives others."""
    seed = int(os.environ.get("TWINLOG_SEED", "7"))
    seen = dict.fromkeys("TFNEX", 0)
    for number in range(ROUNDS):
        dice = random.Random(seed * 1_000_003 + number)
        texts = [expression(dice) for _ in range(PER_ROUND)]
        messages = [message(dice) for _ in range(20)]
        answer = client.call(
            filters, "verdicts", expressions=BETWEEN_TEXTS.join(texts), messages=BETWEEN_TEXTS.join(messages)
        )
        for text, theirs in zip(texts, answer, strict=True):
            ours = own_verdicts(text, messages)
            assert ours == theirs, (seed, number, text, messages)
            for letter in theirs:
                seen[letter] += 1
    assert all(count > 1000 for count in seen.values()), seen


def test_the_same_bits(client: JavaClient, filters: int) -> None:
    """RocketMQ loads our consumerFilter.json: its bits are those that it would have made."""
    dice = random.Random(7)
    for length in (*range(70), 200):
        text = "".join(dice.choices("abc#ü日%_-", k=length))
        assert client.call(filters, "bits", text=text) == bloom_positions(text)
