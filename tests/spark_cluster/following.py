"""A stream from a topic into files on a standalone cluster, and what may befall it."""

from pathlib import Path

from attrs import define, field

from tests.support.process_group.role_changes import change_role, wait_electable, wait_grouped
from tests.support.process_group.roles import TOPIC, Group, RoleBroker
from tests.support.spark_cluster.output import Place, batches_done
from tests.support.spark_cluster.standalone import START_S, Driver, Standalone
from tests.support.waiting import wait_for
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.messages import ReceivedMessage

SCRIPT = Path(__file__).with_name("follow_topic.py")
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.task.duration.threshold": "3s",  # Of a stage with one task.
    "spark.executor.maxNumFailures": "1000",  # All of them are wanted.
}


@define(eq=False)
class Following:
    """The stream: its drivers, of which one takes up what the other left, its brokers and its output.

    Each of the faults ends when the stream has gone on after it.
    """

    cluster: Standalone
    group: Group
    out: Path
    driver: Driver = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.out.mkdir()
        self.driver = self._driver("follow")

    def _driver(self, name: str, *arguments: str) -> Driver:
        script = self.cluster.place(SCRIPT)
        told = (self.group.namesrv.address, TOPIC, str(self.out), *arguments)
        return self.cluster.driver(name, script, *told, settings=SETTINGS)

    @property
    def batches(self) -> int:
        """How many are complete."""
        return batches_done(self.out / "checkpoint")

    def start(self) -> None:
        """Start a driver; returns after its first batch."""
        self.driver.start()
        self.go_on()

    def go_on(self, count: int = 2) -> None:
        """Until so many further batches are complete. A batch may have been half done before, so that two show progress."""
        target = self.batches + count

        def are_done() -> bool:
            assert self.driver.running, f"the driver ended\n{self.cluster.tails()}"
            return self.batches >= target

        try:
            wait_for(are_done, f"batch {target}", timeout_s=START_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.cluster.tails()}") from None

    def to_the_end(self) -> None:
        """A driver that takes up the checkpoint, and ends when it has all that is there."""
        with self._driver("end", "--to-the-end") as last:
            assert last.wait(START_S) == 0, self.cluster.tails()

    # ---- Faults

    def kill_executor(self) -> None:
        """With kill -9; its worker starts another one."""
        victim = self.cluster.wait_executors(2)[0]
        victim.kill()
        wait_for(lambda: victim.pid not in {each.pid for each in self.cluster.executors()}, "the end of an executor")
        self.go_on()

    def kill_worker(self) -> None:
        """The worker alone, which leaves its executor behind; it is started again."""
        worker = self.cluster.workers[1]
        self.cluster.vanish(worker)
        self.cluster.wait_workers(1)
        worker.start()
        self.cluster.wait_workers(2)
        self.cluster.wait_executors(2)
        self.go_on()

    def kill_driver(self) -> None:
        """In the middle of a batch, mostly. Another one takes up the checkpoint."""
        self.driver.kill()
        self.start()

    def be_slow(self) -> None:
        """A task lies still: Spark runs it again on the other host, and takes what that one wrote."""
        self.cluster.wait_executors(2)
        for name in ("slow-task", "attempts"):
            (self.out / name).unlink(missing_ok=True)
        (self.out / "slow").touch()
        wait_for(lambda: len(self._hosts_of_slow_task()) == 2, "a second copy of the slow task", timeout_s=START_S)
        self.go_on(1)

    def _hosts_of_slow_task(self) -> set[str]:
        """Directories of the executors in which it was tried."""
        slow = self.out / "slow-task"
        task = slow.read_text() if slow.exists() else ""
        lines = (self.out / "attempts").read_text().splitlines() if task else []
        return {line.split(" ")[3] for line in lines if line.startswith(f"{task} ")}

    def kill_master(self) -> None:
        """The brokers' master, with kill -9; a person orders a failover, and the old master comes back as a slave.

        Until then nothing new is confirmed, and the stream waits.
        """
        master, other = self._roles()
        wait_electable(other, 2)
        master.kill()
        change_role("failover", other)
        master.start()
        self.group.wait_healthy()
        self.go_on()

    def switch_over(self) -> None:
        """The other broker becomes master, in traffic."""
        master, other = self._roles()
        wait_grouped(master, 2)
        change_role("switchover", other)
        self.go_on()

    def _roles(self) -> tuple[RoleBroker, RoleBroker]:
        master = self.group.master()
        (other,) = [member for member in self.group.members if member is not master]
        return master, other


async def readable(name_server: str) -> dict[Place, bytes]:
    """All that the topic has, by a client that knows nothing of Spark."""
    found: dict[Place, bytes] = {}

    def take(message: ReceivedMessage) -> bool:
        found[Place(message.queue.broker_name, message.queue.queue_id, message.queue_offset)] = message.body
        return True

    async with open_admin((name_server,)) as admin:
        await admin.consume(TOPIC, take)
    return found
