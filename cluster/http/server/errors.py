"""An answer that is no success: JSON with what, why and what next, as the command line has them."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from starlette.responses import Response

from twinlog.cluster.admin.documents import dumps

JSON = "application/json"


@frozen(kw_only=True)
class HttpError(Exception):
    """Ends a request with this answer."""

    status: int
    what: str
    why: str = ""
    next_step: str = ""
    headers: Mapping[str, str] = field(factory=dict)

    def response(self) -> Response:
        """Its JSON."""
        body = {"error": self.what, "why": self.why, "next": self.next_step}
        return json_response(body, self.status, self.headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value that may hold attrs objects."""
    return Response(dumps(value) + b"\n", status, headers, media_type=JSON)
