"""What is run: each sub-command of mqadmin, with the arguments that show what it can do, in an order that makes sense.

Arguments name things of the cluster they run against, see clusters.Cluster.words(). Topics: Orders has two queues, Single
one, with five messages order-0 .. order-4; the group CG has read them and is connected, the group PG has sent them.
What differs on purpose, and why, is in docs/reference/compatibility.toml.
"""

from enum import Enum

from attrs import frozen


class Compare(Enum):
    """What of an answer must be the same, after addresses, times, ids, versions and rates are made alike."""

    TEXT = "all of it"
    LINES = "its lines, in any order"
    KEYS = "the names in front of `:` or `=`; values differ from machine to machine"
    SHAPE = "whether it says something, and whether it fails"


@frozen
class Row:
    """One run of a sub-command on both clusters."""

    command: str
    arguments: str = ""
    compare: Compare = Compare.TEXT
    file: str = ""  # It writes a file of this name into {out}: that is compared, too.
    ours: str = ""  # A pattern that our answer matches where it differs from RocketMQ's.
    hide: str = ""  # A pattern for what depends on the moment.
    until: str = ""  # A pattern to wait for: consumers commit every five seconds.
    differs: bool = False  # For the reason that docs/reference/compatibility.toml gives.

    @property
    def name(self) -> str:
        return f"{self.command} {self.arguments}".strip()


LINES, KEYS, SHAPE = Compare.LINES, Compare.KEYS, Compare.SHAPE

