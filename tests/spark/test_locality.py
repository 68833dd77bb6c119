"""Tasks about a member's files are for the host that has them on its disk."""

from click.testing import CliRunner

from tests.cluster.pipeline.planting import FAULTS, make_pair
from tests.spark.in_process import TaskRunner, audited
from twinlog.cluster.cli.audit import audit as command
from twinlog.cluster.pipeline.audit.parts import LogPart
from twinlog.cluster.pipeline.audit.report import AuditVerdict
from twinlog.cluster.pipeline.audit.tasks import MemberParts, MemberSplit
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
from twinlog.cluster.pipeline.jobs.runner import placed
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.store.integrity.digest import BLOCK_SIZE


def test_each_task_about_a_member_is_for_its_host(tmp_path):
    """The findings are the same."""
    pair = make_pair("4.9.7", tmp_path)
    fault = next(fault for fault in FAULTS if fault.store == "4.9.7")
    fault.plant(pair)
    runner = TaskRunner()
    report = audited(pair.master, pair.slave, runner=runner, split_size=BLOCK_SIZE, hosts=("h0", None))
    assert report == audited(pair.master, pair.slave, split_size=BLOCK_SIZE)
    members = {0: "h0", 1: None}
    kinds = set()
    for task, host in runner.hosts:
        if isinstance(task, MemberSplit | MemberParts):
            assert host == members[task.member]
        elif isinstance(task, LogPart):
            assert host == members[task.members[0]]
            assert len(task.members) == 1
        else:
            assert host is None
        kinds.add(type(task))
    assert kinds >= {MemberSplit, MemberParts, LogPart}


def test_spark_is_told_the_hosts(spark):
    """Also of what follows from the tasks."""
    tasks = placed(spark.sparkContext, [10, 20, 30], ["h1", None, "h2"])
    found = tasks.mapPartitions(lambda part: (number + 1 for number in part)).flatMap(lambda number: [number])
    assert found.collect() == [11, 21, 31]
    jvm = spark.sparkContext._jsc.sc()
    hosts = [jvm.getPreferredLocs(found._jrdd.rdd(), number).mkString(",") for number in range(3)]
    assert hosts == ["h1", "", "h2"]


def test_a_host_without_executors_is_read_from_elsewhere(spark, tmp_path):
    pair = make_pair("own", tmp_path)
    members = [StoreUri(str(pair.master)), StoreUri(str(pair.slave))]
    assert audit(spark, members, AuditOptions(hosts=("nowhere", None))).verdict is AuditVerdict.EQUAL


def test_members_without_hosts_are_refused():
    """A slash makes it a path; running brokers and a ledger need no Spark."""
    refused = {
        ("/a=b", "/c"): "name them as HOST=PATH",
        ("--live", "h=/a", "/c"): "omit --spark-master, --log-only and --locality",
        ("--incremental", "ledger", "h=/a", "/c"): "omit --spark-master, --log-only and --locality",
    }
    for arguments, words in refused.items():
        found = CliRunner().invoke(command, ["--locality", *arguments])
        assert (found.exit_code, words in " ".join(found.output.split())) == (2, True), found.output
