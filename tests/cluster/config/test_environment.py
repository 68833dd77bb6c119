"""Options by TWINLOG_* variables."""

import re
from pathlib import Path

import pytest

from twinlog.cluster.admin.options import all_options
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.run.settings import load_broker, load_namesrv
from twinlog.cluster.config.credentials import find_credentials, secret_of
from twinlog.cluster.config.environment import OTHERS, read_environment, variable_of, without_options
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.ha.config import HAConfig

CLUSTER = Path(__file__).parents[3] / "cluster"


def source_of(configuration, key):
    return next((each.text, each.source) for each in configuration.effective if each.key == key)


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("brokerName", "TWINLOG_BROKER_NAME"),
        ("brokerIP1", "TWINLOG_BROKER_IP1"),
        ("haListenPort", "TWINLOG_HA_LISTEN_PORT"),
        ("tls.server.mode", "TWINLOG_TLS_SERVER_MODE"),
    ],
)
def test_the_name_of_a_variable(key, variable):
    assert variable_of(key) == variable


def test_no_two_options_share_a_variable_and_none_is_taken():
    """Nor is an option's name with _FILE another option, but for those that name files themselves."""
    letters = [variable_of(key).replace("_", "") for key in all_options()]
    assert len(set(letters)) == len(letters)
    assert not {name.replace("_", "") for name in OTHERS} & {*letters}


def test_options_are_above_variables_and_variables_above_the_file(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=of-file\nlistenPort=1\nhaListenPort=2\n")
    variables = {
        "TWINLOG_LISTEN_PORT": "11",
        "TWINLOG_HA_LISTEN_PORT": "12",
        "TWINLOG_NAMESRV_ADDR": "a:1",
        "NAMESRV_ADDR": "b:1",
    }
    found = load_broker(file, ["haListenPort=22"], namesrv=None, environment=variables)
    assert source_of(found, "brokerName") == ("of-file", f"{file}:1")
    assert source_of(found, "listenPort") == ("11", "TWINLOG_LISTEN_PORT")
    assert source_of(found, "haListenPort") == ("22", "--set")
    assert source_of(found, "namesrvAddr") == ("a:1", "TWINLOG_NAMESRV_ADDR")
    assert found.of(HAConfig).listen_port == 22


def test_a_value_may_lie_in_a_file(tmp_path):
    """As secrets do; the end of the line is no part of it."""
    secret = tmp_path / "name"
    secret.write_text("broker-x\n")
    found = load_broker(None, [], namesrv=None, environment={"TWINLOG_BROKER_NAME_FILE": str(secret)})
    assert found.of(BrokerConfig).broker_name == "broker-x"
    assert source_of(found, "brokerName") == ("broker-x", "TWINLOG_BROKER_NAME_FILE")


def test_a_file_that_is_not_there_ends_the_start():
    with pytest.raises(CliError, match="TWINLOG_BROKER_NAME_FILE=/nowhere: cannot be read"):
        load_broker(None, [], namesrv=None, environment={"TWINLOG_BROKER_NAME_FILE": "/nowhere"})


def test_one_option_by_two_variables_is_refused():
    with pytest.raises(ConfigError, match="TWINLOG_LISTENPORT and TWINLOG_LISTEN_PORT both set listenPort"):
        read_environment({"TWINLOG_LISTEN_PORT": "1", "TWINLOG_LISTENPORT": "2"}, {"listenPort"})


def test_a_slip_is_told_with_the_nearest_name(capsys):
    load_broker(None, [], namesrv=None, environment={"TWINLOG_BROKR_NAME": "x"})
    assert (
        capsys.readouterr().err == "warning: unknown variable TWINLOG_BROKR_NAME; did you mean TWINLOG_BROKER_NAME?\n"
    )


def test_what_is_for_others_is_passed_over(capsys):
    """One set of variables for all containers; what Kubernetes adds for a service called twinlog; the tools' own."""
    variables = {
        "TWINLOG_BROKER_NAME": "x",
        "TWINLOG_SECRET_KEY_FILE": "/run/secrets/x",
        "TWINLOG_LOG": "json",
        "TWINLOG_SERVICE_HOST": "10.0.0.1",
        "TWINLOG_SERVICE_PORT_REMOTING": "10911",
        "TWINLOG_PORT": "tcp://10.0.0.1:10911",
        "TWINLOG_PORT_10911_TCP_ADDR": "10.0.0.1",
        "TWINLOG_LISTEN_PORT": "",
    }
    found = load_namesrv(None, [], port=None, environment=variables)
    assert source_of(found, "listenPort") == ("9876", "default")
    assert capsys.readouterr().err == ""


def test_a_bad_value_names_its_variable():
    with pytest.raises(CliError, match="TWINLOG_LISTEN_PORT: listenPort=x: expected a whole number"):
        load_broker(None, [], namesrv=None, environment={"TWINLOG_LISTEN_PORT": "x"})


def test_members_of_up_get_none_of_them():
    variables = {"TWINLOG_BROKER_NAME": "x", "TWINLOG_LOG": "json", "HOME": "/"}
    assert without_options(variables) == {"TWINLOG_LOG": "json", "HOME": "/"}


def test_credentials_may_lie_in_files(tmp_path):
    (tmp_path / "secret").write_text("open sesame\n")
    variables = {"TWINLOG_ACCESS_KEY": "ali", "TWINLOG_SECRET_KEY_FILE": str(tmp_path / "secret")}
    found = find_credentials(variables)
    assert found is not None
    assert (found.access_key, found.secret_key) == ("ali", "open sesame")


def test_a_secret_that_is_told_twice_is_refused(tmp_path):
    """Which of them holds nobody could say."""
    path = tmp_path / "key"
    path.write_text("one")
    with pytest.raises(ConfigError, match="both set"):
        secret_of({"TWINLOG_SECRET_KEY": "two", "TWINLOG_SECRET_KEY_FILE": str(path)}, "TWINLOG_SECRET_KEY")


def test_every_variable_that_the_program_reads_is_known():
    """Otherwise a broker would warn of it."""
    texts = (file.read_text() for file in CLUSTER.rglob("*.py") if file.name not in ("codes.py", "environment.py"))
    named = {name for text in texts for name in re.findall(r"""["'](TWINLOG_[A-Z_]+)["']""", text)}
    consumer_groups = {"TWINLOG_PRODUCER", "TWINLOG_CONSUMER"}
    assert named - consumer_groups <= {*OTHERS, *map(variable_of, all_options())}
    assert "TWINLOG_CONTEXT" in named


def test_the_file_of_the_group_secret_is_an_option_and_no_content_of_another():
    """haSecret has a name that becomes haSecretFile by _FILE."""
    found = read_environment({"TWINLOG_HA_SECRET_FILE": "/no/such"}, {"haSecret", "haSecretFile"})
    assert [(each.key, each.value) for each in found.settings] == [("haSecretFile", "/no/such")]
