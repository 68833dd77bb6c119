"""What is secret is shown nowhere."""

import pytest

from cluster.broker.security.config import AclConfig
from cluster.config_file import ConfigError, Setting, configure
from cluster.redaction import HIDDEN, is_secret, redact, redact_text, shown

SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    "name",
    ["secretKey", "SecretKey", "tls.server.keyPassword", "innerClientAuthenticationCredentials", "SecurityToken"],
)
def test_names_of_secrets(name):
    assert is_secret(name)
    assert shown(name, SECRET) == HIDDEN
    assert shown(name, "") == ""


@pytest.mark.parametrize("name", ["accessKey", "tls.server.keyPath", "topic", "putTokens", "aclEnable"])
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
    text = "brokerName=broker-a\nlistenPort=10911\naccessKey=a"
    assert redact_text(text) == text


def test_a_setting_that_cannot_be_used_is_not_repeated():
    setting = Setting("innerClientAuthenticationCredentials", SECRET, "broker.conf:3")
    with pytest.raises(ConfigError) as raised:
        configure([AclConfig], [setting])
    assert SECRET not in str(raised.value)
    assert "broker.conf:3" in str(raised.value)


def test_configuration_objects_do_not_show_it():
    assert SECRET not in repr(AclConfig(credentials=f'{{"accessKey":"abc","secretKey":"{SECRET}"}}'))
