"""A name server with one broker in a thread, with a loop of its own: for tests of what blocks, and of what runs on asyncio."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import trio

from tests.support.group.loopback import open_cluster

WAIT_SECONDS = 20


@contextmanager
def running_cluster(root: Path, **options: object) -> Iterator[str]:
    """The address of the name server; `options` are BrokerConfig's. An error of the broker is raised at the end."""
    started: Future[tuple[str, trio.Event, trio.lowlevel.TrioToken]] = Future()
    failure: list[BaseException] = []

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            cluster = await open_cluster(nursery, root)
            await cluster.start("broker-a-0", **options)
            over = trio.Event()
            started.set_result((cluster.namesrv, over, trio.lowlevel.current_trio_token()))
            await over.wait()
            nursery.cancel_scope.cancel()

    def run() -> None:
        try:
            trio.run(serve)
        except BaseException as error:
            failure.append(error)
            if not started.done():
                started.set_exception(error)

    thread = threading.Thread(target=run, daemon=True, name="cluster of a test")
    thread.start()
    namesrv, over, token = started.result(WAIT_SECONDS)
    try:
        yield namesrv
    finally:
        if not failure:
            token.run_sync_soon(over.set)
        thread.join(WAIT_SECONDS)
    if failure:
        raise failure[0]
