"""`twinlog audit --locality` on a cluster of two hosts, each of which has one member's disk only: tasks go where the disk is.

The driver sees both disks: it lists files. docs/operating/audit.md says what else it does, and what needs both where logs differ.
"""

import json
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from tests.cluster.pipeline.planting import make_pair
from tests.support.spark_cluster.standalone import ENVIRONMENT, Standalone

PLACED = '"makeRDD"'  # A scope in Spark's log: by SparkContext.makeRDD jobs/runner.py makes tasks with preferred hosts.


def hosts_of_placed(log: Path) -> list[Counter[str]]:
    """Tasks on each host, for each stage that has preferred hosts, as Spark logged it. All of them ran where they should."""
    version, *events = [json.loads(line) for line in log.read_text().splitlines()]
    assert version["Spark Version"] == pyspark.__version__
    stages = [event["Stage Info"] for event in events if event["Event"] == "SparkListenerStageCompleted"]
    placed = [stage["Stage ID"] for stage in stages if any(PLACED in rdd.get("Scope", "") for rdd in stage["RDD Info"])]
    tasks = [event for event in events if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in placed]
    assert {task["Task End Reason"]["Reason"] for task in tasks} == {"Success"}
    assert {task["Task Info"]["Locality"] for task in tasks} == {"NODE_LOCAL"}
    return [Counter(task["Task Info"]["Host"] for task in tasks if task["Stage ID"] == stage) for stage in placed]


@pytest.mark.root
def test_members_are_read_on_the_hosts_that_have_their_disks(cluster: Standalone, tmp_path: Path):
    """All is read, although a task about a member can read it on one host only."""
    pair = make_pair("own", tmp_path)
    nothing, log, out = tmp_path / "nothing", tmp_path / "log", tmp_path / "out"
    nothing.mkdir()
    log.mkdir()
    first, second = cluster.workers
    if not first.has_own_mounts:
        pytest.skip("nothing may be mounted here, so that all hosts have the same disks")
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    arguments = ["--locality", f"{first.host}={pair.master}", f"{second.host}={pair.slave}", "--out", str(out)]
    driver = cluster.driver("locality", f"{ENVIRONMENT}/submit/audit.py", *arguments, settings=settings)
    with first.seeing(pair.slave, nothing), second.seeing(pair.master, nothing), driver:
        assert not list(first.path(pair.slave).iterdir()) + list(second.path(pair.master).iterdir())
        assert driver.wait(200) == 0, cluster.tails()
    report = json.loads((out / "report.json").read_text())
    assert (report["verdict"], report["findings"]) == ("equal", [])
    ends = [(each["read_bytes"], each["equal_bytes"]) for each in report["members"]]
    assert ends == [(each["last_offset"], each["last_offset"]) for each in report["members"]]
    (found,) = log.iterdir()
    stages = hosts_of_placed(found)
    assert len(stages) == 3  # Digests, records, and what lies beside the logs.
    assert all(set(each) == {first.host, second.host} and len(set(each.values())) == 1 for each in stages), stages
