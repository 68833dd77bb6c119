"""A RocketMQ broker as others see it on its remoting port: requests 26, 28 and 33, and code 3 for ours."""

from functools import partial

import orjson
import trio
from attrs import define, field

from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode, encode


@define(eq=False)
class RocketMQ:
    """`answers` by request code: (response code, body); `records` by their offset."""

    answers: dict[int, tuple[int, bytes]] = field(factory=dict)
    records: dict[int, bytes] = field(factory=dict)
    asked: list[int] = field(factory=list)
    refuses: bool = True  # False: says nothing to what it does not know, as 4.9's name server.
    stream: trio.abc.Stream | None = None  # Of the last connection.

    @classmethod
    def telling(cls, **runtime):
        """One whose log holds 77 bytes; `runtime` goes over what it says of itself."""
        table = {"commitLogMinOffset": "0", "commitLogMaxOffset": "77", "brokerVersionDesc": "V4_9_7", **runtime}
        config = b"brokerRole=SLAVE\nmappedFileSizeCommitLog=1073741824\n"
        return cls({28: (0, orjson.dumps({"table": table})), 26: (0, config)})

    @classmethod
    def over(cls, store):
        """One with the log of a store."""
        broker = cls.telling(commitLogMinOffset=str(store.min_offset), commitLogMaxOffset=str(store.max_offset))
        size = store.config.mapped_file_size_commit_log
        broker.answers[26] = (0, f"mappedFileSizeCommitLog={size}\n".encode())
        at = store.min_offset
        while at < store.max_offset:
            record = store.message_at(at)
            if record is None:
                at = at - at % size + size
            else:
                broker.records[at] = bytes(record)
                at += len(record)
        return broker

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        self.asked.append(request.code)
        code, body = self.answers.get(request.code, (3, b""))
        if request.code == 33 and 33 not in self.answers:
            record = self.records.get(int(request.ext["offset"]))
            code, body = (1, b"") if record is None else (0, record)
        remark = f" request type {request.code} not supported" if code else None
        return RemotingCommand.response_to(request, code, remark=remark, body=body)

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        reader = FrameReader()
        async for data in stream:
            for frame in reader.feed(data):
                reply = self.answer(decode(frame))
                if reply.code != 3 or self.refuses:
                    await stream.send_all(encode(reply))


async def serve_rocketmq(nursery: trio.Nursery, broker: RocketMQ) -> str:
    """Its address."""
    (listener,) = await nursery.start(partial(trio.serve_tcp, broker.serve, 0, host="127.0.0.1"))
    return f"127.0.0.1:{listener.socket.getsockname()[1]}"
