"""Headers of all requests that are sent or served, and of responses that clients read.

One class for each request code; a request without fields has an empty class, so that its handler can name it.
Field names, types and which are required: RocketMQ's *RequestHeader classes (4.9.8); `5.x` marks later additions.
`broker_name` (bname) and the like are sent by newer clients; brokers ignore them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinlog.cluster.remoting.headers import broker_admin, clients, members, messages, namesrv, offsets, responses

    __all__ = ["broker_admin", "clients", "members", "messages", "namesrv", "offsets", "responses"]


def __getattr__(name: str) -> Any:
    """Import a module of headers at its first use: all of them take 25 ms, and a command uses few."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(name) from None
