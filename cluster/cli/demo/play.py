"""The script of `twinlog demo`: traffic, kill -9, failover, return, switchover, a worse failure, one that nobody attends to, and
the account.
"""

from collections.abc import Callable
from functools import partial

import trio
from attrs import define, field

from twinlog.cluster.admin.admin import Admin, open_admin
from twinlog.cluster.admin.roles import RoleOrder, RoleRefusedError
from twinlog.cluster.cli.common.errors import CliError
from twinlog.cluster.cli.demo.cluster import DemoCluster, running
from twinlog.cluster.cli.demo.screen import (
    STEP_SECONDS,
    Screen,
    account_lines,
    bars,
    compared,
    many,
    number,
    picture_of,
    rewound,
    taken_over,
    verdict,
)
from twinlog.cluster.cli.demo.traffic import Ledger, Traffic, numbers_found
from twinlog.cluster.cli.run.up_plan import BrokerPlan, UpPlan
from twinlog.cluster.cli.run.up_view import ask, until_ready
from twinlog.cluster.client.client import Client
from twinlog.cluster.observe.members import MemberList
from twinlog.cluster.text import latency
from twinlog.store.role_file import AutoFailover

READY_SECONDS_MAX, POLL_SECONDS = 60.0, 0.05
CALM_SECONDS = 1.0  # Of traffic before the first and after each event; more with a larger --seconds.
ECHO_SECONDS = 0.2  # Within which answers arrive that a member sent before it stood still.
ALONE_SECONDS = 0.5  # For which the master writes what no slave receives.
STRETCHES = 5  # Number of periods of undisturbed traffic.
FINE = ("streaming", "serving")


