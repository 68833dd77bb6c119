"""An ASGI application that sends and consumes. Client and consumer live as long as the application.

Run it with: NAMESRV_ADDR=127.0.0.1:9876 uvicorn fastapi_app:app
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, HTTPException, Request

from twinlog.client import Batch, Client, From, OutgoingMessage, Producer, PushConsumer, RemotingError

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


class State(TypedDict):
    """The fields of `request.state`."""

    producer: Producer
    shipped: list[str]


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[State, None]:
    """The application serves within this block; at its end offsets are committed and the group is left."""
    shipped = list[str]()

    async def ship(batch: Batch) -> None:
        shipped.extend(message.keys for message in batch)

    async with (
        Client(NAMESRV) as client,
        PushConsumer(client, "shipping", {"Orders": "*"}, start=From.FIRST, handler=ship),
    ):
        yield State(producer=client.producer("orders"), shipped=shipped)


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=202)
async def order(number: str, request: Request) -> dict[str, str]:
    """Accepted once a broker has stored it."""
    producer: Producer = request.state.producer
    message = OutgoingMessage(topic="Orders", body=await request.body(), keys=number)
    try:
        sent = await producer.send(message, timeout_ms=2000)
    except RemotingError as error:
        raise HTTPException(503, f"{error}. {error.next_step}") from error
    return {"message_id": sent.message_id, "status": sent.status.name}


@app.get("/shipped")
async def shipped(request: Request) -> list[str]:
    """Orders whose messages came back."""
    numbers: list[str] = request.state.shipped
    return numbers
