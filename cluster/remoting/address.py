"""Addresses as RocketMQ writes them: `host:port`."""


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host stands in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    sound = colon and host and host.isprintable() and " " not in host and (bracketed or ":" not in host)
    if not (sound and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65_535):
        raise ValueError(f"{address!r:.80} is not host:port")
    return host, int(port)


def ip_of(address: str) -> str:
    """The IP of IP:PORT, without brackets."""
    return address.rpartition(":")[0].strip("[]")
