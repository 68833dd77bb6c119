"""Whether a member is what a load balancer looks for. Pure: what it and its master say of it in, yes or why not out."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve, frozen

from twinlog.cluster.observe.members import Member, is_master, member_of_status, slave_connection

Mode = Literal["written", "flushed"]
STREAMING = ("streaming", "catching up")


@frozen(kw_only=True)
class Node:
    """One process as a probe sees it. `ok`: what was asked holds; else `why` says in words why not.

    `lag_bytes`: what its master has and it has not; null where nobody was asked or could tell.
    """

    kind: Literal["broker", "namesrv"]
    ok: bool
    why: str | None
    name: str
    role: str
    state: str
    cluster: str | None = None
    group: str | None = None
    broker_id: int | None = None
    address: str | None = None
    epoch: int | None = None
    written_offset: int | None = None
    flushed_offset: int | None = None
    confirmed_offset: int | None = None
    lag_bytes: int | None = None


def node_of(kind: Literal["broker", "namesrv"], said: Mapping[str, Any]) -> Node:
    """By its own words, in those of `twinlog list`."""
    if kind == "namesrv":
        return Node(kind=kind, ok=True, why=None, name=said["name"], role="namesrv", state=said["state"])
    member = member_of(said)
    return Node(
        kind=kind,
        ok=True,
        why=None,
        name=member.name,
        role=member.role,
        state=member.state,
        cluster=member.cluster,
        group=member.group,
        broker_id=member.broker_id,
        address=member.address,
        epoch=member.epoch,
        written_offset=member.written_offset,
        flushed_offset=member.flushed_offset,
        confirmed_offset=member.confirmed_offset,
    )


def member_of(said: Mapping[str, Any]) -> Member:
    """A broker by its own status."""
    plain = Member(
        name=f"{said['group']}-{said['brokerId']}",
        cluster=said["cluster"],
        group=said["group"],
        broker_id=said["brokerId"],
        address=said["address"],
        role="",
        state="",
    )
    return member_of_status(plain, said)


def not_serving(node: Node, said: Mapping[str, Any]) -> str | None:
    """Why it is no serving master (or name server); None: it is one."""
    if node.kind == "namesrv":
        return None
    member = member_of(said)
    if not is_master(member):
        return f"its role is {node.role}, and it is {node.state}"
    return None if member.state in ("serving", "holding") else f"it is {member.state}{_because(member)}"


def not_following(node: Node, said: Mapping[str, Any]) -> str | None:
    """Why it is no slave that follows its master; None: it is one."""
    if node.role != "slave":
        return f"its role is {node.role}"
    member = member_of(said)
    return None if node.state in STREAMING else f"it is {node.state}{_because(member)}"


def lag_of(said: Mapping[str, Any], master_end: int, mode: Mode) -> int:
    """Bytes that its master's log has and its own has not, or not on its disk."""
    own = said["flushedOffset"] if mode == "flushed" else said["maxOffset"]
    return max(0, master_end - int(own or 0))


def is_counted(said: Mapping[str, Any], master: Mapping[str, Any]) -> bool:
    """Whether its acknowledgements count for producers, by its master's word."""
    found = slave_connection(member_of(said), said, master.get("slaves") or ())
    return bool(found and found.get("counted") and found.get("inSync"))


def refused(node: Node, why: str | None) -> Node:
    """The node with the answer to what was asked."""
    return evolve(node, ok=why is None, why=why)


def _because(member: Member) -> str:
    return f" ({member.reason})" if member.reason else ""
