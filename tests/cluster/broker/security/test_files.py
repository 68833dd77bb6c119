"""Rules in files: found, read, changed by request, written so that RocketMQ reads them."""

import stat

import pytest
import yaml

from tests.cluster.broker.helpers import Client
from tests.cluster.broker.security.rules import SAMPLE, broker_with_rules, write_rules
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.files import AclFiles
from twinlog.cluster.broker.security.permission import PUB, SUB

ACCOUNT = "accounts:\n- accessKey: {key}\n  secretKey: 12345678\n"


def files_of(home) -> AclFiles:
    return AclFiles(home, home / "conf" / "plain_acl.yml", lambda: 1_000)


def test_all_files_count_but_that_of_the_tools(tmp_path):
    write_rules(tmp_path)
    for name in ("a.yml", "b.yaml", "deep/er/c.yml"):
        write_rules(tmp_path, ACCOUNT.format(key=f"account-{name[0:1]}"), f"conf/acl/{name}")
    write_rules(tmp_path, "accessKey: a\nsecretKey: b\n", "conf/acl/tools.yml")
    write_rules(tmp_path, "nonsense: [", "conf/acl/readme.txt")
    files = files_of(tmp_path)
    files.load_first()
    assert set(files.rules.accounts) == {"RocketMQ", "rocketmq2", "account-a", "account-b", "account-d"}
    assert len(files.rules.files) == 4


def test_the_first_file_has_an_account(tmp_path):
    write_rules(tmp_path, SAMPLE)
    write_rules(tmp_path, ACCOUNT.format(key="RocketMQ") + "  defaultTopicPerm: PUB\n", "conf/acl/a.yml")
    files = files_of(tmp_path)
    files.load_first()
    assert files.rules.accounts["RocketMQ"].default_topic == PUB
    assert files.rules.home_of["RocketMQ"] == tmp_path / "conf/acl/a.yml"


def test_an_account_as_it_stands_in_the_sample(tmp_path):
    write_rules(tmp_path)
    files = files_of(tmp_path)
    files.load_first()
    account = files.rules.accounts["RocketMQ"]
    assert account.permissions == {
        "topicA": 1,
        "topicB": PUB | SUB,
        "topicC": SUB,
        "%RETRY%groupA": 1,
        "%RETRY%groupB": PUB | SUB,
    }
    assert files.rules.accounts["rocketmq2"].permissions is None
    assert files.rules.files[0].version.counter == 0


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [",
        "- 1",
        "accounts: 7",
        "accounts:\n- 7",
        "accounts:\n- accessKey: abcdef\n  secretKey: 12345678",
        "accounts:\n- accessKey: abcdefg\n  secretKey: 123456",
        "accounts:\n- accessKey: abcdefg",
        ACCOUNT.format(key="abcdefg") + "  topicPerms: [T1]",
        ACCOUNT.format(key="abcdefg") + "  whiteRemoteAddress: 1.2.3",
        "globalWhiteRemoteAddresses: [localhost]",
        "a: !!python/object/apply:os.system [true]",
        "[" * 5000,
        "\x00",
        "a: &a [*a]\nb: \ud7ff\x07",
    ],
)
def test_a_start_with_a_file_that_makes_no_sense_is_refused(tmp_path, text):
    write_rules(tmp_path, text)
    with pytest.raises(AclError) as raised:
        files_of(tmp_path).load_first()
    assert "12345678" not in str(raised.value)


def test_no_file_and_an_empty_one_are_no_accounts(tmp_path):
    for _ in range(2):
        files = files_of(tmp_path)
        files.load_first()
        assert not files.rules.accounts
        write_rules(tmp_path, "# nothing\n")


def test_a_file_that_goes_takes_its_accounts_along(tmp_path):
    write_rules(tmp_path)
    extra = write_rules(tmp_path, ACCOUNT.format(key="account-a"), "conf/acl/a.yml")
    files = files_of(tmp_path)
    files.load_first()
    assert not files.load()
    extra.unlink()
    assert files.load()
    assert set(files.rules.accounts) == {"RocketMQ", "rocketmq2"}


# By request


async def ask(broker, code, **ext):
    return await Client(broker).ask_async(code, **ext)


def plain_file(broker):
    return yaml.safe_load(broker.acl.files.default.read_text())


async def test_an_account_is_made_changed_and_deleted(tmp_path):
    broker = broker_with_rules(tmp_path)
    reply = await ask(broker, 50, accessKey="producer1", secretKey="secret12", topicPerms="T1=PUB,T2=SUB", admin=False)
    assert (reply.code, reply.remark) == (0, None)
    made = plain_file(broker)["accounts"][-1]
    assert made == {
        "accessKey": "producer1",
        "admin": False,
        "topicPerms": ["T1=PUB", "T2=SUB"],
        "secretKey": "secret12",
    }
    assert broker.acl.rules.accounts["producer1"].permissions == {"T1": PUB, "T2": SUB}

    await ask(broker, 50, accessKey="producer1", secretKey="secret13", admin=True, defaultGroupPerm="SUB")
    changed = plain_file(broker)["accounts"][-1]
    assert changed == made | {"secretKey": "secret13", "admin": True, "defaultGroupPerm": "SUB"}
    assert [version["counter"] for version in plain_file(broker)["dataVersion"]] == [2]

    assert (await ask(broker, 51, accessKey="producer1")).code == 0
    assert "producer1" not in broker.acl.rules.accounts
    gone = await ask(broker, 51, accessKey="producer1")
    assert gone.code == 210
    assert gone.remark == "The accesskey[producer1] corresponding to accessConfig has been deleted failed."
    assert len(plain_file(broker)["accounts"]) == 2


