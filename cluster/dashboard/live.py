"""/live: the page's sections whenever they change, as server-sent events; each viewer gets only what it has not got yet.

series   once at the start: the samples of 15 minutes
page     {at, title, mark, sections: {id: html}, sample, marks: [[time, mark, words], ...]}
"""

from collections.abc import Mapping
from typing import Any

import orjson
import trio
from starlette.requests import Request
from starlette.responses import Response

from twinlog.cluster.dashboard.model.series import SECONDS_KEPT
from twinlog.cluster.dashboard.model.verdict import verdict_of
from twinlog.cluster.dashboard.view.page import PageState, sections
from twinlog.cluster.dashboard.watcher import Watcher, sample_now
from twinlog.cluster.http.server.errors import HttpError
from twinlog.cluster.http.server.routes import Endpoint
from twinlog.cluster.http.server.stream import EventStream, Write

HEARTBEAT_SECONDS = 10.0
RETRY_MS = 2000
VIEWERS_MAX = 64
MARKS_MAX = 40


def live_route(watcher: Watcher) -> Endpoint:
    """GET /live."""
    viewers = 0

    async def show(write: Write) -> None:
        nonlocal viewers
        viewers += 1
        try:
            with watcher.viewing():
                await write_changes(watcher, write)
        finally:
            viewers -= 1

    async def live(request: Request) -> Response:
        """The page's parts as they change, as server-sent events."""
        if viewers >= VIEWERS_MAX:
            raise HttpError(
                status=503,
                what="Too many look already.",
                why=f"{VIEWERS_MAX} may.",
                next_step="Close other tabs, or reload now and then.",
                headers={"retry-after": "10"},
            )
        return EventStream(show)

    return Endpoint("/live", live)


async def write_changes(watcher: Watcher, write: Write) -> None:
    """The stream of one viewer, until cancelled."""
    await write(b"retry: %d\n\n" % RETRY_MS)
    await write(_event("series", watcher.memory.series.columns()))
    sent: dict[str, str] = {}
    while True:
        news, state = watcher.news, watcher.state
        parts = sections(state)
        changed = {name: text for name, text in parts.items() if sent.get(name) != text}
        sent = dict(parts)
        await write(_event("page", _told(state, changed)))
        with trio.move_on_after(HEARTBEAT_SECONDS):
            await news.wait()
            continue
        await write(b": still here\n\n")


def _told(state: PageState, changed: Mapping[str, str]) -> dict[str, Any]:
    verdict = verdict_of(state.look)
    recent = [each for each in state.events if state.look.at - each.at < SECONDS_KEPT][:MARKS_MAX]
    return {
        "at": state.look.at,
        "title": verdict.headline,
        "mark": verdict.mark,
        "sections": changed,
        "sample": sample_now(state.look) if state.look.problem is None else None,
        "marks": [[each.at, each.mark, f"{each.subject} {each.text}"] for each in recent],
        "candidates": {
            group.name: [[each.member.name, each.member.role, each.member.state] for each in group.members]
            for group in state.look.groups
        },
    }


def _event(name: str, value: Any) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(value))
