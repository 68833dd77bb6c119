"""Numbers and truth values in properties, read as Java reads them: Integer, Long, Double and Boolean.valueOf(String).

Where Java raises a NumberFormatException, NotComparable is raised. Source: the JDK's documentation of these methods.
"""

import re
from functools import partial

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_DECIMAL = re.compile(r"[+-]?\d+")  # Any script's digits, as Character.digit; those beyond the BMP are not taken there.
_BMP_END = "\uffff"
_LONG_DIGITS_MAX = 19
_SAFE_INT_DIGITS, _SAFE_LONG_DIGITS = 9, 18  # So few fit, whatever they are.
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
_TRIMMED = "".join(map(chr, range(0x21)))  # What String.trim takes off.


class NotComparable(Exception):
    """The property's value cannot be compared with that: such a message does not match."""


def _parse_decimal(text: str, low: int, high: int, safe_digits: int) -> int:
    if text.isdigit() and len(text) <= safe_digits and text.isascii():
        return int(text)
    if _DECIMAL.fullmatch(text) is None or max(text) > _BMP_END:
        raise NotComparable(text)
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    digits = digits.lstrip("0")
    if len(digits) > _LONG_DIGITS_MAX and digits.isascii():
        raise NotComparable(text)
    try:
        value = int(sign + (digits or "0"))
    except ValueError:  # Thousands of digits.
        raise NotComparable(text) from None
    if not low <= value <= high:
        raise NotComparable(text)
    return value


parse_int = partial(_parse_decimal, low=INT_MIN, high=INT_MAX, safe_digits=_SAFE_INT_DIGITS)
parse_long = partial(_parse_decimal, low=LONG_MIN, high=LONG_MAX, safe_digits=_SAFE_LONG_DIGITS)


def parse_double(text: str) -> float:
    """Decimal, hexadecimal, NaN and Infinity. Raises NotComparable."""
    text = text.strip(_TRIMMED)
    if _DOUBLE.fullmatch(text) is None:
        raise NotComparable(text)
    if text[1:3] in ("x", "X") or "x" in text or "X" in text:
        return _parse_hexadecimal(text.rstrip("fFdD"))
    return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))


def _parse_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")


def parse_boolean(text: str) -> bool:
    """Whatever is not `true`, in any case, is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo: NaN is equal to itself and greater than all, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(value: float) -> int:
    if value != value:
        return 2
    return 1 if value or not str(value).startswith("-") else 0
