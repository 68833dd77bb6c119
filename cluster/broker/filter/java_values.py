"""Numbers and booleans in properties, read as by Java's Integer, Long, Double and Boolean.valueOf(String).

NotComparable takes the place of NumberFormatException. Source: the JDK's documentation of these methods.
"""

import re
from functools import partial

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

_DECIMAL = re.compile(r"[+-]?\d+")  # Digits of any script, as Character.digit; Java refuses those beyond the BMP.
_BMP_END = "\uffff"
_LONG_DIGITS_MAX = 19
_SAFE_INT_DIGITS, _SAFE_LONG_DIGITS = 9, 18  # Any number of so few digits fits.
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?"
    r"|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?)"
)
_TRIMMED = "".join(map(chr, range(0x21)))  # Characters that String.trim removes.


class NotComparable(Exception):
    """The property's value cannot be compared with the other one, so the message does not match."""


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
    """Parse a decimal or hexadecimal double, NaN or Infinity. Raises NotComparable."""
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
    """Parse a boolean: `true` in any case is true, all else is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Compare like Double.compareTo: NaN is equal to itself and greater than all, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(value: float) -> int:
    if value != value:
        return 2
    return 1 if value or not str(value).startswith("-") else 0
