"""One master and its slaves, real or ours, in the traffic of a real Java producer, whoever of them is restarted."""

from collections.abc import Sequence
from pathlib import Path

from attrs import define, field

from tests.support.clients.java_client import JavaClient, Producer, SendJob, Sent
from tests.support.clients.remoting import create_topic, runtime_info
from tests.support.disk.compare import wait_for_same_commitlog, wait_for_same_queues
from tests.support.process_group.member import BrokerProcess
from tests.support.waiting import wait_for
from twinlog.store.record.message import decode_message
from twinlog.store.record.scan import scan_records

FILE_SIZE = 1 << 20  # As TEST_SETTINGS has it.
BODY_SIZE = 1500
ENDLESS = 1_000_000  # Messages; a job is stopped long before.
LEVEL_S = 40  # How long a real slave may take to be level again: 10 s to connect and to report, then the copying.


def max_offset(broker: BrokerProcess) -> int:
    """The end of its log, as it says itself; -1 as long as it does not, as a real one right after its start."""
    try:
        return int(runtime_info(broker.address)["commitLogMaxOffset"])
    except (OSError, ValueError):
        return -1


@define(eq=False)
class Group:
    """Members of one broker name. `topic` is its own: the producers of several groups share a client."""

    master: BrokerProcess
    slaves: Sequence[BrokerProcess]
    topic: str
    told: list[Sent] = field(factory=list, init=False)
    _producer: Producer = field(init=False)
    _job: SendJob = field(init=False)
    _next: int = field(default=0, init=False)

    def connect(self, client: JavaClient) -> None:
        """Start a producer for the master, which runs."""
        create_topic(self.master.address, self.topic)
        self._producer = client.producer(f"producer-{self.topic}", self.master.namesrv)

    def fill(self, *, files: int) -> None:
        """Store so many whole files, at least."""
        count = files * FILE_SIZE // BODY_SIZE
        self.told += self._producer.send(
            self.topic, count, first=self._next, mode="async", body_size=BODY_SIZE, send_timeout_s=15
        )
        self._next += count

    def start_traffic(self) -> None:
        """Send until finish_traffic(), not so fast that the busy processors of a test's machine decide anything."""
        self._job = self._producer.start_sending(
            self.topic, ENDLESS, first=self._next, threads=4, pause_ms=20, body_size=BODY_SIZE
        )

    def finish_traffic(self) -> None:
        """Send no more, and wait for what is under way."""
        report = self._job.finish(stop=True)
        self._next += len(report.sent)
        self.told += report.sent

    def wait_served(self) -> None:
        """Wait until the master answers producers again, and its slaves hold what it holds by then."""
        self._producer.send_until_ok("probe")
        end = max_offset(self.master)
        for slave in self.slaves:
            wait_for(lambda: max_offset(slave) >= end, f"{slave.name} is level", timeout_s=LEVEL_S)  # noqa: B023

    def assert_equal(self) -> tuple[int, int]:
        """All logs are the same bytes, all queues the same units, and whatever was acknowledged is where it was told to
        be. Returns where the logs begin and end.
        """
        ends = set()
        for slave in self.slaves:
            start, end = wait_for_same_commitlog(self.master.commit_log, slave.commit_log)
            wait_for_same_queues(self.master.store, slave.store, start=start)
            ends.add((start, end))
        (found,) = ends
        held = unique_ids(self.master.commit_log)
        lost = [sent for sent in self.told if sent.status and held.get(sent.commit_log_offset) != sent.msg_id]
        assert lost == []
        return found


def unique_ids(commit_log: Path) -> dict[int, str]:
    """The clients' ids of all records of a log, by where they lie."""
    found = {}
    for path in sorted(commit_log.iterdir()):
        start, content = int(path.name), path.read_bytes()
        for entry in scan_records(content, start, FILE_SIZE, check_crc=True).entries:
            record = decode_message(content, entry.phy_offset - start)
            found[entry.phy_offset] = record.properties.get("UNIQ_KEY", "")
    return found
