"""The configuration of a broker that runs: what may change, what holds then, and what the file says."""

import attrs
import pytest

from tests.cluster.broker.helpers import make_broker, opened, put
from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.config_changes import BLACK_LIST, CHANGEABLE, range_text, read_changes
from twinlog.cluster.config.config_file import configure, settings_of
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.tls.config import TlsConfig, TlsMode
from twinlog.store.config import BrokerRole, FlushDiskType, StoreConfig

FILE = """# Our broker
brokerName = broker-a

! how long messages stay
fileReservedTime=48
namesrvAddr=192.0.2.1:9876;\\
  192.0.2.2:9876
regionId=Zür\\u0069ch
"""


def changes(body):
    return read_changes(body, BrokerConfig(), StoreConfig(), {"listenPort", "storePathRootDir", "brokerRole"})


def refused(body):
    with pytest.raises(RequestError) as caught:
        changes(body)
    return caught.value.code, caught.value.remark


@pytest.fixture
async def client(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_bytes(FILE.encode("latin-1"))
    broker = make_broker(tmp_path / "broker-a-0")
    broker.settings.config_file = path
    async with opened(broker) as client:
        yield client


def told(client) -> dict[str, str]:
    """What request 26 says."""
    return dict(line.split("=", 1) for line in client.ask(26).body.decode().splitlines())


# What may change


def test_every_key_that_may_change_is_an_option():
    options = {
        each.metadata["key"]: each for cls in (BrokerConfig, StoreConfig) for each in attrs.fields(cls) if each.metadata
    }
    assert options.keys() >= CHANGEABLE.keys()
    for key, allowed in CHANGEABLE.items():
        assert (allowed is not None) == (type(options[key].default) is int), key


def test_every_default_may_be_set_again():
    for cls in (BrokerConfig, StoreConfig):
        config = cls()
        for each in attrs.fields(cls):
            allowed = CHANGEABLE.get(each.metadata.get("key"))
            assert allowed is None or getattr(config, each.name) in allowed, each.name


def test_no_key_is_a_path_a_host_or_a_command():
    """Numbers and switches; the one text among them is hours of the day, and is checked as such."""
    options = {
        each.metadata["key"]: each for cls in (BrokerConfig, StoreConfig) for each in attrs.fields(cls) if each.metadata
    }
    assert {key for key in CHANGEABLE if type(options[key].default) not in (int, bool)} == {"deleteWhen"}


def test_values_are_read_by_type():
    found = changes(b"slaveReadEnable=true\nfileReservedTime = 24\ndeleteWhen=03;04\nbrokerPermission=4\n")
    assert found.broker == {"slave_read_enable": True, "broker_permission": 4}
    assert found.store == {"file_reserved_time_hours": 24, "delete_when": "03;04"}
    assert found.texts["slaveReadEnable"] == "true"


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"slaveReadEnable=yes", "slaveReadEnable=yes: expected true or false"),
        (b"fileReservedTime=soon", "fileReservedTime=soon: expected a whole number"),
        (b"fileReservedTime=0", "fileReservedTime=0: expected 1 to 87600"),
        (b"brokerPermission=7", "brokerPermission=7: expected 0, 2, 4 or 6"),
        (b"maxMessageSize=99999999999999999999", "maxMessageSize=99999999999999999999: expected a whole number"),
        (b"maxMessageSize=", "maxMessageSize=: expected a whole number"),
        (b"maxMessageSize", "maxMessageSize=: expected a whole number"),
        (b"deleteWhen=99", None),
        (b"\xff\xfe=1", None),
    ],
)
def test_values_that_cannot_be(body, remark):
    code, said = refused(body)
    assert code == 1
    assert remark is None or said == remark


@pytest.mark.parametrize("key", sorted(BLACK_LIST))
def test_the_black_list_of_rocketmq(key):
    assert refused(f"{key}=/tmp/x".encode()) == (16, "Can not update config in black list.")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("listenPort", "cannot be changed while the broker runs"),
        ("storePathRootDir", "cannot be changed while the broker runs"),
        ("brokerRole", "cannot be changed while the broker runs"),
        ("sendMessageThreadPoolNums", "has no effect here"),
        ("enableCalcFilterBitMap", "is always false: twinlog has no bit maps"),
        ("noSuchKey", "there is no option noSuchKey"),
        ("x" * 10_000, "there is no option"),
        ("", "there is no option"),
    ],
)
def test_other_keys_are_refused(key, words):
    code, remark = refused(f"slaveReadEnable=true\n{key}=1".encode())
    assert code == 16
    assert words in remark
    assert len(remark) < 300


def test_not_too_many_keys():
    assert refused("\n".join(f"k{number}=1" for number in range(1000)).encode())[0] == 1


def test_the_last_line_of_a_key_counts():
    assert changes(b"slaveReadEnable=false\nslaveReadEnable=true").broker == {"slave_read_enable": True}


def test_ranges_in_words():
    assert range_text(range(1, 11)) == "1 to 10"
    assert range_text(range(0, 7, 2)) == "0, 2, 4 or 6"


