"""A broker with rules of access, and requests that are signed or not."""

from pathlib import Path

from twinlog.cluster.broker import wiring
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.signing import Credentials, make_signer
from twinlog.store.config import StoreConfig

ADMIN, USER = Credentials("rocketmq2", "12345678"), Credentials("RocketMQ", "12345678")

OWN = '{"accessKey":"rocketmq2","secretKey":"12345678"}'

SAMPLE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress: 10.9.9.9
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


def write_rules(home: Path, text: str = SAMPLE, name: str = "conf/plain_acl.yml") -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def broker_with_rules(root: Path, text: str = SAMPLE) -> Broker:
    """Its rules are read."""
    write_rules(root / "home", text)
    broker = wiring.make_broker(
        BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1"),
        StoreConfig(root=root / "store", mapped_file_size_commit_log=1 << 20),
        acl_config=AclConfig(enable=True, home=root / "home", credentials=OWN),
    )
    broker.acl.load()
    return broker


def signed(command: RemotingCommand, credentials: Credentials = USER) -> RemotingCommand:
    make_signer(credentials)(command)
    return command
