"""Members of a group of three with a record, as facts; tests change what they are about."""

from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts, member_of_status
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.route import BrokerAddresses
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, GroupRecord
from twinlog.store.util.plain import to_plain

A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
RECORD = GroupRecord(
    version=2,
    members=tuple(
        GroupMember(address=address, ha_address="", broker_id=number, name=f"broker-a-{number}")
        for number, address in enumerate((A, B, C))
    ),
    acks_needed=2,
    master_role=BrokerRole.SYNC_MASTER,
)


def facts_of(number: int, address: str, **status) -> MemberFacts:
    role = "slave" if number else "master"
    bare = Member(
        name=f"broker-a-{number}",
        cluster="C",
        group="broker-a",
        broker_id=number,
        address=address,
        role=role,
        state="unreachable",
    )
    told = {
        "role": "SLAVE" if number else "SYNC_MASTER",
        "state": "streaming" if number else "serving",
        "roleState": "following" if number else "serving",
        "address": address,
        "groupRecord": to_plain(RECORD),
        "epoch": {"epoch": 3, "winner": A, "startOffset": 100},
        "promised": {"epoch": 3, "winner": A},
        "secretIds": ["3f9a0c1b"],
        **status,
    }
    found = MemberStatus.from_json(told)
    return MemberFacts(member=member_of_status(bare, found), status=found)


def cluster(*members: MemberFacts) -> ClusterFacts:
    group = BrokerAddresses("C", "broker-a", {each.member.broker_id: each.member.address for each in members})
    return ClusterFacts(groups=(group,), members=members, name_servers={"10.0.0.9:9876": (group,)})
