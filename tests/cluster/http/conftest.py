"""HTTP of a member in this process, over a cluster that is faked."""

from contextlib import asynccontextmanager

import httpx
import pytest

from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.http.members import MASTER
from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.http.events import Feed
from twinlog.cluster.http.member import member_routes
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.server.app import guarded_app
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.cluster.http.source import Source
from twinlog.cluster.remoting.member_status import MemberStatus

TOKEN = "0123456789abcdef"
AUTHORIZED = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


class Member:
    """Its routes, without a port. `says`: what the broker says of itself from now on."""

    def __init__(self, tmp_path, cluster: FakeCluster) -> None:
        token_file = tmp_path / "token"
        token_file.write_text(TOKEN)
        token_file.chmod(0o600)
        self.says(MASTER)
        self.source = Source(
            kind="broker",
            read_node=lambda: self.status,
            read_snapshot=lambda: None,
            namesrv=lambda: ("127.0.0.1:9876",),
        )
        self.source.serves()
        admin = Admin(cluster.api)

        @asynccontextmanager
        async def open_admin():
            yield admin

        self.open_admin = open_admin
        self.tokens, self.operations = Tokens(token_file), Operations()
        self.feed = Feed(open_admin, self.operations.running)
        self.operations.publish = self.feed.publish
        self.routes = member_routes(self.source, open_admin, self.tokens, self.operations, self.feed)
        self.app = guarded_app(self.routes)

    def says(self, status: dict) -> None:
        self.status = MemberStatus.from_json(status)

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:10914")


@pytest.fixture
def fake() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def member(tmp_path, fake) -> Member:
    return Member(tmp_path, fake)
