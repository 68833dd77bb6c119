"""What is secret is shown nowhere."""

import pytest
import structlog

from tests.cluster.broker.helpers import opened
from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.cli.common.logging_setup import set_up_log
from twinlog.cluster.config.config_file import Setting, configure
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.config.redaction import HIDDEN, is_secret, redact, redact_text, shown
from twinlog.store.config import StoreConfig

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    "name",
    ["secretKey", "SecretKey", "tls.server.keyPassword", "innerClientAuthenticationCredentials", "SecurityToken"],
)
def test_names_of_secrets(name):
    assert is_secret(name)
    assert shown(name, SECRET) == HIDDEN
    assert shown(name, "") == ""


@pytest.mark.parametrize(
    "name",
    ["accessKey", "tls.server.keyPath", "topic", "putTokens", "aclEnable", "haSecretFile", "haSecret", "secret_id"],
)
def test_names_of_what_is_none(name):
    assert shown(name, SECRET) == SECRET


def test_tables_are_gone_through_to_the_bottom():
    value = {"accounts": [{"accessKey": "a", "secretKey": SECRET}, {"secretKey": None}], "n": 1}
    assert redact(value) == {"accounts": [{"accessKey": "a", "secretKey": HIDDEN}, {"secretKey": None}], "n": 1}


@pytest.mark.parametrize(
    "text",
    [
        f"secretKey={SECRET}",
        f'{{"accessKey":"a","secretKey":"{SECRET}"}}',
        f"accounts:\n- accessKey: a\n  secretKey: {SECRET}\n  admin: true",
        f'innerClientAuthenticationCredentials={{"accessKey":"a","secretKey":"{SECRET}"}}',
        f"tls.server.keyPassword = {SECRET}",
        f"The accessKey=a and secretKey={SECRET} cannot be null",
        f"'secretKey': '{SECRET}', 'admin': True",
    ],
)
def test_texts_lose_only_the_value(text):
    redacted = redact_text(text)
    assert SECRET not in redacted
    assert HIDDEN in redacted
    assert redact_text(redacted) == redacted


def test_other_text_stays():
    text = "brokerName=broker-a\nlistenPort=10911\naccessKey=a\nhaSecretFile=/etc/x\nhaSecret=required"
    text += '{"secretIds":["3f9a0c1b"],"secretRequired":true}'
    assert redact_text(text) == text


def test_a_setting_that_cannot_be_used_is_not_repeated():
    setting = Setting("innerClientAuthenticationCredentials", SECRET, "broker.conf:3")
    with pytest.raises(ConfigError) as raised:
        configure([AclConfig], [setting])
    assert SECRET not in str(raised.value)
    assert "broker.conf:3" in str(raised.value)


def test_configuration_objects_do_not_show_it():
    assert SECRET not in repr(AclConfig(credentials=f'{{"accessKey":"abc","secretKey":"{SECRET}"}}'))


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs_do_not_have_it(capsys, monkeypatch, form):
    monkeypatch.setenv("TWINLOG_LOG", "json" if form == "json" else "")
    set_up_log()
    log = structlog.get_logger()
    log.warning("a request", secretKey=SECRET, why=f"secretKey={SECRET} is short", topic="T1")
    log.warning(f"tls.server.keyPassword={SECRET}")
    told = capsys.readouterr().err
    assert SECRET not in told
    assert "T1" in told


async def test_no_request_answers_with_it(tmp_path):
    """All that a broker tells of itself to whoever may ask."""
    credentials = f'{{"accessKey":"members","secretKey":"{SECRET}"}}'
    (tmp_path / "conf").mkdir()
    rules = f"accounts:\n- accessKey: members\n  secretKey: {SECRET}\n  admin: true\n"
    (tmp_path / "conf" / "plain_acl.yml").write_text(rules)
    acl = AclConfig(enable=True, home=tmp_path, credentials=credentials)
    broker = wiring.make_broker(
        BrokerConfig(broker_ip1="127.0.0.1"), StoreConfig(root=tmp_path / "store"), acl_config=acl
    )
    broker.acl.load()
    async with opened(broker) as client:
        for code in (43, 45, 21, 201, 26, 28, 52, 54, 20_001, 907):
            reply = client.ask(code)
            assert reply.code == 0
            assert SECRET not in str(reply.ext)
            assert SECRET.encode() not in bytes(reply.body)
