"""Who may do what, by RocketMQ's sample file and its words."""

import pytest
import structlog
import trio
from attrs import define

from tests.cluster.broker.helpers import heartbeat
from tests.cluster.broker.security.rules import ADMIN, SAMPLE, USER, signed, write_rules
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.security.errors import AclError
from twinlog.cluster.broker.security.service import AclService, acl_service
from twinlog.cluster.remoting import fastjson, signing
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.signing import Credentials

STRANGER = "172.16.0.1:5000"


@define(eq=False)
class Peer:
    remote_address: str = STRANGER


@pytest.fixture
def acl(tmp_path) -> AclService:
    return service(tmp_path)


def service(home, text: str = SAMPLE) -> AclService:
    write_rules(home, text)
    made = acl_service(AclConfig(enable=True, home=home), lambda: 1_000)
    made.load()
    return made


def refusal(acl, command, address=STRANGER):
    """The words of the refusal; None: allowed."""
    reply = acl.check(Peer(address), command)
    if reply is None:
        return None
    assert reply.code == 1
    exception, _, rest = reply.remark.partition(": ")
    assert exception == "org.apache.rocketmq.acl.common.AclException"
    return rest.partition(", org.apache")[0]


async def test_who_is_who(acl):
    def send():
        return RemotingCommand(310, ext={"b": "topicB", "a": "P"}, body=b"x")

    assert refusal(acl, send()) == "No accessKey is configured"
    assert refusal(acl, RemotingCommand(28)) == "No accessKey is configured"
    assert refusal(acl, signed(send(), Credentials("nobody", "12345678"))) == "No acl config for nobody"
    assert (
        refusal(acl, signed(send(), Credentials("RocketMQ", "wrong678")))
        == "Check signature failed for accessKey=RocketMQ"
    )
    assert refusal(acl, signed(send())) is None
    assert refusal(acl, send(), "10.10.103.7:1") is None
    assert refusal(acl, send(), "10.10.104.7:1") == "No accessKey is configured"


async def test_an_account_with_a_white_address_needs_no_signature(acl):
    command = RemotingCommand(310, ext={"b": "topicA", "a": "P", "AccessKey": "RocketMQ"})
    assert refusal(acl, command, "10.9.9.9:5") is None
    assert refusal(acl, command) == "Check signature failed for accessKey=RocketMQ"


async def test_strangers_fill_no_memory(acl):
    """Whoever knows an access key could make a broker remember names of fields by the megabyte."""
    signing._values_of.clear()
    for number in range(20):
        ext = {"AccessKey": "RocketMQ", "Signature": "x", f"field{number}": "", "_UNIQUE_KEY_QUERY": "true"}
        assert "Check signature failed" in refusal(acl, RemotingCommand(310, ext=ext))
    assert not signing._values_of
    many = {f"f{number}": "" for number in range(1_100)}
    assert "at most" in refusal(acl, signed(RemotingCommand(28, ext=many)))
    assert refusal(acl, signed(RemotingCommand(28, ext={"long" * 600: ""}))) is None
    assert refusal(acl, signed(RemotingCommand(28, ext={f"f{number}": "" for number in range(70)}))) is None
    assert not signing._values_of
    for _ in range(2):
        assert refusal(acl, signed(RemotingCommand(28))) is None
    assert len(signing._values_of) == 1 + 1, "by who signs, and by who checks"


async def test_what_was_changed_on_its_way_is_refused(acl):
    command = signed(RemotingCommand(310, ext={"b": "topicB", "a": "P"}, body=b"x"))
    command.body = b"y"
    assert "Check signature failed" in refusal(acl, command)
    command.body = b"x"
    command.ext["a"] = "Q"
    assert "Check signature failed" in refusal(acl, command)


@pytest.mark.parametrize("signature", [None, "", "ü", "x" * 1000, "\ud800"])
async def test_no_signature_is_good_by_accident(acl, signature):
    ext = {"AccessKey": "RocketMQ", "b": "topicB"} | ({} if signature is None else {"Signature": signature})
    assert "Check signature failed" in refusal(acl, RemotingCommand(310, ext=ext))


@pytest.mark.parametrize("client_signs_it", [True, False])
async def test_queries_for_unique_keys_are_signed_either_way(acl, client_signs_it):
    """Clients from 4.9.4 on sign the flag, which servers of 4.9 leave out."""
    command = RemotingCommand(12, ext={"topic": "topicB"})
    if client_signs_it:
        command.ext["_UNIQUE_KEY_QUERY"] = "true"
    signed(command).ext["_UNIQUE_KEY_QUERY"] = "true"
    assert refusal(acl, command) is None


