"""A member that does not fit its master: cut its log to what fits (rewind), or let it begin anew (reinit).

The member carries both out and finishes them whoever asked. What it puts aside stays in its store, in twinlog/divergent.
"""

from collections.abc import Callable
from typing import Any

import trio
from attrs import evolve, frozen

from cluster.broker.role_messages import ChangeState, ReinitAsk, RewindAsk
from cluster.client.api import ClientApi
from cluster.facts import MemberFacts
from cluster.remoting.errors import RemotingError
from cluster.role_admin import (
    POLL_SECONDS,
    SILENT_SECONDS_MAX,
    RoleError,
    RoleGroup,
    RoleRefusedError,
    RoleTimeoutError,
    call,
    choose_group,
    find_in,
    refusal_lines,
)

Progress = Callable[[int, int], None]
NEAR_BYTES = 1 << 20


@frozen(kw_only=True)
class KeptPart:
    """What was taken out of a log, and where it is now."""

    path: str
    first_offset: int
    size: int
    why: str


@frozen(kw_only=True)
class RepairResult:
    """The member follows again."""

    member: str
    written_offset: int
    kept: tuple[KeptPart, ...]


@frozen(kw_only=True)
class PreparedRepair:
    """What a member would do, and what it is asked."""

    group: RoleGroup
    facts: MemberFacts
    verb: str
    ask: RewindAsk | ReinitAsk
    state: ChangeState


async def prepare_rewind(api: ClientApi, member: str, accept_data_loss: int | None) -> PreparedRepair:
    """What would be cut from its log. Raises RoleRefusedError, also when it is not proven that the bytes may go."""
    return await _prepare(api, member, "rewind", RewindAsk(accept_data_loss=accept_data_loss, dry_run=True))


async def prepare_reinit(api: ClientApi, member: str) -> PreparedRepair:
    """What would be put aside. Raises RoleRefusedError."""
    return await _prepare(api, member, "reinit", ReinitAsk(dry_run=True))


async def _prepare(api: ClientApi, name: str, verb: str, ask: RewindAsk | ReinitAsk) -> PreparedRepair:
    group = await choose_group(api, None, name)
    facts = find_in(group, name)
    state = await call(api, facts.member.address, "rewind" if verb == "rewind" else "reinit", ask)
    if lines := refusal_lines(group, facts.member, state):
        raise RoleRefusedError(*lines)
    return PreparedRepair(group=group, facts=facts, verb=verb, ask=ask, state=state)


async def repair(
    api: ClientApi,
    prepared: PreparedRepair,
    *,
    timeout_seconds: float,
    tell: Callable[[ChangeState], None],
    progress: Progress = lambda _done, _total: None,
) -> RepairResult:
    """Begin it, or find it begun, and wait until the member is level with its master. Raises RoleError."""
    member, address = prepared.facts.member, prepared.facts.member.address
    before = {cut["path"] for cut in prepared.facts.status.get("divergent") or ()}
    ask = evolve(prepared.ask, dry_run=False)
    state = await call(api, address, "rewind" if prepared.verb == "rewind" else "reinit", ask)
    heard_at = trio.current_time()
    deadline = heard_at + timeout_seconds
    while True:
        if lines := refusal_lines(prepared.group, member, state):
            raise RoleRefusedError(*lines)
        if not state.running and state.error:
            raise RoleError(f"{member.name} could not be repaired.", state.error, "See more with: twinlog explain")
        tell(state)
        try:
            state = await call(api, address, "state")
            status = await api.member_status(address) or {}
            total = await _master_offset(api, status)
            heard_at = trio.current_time()
        except RemotingError as error:
            if trio.current_time() - heard_at > SILENT_SECONDS_MAX:
                raise RoleError(
                    f"{member.name} does not answer any more ({error}).",
                    "It goes on when it starts again. The same command again goes on watching.",
                ) from error
            continue
        written = int(status.get("maxOffset") or 0)
        if total is not None:
            progress(min(written, total), total)
        if not state.running and _is_level(status, total):
            kept = tuple(_kept(cut) for cut in status.get("divergent") or () if cut["path"] not in before)
            return RepairResult(member=member.name, written_offset=written, kept=kept)
        if trio.current_time() > deadline:
            raise RoleTimeoutError(
                f"{member.name} is not level with its master within {timeout_seconds:g} s; it goes on.",
                f"It is {status.get('roleState') or status.get('state')}: {status.get('roleWhy') or 'it follows'}.",
                "Look with: twinlog list. The same command again goes on watching.",
            )
        await trio.sleep(POLL_SECONDS)


async def _master_offset(api: ClientApi, status: dict[str, Any]) -> int | None:
    """Where its master's log ends; None: it has none yet."""
    address = (status.get("master") or {}).get("address")
    master = await api.member_status(address) if address else None
    return None if master is None else int(master["maxOffset"])


def _is_level(status: dict[str, Any], total: int | None) -> bool:
    """It follows, lacks nothing that it once acknowledged, and has come close: in traffic nobody is level for long."""
    return (
        status.get("state") == "streaming"
        and status.get("whole") is not False
        and total is not None
        and total - int(status["maxOffset"]) <= NEAR_BYTES
    )


def _kept(cut: dict[str, Any]) -> KeptPart:
    return KeptPart(path=cut["path"], first_offset=cut["first"], size=cut["size"], why=cut["why"])
