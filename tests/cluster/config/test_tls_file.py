"""Where TLS is configured: RocketMQ's own file, the configuration of a broker, the environment of the tools."""

import ssl

import pytest

from tests.cluster.remoting.certificates import Authority
from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.run.settings import load_broker, load_namesrv
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.config.redaction import shown as redacted
from twinlog.cluster.config.tls_file import own_tls
from twinlog.cluster.remoting.errors import TlsFilesError
from twinlog.cluster.remoting.tls.config import ClientAuth, TlsConfig, TlsMode


def test_the_file_wins_over_brokers_own_and_loses_to_what_was_typed(tmp_path):
    properties, conf = tmp_path / "tls.properties", tmp_path / "broker.conf"
    properties.write_text(
        "tls.test.mode.enable=false\ntls.server.certPath=/file.pem\ntls.server.keyPath=/file.key\n"
        "tls.server.need.client.auth=require\ntls.server.mode=disabled\ntls.enable=true\nsomething.else=1\n"
    )
    conf.write_text(f"tls.config.file={properties}\ntls.server.certPath=/conf.pem\ntls.server.mode=enforcing\n")
    found = load_broker(conf, ["tls.server.keyPath=/typed.key"], namesrv=None).of(TlsConfig)
    assert (str(found.server_cert), str(found.server_key)) == ("/file.pem", "/typed.key")
    assert (found.test_mode, found.need_client_auth) == (False, ClientAuth.require)
    assert (found.mode, found.enable) == (TlsMode.enforcing, None), "the file cannot say these"


def test_a_file_that_is_named_has_to_be_there(tmp_path):
    with pytest.raises(CliError, match="cannot be read"):
        load_namesrv(None, [f"tls.config.file={tmp_path}/none"], port=None)
    load_namesrv(None, [], port=None)  # The default one need not be.


def test_a_mode_that_is_none_is_said():
    with pytest.raises(CliError, match=r"tls\.server\.mode=on: expected disabled or permissive or enforcing"):
        load_namesrv(None, ["tls.server.mode=on"], port=None)


def test_a_password_is_not_shown():
    shown = load_namesrv(None, ["tls.server.keyPassword=open sesame"], port=None).effective
    assert "open sesame" not in "".join(redacted(each.key, each.text) for each in shown)


@pytest.mark.parametrize(
    ("mode", "enable", "uses"),
    [("permissive", None, False), ("enforcing", None, True), ("enforcing", False, False), ("permissive", True, True)],
)
def test_whether_a_brokers_own_requests_use_tls(mode, enable, uses):
    """BrokerStartup: unless it is told, where it takes TLS connections only."""
    assert TlsConfig(mode=TlsMode[mode], enable=enable).is_client is uses


def test_the_tools_take_it_from_the_environment(tmp_path):
    assert own_tls({}) is None
    assert own_tls({"TWINLOG_TLS": "false"}) is None
    assert own_tls({"TWINLOG_TLS": "true"}).verify_mode is ssl.CERT_NONE
    file = tmp_path / "tls.properties"
    trust = Authority(tmp_path).certificate
    file.write_text(f"tls.test.mode.enable=false\ntls.client.authServer=true\ntls.client.trustCertPath={trust}\n")
    context = own_tls({"TWINLOG_TLS": "true", "TWINLOG_TLS_CONFIG": str(file)})
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname


def test_what_the_tools_are_told_wrongly_is_said(tmp_path):
    with pytest.raises(ConfigError, match="TWINLOG_TLS=yes: expected true or false"):
        own_tls({"TWINLOG_TLS": "yes"})
    with pytest.raises(ConfigError, match=r"TWINLOG_TLS_CONFIG: .*cannot be read"):
        own_tls({"TWINLOG_TLS": "true", "TWINLOG_TLS_CONFIG": str(tmp_path / "none")})
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable=false\ntls.client.authServer=true\ntls.client.trustCertPath=/none\n")
    with pytest.raises(TlsFilesError, match=r"tls\.client\.trustCertPath=/none"):
        own_tls({"TWINLOG_TLS": "true", "TWINLOG_TLS_CONFIG": str(file)})