# What holds then


async def test_what_changes_holds_at_once_and_is_in_the_file(client):
    version = client.broker.settings.version
    reply = await client.ask_async(25, b"fileReservedTime=24\nslaveReadEnable=true\nmaxMessageSize=2048\n")
    assert (reply.code, reply.ext, reply.body) == (0, None, b"")
    broker = client.broker
    assert broker.config.slave_read_enable
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
    wanted = {key: another(key, before[key]) for key in CHANGEABLE}
    body = "".join(f"{key}={value}\n" for key, value in wanted.items()).encode()
    assert (await client.ask_async(25, body)).code == 0
    after = told(client)
    assert {key: value for key, value in after.items() if value != before[key]} == wanted


async def test_all_or_nothing(client):
    before = client.broker.settings.config_file.read_bytes()
    for body in (b"slaveReadEnable=true\nlistenPort=1", b"slaveReadEnable=true\nfileReservedTime=0"):
        assert (await client.ask_async(25, body)).code in (1, 16)
    assert not client.broker.config.slave_read_enable
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
    assert not client.broker.config.slave_read_enable


async def test_without_a_file_it_holds_until_the_end(client):
    client.broker.settings.config_file = None
    assert (await client.ask_async(25, b"slaveReadEnable=true")).code == 0
    assert client.broker.config.slave_read_enable


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


async def test_the_permission_is_told_to_name_servers_and_obeyed(client):
    broker = client.broker
    version = broker.tables.topics.version
    assert (await client.ask_async(25, b"brokerPermission=2")).code == 0
    assert broker.tables.topics.version != version
    assert broker.registration.settings.config.broker_permission == 2
    fields = {"consumerGroup": "G", "topic": "T1", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 0}
    assert client.ask(11, **fields, commitOffset=0, suspendTimeoutMillis=0, subVersion=0).code == 16


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
    async with opened(make_broker(tmp_path / "b", auto_create_topic_enable=False)) as client:
        assert client.broker.tables.topics.select("TBW102") is None
        assert (await client.ask_async(25, b"autoCreateTopicEnable=true")).code == 0
        assert client.broker.tables.topics.create_in_send("new", "TBW102", 4) is not None


async def test_services_with_a_copy_get_the_new_value(client):
    body = b"transactionCheckInterval=200\ntransactionTimeOut=7\ntransactionCheckMax=3\nflushDelayOffsetInterval=300\n"
    body += (
        b"longPollingEnable=false\nautoCreateSubscriptionGroup=false\nflushIntervalCommitLog=50\nmaxMsgsNumBatch=9\n"
    )
    assert (await client.ask_async(25, body)).code == 0
    broker = client.broker
    assert broker.transactions.interval_ms == 200
    assert (broker.transactions.rules.timeout_ms, broker.transactions.rules.check_max) == (7, 3)
    assert broker.schedule.flush_interval_ms == 300
    assert broker.held_pulls.scan_seconds == 1.0
    assert broker.tables.groups.find("made-up") is None
    assert broker.store.flusher.config.flush_interval_commit_log_ms == 50
    assert broker.store.index.config.max_msgs_num_batch == 9


async def test_producers_are_answered_by_the_new_configuration(client):
    broker = client.broker
    assert (await client.ask_async(25, b"traceOn=false")).code == 0
    assert broker.send._answer_fields["TRACE_ON"] == "false"


async def test_the_role_is_not_touched(tmp_path):
    async with opened(make_broker(tmp_path / "b", role=BrokerRole.SLAVE)) as client:
        assert (await client.ask_async(25, b"fileReservedTime=24")).code == 0
        assert client.broker.store.config.broker_role is BrokerRole.SLAVE
        assert client.broker.store.config.flush_disk_type is FlushDiskType.ASYNC_FLUSH


# What is shown


async def test_secrets_are_not_shown(tmp_path):
    broker = make_broker(tmp_path / "b")
    tls = TlsConfig(server_key_password="hunter2")
    async with opened(wiring.make_broker(broker.config, broker.store.config, tls_config=tls)) as client:
        shown = told(client)
        assert shown["tls.server.keyPassword"] == "******"
        assert "hunter2" not in client.ask(26).body.decode()


@pytest.mark.parametrize("mode", TlsMode)
@pytest.mark.parametrize("enable", [None, False, True])
async def test_tls_is_shown_as_it_is_in_use(tmp_path, mode, enable):
    """RocketMQ's `useTLS` is about a broker's own requests: `tls.enable` decides, else whether it takes TLS only."""
    broker = make_broker(tmp_path / "b")
    tls = TlsConfig(mode=mode, enable=enable)
    async with opened(wiring.make_broker(broker.config, broker.store.config, tls_config=tls)) as client:
        shown = told(client)
        assert shown["useTLS"] == ("true" if client.broker.remoting.tls is not None else "false")
        assert (shown["useTLS"] == "true") == (mode is TlsMode.enforcing if enable is None else enable)
        assert shown["tls.server.mode"] == mode.value