@pytest.mark.parametrize(
    ("code", "ext", "words"),
    [
        (310, {"b": "topicA"}, "No default permission for topic:topicA"),
        (310, {"b": "topicC"}, "No default permission for topic:topicC"),
        (310, {"b": "other"}, "No default permission for topic:other"),
        (310, {"b": "RMQ_SYS_TRACE_TOPIC"}, None),
        (11, {"topic": "topicC", "consumerGroup": "g"}, None),
        (11, {"topic": "topicC", "consumerGroup": "groupA"}, "No default permission for group:groupA"),
        (11, {"topic": "topicA", "consumerGroup": "groupB"}, "No default permission for topic:topicA"),
        (38, {"consumerGroup": "groupB"}, None),
        (17, {"topic": "topicB"}, "Need admin permission for request code=17, but accessKey=RocketMQ is not"),
        (25, {}, "Need admin permission for request code=25, but accessKey=RocketMQ is not"),
        (50, {}, "Need admin permission for request code=50, but accessKey=RocketMQ is not"),
        (20_006, {}, "Need admin permission for request code=20006, but accessKey=RocketMQ is not"),
        (20_001, {}, None),
        (28, {}, None),
    ],
)
async def test_what_an_account_may_do(acl, code, ext, words):
    assert refusal(acl, signed(RemotingCommand(code, ext=dict(ext)))) == words
    assert refusal(acl, signed(RemotingCommand(code, ext=dict(ext)), ADMIN)) is None


async def test_a_heartbeat_is_looked_at_in_full(acl):
    def beat(*topics, group="groupB"):
        return signed(RemotingCommand(34, body=memoryview(fastjson.dumps(heartbeat(*topics, group=group)))))

    assert refusal(acl, beat("topicB", "topicC")) is None
    assert refusal(acl, beat("topicB", "topicA")) == "No default permission for topic:topicA"
    assert refusal(acl, beat("topicB", group="groupA")) == "No default permission for group:groupA"


async def test_an_administrator_with_lists_is_bound_by_them(tmp_path):
    acl = service(tmp_path, SAMPLE + "    topicPerms: [ topicA=PUB ]\n")
    assert refusal(acl, signed(RemotingCommand(310, ext={"b": "topicA"}), ADMIN)) is None
    assert (
        refusal(acl, signed(RemotingCommand(310, ext={"b": "topicB"}), ADMIN))
        == "No default permission for topic:topicB"
    )
    assert refusal(acl, signed(RemotingCommand(17, ext={"topic": "x"}), ADMIN)) is None


@pytest.mark.parametrize("code", [50, 51, 53, 54, 20_002, 20_003, 20_004, 20_005, 20_006])
async def test_a_signature_of_something_else_is_not_cut_to_fit(acl, code):
    """Values are signed without what lies between them: others' fields would take up what does not belong."""
    assert "has no field topic" in refusal(acl, signed(RemotingCommand(code, ext={"topic": "x"}), ADMIN))
    common = {"ReqT": "0", "bname": "broker-a", "_UNIQUE_KEY_QUERY": "true"}
    assert refusal(acl, signed(RemotingCommand(code, ext=common), ADMIN)) is None


async def test_what_1007_says_of_a_member_is_all(acl):
    joins = {"twinlogMember": "172.16.0.1:1", "twinlogHaAddress": "172.16.0.1:2", "twinlogBrokerId": "1"}
    assert refusal(acl, signed(RemotingCommand(1007, ext=dict(joins)), ADMIN)) is None
    assert "has no field topic" in refusal(acl, signed(RemotingCommand(1007, ext=joins | {"topic": "x"}), ADMIN))


async def test_members_join_as_administrators_only(acl):
    """Any account may ask for the history (1007); who says who it is changes the group's record."""
    assert refusal(acl, signed(RemotingCommand(1007))) is None
    asks = RemotingCommand(1007, ext={"twinlogMember": "172.16.0.1:1"})
    assert "Need admin" in refusal(acl, signed(asks))
    assert refusal(acl, signed(asks, ADMIN)) is None
    joins = {"AccessKey": "RocketMQ", "twinlogMember": "10.9.9.9:1"}
    assert "Need admin" in refusal(acl, RemotingCommand(1007, ext=joins), "10.9.9.9:5")