ROWS = (
    # Topics
    Row("topicList", compare=LINES),
    Row("topicList", "-c", LINES),
    Row("topicRoute", "-t Single"),
    Row("topicRoute", "-t Single -l"),
    Row("topicRoute", "-t Nowhere"),
    Row("topicStatus", "-t Single"),
    Row("topicStatus", "-t Nowhere"),
    Row("topicClusterList", "-t Single"),
    Row("updateTopic", "-b {broker} -t Direct -r 3 -w 3"),
    Row("updateTopic", "-c DefaultCluster -t Gone -r 1 -w 1"),
    Row("updateTopic", "-c DefaultCluster -t Ordered -r 1 -w 1 -o true"),
    Row("updateTopic", "-c DefaultCluster -t Unit -r 1 -w 1 -u true -s true"),
    Row("updateTopic", "-b {broker} -t TBW102"),
    Row("updateTopic", "-b {broker} -t bad*name"),
    Row("updateTopic", "-b {slave} -t OnSlave"),
    Row("updateTopicPerm", "-b {broker} -t Direct -p 4"),
    Row("updateTopicPerm", "-c DefaultCluster -t Direct -p 6"),
    Row("topicRoute", "-t Direct"),
    Row("updateOrderConf", "-t Ordered -m get"),
    Row("updateOrderConf", "-t Ordered -m put -v broker-a:4"),
    Row("updateOrderConf", "-t Ordered -m get"),
    Row("updateOrderConf", "-t Ordered -m delete"),
    Row("updateOrderConf", "-t Ordered -m get"),
    Row("allocateMQ", "-t Orders -i 192.0.2.1,192.0.2.2"),
    Row("deleteTopic", "-c DefaultCluster -t Gone"),
    Row("topicRoute", "-t Gone"),
    # The name server
    Row("getNamesrvConfig", ours="orderMessageEnable *= *false", differs=True),
    Row("updateNamesrvConfig", "-k orderMessageEnable -v true"),
    Row("updateNamesrvConfig", "-k kvConfigPath -v /tmp/x"),
    Row("updateNamesrvConfig", "-k serverWorkerThreads -v 9", differs=True),
    Row("updateKvConfig", "-s NS -k key -v value"),
    Row("deleteKvConfig", "-s NS -k key"),
    Row("deleteKvConfig", "-s NS -k nothing"),
    Row("wipeWritePerm", "-b broker-a"),
    Row("topicRoute", "-t Single"),
    Row("addWritePerm", "-b broker-a"),
    Row("topicRoute", "-t Single"),
    Row("wipeWritePerm", "-b nobody"),
    # Brokers
    Row("clusterList"),
    Row("clusterList", "-m"),
    Row("brokerStatus", "-b {broker}", KEYS),
    Row("brokerStatus", "-b {slave}", KEYS),
    Row("brokerStatus", "-c DefaultCluster", KEYS),
    Row("getBrokerConfig", "-b {broker}", ours="brokerName *= *broker-a", differs=True),
    Row("getBrokerConfig", "-c DefaultCluster", ours="brokerRole *= *SLAVE", differs=True),
    Row("updateBrokerConfig", "-b {broker} -k fileReservedTime -v 71"),
    Row("updateBrokerConfig", "-c DefaultCluster -k fileReservedTime -v 72"),
    Row("updateBrokerConfig", "-b {broker} -k rocketmqHome -v /tmp", differs=True),
    Row("cleanExpiredCQ", "-b {broker}"),
    Row("cleanExpiredCQ", "-c DefaultCluster"),
    Row("cleanUnusedTopic", "-b {broker}"),
    Row("cleanUnusedTopic", "-c DefaultCluster"),
    Row("deleteExpiredCommitLog", "-b {broker}"),
    Row("deleteExpiredCommitLog", "-c DefaultCluster"),
    # Messages
    Row("queryMsgById", "-i {offset_id}"),
    Row("queryMsgById", "-i {missing_id}"),
    Row("queryMsgById", "-i {offset_id} -g CG -d {consumer}"),
    Row("queryMsgById", "-i {offset_id} -g CG -d nobody"),
    Row("queryMsgById", "-i {offset_id} -s true"),
    Row("queryMsgByKey", "-t Single -k order-1"),
    Row("queryMsgByKey", "-t Single -k nothing"),
    Row("queryMsgByUniqueKey", "-t Single -i {unique_id}"),
    Row("queryMsgByUniqueKey", "-t Single -i {unique_id} -a"),
    Row("queryMsgByUniqueKey", "-t Single -i {unique_id} -g CG -d {consumer}"),
    Row("queryMsgByOffset", "-t Single -b broker-a -i 0 -o 2"),
    Row("queryMsgByOffset", "-t Single -b broker-a -i 0 -o 2000"),
    Row("queryCq", "-t Single -q 0 -i 0 -c 3 -b {broker}"),
    Row("queryCq", "-t Single -q 0 -i 0 -c 3 -b {broker} -g CG"),
    Row("queryCq", "-t Single -q 0 -i 9000 -c 3 -b {broker}", ours="max: 6, min: 0", differs=True),
    Row("queryCq", "-t Single -q 77 -i 0 -c 3 -b {broker}"),
    Row("printMsg", "-t Single"),
    Row("printMsg", "-t Single -s TagB -d true"),
    Row("printMsgByQueue", "-t Single -a broker-a -i 0 -p true -d true -f true"),
    Row("consumeMessage", "-t Single -b broker-a -i 0 -o 0 -c 3"),
    Row("consumeMessage", "-t Single -c 2"),
    Row("sendMessage", "-t Orders -p hello -k key1 -c TagB -b broker-a -i 1"),
    Row("sendMessage", "-t Orders -p traced -k key2 -m true -b broker-a -i 0"),
    Row("queryMsgTraceById", "-i {unique_id}"),
    Row("checkMsgSendRT", "-t Orders -a 4 -s 64", LINES),
    Row("sendMsgStatus", "-b broker-a -s 64 -c 2"),
    Row("clusterRT", "-a 3 -s 64 -i-1"),
    # Groups
    Row("consumerProgress", "-g CG", until="%RETRY%CG[^$]*Diff Total: 0"),
    Row("consumerProgress"),
    Row("consumerProgress", "-g CG -s true"),
    Row("consumerProgress", "-g Nobody"),
    Row("consumerConnection", "-g CG"),
    Row("consumerConnection", "-g Nobody"),
    Row("consumerStatus", "-g CG"),
    Row("consumerStatus", "-g CG -i {consumer}"),
    Row("consumerStatus", "-g CG -i {consumer} -s", SHAPE),
    Row("producerConnection", "-g PG -t Single"),
    Row("producerConnection", "-g Nobody -t Single"),
    Row("producer", "-b {broker}", LINES),
    Row("updateSubGroup", "-b {broker} -g SG"),
    Row("updateSubGroup", "-c DefaultCluster -g SG -s true -m true -d true -q 2 -r 3 -i 0 -w 1 -a true"),
    Row("getConsumerConfig", "-g SG"),
    Row("getConsumerConfig", "-g Nobody"),
    Row("deleteSubGroup", "-b {broker} -g SG"),
    Row("deleteSubGroup", "-c DefaultCluster -g SG -r true"),
    Row("brokerConsumeStats", "-b {broker}"),
    Row("brokerConsumeStats", "-b {broker} -o true -l 0"),
    Row("statsAll", "-t Single", hide=r"\d+ \d+$"),  # RocketMQ's counts trail by up to ten seconds.
    Row("statsAll", "-a", SHAPE),
    Row("cloneGroupOffset", "-s CG -d CG2 -t Single"),
    Row("consumerProgress", "-g CG2"),
    Row("resetOffsetByTime", "-g CG2 -t Single -s 0"),
    Row("resetOffsetByTime", "-g CG2 -t Single -s now"),
    Row("skipAccumulatedMessage", "-g CG2 -t Single"),
    Row("resetOffsetByTime", "-g CG -t Single -s 0"),
    Row("skipAccumulatedMessage", "-g CG -t Single"),
    # Access
    Row("clusterAclConfigVersion", "-b {broker}"),
    Row("clusterAclConfigVersion", "-c DefaultCluster", LINES),
    Row("updateAclConfig", "-b {broker} -a somebody -s 12345678 -t Single=PUB -g CG=SUB -w 192.0.2.* -i DENY -u SUB"),
    Row("updateAclConfig", "-b {broker} -a somebody -s 87654321"),
    Row("updateAclConfig", "-c DefaultCluster -a everybody -s 12345678 -m true", LINES),
    Row("updateAclConfig", "-b {broker} -a short -s 1"),
    Row("updateAclConfig", "-b {broker} -a somebody -s 12345678 -t Single=ANYTHING"),
    Row("updateGlobalWhiteAddr", "-b {broker} -g 127.0.0.1,192.0.2.*"),
    Row("updateGlobalWhiteAddr", "-c DefaultCluster -g 127.0.0.1", LINES),
    Row("clusterAclConfigVersion", "-b {broker}"),
    Row("getAclConfig", "-b {broker}", ours=r"secretKey : \*{6}", differs=True),
    Row("deleteAclConfig", "-b {broker} -a somebody"),
    Row("deleteAclConfig", "-c DefaultCluster -a everybody", LINES),
    Row("deleteAclConfig", "-b {broker} -a nobody"),
    # Exports
    # Whether a topic is ordered, brokers hear with a registration, each half a minute.
    Row("exportMetadata", "-c DefaultCluster -f {out}", file="metadata.json", hide=r'"order": \w+'),
    Row("exportMetadata", "-b {broker} -t -f {out}", file="topic.json", hide=r'"(counter|order)": \w+'),
    Row("exportMetadata", "-b {broker} -g -f {out}", file="subscriptionGroup.json"),
    Row("exportConfigs", "-c DefaultCluster -f {out}", file="configs.json"),
    Row("exportMetrics", "-c DefaultCluster -f {out}", file="metrics.json", hide='"normal(In|Out)Tps": [^,]*'),
    # It goes on in the background until the JVM ends.
    Row("startMonitoring"),
)
