"""/v1: what the command line prints with -o json, by the same functions."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from cluster.documents import document
from cluster.http.asking import asking
from cluster.http.errors import json_response
from cluster.http.kept_admin import OpenAdmin
from cluster.http.routes import Endpoint
from cluster.http.tokens import Tokens


def v1_routes(open_admin: OpenAdmin, tokens: Tokens) -> Sequence[BaseRoute]:
    """All of /v1. `open_admin` gives an Admin for the time of a request."""

    async def cluster(request: Request) -> Response:
        """Every member: its role, what it does, how far it is behind. As `twinlog list`."""
        async with asking(open_admin) as admin:
            return json_response(document(await admin.list_members()))

    return [Endpoint("/v1/cluster", cluster)]
