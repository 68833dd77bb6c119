"""Witnesses, asked by a slave whose own vote alone would elect it, and answered by a master: does a name server hear the master?

    slave        20008 to every witness, and 106 beside it: RocketMQ's name servers know no more, and 4.9 refuses nothing
    name server  20008 to the broker that registered as master, on that connection
    master       whether it serves, and in which epoch

ha/election/witness.py judges the answers. Nothing is changed by a question.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import orjson
from attrs import define

from twinlog.cluster.broker.config import addresses_in
from twinlog.cluster.broker.group.registration import member_addresses
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.remoting.calls import call
from twinlog.cluster.remoting.client import OnRequest, RemotingClient, not_supported
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.headers.members import HearsMaster
from twinlog.cluster.remoting.headers.namesrv import GetBrokerClusterInfo
from twinlog.ha.election.witness import (
    MasterAnswer,
    WitnessReply,
    WitnessReport,
    judge_registered,
    judge_report,
    silent,
)
from twinlog.store.util.plain import from_plain, to_plain

ANSWER_MS_MAX = 1_000


def witnesses_of(settings: Settings) -> tuple[str, ...]:
    """The addresses of autoFailoverWitness, or else of namesrvAddr."""
    return addresses_in(settings.ha_config.auto_failover_witness) or settings.config.name_servers


@define(eq=False)
class Witnesses:
    """Asks them, for a slave."""

    settings: Settings
    client: RemotingClient

    async def ask(self) -> tuple[WitnessReply, ...]:
        """Ask all of them at once; takes ANSWER_MS_MAX at most."""
        return tuple(await in_parallel(partial(self._ask, address) for address in witnesses_of(self.settings)))

    async def _ask(self, address: str) -> WitnessReply:
        connected_ms = round(self.client.connected_seconds(address) * 1000)
        questions: tuple[Callable[[], Awaitable[WitnessReply | None]], ...] = (
            partial(self._report, address),
            partial(self._registered, address, connected_ms),
        )
        report, registered = await in_parallel(questions)
        assert registered is not None
        return report or registered

    async def _report(self, address: str) -> WitnessReply | None:
        """The reply of a name server of ours; None: it is none, or gives no answer."""
        config = self.settings.config
        header = HearsMaster(config.broker_cluster_name, config.broker_name)
        try:
            answer = await call(self.client, address, header, timeout_ms=ANSWER_MS_MAX)
            return judge_report(address, answer.json(partial(from_plain, WitnessReport)))
        except RemotingError:
            return None  # The other question says why.

    async def _registered(self, address: str, connected_ms: int) -> WitnessReply:
        try:
            answer = await call(self.client, address, GetBrokerClusterInfo(), timeout_ms=ANSWER_MS_MAX)
            members = answer.json(partial(member_addresses, self.settings.config.broker_name))
        except RemotingError as error:
            return silent(address, str(error))
        return judge_registered(address, members, self.settings.address, connected_ms)


def answer_witnesses(settings: Settings, member: Member) -> OnRequest:
    """Make the function that answers requests of name servers, on the connections that it made."""

    def answer(_address: str, request: RemotingCommand) -> RemotingCommand:
        if request.code != RequestCode.TWINLOG_WITNESS:
            return not_supported(request)
        asked = request.ext or {}
        body = orjson.dumps(to_plain(_own_answer(settings, member, asked.get("clusterName"), asked.get("brokerName"))))
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, body=body)

    return answer


def _own_answer(settings: Settings, member: Member, cluster: str | None, group: str | None) -> MasterAnswer:
    config = settings.config
    if (config.broker_cluster_name, config.broker_name) != (cluster, group):
        why = f"it is of {config.broker_name} in {config.broker_cluster_name}, not of {group} in {cluster}"
        return MasterAnswer(serves=False, why=why)
    if member.is_serving:
        return MasterAnswer(serves=True, epoch=member.id.epoch)
    return MasterAnswer(serves=False, epoch=member.id.epoch, why=member.durable.failure or member.why or member.phase)
