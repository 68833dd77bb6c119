"""Conditions of `twinlog wait`: text and facts in, missing parts out. Pure, but for watch()."""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import anyio
from attrs import frozen

from twinlog.cluster.observe.findings import Level
from twinlog.cluster.observe.gather import error_text
from twinlog.cluster.observe.members import ClusterFacts, is_master
from twinlog.cluster.observe.rules import examine
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.text import parse_size

FORMS = "healthy, level, members=N, lag<SIZE (as lag<1MB), behind<SECONDS, MEMBER=STATE (or master, slave)"


@frozen
class Condition:
    """`missing` returns sentences about what is missing; none when the condition holds."""

    text: str
    missing: Callable[[ClusterFacts], list[str]]


def parse_condition(text: str) -> Condition:
    """Read one condition. Raises ValueError that names the forms there are."""
    words = text.strip()
    if words == "healthy":
        return Condition(words, _not_healthy)
    if words == "level":
        return Condition(words, lambda facts: list(_behind(facts, 0, None)))
    if found := re.fullmatch(r"members=(\d+)", words):
        count = int(found[1])
        return Condition(words, lambda facts: _too_few(facts, count))
    if found := re.fullmatch(r"lag<(.+)", words):
        limit = parse_size(found[1])
        return Condition(words, lambda facts: list(_behind(facts, max(limit - 1, 0), None)))
    if found := re.fullmatch(r"behind<(\d+(?:\.\d+)?)s?", words):
        seconds = float(found[1])
        return Condition(words, lambda facts: list(_behind(facts, None, seconds)))
    if found := re.fullmatch(r"(?!members=)([\w.:%-]+)=([a-z ]+)", words):
        name, state = found[1], found[2]
        return Condition(words, lambda facts: _other_state(facts, name, state))
    raise ValueError(f"{text!r} is no condition: expected {FORMS}")


def _not_healthy(facts: ClusterFacts) -> list[str]:
    bad = [finding.what for finding in examine(facts) if finding.level is not Level.NOTE]
    return bad + [f"{each.member.name} is catching up" for each in facts.members if each.member.state == "catching up"]


def _behind(facts: ClusterFacts, bytes_max: int | None, seconds: float | None) -> Iterator[str]:
    for name in facts.group_names:
        if not facts.masters(name):
            yield f"{name} has no master"
    for member in (each.member for each in facts.members if each.member.role == "slave"):
        lag, behind = member.lag_bytes, member.lag_seconds
        if bytes_max is not None and (lag is None or lag > bytes_max):
            yield f"{member.name} is {'?' if lag is None else lag} bytes behind"
        elif seconds is not None and (behind is None or behind >= seconds):
            yield f"{member.name} is {'?' if behind is None else f'{behind:.1f}'} s behind"


def _too_few(facts: ClusterFacts, count: int) -> list[str]:
    there = sum(each.member.state != "unreachable" for each in facts.members)
    return [f"{there} of {count} members are there"] if there < count else []


def _other_state(facts: ClusterFacts, name: str, state: str) -> list[str]:
    found = facts.find(name)
    if found is None:
        return [f"{name} is not registered"]
    member = found.member
    role = member.role if member.role != "master" or is_master(member) else ""  # A master that may not serve has none.
    return [f"{name} is {member.state}, not {state}"] if state not in (member.state, role) else []


T = TypeVar("T")


async def watch(ask: Callable[[], Awaitable[T]], seconds: float, show: Callable[[T | str], None]) -> None:
    """Ask now and every `seconds`, without end, and show each answer; later failures are shown as text.

    Raises RemotingError when the first time fails.
    """
    show(await ask())
    while True:
        await anyio.sleep(seconds)
        try:
            show(await ask())
        except RemotingError as error:
            show(error_text(error))