@pytest.mark.parametrize(
    ("ext", "words"),
    [
        ({"accessKey": "short", "secretKey": "12345678"}, "length should longer than 6"),
        ({"accessKey": "producer1"}, "secretKey=null cannot be null"),
        ({"accessKey": "producer1", "secretKey": "s3cr3t"}, "longer than 6"),
        ({"accessKey": "producer1", "secretKey": "12345678", "topicPerms": "T1"}, "Parse Resource format error for T1"),
        ({"accessKey": "producer1", "secretKey": "12345678", "groupPerms": "G=ALL"}, "permission error for G=ALL"),
        ({"accessKey": "producer1", "secretKey": "12345678", "whiteRemoteAddress": "here"}, "netaddress is here"),
    ],
)
async def test_an_account_that_cannot_be_changes_nothing(tmp_path, ext, words):
    broker = broker_with_rules(tmp_path)
    before = broker.acl.files.default.read_text()
    reply = await ask(broker, 50, **ext)
    assert reply.code == 209
    assert words in reply.remark
    assert "s3cr3t" not in reply.remark
    assert broker.acl.files.default.read_text() == before


async def test_an_account_is_changed_in_its_own_file(tmp_path):
    broker = broker_with_rules(tmp_path)
    extra = write_rules(tmp_path / "home", ACCOUNT.format(key="account-a"), "conf/acl/a.yml")
    broker.acl.files.load()
    await ask(broker, 50, accessKey="account-a", secretKey="12345679")
    assert yaml.safe_load(extra.read_text())["accounts"] == [
        {"accessKey": "account-a", "secretKey": "12345679", "admin": False}
    ]


async def test_global_addresses(tmp_path):
    broker = broker_with_rules(tmp_path)
    assert (await ask(broker, 53, globalWhiteAddrs="10.1.1.1,10.2.*.*")).code == 0
    assert plain_file(broker)["globalWhiteRemoteAddresses"] == ["10.1.1.1", "10.2.*.*"]
    assert broker.acl.rules.is_white("10.2.3.4")
    assert not broker.acl.rules.is_white("10.10.103.1")
    assert len(broker.acl.rules.accounts) == 2


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{home}/conf/other.yml", "{home}/conf/../conf/acl/new.yml", "conf/plain_acl.yml"]
)
async def test_no_other_file_can_be_written(tmp_path, path):
    """RocketMQ takes any path below its home."""
    broker = broker_with_rules(tmp_path)
    path = path.format(home=tmp_path / "home")
    reply = await ask(broker, 53, globalWhiteAddrs="10.1.1.1", aclFileFullPath=path)
    assert (reply.code, reply.remark) == (211, "The globalWhiteAddresses[10.1.1.1] has been updated failed.")
    assert [p.name for p in (tmp_path / "home").rglob("*") if p.is_file()] == ["plain_acl.yml"]


async def test_an_address_that_is_none_is_not_written(tmp_path):
    broker = broker_with_rules(tmp_path)
    reply = await ask(broker, 53, globalWhiteAddrs="10.1.1.1,everybody", aclFileFullPath=str(broker.acl.files.default))
    assert reply.code == 211
    assert "everybody" in reply.remark
    assert plain_file(broker)["globalWhiteRemoteAddresses"] == ["10.10.103.*"]


async def test_versions(tmp_path):
    broker = broker_with_rules(tmp_path, SAMPLE + "dataVersion:\n- counter: 7\n  timestamp: 1600000000000\n")
    reply = Client(broker).ask(52)
    version = '{"counter":7,"timestamp":1600000000000}'
    assert reply.ext == {
        "version": version,
        "allAclFileVersion": f'{{"{broker.acl.files.default}":{version}}}',
        "brokerName": "broker-a",
        "brokerAddr": broker.address,
        "clusterName": "DefaultCluster",
    }


async def test_accounts_are_shown_without_their_secrets(tmp_path):
    broker = broker_with_rules(tmp_path)
    reply = Client(broker).ask(54)
    assert b"12345678" not in reply.body
    assert b'"secretKey":"******"' in reply.body
    assert b'"globalWhiteAddrs":["10.10.103.*"]' in reply.body


@pytest.mark.parametrize(("code", "refusal"), [(50, 209), (51, 210), (52, 1), (53, 211), (54, 1)])
async def test_a_broker_without_accounts_says_so(tmp_path, code, refusal):
    from tests.cluster.broker.helpers import make_broker

    ext = {"accessKey": "abcdefg", "globalWhiteAddrs": "1.1.1.1"}
    client = Client(make_broker(tmp_path))
    reply = client.ask(code, **ext) if code in (52, 54) else await client.ask_async(code, **ext)
    assert reply.code == refusal
    assert "aclEnable=false" in reply.remark


def test_a_written_file_keeps_its_mode_and_a_new_one_is_private(tmp_path):
    path = write_rules(tmp_path)
    path.chmod(0o640)
    files = files_of(tmp_path)
    files.load_first()
    files.write(path, files.document(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.unlink()
    files.write(path, {"accounts": []})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_what_is_written_stays_as_it_was_meant(tmp_path):
    text = SAMPLE.replace("secretKey: 12345678", "secretKey: 012345670", 1)
    broker = broker_with_rules(tmp_path, text)
    reply = await ask(broker, 50, accessKey="another-one", secretKey="0o1234567", admin="false")
    assert reply.code == 0, reply.remark
    written = broker.acl.files.default.read_text()
    assert "secretKey: '012345670'" in written
    assert written.count("admin: false\n") == 2
    assert "admin: true\n" in written
    assert not broker.acl.files.load()