@pytest.mark.parametrize("code", [50, 51, 53, 54, 20_002, 20_003, 20_004, 20_005, 20_006])
async def test_the_white_address_of_an_account_makes_no_administrator(acl, code):
    """CVE-2024-23321: who is let in without a signature could read and set the accounts of others."""
    assert "Need admin" in refusal(acl, RemotingCommand(code, ext={"AccessKey": "RocketMQ"}), "10.9.9.9:5")
    assert refusal(acl, RemotingCommand(code, ext={"AccessKey": "rocketmq2"}), "192.168.1.7:5") is None


async def test_members_can_work_with_one_admin_account(acl):
    """All that brokers ask of each other, but those for which any account does."""
    codes = [code for code in RequestCode if code >= 20_000 or code in (907, 1007, 21, 28, 33, 43, 45, 201)]
    assert {refusal(acl, signed(RemotingCommand(code), ADMIN)) for code in codes} == {None}


async def test_nobody_is_refused_without_rules():
    assert acl_service(AclConfig(), lambda: 0) is None


async def test_rules_need_a_place(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(AclError, match="rocketmqHome"):
        acl_service(AclConfig(enable=True), lambda: 0)


async def test_refusals_are_logged_once_a_minute_for_each_address(acl, autojump_clock):
    with structlog.testing.capture_logs() as logs:
        for port in range(100):
            acl.check(Peer(f"172.16.0.1:{port}"), RemotingCommand(28))
        await trio.sleep(61)
        acl.check(Peer(), RemotingCommand(28))
    assert [(line["ip"], line["count"]) for line in logs] == [("172.16.0.1", 1), ("172.16.0.1", 101)]
    assert acl.refused == {"172.16.0.1": 101}


async def test_secrets_are_in_no_repr(acl):
    assert "12345678" not in repr(acl) + repr(acl.rules) + repr(acl.rules.accounts["RocketMQ"]) + repr(
        acl.rules.files[0]
    )


async def test_changed_files_are_read_again(acl, tmp_path):
    command = signed(RemotingCommand(310, ext={"b": "topicA"}))
    assert refusal(acl, command) is not None
    write_rules(tmp_path, SAMPLE.replace("topicA=DENY", "topicA=PUB"))
    await acl.reload()
    assert refusal(acl, command) is None
    assert refusal(acl, RemotingCommand(28), "10.10.103.7:1") is None
    write_rules(tmp_path, SAMPLE.replace("10.10.103.*", "10.10.104.*"))
    await acl.reload()
    assert refusal(acl, RemotingCommand(28), "10.10.103.7:1") is not None


ACCOUNT = "- accessKey: RocketMQ\n  secretKey: s3cr3t99\n"
BROKEN = [
    "accounts: [",
    "accounts:\n- accessKey: abc\n  secretKey: s3cr3t\n",
    "- 1",
    "",
    f"accounts:\n{ACCOUNT}  admin: !!bool maybe\n",
    f"accounts:\n{ACCOUNT}  admin: maybe\n",
    f"accounts:\n{ACCOUNT}  x: !!int s3cr3t99\n",
    "accounts:\n- accessKey: RocketMQ\n  secretKey: !s3cr3t99\n",
    f"accounts:\n{ACCOUNT}{ACCOUNT}",
    f"accounts:\n{ACCOUNT}  secretKey: s3cr3t98\n",
    "accounts:\n- accessKey: [RocketMQ]\n  secretKey: s3cr3t99\n",
    "accounts:\n- accessKey: RocketMQ\n  secretKey: s3cr3t99\n  whiteRemoteAddress: 1.2.3.{4\n",
]


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_file_that_breaks_keeps_its_rules_and_shouts_once(acl, tmp_path, broken):
    """Empty, too: many editors empty a file before they write it."""
    command = signed(RemotingCommand(310, ext={"b": "topicB"}), USER)
    write_rules(tmp_path, broken)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await acl.reload()
            assert refusal(acl, command) is None
    assert [line["log_level"] for line in logs] == ["error"]
    assert "s3cr3t" not in str(logs)
    write_rules(tmp_path, SAMPLE.replace("topicB=PUB|SUB", "topicB=SUB"))
    await acl.reload()
    assert refusal(acl, command) is not None


async def test_the_files_are_looked_at_each_5_seconds(acl, tmp_path, autojump_clock, nursery):
    nursery.start_soon(acl.run)
    write_rules(tmp_path, SAMPLE.replace("topicA=DENY", "topicA=PUB"))
    with trio.fail_after(100_000):  # Of a clock that leaps while a thread reads.
        while refusal(acl, signed(RemotingCommand(310, ext={"b": "topicA"}))) is not None:
            await trio.sleep(5)
