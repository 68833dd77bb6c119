"""Requests 25 and 26: what holds after a change, what the file says then, and what is shown."""

import pytest

from tests.cluster.broker.helpers import opened, put
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.broker.config_changes import CHANGEABLE
from twinlog.cluster.config.config_file import configure, settings_of
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.store.config import BrokerRole, FlushDiskType, StoreConfig

FILE = """# Our broker
brokerName = broker-a

! how long messages stay
fileReservedTime=48
namesrvAddr=192.0.2.1:9876;\\
  192.0.2.2:9876
regionId=Zür\\u0069ch
"""


@pytest.fixture
async def client(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(FILE.encode("latin-1"))
    parts = make_parts(tmp_path / "broker-a-0")
    parts.settings.config_file = path
    async with opened(parts.serve(parts.broker_admin())) as client:
        yield client


def told(client) -> dict[str, str]:
    """What request 26 says."""
    return dict(line.split("=", 1) for line in client.ask(26).body.decode().splitlines())


# What holds then


async def test_what_changes_holds_at_once_and_is_in_the_file(client):
    version = client.broker.settings.version
    reply = await client.ask_async(25, b"fileReservedTime=24\nslaveReadEnable=true\nmaxMessageSize=2048\n")
    assert (reply.code, reply.ext, reply.body) == (0, None, b"")
    broker = client.broker
    assert broker.settings.config.slave_read_enable
    assert broker.store.retention.config.file_reserved_time_hours == 24
    assert put(broker, body=b"x" * 3000).status.name == "MESSAGE_ILLEGAL"
    assert told(client)["maxMessageSize"] == "2048"
    assert broker.settings.version.counter == version.counter + 1
    assert client.ask(26).ext["version"] == f'{{"counter":1,"timestamp":{broker.settings.version.timestamp}}}'
    lines = broker.settings.config_file.read_bytes().decode("latin-1").splitlines()
    before = FILE.splitlines()
    assert lines[:4] == before[:4]
    assert lines[4] == "fileReservedTime=24"
    assert lines[5:8] == before[5:8]
    assert sorted(lines[8:]) == ["maxMessageSize=2048", "slaveReadEnable=true"]
    assert configure([StoreConfig], settings_of("\n".join(lines), "x")).of(StoreConfig).max_message_size == 2048


def another(key: str, value: str) -> str:
    """A value that is allowed, and not this one."""
    allowed = CHANGEABLE[key]
    if allowed is not None:
        return str(allowed[-1] if value != str(allowed[-1]) else allowed[0])
    return {"true": "false", "false": "true"}.get(value, "05")


async def test_every_key_that_may_change_changes(client):
    before = told(client)
    one_way = {"haSecret"}  # A request may be anybody's, so it makes nothing less strict.
    wanted = {key: another(key, before[key]) for key in CHANGEABLE.keys() - one_way}
    body = "".join(f"{key}={value}\n" for key, value in wanted.items()).encode()
    assert (await client.ask_async(25, body)).code == 0
    after = told(client)
    assert {key: value for key, value in after.items() if value != before[key]} == wanted


async def test_all_or_nothing(client):
    before = client.broker.settings.config_file.read_bytes()
    for body in (b"slaveReadEnable=true\nlistenPort=1", b"slaveReadEnable=true\nfileReservedTime=0"):
        assert (await client.ask_async(25, body)).code in (1, 16)
    assert not client.broker.settings.config.slave_read_enable
    assert client.broker.settings.config_file.read_bytes() == before
    assert client.broker.settings.version.counter == 0


async def test_nothing_asked_nothing_changed(client):
    for body in (b"", b"# only words\n"):
        assert (await client.ask_async(25, body)).code == 0
    assert client.broker.settings.config_file.read_bytes() == FILE.encode("latin-1")


async def test_a_file_that_cannot_be_written_changes_nothing(client):
    client.broker.settings.config_file = client.broker.settings.config_file.parent / "none" / "broker.conf"
    reply = await client.ask_async(25, b"slaveReadEnable=true")
    assert (reply.code, "nothing was changed" in reply.remark) == (1, True)
    assert not client.broker.settings.config.slave_read_enable


async def test_without_a_file_it_holds_until_the_end(client):
    client.broker.settings.config_file = None
    assert (await client.ask_async(25, b"slaveReadEnable=true")).code == 0
    assert client.broker.settings.config.slave_read_enable


async def test_a_link_stays_a_link(client, tmp_path):
    link = tmp_path / "link.conf"
    link.symlink_to(client.broker.settings.config_file)
    target, client.broker.settings.config_file = client.broker.settings.config_file, link
    assert (await client.ask_async(25, b"slaveReadEnable=true")).code == 0
    assert link.is_symlink()
    assert "slaveReadEnable=true" in target.read_text("latin-1")


async def test_values_are_no_way_into_the_file(client):
    """A value with a line end in it is no second line."""
    assert (await client.ask_async(25, b"deleteWhen=04\\nlistenPort\\=1")).code == 1
    assert client.broker.settings.config_file.read_bytes() == FILE.encode("latin-1")


async def test_other_changes_are_no_news_for_name_servers(client):
    version = client.broker.tables.topics.version
    assert (await client.ask_async(25, b"slaveReadEnable=true")).code == 0
    assert client.broker.tables.topics.version == version


async def test_topics_may_be_made_again(client):
    broker = client.broker
    assert (await client.ask_async(25, b"autoCreateTopicEnable=false")).code == 0
    assert broker.tables.topics.create_in_send("new", "TBW102", 4) is None
    assert (await client.ask_async(25, b"autoCreateTopicEnable=true")).code == 0
    assert broker.tables.topics.create_in_send("new", "TBW102", 4) is not None


async def test_topics_may_be_made_where_they_never_might(tmp_path):
    parts = make_parts(tmp_path, auto_create_topic_enable=False)
    async with opened(parts.serve(parts.broker_admin())) as client:
        assert client.broker.tables.topics.select("TBW102") is None
        assert (await client.ask_async(25, b"autoCreateTopicEnable=true")).code == 0
        assert client.broker.tables.topics.create_in_send("new", "TBW102", 4) is not None


async def test_the_role_is_not_touched(tmp_path):
    parts = make_parts(tmp_path, BrokerRole.SLAVE)
    async with opened(parts.serve(parts.broker_admin())) as client:
        assert (await client.ask_async(25, b"fileReservedTime=24")).code == 0
        assert client.broker.store.config.broker_role is BrokerRole.SLAVE
        assert client.broker.store.config.flush_disk_type is FlushDiskType.ASYNC_FLUSH


# What is shown


async def test_the_configuration_is_shown_as_properties(client):
    reply = client.ask(26)
    lines = told(client)
    assert lines["brokerName"] == "broker-a"
    assert lines["brokerRole"] == "ASYNC_MASTER"
    assert lines["haListenPort"] == "10912", "as it is in force"
    assert fastjson.loads(reply.ext["version"])["counter"] == 0


async def test_secrets_are_not_shown(tmp_path):
    parts = make_parts(tmp_path)
    parts.settings.tls_config = TlsConfig(server_key_password="hunter2")
    async with opened(parts.serve(parts.broker_admin())) as client:
        shown = told(client)
        assert shown["tls.server.keyPassword"] == "******"
        assert "hunter2" not in client.ask(26).body.decode()
