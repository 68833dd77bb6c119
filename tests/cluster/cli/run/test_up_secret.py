"""`twinlog up` gives its members a group secret once, and not where somebody else would be refused by it."""

import pytest

from twinlog.cluster.cli.run.supervisor import members_elsewhere, secret_file
from twinlog.cluster.cli.run.up_plan import conf_text, plan_up
from twinlog.cluster.config.group_secret import SecretFileError, new_secret, read_secrets, write_secrets
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.store.epoch_file import EpochId
from twinlog.store.member_file import new_member, save_member
from twinlog.store.role import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState, save_role

HERE, SLAVE, ELSEWHERE = "127.0.0.1:10911", "127.0.0.1:10921", "10.0.0.9:10911"


@pytest.fixture
def plan(tmp_path):
    return plan_up(tmp_path)


def member(address, id="", *, votes=True):
    return GroupMember(address=address, ha_address="", broker_id=0, name="", votes=votes, id=id or address)


def with_record(plan, *members, address=HERE):
    """The first broker's store knows these members."""
    record = GroupRecord(version=1, members=members, acks_needed=1, master_role=BrokerRole.SYNC_MASTER)
    state = RoleState(role=BrokerRole.SLAVE, broker_id=1, promised=EpochId(0, ""), group=record, address=address)
    save_role(plan.brokers[0].store_root / "twinlog", state)


def test_the_first_start_makes_it_and_later_ones_keep_it(plan):
    assert secret_file(plan) == plan.secret_path
    (secret,) = read_secrets(plan.secret_path)
    assert plan.secret_path.stat().st_mode & 0o777 == 0o600
    assert secret_file(plan) == plan.secret_path
    assert read_secrets(plan.secret_path) == (secret,)


def test_a_file_that_cannot_be_used_is_told_before_anything_runs(plan):
    plan.secret_path.write_text("oh\n")
    with pytest.raises(SecretFileError, match="has mode"):
        secret_file(plan)


@pytest.mark.parametrize(
    "members",
    [
        [member(HERE), member(SLAVE)],  # Of twinlog 0.2.
        [member("127.0.0.1:20011", "m1"), member("127.0.0.1:20021", "m2")],  # It ran under other ports.
        [member(HERE, "m1"), member(ELSEWHERE, votes=False)],  # RocketMQ's slaves prove nothing.
    ],
)
def test_a_cluster_that_was_made_before_gets_it(plan, members):
    with_record(plan, *members)
    for broker, id in zip(plan.brokers, ("m1", "m2"), strict=True):
        save_member(broker.store_root / "twinlog", new_member(id, broker.address, 0))
    assert members_elsewhere(plan) == []
    assert secret_file(plan) == plan.secret_path


def test_a_member_that_runs_elsewhere_would_be_refused_by_it(plan, capsys):
    with_record(plan, member(HERE), member(SLAVE), member(ELSEWHERE, "m3"))
    assert secret_file(plan) is None
    assert not plan.secret_path.exists()
    assert f"{ELSEWHERE} of this group would be refused" in capsys.readouterr().err
    write_secrets(plan.secret_path, (new_secret(),))  # As the line says.
    assert secret_file(plan) == plan.secret_path


def test_a_member_that_moved_to_other_ports_before_it_had_an_id_is_its_own(plan):
    with_record(plan, member("127.0.0.1:20011"), address="127.0.0.1:20011")
    assert members_elsewhere(plan) == []


def test_a_damaged_role_file_is_left_to_its_broker(plan):
    side = plan.brokers[0].store_root / "twinlog"
    side.mkdir(parents=True)
    (side / "role").write_bytes(b"oh")
    assert members_elsewhere(plan) == []


def test_brokers_are_told_and_set_wins(plan):
    def entries(overrides):
        text = conf_text(plan.brokers[0], overrides, secret_file=plan.secret_path)
        return {entry.key: entry.value for entry in parse_properties(text)}

    assert entries({})["haSecretFile"] == str(plan.secret_path)
    assert entries({"haSecretFile": ""})["haSecretFile"] == ""
    assert "haSecretFile" not in conf_text(plan.brokers[0], {})
    assert "haSecretFile" not in conf_text(plan.namesrv, {})
