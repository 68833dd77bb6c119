"""What a member tells of its role: its part of the member status. A member whose role never changes tells none of it."""

import math
from typing import TYPE_CHECKING, Any

import trio

from twinlog.store.util.plain import to_plain

if TYPE_CHECKING:
    from twinlog.cluster.broker.roles.service import RoleService
    from twinlog.cluster.broker.wiring import BrokerParts


def plain(broker: "BrokerParts") -> dict[str, Any]:
    """Its part of the member status."""
    roles = broker.roles
    shown: dict[str, Any] = {"visibility": broker.config.visibility.value}
    if roles.role_state() is None and roles.strangers_record is None:
        return shown
    phase, why = roles.words()
    state, last = roles.role_state(), roles.epochs()[-1]
    return {
        **shown,
        "epoch": {"epoch": last.epoch, "winner": last.winner, "startOffset": last.start_offset},
        "promised": to_plain(roles.promised()),
        "roleState": "forwarding" if broker.gate.state == "forwarding" and phase == "following" else phase,
        "roleWhy": why or None,
        "lease": _lease(broker) if roles.is_serving else None,
        "silent": {at: round(seconds, 1) for at, seconds in roles.leases.silence.silent(trio.current_time()).items()},
        "groupRecord": to_plain(state.group) if state is not None and state.group is not None else None,
        "whole": state is None or state.whole,
        "roleChange": _change(roles),
        "lastPauseMs": roles.last_pause_ms,
        "scheduled": to_plain(state.scheduled) if state is not None and state.scheduled is not None else None,
        "paused": roles.paused() or None,
    }


def _lease(broker: "BrokerParts") -> dict[str, Any]:
    lease, now = broker.ha.lease, trio.current_time()
    left = lease.remaining(now)
    return {
        "held": lease.held(now),
        "remainingMs": round(left * 1000) if left < math.inf else None,
        "why": None if lease.held(now) else lease.why,
    }


def _change(roles: "RoleService") -> dict[str, Any] | None:
    change = roles.state()
    return to_plain(change) if change.steps or change.error else None
