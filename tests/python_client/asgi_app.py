"""The application of test_asgi.py."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from twinlog.client import Batch, Client, Credentials, From, OutgoingMessage, Producer, PushConsumer, make_signer

TOPIC = os.environ["TOPIC"]


async def handle(batch: Batch) -> None:
    await anyio.sleep(0.002)
    with Path(os.environ["DONE"]).open("a") as done:  # noqa: ASYNC230
        done.writelines(f"{each.message_id}\n" for each in batch)


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Producer]]:
    async with (
        Client(os.environ["NAMESRV"], sign=make_signer(Credentials(*json.loads(os.environ["ACCOUNT"])))) as client,
        PushConsumer(client, TOPIC, {TOPIC: "*"}, start=From.FIRST, handler=handle, workers=4),
    ):
        yield {"producer": client.producer("asgi")}


async def send(request: Request) -> JSONResponse:
    sent = await request.state.producer.send(OutgoingMessage(topic=TOPIC, body=await request.body()))
    return JSONResponse({"id": sent.message_id})


app = Starlette(routes=[Route("/messages", send, methods=["POST"])], lifespan=lifespan)
