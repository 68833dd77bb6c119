"""Form of host names."""

import re

_NAME = re.compile(r"(?!-)[a-zA-Z0-9_-]{1,63}(\.(?!-)[a-zA-Z0-9_-]{1,63})*\.?")


def is_host_name(host: str) -> bool:
    """True for what may be the name of a host. Not 10.0.0 or 10.0.0.300: whoever writes these means an IP."""
    last = host.rstrip(".").rpartition(".")[2]
    return len(host) <= 253 and _NAME.fullmatch(host) is not None and not last.isdecimal()
