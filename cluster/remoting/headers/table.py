"""All header classes by request code: for permissions, the reference, and tests of completeness."""

from types import ModuleType

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import RequestHeader, ResponseHeader
from twinlog.cluster.remoting.headers import (
    broker_admin,
    clients,
    controller,
    members,
    messages,
    namesrv,
    offsets,
    responses,
)

_MODULES: tuple[ModuleType, ...] = (messages, offsets, clients, broker_admin, members, controller, namesrv)


def _own(module: ModuleType, parent: type) -> list[type]:
    return [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, parent) and cls.__module__ == module.__name__
    ]


HEADERS: tuple[type[RequestHeader], ...] = tuple(cls for module in _MODULES for cls in _own(module, RequestHeader))
REQUESTS: dict[RequestCode, type[RequestHeader]] = {cls.code: cls for cls in HEADERS}
RESPONSES: tuple[type[ResponseHeader], ...] = tuple(_own(responses, ResponseHeader))
