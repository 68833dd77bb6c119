"""A worker that stops gracefully: on SIGTERM or Ctrl-C it finishes the batch at hand, commits it and leaves its group.

Run it with: NAMESRV_ADDR=127.0.0.1:9876 python worker.py
"""

import os
import signal

import anyio

from twinlog.client import Client, From, PushConsumer, ReceivedMessage

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def work(message: ReceivedMessage) -> None:
    """Stands for a job that takes half a second."""
    print("begun", message.keys, flush=True)
    await anyio.sleep(0.5)
    print("done", message.keys, flush=True)


async def consume(consumer: PushConsumer) -> None:
    """Several tasks may run this at once. A stop comes between two batches."""
    async for batch in consumer:
        with anyio.CancelScope(shield=True):
            try:
                for message in batch:
                    await work(message)
            except ValueError as error:  # What your job raises: it is tried again after 10 s, 30 s, 1 min, ...
                print("failed", error, flush=True)
                batch.later()
            await batch.done()


async def stop_on_signal(scope: anyio.CancelScope) -> None:
    """Cancel the scope when the process is asked to end."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


async def main() -> None:
    """Work until a signal comes."""
    async with (
        Client(NAMESRV) as client,
        PushConsumer(client, "workers", {"Jobs": "*"}, start=From.FIRST) as consumer,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(stop_on_signal, tasks.cancel_scope)
        tasks.start_soon(consume, consumer)
    print("stopped", flush=True)


if __name__ == "__main__":
    anyio.run(main)  # On asyncio; with backend="trio" on trio.
