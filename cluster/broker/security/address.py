"""Patterns of addresses that need no signature.

    192.0.2.1   192.0.2.*   192.0.1-9.*   192.0.2.1,192.0.2.2   192.0.2.{1,2}   *   *.*.*.*   and IPv6 alike, `*` and ranges last

A pattern is a list of rows; a row has low and high for each part of an address, 4 of IPv4, 8 of IPv6.
Source: RemoteAddressStrategyFactory.java (RocketMQ 4.9.8). Unlike there, parts behind a range count, too.
"""

from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address, ip_address

from attrs import frozen

from twinlog.cluster.broker.security.errors import AclError

Range = tuple[int, int]
Row = tuple[Range, ...]

_EVERYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_V4_PART_MAX, _V6_PART_MAX = 255, 0xFFFF


@frozen
class AddressPattern:
    """Pattern of addresses: some, all, or none."""

    rows: tuple[Row, ...] = ()
    everybody: bool = False

    def matches(self, host: str) -> bool:
        """True when the IP `host` matches."""
        if self.everybody or not self.rows:
            return self.everybody
        parts = _parts_of(host)
        return any(len(row) == len(parts) and _within(row, parts) for row in self.rows)


def _within(row: Row, parts: tuple[int, ...]) -> bool:
    return all(low <= part <= high for (low, high), part in zip(row, parts, strict=True))


@lru_cache(maxsize=1024)
def _parts_of(host: str) -> tuple[int, ...]:
    """Split an address; empty for an invalid one. IPv4-mapped IPv6 is IPv4."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            return tuple(int.from_bytes(address.packed[at : at + 2]) for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def parse_pattern(text: str | None) -> AddressPattern:
    """Read a pattern; an empty or blank one matches nothing. Raises AclError."""
    text = (text or "").strip()
    if not text:
        return AddressPattern()
    if text in _EVERYBODY:
        return AddressPattern(everybody=True)
    if text.endswith("}"):
        return AddressPattern(tuple(_single(each) for each in _members(text)))
    if "," in text:
        return AddressPattern(tuple(_single(each) for each in text.split(",") if each))
    if "*" in text or "-" in text:
        return AddressPattern((_range_v6(text) if ":" in text else _range_v4(text),))
    return AddressPattern((_single(text),))


def _members(text: str) -> list[str]:
    """Expand `192.0.2.{1,2}` to 192.0.2.1, 192.0.2.2; the braces are the whole last part."""
    head, brace, tail = text.partition("{")
    if not brace or not head.endswith((".", ":")) or "{" in tail:
        raise AclError(f"Netaddress examine Exception netaddress is {text}")
    return [head + each.strip() for each in tail[:-1].split(",") if each.strip()]


def _single(text: str) -> Row:
    parts = _parts_of(text.strip())
    if not parts:
        raise AclError(f"Netaddress examine Exception netaddress is {text}")
    return tuple((part, part) for part in parts)


def _range_v4(text: str) -> Row:
    parts = text.split(".")
    if len(parts) != 4:
        raise _no_scope(text)
    return tuple(_part(part, 10, _V4_PART_MAX, text) for part in parts)


def _range_v6(text: str) -> Row:
    """Read an IPv6 range. `::` fills up to 8 parts; without it a last `*` matches all remaining parts."""
    head, gap, tail = text.partition("::")
    before, after = _split(head), _split(tail)
    missing = 8 - len(before) - len(after)
    if missing < 0 or "::" in tail or (missing and not gap and before[-1:] != ["*"]):
        raise _no_scope(text)
    parts = [*before, *(["0" if gap else "*"] * missing), *after]
    ranged = [number for number, part in enumerate(parts) if "*" in part or "-" in part]
    if ranged != list(range(8 - len(ranged), 8)) or sum("-" in part for part in parts) > 1:
        raise _no_scope(text)
    return tuple(_part(part, 16, _V6_PART_MAX, text) for part in parts)


def _split(text: str) -> list[str]:
    return text.split(":") if text else []


def _part(text: str, base: int, most: int, whole: str) -> Range:
    text = text.strip()
    if text == "*":
        return 0, most
    low, dash, high = text.partition("-")
    try:
        bounds = _number(low, base), _number(high if dash else low, base)
    except ValueError:
        raise _no_scope(whole) from None
    if not 0 <= bounds[0] <= bounds[1] <= most:
        raise _no_scope(whole)
    return bounds


def _number(text: str, base: int) -> int:
    if not text.isalnum() or not text.isascii():
        raise AddressValueError
    return int(text, base)


def _no_scope(text: str) -> AclError:
    return AclError(f"Netaddress examine scope Exception netaddress is {text}")
