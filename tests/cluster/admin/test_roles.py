"""What is asked of members for a role change, in which order, and what becomes of their answers. Members are fakes."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
import trio
from attrs import asdict, define, evolve, field

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.repair import RepairAdmin
from twinlog.cluster.admin.roles import (
    ChangeOutcome,
    RoleAdmin,
    RoleChoiceError,
    RoleError,
    RoleOrder,
    RoleRefusedError,
    RoleTimeoutError,
    unsettled,
)
from twinlog.cluster.broker.peers.role_messages import NOT_ALLOWED, ChangeResult, ChangeState, StepState, history_body
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.observe.members import NoMemberError
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.cluster.remoting.member_auth import NOT_PROVEN
from twinlog.ha.election.votes import Judgement, LostRange
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord
from twinlog.store.util.plain import to_plain

NAMESRV = "10.0.0.9:9876"
A, B, C, X = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.4:10911"
MAY = Judgement(candidate=B, may=True)
STEPS = (StepState(number=1, name="check", text="ask everybody", state="done"),)
READY = ChangeState(running=False, steps=STEPS, judgements=(MAY,))
RESULT = ChangeResult(epoch=4, winner=B, start_offset=900, pause_ms=41.0, lost_bytes=0, kept=(), not_following=())
OUTCOME = ChangeOutcome(**asdict(RESULT))
OFF = RemotingConnectError(A, "refused")


@define
class FakeMembers:
    """Who listens where, as RemotingClient sees them. `answers`: by address and op, one after the other; the last one stays."""

    statuses: dict[str, dict[str, Any] | None]
    answers: dict[tuple[str, str], list[Any]] = field(factory=dict)
    groups: dict[str, str] = field(factory=lambda: {A: "broker-a", B: "broker-a", C: "broker-a"})
    asked: list[tuple[str, dict[str, Any]]] = field(factory=list)
    epochs: dict[str, tuple[EpochEntry, ...]] = field(factory=dict)

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: int = 3000) -> RemotingCommand:
        await trio.sleep(0.01)
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return self._reply(command, self._cluster())
        status = self.statuses[address]
        if status is None:
            raise RemotingConnectError(address, "refused")
        if command.code == RequestCode.TWINLOG_MEMBER_STATUS:
            return self._reply(command, status)
        if command.code == RequestCode.GET_BROKER_EPOCH and address in self.epochs:
            history = PeerHistory(
                id=self.epochs[address][-1].id,
                address=address,
                ha_address="",
                role=BrokerRole.SLAVE,
                entries=self.epochs[address],
                promised=EpochId(0, ""),
                group=None,
                whole=True,
                boot_ms=1,
                min_offset=0,
                max_offset=status["maxOffset"],
            )
            body = history_body(history, cluster="C", name="broker-a", broker_id=0, more={})
            return RemotingCommand.response_to(command, ResponseCode.SUCCESS, body=body)
        if command.code != RequestCode.TWINLOG_ROLE_CHANGE:
            return RemotingCommand.response_to(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="no")
        body = orjson.loads(command.body)
        self.asked.append((address, body))
        answers = self.answers.get((address, body["op"]), [{}])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            return RemotingCommand.response_to(command, answer[0], remark=answer[1])
        return self._reply(command, to_plain(answer))

    def _reply(self, command: RemotingCommand, body: Mapping[str, Any]) -> RemotingCommand:
        return RemotingCommand.response_to(command, ResponseCode.SUCCESS, body=orjson.dumps(body))

    def _cluster(self) -> dict[str, Any]:
        table: dict[str, dict[str, Any]] = {}
        for number, (address, name) in enumerate(self.groups.items()):
            entry = table.setdefault(name, {"cluster": "C", "brokerName": name, "brokerAddrs": {}})
            entry["brokerAddrs"][str(number)] = address
        return {"brokerAddrTable": table, "clusterAddrTable": {"C": list(table)}}

    def ops(self) -> list[tuple[str, str]]:
        return [(address, body["op"]) for address, body in self.asked]


def status_of(number: int, **more) -> dict[str, Any]:
    return {
        "name": f"broker-a-{number}",
        "role": "SLAVE" if number else "SYNC_MASTER",
        "state": "streaming" if number else "serving",
        "epoch": {"epoch": 3},
        "maxOffset": 900,
        **more,
    }


@pytest.fixture
def members() -> FakeMembers:
    return FakeMembers(
        {A: status_of(0), B: status_of(1), C: status_of(2)}, {(B, "check"): [READY], (C, "check"): [READY]}
    )


def api(members: FakeMembers) -> ClientApi:
    return ClientApi(members, (NAMESRV,))


def roles(members: FakeMembers) -> RoleAdmin:
    return RoleAdmin(api(members))


def repairs(members: FakeMembers) -> RepairAdmin:
    return RepairAdmin(api(members))


def refused(rule: str, candidate: str = B, **more) -> ChangeState:
    judgement = Judgement(candidate, False, rule, "2 of 3 members", "1", "start 10.0.0.3:10911", **more)
    return ChangeState(running=False, judgements=(judgement,), refused=True, error="")


async def test_the_candidate_is_asked_and_begins(members, autojump_clock):
    """What it is asked is what the person wants, under the address that the name gives."""
    members.answers[B, "start"] = [evolve(READY, running=True)]
    members.answers[B, "state"] = [evolve(READY, running=True), evolve(READY, result=RESULT)]
    order = RoleOrder(verb="switchover", member="broker-a-1", reason="new disk", timeout_seconds=5)
    prepared = await roles(members).prepare(order)
    assert members.asked == [
        (B, {"op": "check", **to_plain(evolve(prepared.ask, dry_run=True))}),
    ]
    assert (prepared.ask.candidate, prepared.ask.reason, prepared.ask.timeout_ms) == (B, "new disk", 5000)
    told: list[ChangeState] = []
    outcome = await roles(members).carry_out(prepared, told.append)
    assert outcome == OUTCOME
    assert members.ops()[1:] == [(B, "start"), (B, "state"), (B, "state")]
    assert [state.running for state in told] == [True, False], "each change once"


async def test_who_was_unreachable_before_is_absent_and_others_are_late(members, autojump_clock):
    """A dead master is no half-done failover; a member that answered, and does not follow, is."""
    members.statuses[A] = None
    members.answers[B, "check"] = [READY]
    members.answers[B, "start"] = [evolve(READY, result=evolve(RESULT, not_following=(A, C)))]
    prepared = await roles(members).prepare(RoleOrder(verb="failover", member=B))
    outcome = await roles(members).carry_out(prepared, lambda _: None)
    assert (outcome.not_following, outcome.absent, outcome.late) == ((A, C), (A,), (C,))


async def test_without_a_candidate_the_first_that_may(members, autojump_clock):
    """The one in an older epoch comes last, whatever its id."""
    members.statuses[B] = status_of(1, epoch={"epoch": 2})
    prepared = await roles(members).prepare(RoleOrder(verb="switchover"))
    assert prepared.candidate.name == "broker-a-2"
    members.answers[C, "check"] = [refused("has caught up", C)]
    assert (await roles(members).prepare(RoleOrder(verb="switchover"))).candidate.name == "broker-a-1"


async def test_each_candidate_that_may_not_be_chosen_has_its_line(members, autojump_clock):
    members.answers[B, "check"] = [refused("enough votes", lost=LostRange(100, 900, (C,)))]
    members.answers[C, "check"] = [refused("has caught up", C)]
    with pytest.raises(RoleRefusedError) as raised:
        await roles(members).prepare(RoleOrder(verb="switchover"))
    why = "needed 2 of 3 members; actual 1; fix: start broker-a-2"
    assert raised.value.lines == (
        f"broker-a-1: may not be chosen: enough votes; {why}",
        "bytes 100 to 900 on broker-a-2 would be given up; they are kept in twinlog/divergent on each of them",
        "to go on all the same, and give them up: --accept-data-loss 800",
        f"broker-a-2: may not be chosen: has caught up; {why}",
    )
    assert not [op for _, op in members.ops() if op != "check"]


async def test_what_may_be_lost_can_be_unknown(members, autojump_clock):
    members.answers[B, "check"] = [refused("enough votes", lost=LostRange(100, None, (A,)))]
    with pytest.raises(RoleRefusedError, match="bytes from 100 on, nobody knows how many, on broker-a-0") as raised:
        await roles(members).prepare(RoleOrder(verb="failover", member=B))
    assert raised.value.lines[-1].endswith("--accept-data-loss unknown")


async def test_refused_after_the_promises(members, autojump_clock):
    """The check was fine, what was really answered was not."""
    members.answers[B, "start"] = [evolve(READY, running=True)]
    members.answers[B, "state"] = [refused("enough votes")]
    prepared = await roles(members).prepare(RoleOrder(verb="failover", member=B))
    with pytest.raises(RoleRefusedError, match="enough votes"):
        await roles(members).carry_out(prepared, lambda _: None)


async def test_a_refusal_that_no_judgement_explains(members, autojump_clock):
    """What it says besides its judgement is told, too, and once."""
    members.answers[B, "check"] = [ChangeState(running=False, refused=True, error="role changes are paused (fire)")]
    with pytest.raises(RoleRefusedError) as raised:
        await roles(members).prepare(RoleOrder(verb="switchover", member=B))
    assert raised.value.lines == ("broker-a-1: role changes are paused (fire)",)
    judged = refused("has caught up")
    line = "broker-a-1: may not be chosen: has caught up; needed 2 of 3 members; actual 1; fix: start broker-a-2"
    promised = f"{B} has promised epoch 5: run this again"
    raw = f"{B}: may not be chosen: has caught up; needed 2 of 3 members; actual 1; fix: start {C}"
    members.answers[B, "check"] = [evolve(judged, error=f"{raw}; {promised}")]
    with pytest.raises(RoleRefusedError) as raised:
        await roles(members).prepare(RoleOrder(verb="switchover", member=B))
    assert raised.value.lines == (line, "broker-a-1 has promised epoch 5: run this again")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([evolve(READY, error="the master let go")], "the master let go"),
        ([ChangeState(running=False)], "it was interrupted"),
        ([OFF], "does not answer any more"),
    ],
)
async def test_not_finished(members, autojump_clock, answers, words):
    """A candidate that started again has forgotten what it did; the same command again finishes it."""
    members.answers[B, "start"] = [evolve(READY, running=True)]
    members.answers[B, "state"] = answers
    prepared = await roles(members).prepare(RoleOrder(verb="switchover", member=B))
    with pytest.raises(RoleError, match=words) as raised:
        await roles(members).carry_out(prepared, lambda _: None)
    assert "same command again" in raised.value.lines[-1]
    assert not isinstance(raised.value, (RoleRefusedError, RoleTimeoutError))


async def test_silence_for_a_moment_is_nothing(members, autojump_clock):
    members.answers[B, "start"] = [evolve(READY, running=True)]
    members.answers[B, "state"] = [OFF, OFF, evolve(READY, result=RESULT)]
    prepared = await roles(members).prepare(RoleOrder(verb="switchover", member=B))
    assert await roles(members).carry_out(prepared, lambda _: None) == OUTCOME


async def test_not_within_the_time(members, autojump_clock):
    """It says where it is, and that it goes on."""
    doing = StepState(number=3, name="level", text="have all bytes", state="doing")
    running = ChangeState(running=True, steps=(*STEPS, doing))
    members.answers[B, "start"] = members.answers[B, "state"] = [running]
    prepared = await roles(members).prepare(RoleOrder(verb="switchover", member=B, timeout_seconds=7))
    began = trio.current_time()
    with pytest.raises(RoleTimeoutError, match="step 3, have all bytes"):
        await roles(members).carry_out(prepared, lambda _: None)
    assert 7 <= trio.current_time() - began < 8


async def test_who_may_not_ask(members, autojump_clock):
    members.answers[B, "check"] = [(ResponseCode.NO_PERMISSION, f"10.9.9.9:1 {NOT_ALLOWED}")]
    with pytest.raises(RoleRefusedError, match=r"broker-a-1 takes no role changes from here: .*\nRun the command on"):
        await roles(members).prepare(RoleOrder(verb="switchover", member=B))


async def test_who_has_not_the_groups_secret_is_told_how_to_give_it(members, autojump_clock):
    members.answers[B, "check"] = [(ResponseCode.NO_PERMISSION, f"10.9.9.9:1 {NOT_PROVEN}: the request is not signed")]
    with pytest.raises(
        RoleRefusedError, match=r"broker-a-1 takes no role changes from here: .* secret\n.*--secret-file"
    ):
        await roles(members).prepare(RoleOrder(verb="switchover", member=B))


async def test_a_refusal_names_members_and_speaks_of_nothing_else(members, autojump_clock):
    members.answers[B, "reinit"] = [(ResponseCode.NO_PERMISSION, f"only a slave can reinit: {B} is serving")]
    with pytest.raises(RoleRefusedError) as refusal:
        await repairs(members).prepare_reinit(B)
    assert refusal.value.lines == ("only a slave can reinit: broker-a-1 is serving",)


async def test_the_masters_own_log_is_not_cut(members, autojump_clock):
    with pytest.raises(RoleRefusedError, match="broker-a-0 is the master"):
        await repairs(members).prepare_rewind(A, None)


async def test_whom_nobody_can_choose(members, autojump_clock):
    members.statuses[C] = None
    with pytest.raises(RoleRefusedError, match="broker-a-2 may not be chosen"):
        await roles(members).prepare(RoleOrder(verb="failover", member=C))
    with pytest.raises(NoMemberError):
        await roles(members).prepare(RoleOrder(verb="failover", member="broker-x"))
    members.statuses[B] = None
    with pytest.raises(RoleRefusedError, match="no slave that could"):
        await roles(members).prepare(RoleOrder(verb="switchover"))


async def test_one_of_several_groups(members, autojump_clock):
    members.groups[X] = "broker-b"
    members.statuses[X] = status_of(0, name="broker-b-0")
    with pytest.raises(RoleChoiceError, match="broker-a, broker-b"):
        await roles(members).prepare(RoleOrder(verb="switchover"))
    with pytest.raises(RoleChoiceError, match="no group broker-c"):
        await roles(members).prepare(RoleOrder(verb="switchover", group="broker-c"))
    assert (await roles(members).prepare(RoleOrder(verb="switchover", group="broker-a"))).group.name == "broker-a"
    assert (await roles(members).prepare(RoleOrder(verb="switchover", member=B))).group.name == "broker-a"


async def test_a_pause_is_the_masters(members, autojump_clock):
    await roles(members).pause(None, for_seconds=90, reason="new switches")
    await roles(members).resume("broker-a")
    await roles(members).schedule(RoleOrder(verb="switchover", member="broker-a-2", reason="night"), 1234)
    assert members.asked == [
        (A, {"op": "pause", "forMs": 90_000, "reason": "new switches"}),
        (A, {"op": "resume"}),
        (A, {"op": "schedule", "atMs": 1234, "candidate": C, "reason": "night"}),
    ]
    members.statuses[A] = status_of(0, roleState="fenced")
    with pytest.raises(RoleRefusedError, match="no master"):
        await roles(members).pause(None, for_seconds=None, reason="")


# Repair


LOST_HERE = EpochEntry(epoch=3, winner=A, start_offset=100)
WON_THERE = EpochEntry(epoch=4, winner=A, start_offset=700, kind="failover")


def follows(**more) -> dict[str, Any]:
    return status_of(1, **{"whole": True, "master": {"address": A}, **more})


async def test_a_rewind_tells_what_it_cuts_and_what_it_kept(members, autojump_clock):
    """By both histories; of what is kept only what came to it now."""
    old = {"path": "/d/100-50", "first": 100, "size": 50, "why": "old", "whenMs": 1}
    new = {"path": "/d/700-200", "first": 700, "size": 200, "why": "given up in epoch 4", "whenMs": 2}
    members.statuses[B] = follows(divergent=[old])
    members.epochs = {A: (FIRST, LOST_HERE, WON_THERE), B: (FIRST, LOST_HERE)}
    prepared = await repairs(members).prepare_rewind("broker-a-1", None)
    assert (prepared.plan.first_offset, prepared.plan.end_offset) == (700, 900)
    assert prepared.plan.why == "given up in epoch 4, when broker-a-0 became master"
    assert members.asked == [(B, {"op": "rewind", "acceptDataLoss": None, "dryRun": True})]
    members.statuses[B] = follows(divergent=[old, new])
    result = await repairs(members).carry_out(prepared, timeout_seconds=5)
    assert [(kept.path, kept.size) for kept in result.kept] == [("/d/700-200", 200)]
    assert members.asked[1:] == [(B, {"op": "rewind", "acceptDataLoss": None, "dryRun": False})]


async def test_what_is_not_proven_is_not_cut(members, autojump_clock):
    """The member says how much somebody would have to accept."""
    members.statuses[A] = status_of(0, maxOffset=800)
    members.epochs = {A: (FIRST, LOST_HERE), B: (FIRST, LOST_HERE)}
    members.answers[B, "rewind"] = [
        (ResponseCode.SYSTEM_ERROR, "bytes 800 to 900 ...\nrun it with --accept-data-loss 100")
    ]
    with pytest.raises(RoleRefusedError) as raised:
        await repairs(members).prepare_rewind(B, 50)
    assert raised.value.lines == ("bytes 800 to 900 ...", "run it with --accept-data-loss 100")
    assert members.asked[0][1]["acceptDataLoss"] == 50


async def test_a_finding_says_where_to_cut_when_histories_do_not(members, autojump_clock):
    finding = {"kind": "diverged", "offset": 500, "text": "other bytes from 500 on"}
    members.statuses[B] = follows(master={"address": A, "finding": finding})
    members.epochs = {A: (FIRST,), B: (FIRST,)}
    plan = (await repairs(members).prepare_rewind(B, 400)).plan
    assert (plan.first_offset, plan.why) == (500, "other bytes from 500 on")


async def test_a_log_that_fits_is_waited_for_and_not_cut(members, autojump_clock):
    """It may have been cut by itself meanwhile, or by the same command before."""
    members.statuses[B] = follows()
    members.epochs = {A: (FIRST, LOST_HERE), B: (FIRST, LOST_HERE)}
    prepared = await repairs(members).prepare_rewind(B, None)
    assert prepared.plan.first_offset is None
    assert (await repairs(members).carry_out(prepared, timeout_seconds=5)).kept == ()
    assert members.asked == []


async def test_nobody_to_rewind_to(members, autojump_clock):
    members.epochs = {B: (FIRST,)}
    with pytest.raises(RoleError, match="broker-a-0 does not report"):
        await repairs(members).prepare_rewind(B, None)
    members.statuses[A] = None
    members.groups = {X: "broker-a", B: "broker-a"}
    members.statuses[X] = status_of(0, roleState="fenced")
    with pytest.raises(RoleRefusedError, match="no master"):
        await repairs(members).prepare_rewind(B, None)


async def test_a_reinit_shows_how_far_it_is(members, autojump_clock):
    prepared = await repairs(members).prepare_reinit(B)
    members.statuses[A] = status_of(0, maxOffset=10 << 20)
    members.statuses[B] = follows(maxOffset=0, whole=False)
    shown: list[tuple[int, int]] = []

    def grow(done: int, total: int) -> None:
        shown.append((done, total))
        at = done + (4 << 20)
        members.statuses[B] = follows(maxOffset=at, whole=at >= 10 << 20)

    result = await repairs(members).carry_out(prepared, timeout_seconds=5, progress=grow)
    assert [done >> 20 for done, _ in shown] == [0, 4, 8, 10]
    assert result.written_offset >= 10 << 20
    assert [body["dryRun"] for _, body in members.asked] == [True, False]


async def test_a_reinit_again_only_watches(members, autojump_clock):
    """While the log is being filled: to begin once more would help nobody."""
    members.statuses[B] = follows(whole=False)
    prepared = await repairs(members).prepare_reinit(B)
    members.statuses[B] = follows()
    await repairs(members).carry_out(prepared, timeout_seconds=5)
    assert members.asked == []


async def test_a_repair_that_takes_longer_goes_on(members, autojump_clock):
    prepared = await repairs(members).prepare_reinit(B)
    members.statuses[B] = follows(whole=False, roleState="waiting", roleWhy="broker-a-2 has not told its history")
    with pytest.raises(RoleTimeoutError, match="has not told its history"):
        await repairs(members).carry_out(prepared, timeout_seconds=3)


async def test_a_member_that_goes_away_while_it_is_repaired(members, autojump_clock):
    prepared = await repairs(members).prepare_reinit(B)
    members.statuses[B] = follows()
    members.statuses[A] = None
    with pytest.raises(RoleError, match="does not answer any more"):
        await repairs(members).carry_out(prepared, timeout_seconds=60)


# History


async def test_the_history_of_whoever_was_in_the_newest_epoch(members, autojump_clock):
    entry = EpochEntry(
        epoch=4, winner=B, start_offset=900, at_ms=5, kind="forced", reason="fire", old=A, lost_bytes=None
    )
    members.epochs = {A: (FIRST,), B: (FIRST, entry)}
    found = await roles(members).history(None)
    assert (found.group, found.told_by) == ("broker-a", "broker-a-1")
    first, last = found.reigns
    assert (first.epoch, first.new, first.kind) == (0, "", "first")
    assert (last.old, last.new, last.kind, last.reason, last.lost_bytes) == (
        "broker-a-0",
        "broker-a-1",
        "forced",
        "fire",
        None,
    )


async def test_a_master_that_is_no_member_any_more_has_its_name_and_address_of_that_time(members, autojump_clock):
    gone = EpochEntry(epoch=3, winner="m9", winner_label="broker-a-9 (10.0.0.9:10911)", start_offset=100)
    here = EpochEntry(epoch=4, winner=B, winner_label=f"old name ({B})", start_offset=900, old="m9")
    unknown = EpochEntry(epoch=5, winner="m8", start_offset=900, old=B)
    members.epochs = {A: (FIRST,), B: (FIRST, gone, here, unknown)}
    _, *found = (await roles(members).history(None)).reigns
    assert [(each.old, each.new) for each in found] == [
        ("", "broker-a-9 (10.0.0.9:10911)"),
        ("broker-a-9 (10.0.0.9:10911)", "broker-a-1"),
        ("broker-a-1", "m8"),
    ]
    assert [(each.winner, each.winner_label) for each in found] == [
        ("m9", "broker-a-9 (10.0.0.9:10911)"),
        (B, f"old name ({B})"),
        ("m8", ""),
    ]


async def test_nobody_tells_a_history(members, autojump_clock):
    with pytest.raises(RoleError, match="No member of broker-a"):
        await roles(members).history(None)


# Who there is


async def test_members_that_nobody_registered_are_asked_by_the_groups_record(members, autojump_clock):
    """They keep the name that they had when they answered, whatever brokerId they have now."""
    kept = [(A, "broker-a-0", 1), (B, "broker-a-1", 0), (C, "broker-a-2", 2), (X, "broker-a-3", 3)]
    record = GroupRecord(
        version=3,
        members=tuple(GroupMember(address=at, ha_address="", broker_id=i, name=name) for at, name, i in kept),
        acks_needed=2,
        master_role=BrokerRole.SYNC_MASTER,
    )
    members.groups = {B: "broker-a", C: "broker-a"}
    members.statuses = {A: None, B: status_of(1, role="SYNC_MASTER", groupRecord=to_plain(record)), C: None}
    members.statuses[X] = status_of(3, roleState="fenced")
    found = await Admin(api(members)).list_members()
    assert [(each.name, each.address, each.state, each.is_registered) for each in found.members] == [
        ("broker-a-1", B, "streaming", True),
        ("broker-a-2", C, "unreachable", True),
        ("broker-a-0", A, "unreachable", False),
        ("broker-a-3", X, "fenced", False),
    ]


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"loss_free_from": None}, ["broker-a-1 has a record of its group that is not in force"]),
        (
            {"before": GroupRecord(version=0, members=(), acks_needed=2, master_role=BrokerRole.SYNC_MASTER)},
            ["broker-a-1 has a record of its group that is not in force"],
        ),
        ({"members": ()}, ["broker-a-1 does not count broker-a-0, broker-a-1, broker-a-2 as a member"]),
        (None, ["broker-a-1 has no record of its group"]),
    ],
)
async def test_a_group_is_settled_once_each_record_names_all_and_is_in_force(members, changes, reasons):
    record = GroupRecord(
        version=1,
        members=tuple(GroupMember(address=at, ha_address="", broker_id=i, name="") for i, at in enumerate((A, B, C))),
        acks_needed=2,
        master_role=BrokerRole.SYNC_MASTER,
        loss_free_from=0,
    )
    for number, address in enumerate((A, B, C)):
        members.statuses[address] = status_of(number, groupRecord=to_plain(record))
    other = evolve(record, **changes) if changes is not None else None
    members.statuses[B] = status_of(1, groupRecord=to_plain(other) if other is not None else None)
    assert await unsettled(api(members), "broker-a") == reasons


async def test_a_member_alone_is_settled():
    """Nobody could take over from it, so it needs no record."""
    alone = FakeMembers({A: status_of(0, groupRecord=None)}, groups={A: "broker-a"})
    assert await unsettled(api(alone), "broker-a") == []
