"""Headers of all requests that are sent or served, and of responses that clients read.

One class for each request code; a request without fields has an empty class, so that its handler can name it.
Field names, types and which are required: RocketMQ's *RequestHeader classes (4.9.8); `5.x` marks later additions.
`broker_name` (bname) and the like are sent by newer clients; brokers ignore them.
All modules together take 25 ms to import, and a command uses few: each is imported at its first use.
"""

from typing import TYPE_CHECKING

from twinlog.store.util.late_modules import late_modules

__all__ = ["broker_admin", "clients", "controller", "members", "messages", "namesrv", "offsets", "responses"]

if TYPE_CHECKING:
    from . import broker_admin, clients, controller, members, messages, namesrv, offsets, responses
else:
    __getattr__ = late_modules(__name__)
