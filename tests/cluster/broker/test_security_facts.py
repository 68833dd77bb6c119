"""What a member tells of its safety: what doctor needs, and no secret."""

from attrs import evolve

from tests.cluster.broker.helpers import make_broker
from tests.cluster.broker.security.rules import SAMPLE, broker_with_rules
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.status import security_facts
from twinlog.cluster.remoting.member_status import SecurityStatus


def facts_of(broker):
    return security_facts(broker.settings, broker.acl, signs=broker.remoting.sign is not None)


def test_without_rules_there_is_little_to_tell(tmp_path):
    assert facts_of(make_broker(tmp_path)) == SecurityStatus(acl_enable=False, signs=False)


def test_rules_are_counted(tmp_path):
    broker = broker_with_rules(tmp_path)
    path = broker.acl.files.default
    path.chmod(0o600)
    facts = facts_of(broker)
    assert (facts.accounts, facts.admins, facts.signs, facts.readable_by_others) == (2, 1, True, ())
    assert not facts.white_for_all
    assert facts.admins_without_signature == 0
    path.chmod(0o640)
    assert facts_of(broker).readable_by_others == (str(path),)
    assert "12345678" not in str(facts)


def test_what_lets_everybody_in(tmp_path):
    text = SAMPLE.replace("192.168.1.*", "'*'").replace("10.10.103.*", "'*.*.*.*'")
    facts = facts_of(broker_with_rules(tmp_path, text))
    assert facts.white_for_all
    assert facts.admins_without_signature == 1
    assert "rocketmq2" not in str(facts)


def test_other_files_with_secrets(tmp_path):
    broker = make_broker(tmp_path)
    key, conf = tmp_path / "server.key", tmp_path / "broker.conf"
    for path in (key, conf):
        path.write_text("")
        path.chmod(0o644)
    broker.settings.config_file, broker.settings.tls_config = conf, evolve(broker.settings.tls_config, server_key=key)
    assert facts_of(broker).readable_by_others == (str(key),)
    broker.settings.acl_config = AclConfig(credentials='{"accessKey":"members","secretKey":"12345678"}')
    assert facts_of(broker).readable_by_others == (str(key), str(conf))
