"""Where the tools' credentials come from, and that no half of them is taken."""

import pytest

from twinlog.cluster.cli.run.settings import load_broker
from twinlog.cluster.config.credentials import find_credentials, own_signer
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.signing import Credentials

FILE = "accessKey: from-{}\nsecretKey: 12345678\n"


def home_of(tmp_path, **files):
    """An environment with these files: `own` is twinlog's, `tools` mqadmin's."""
    paths = {
        "own": tmp_path / "config" / "twinlog" / "credentials.yml",
        "tools": tmp_path / "mq" / "conf" / "tools.yml",
    }
    for name, text in files.items():
        paths[name].parent.mkdir(parents=True)
        paths[name].write_text(text)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "ROCKETMQ_HOME": str(tmp_path / "mq"), "HOME": str(tmp_path)}


def test_the_environment_comes_first_then_our_file_then_mqadmins(tmp_path):
    environment = home_of(tmp_path, own=FILE.format("own"), tools=FILE.format("tools"))
    keys = {"TWINLOG_ACCESS_KEY": "from-env", "TWINLOG_SECRET_KEY": "s", "TWINLOG_SECURITY_TOKEN": "t"}
    assert find_credentials(environment | keys) == Credentials("from-env", "s", "t")
    assert find_credentials(environment) == Credentials("from-own", "12345678")
    (tmp_path / "config" / "twinlog" / "credentials.yml").unlink()
    assert find_credentials(environment) == Credentials("from-tools", "12345678")
    (tmp_path / "mq" / "conf" / "tools.yml").unlink()
    assert find_credentials(environment) is None
    assert own_signer(environment) is None


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "accessKey:\nsecretKey:\n"])
def test_a_file_without_keys_is_no_credentials(tmp_path, text):
    """RocketMQ's own tools.yml may be empty."""
    assert find_credentials(home_of(tmp_path, tools=text)) is None


@pytest.mark.parametrize(
    "text", ["accessKey: abc\n", "secretKey: s3cr3t\n", "secretKey: [s3cr3t\n", "accessKey: ''\nsecretKey: s3cr3t\n"]
)
def test_half_of_them_is_an_error_that_repeats_no_secret(tmp_path, text):
    with pytest.raises(ConfigError) as raised:
        find_credentials(home_of(tmp_path, own=text))
    assert "credentials.yml" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("name", ["TWINLOG_ACCESS_KEY", "TWINLOG_SECRET_KEY"])
def test_half_of_the_environment_is_an_error(name):
    with pytest.raises(ConfigError, match="set both"):
        find_credentials({name: "x"})


def test_what_signs(tmp_path):
    command = RemotingCommand(28)
    own_signer(home_of(tmp_path, own=FILE.format("own")))(command)
    assert command.ext["AccessKey"] == "from-own"
    assert command.ext["Signature"]


def test_a_secret_is_what_is_written(tmp_path):
    environment = home_of(tmp_path, own="accessKey: 0123456\nsecretKey: 012345670\n")
    assert find_credentials(environment) == Credentials("0123456", "012345670")


@pytest.mark.parametrize("broken", ["!Geheim123", "!!bool Geheim123", "[Geheim123]", "[Geheim123"])
def test_a_broken_file_is_said_without_its_secret(tmp_path, broken):
    with pytest.raises(ConfigError) as refusal:
        find_credentials(home_of(tmp_path, own=f"accessKey: abcdefg\nsecretKey: {broken}\n"))
    assert "Geheim123" not in str(refusal.value)


def test_a_secret_on_the_command_line_is_warned_of(capsys):
    load_broker(
        None, ['innerClientAuthenticationCredentials={"accessKey":"members","secretKey":"s3cr3t"}'], namesrv=None
    )
    told = capsys.readouterr().err
    assert "innerClientAuthenticationCredentials=..." in told
    assert "s3cr3t" not in told