@define(eq=False)
class Play:
    """One run with `seconds` of traffic."""

    plan: UpPlan
    screen: Screen
    seconds: float
    rate: float
    cluster: DemoCluster = field(init=False)
    admin: Admin = field(init=False)
    traffic: Traffic = field(init=False)
    where: str = field(init=False)  # Where to see more.
    _killed_at: float = field(default=0.0, init=False)

    async def run(self) -> bool:
        """Return whether every acknowledged message was found, and all logs are equal."""
        address = self.plan.namesrv.address
        self.where = f"twinlog list -w -n {address}"
        async with running(self.plan) as self.cluster, open_admin((address,), timeout_ms=2000) as self.admin:
            await self._begin()
            async with Client(address, timeout_ms=1000) as client, trio.open_nursery() as nursery:
                self.traffic = Traffic(client, self.rate)
                nursery.start_soon(self._watch)
                async with trio.open_nursery() as senders:
                    senders.start_soon(self.traffic.run)
                    await self._events()
                    self.traffic.stop()
                is_good = await self._account(client)
                nursery.cancel_scope.cancel()
            return is_good

    @property
    def ledger(self) -> Ledger:
        return self.traffic.ledger

    # ---- Chapters

    async def _begin(self) -> None:
        self.screen.chapter(
            "A cluster: one master, two slaves, a name server",
            "Each is a process of its own on this machine. A message is acknowledged with SEND_OK when the master and one slave"
            " have it: a SYNC_MASTER with inSyncReplicas=2. The slave verifies every byte before it acknowledges.",
        )
        with trio.move_on_after(READY_SECONDS_MAX) as scope:
            await until_ready(self.plan, self.admin, self.screen.tell)
        if scope.cancelled_caught:
            logs = self.plan.directory / "logs"
            raise CliError("The cluster is not ready.", f"It had {READY_SECONDS_MAX:g} s.", f"Read the logs in {logs}.")
        if url := self.cluster.start_dashboard():
            self.where = f"dashboard {url}"
        self.screen.tell(f"ready; to watch it meanwhile: {self.where}", "✓")

    async def _events(self) -> None:
        first, second, third = self.plan.brokers
        self.screen.chapter(
            f"Traffic: {self.rate:g} messages a second",
            "A producer sends numbered messages, repeats each until it gets SEND_OK, and notes that in a ledger. No message of"
            " this ledger may ever be missing.",
        )
        await self._calm()
        self.screen.tell(f"{many(len(self.ledger.acknowledged), 'message')} acknowledged", "✓")
        await self._kill(first)
        winner = await self._fail_over(second, third)
        await self._calm()
        await self._return(first)
        await self._calm()
        await self._switch_back(first, winner)
        await self._calm()
        await self._kill_all(first, (second, third))
        winner = await self._fail_over(second, third)
        await self._return_with_a_tail(first)
        await self._leave_alone(winner)

    async def _calm(self) -> None:
        await trio.sleep(max(CALM_SECONDS, self.seconds / STRETCHES - 1))

    async def _kill(self, master: BrokerPlan) -> None:
        self.screen.chapter(
            f"The master is killed: {master.name}",
            "kill -9 under traffic, without a clean shutdown. Every message that it acknowledged is also on a slave.",
        )
        self._killed_at = trio.current_time()
        number = await self.cluster.kill(master)
        self.screen.tell(f"kill -9 {number} ({master.name}): no member accepts messages now", "✗")

    async def _kill_all(self, master: BrokerPlan, slaves: tuple[BrokerPlan, ...]) -> None:
        self.screen.chapter(
            "The worst case: all three die, and the master has messages that no slave has",
            "Both slaves are killed first. The master still stores messages, but acknowledges none with SEND_OK, because no"
            " slave has them. Then it is killed, too, and only the slaves come back.",
        )
        self._killed_at = trio.current_time()
        for slave in slaves:
            await self.cluster.kill(slave)
        self.screen.tell(f"kill -9 of {' and '.join(slave.name for slave in slaves)}", "✗")
        await trio.sleep(ALONE_SECONDS)
        await self.cluster.kill(master)
        self.screen.tell(f"kill -9 of {master.name}, after {ALONE_SECONDS:g} s alone", "✗")
        for slave in slaves:
            self.cluster.start(slave)
        await self._until({slave.name for slave in slaves}, lambda state: state not in ("starting", "unreachable"))
        self.screen.tell(f"{' and '.join(slave.name for slave in slaves)} are back, without a master")

    async def _until(self, names: set[str], is_so: Callable[[str], bool]) -> None:
        """Wait until `is_so` holds for the state of all of these. Raises CliError."""
        states: dict[str, str] = {}
        with trio.move_on_after(READY_SECONDS_MAX):
            while True:
                members = (await ask(self.plan, self.admin)).members
                states = {each.name: each.state for each in members if each.name in names}
                if len(states) == len(names) and all(map(is_so, states.values())):
                    return
                await trio.sleep(POLL_SECONDS)
        found = ", ".join(f"{name} is {state}" for name, state in states.items())
        raise CliError("The demonstration makes no progress.", f"After {READY_SECONDS_MAX:g} s {found}.")

    async def _fail_over(self, *candidates: BrokerPlan) -> BrokerPlan:
        self.screen.chapter(
            "Failover: which slave has everything?",
            "Two of three members must vote for the new epoch: one of them has each message that was ever acknowledged."
            " The command for it is: twinlog failover --candidate MEMBER. It refuses if an acknowledged message could be lost.",
        )
        refusal: RoleRefusedError | None = None
        for candidate in candidates:
            began = trio.current_time()
            order = RoleOrder(
                verb="failover", member=candidate.name, group=candidate.group, reason="demo: master killed"
            )
            try:
                prepared = await self.admin.roles.prepare(order)
                self.screen.tell(f"{candidate.name}: {verdict(prepared.state)}")
                result = await self.admin.roles.carry_out(prepared, lambda _state: None)
            except RoleRefusedError as error:  # The other one has more.
                self.screen.tell(f"{candidate.name} is refused: {error.lines[0]}")
                refusal = error
                continue
            self.screen.tell(taken_over(candidate.name, result, trio.current_time() - began), "✓")
            await self._report_pause(self._killed_at)
            return candidate
        assert refusal is not None
        raise refusal

    async def _report_pause(self, since: float) -> None:
        """Report how long producers waited for an acknowledgement, once they have one again."""
        count = len(self.ledger.acknowledged)
        with trio.fail_after(30):
            while len(self.ledger.acknowledged) < count + 5:  # noqa: ASYNC110  # The ledger is a plain value.
                await trio.sleep(0.01)
        pause = self.ledger.longest_pause(since, trio.current_time())
        self.screen.tell(f"producers waited for {latency(pause)}, from one SEND_OK to the next", "✓")

    async def _return(self, old: BrokerPlan) -> None:
        self.screen.chapter(
            f"{old.name} comes back",
            "It asks for the newest epoch before it serves, learns that another member is the master now, and follows it.",
        )
        await self._start_again(old)

    async def _return_with_a_tail(self, old: BrokerPlan) -> None:
        self.screen.chapter(
            f"{old.name} comes back with a tail that was never acknowledged",
            "It finds the last byte that its log has in common with the new master's, truncates its log there, keeps the cut"
            " bytes for inspection, and follows.",
        )
        await self._start_again(old)

    async def _start_again(self, old: BrokerPlan) -> None:
        before = self.cluster.kept(old)
        self.cluster.start(old)
        await self._until({old.name}, lambda state: state in FINE)
        self.screen.tell(rewound(old.name, [each for each in self.cluster.kept(old) if each not in before]), "✓")

    async def _switch_back(self, old: BrokerPlan, winner: BrokerPlan) -> None:
        self.screen.chapter(
            f"Switchover: {old.name} is the master again",
            f"Both run, so nothing is at risk: {winner.name} holds new messages back for a moment, the logs are proven equal by"
            " digest, the roles change, and the held messages are forwarded. The command for it is: twinlog switchover.",
        )
        began = trio.current_time()
        order = RoleOrder(verb="switchover", member=old.name, group=old.group, reason="demo: back to where it was")
        prepared = await self.admin.roles.prepare(order)
        result = await self.admin.roles.carry_out(prepared, lambda _state: None)
        self.screen.tell(taken_over(old.name, result, trio.current_time() - began), "✓")
        if result.pause_ms is not None:
            self.screen.tell(f"write pause {result.pause_ms:.0f} ms", "✓")
        await self._report_pause(began)

    async def _leave_alone(self, master: BrokerPlan) -> None:
        self.screen.chapter(
            f"Nobody is there: {master.name} freezes, and the group elects by itself",
            "From here on nobody types a failover: twinlog auto-failover members. The master stands still (SIGSTOP); its"
            " connections stay open. After 5 s of silence the others ask each other whether one of them hears it, and the one"
            " that has everything asks for the votes.",
        )
        await self.admin.roles.set_auto_failover(master.group, "members")
        await self._until_all_know(master.group, "members")
        frozen_at = trio.current_time()
        number = self.cluster.freeze(master)
        self.screen.tell(f"kill -STOP {number} ({master.name}): nobody does anything about it", "✗")
        await trio.sleep(ECHO_SECONDS)
        await self._report_pause(frozen_at)
        self.cluster.thaw(master)
        await self._until({master.name}, lambda state: state == "streaming")
        last = (await self.admin.roles.history(master.group)).reigns[-1]
        self.screen.tell(f"{last.new} is the master in epoch {last.epoch}: {last.reason}", "✓")
        self.screen.tell(f"{master.name} goes on (kill -CONT), learns of it, and follows as a slave", "✓")

    async def _until_all_know(self, group: str, mode: AutoFailover) -> None:
        """Until the record of each member says who begins a failover: before that nobody does."""
        modes: dict[str, AutoFailover] = {}
        with trio.move_on_after(READY_SECONDS_MAX):
            while len(modes) < len(self.plan.brokers) or {*modes.values()} != {mode}:
                await trio.sleep(POLL_SECONDS)
                modes = {**(await self.admin.roles.auto_failover(group)).members}
            return
        raise CliError("The demonstration makes no progress.", f"After {READY_SECONDS_MAX:g} s records say {modes}.")

    async def _account(self, client: Client) -> bool:
        self.screen.chapter(
            "The account: is every acknowledged message there?",
            "A consumer reads the whole topic and compares it with the ledger; then the three logs are compared by digest.",
        )
        await self._until({broker.name for broker in self.plan.brokers}, lambda state: state in FINE)
        account = self.ledger.account(await numbers_found(client))
        for line, is_good in account_lines(account):
            self.screen.tell(line, "✓" if is_good else "✗")
        first, *others = [broker.name for broker in self.plan.brokers]
        reports = [await self.admin.live_diff(first, other) for other in others]
        line, is_equal = compared(reports)
        self.screen.tell(line, "✓" if is_equal else "✗")
        return account.is_good and is_equal

    # ---- Meanwhile

    async def _watch(self) -> None:
        """Keep the picture up to date."""
        began = trio.current_time()
        async with open_admin((self.plan.namesrv.address,), timeout_ms=500) as admin:
            members = await ask(self.plan, admin)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(self._draw, lambda: members, began))
                while True:
                    await trio.sleep(2 * STEP_SECONDS)
                    members = await ask(self.plan, admin)

    async def _draw(self, members: Callable[[], MemberList], began: float) -> None:
        while True:
            self.screen.draw(picture_of(members(), self._traffic_line(began), self.where))
            await trio.sleep(STEP_SECONDS)

    def _traffic_line(self, began: float) -> str:
        steps = int((trio.current_time() - began) / STEP_SECONDS)
        shown = min(steps, 60)
        counts = self.ledger.counts(began + (steps - shown) * STEP_SECONDS, STEP_SECONDS, shown)
        return f"SEND_OK {number(len(self.ledger.acknowledged)):>7}  {bars(counts)}"
