"""The ceiling of the produce benchmark: a name server and broker in one that only answers.

It stores nothing, decodes nothing but the request's code and opaque number, and answers every send with the same
prebuilt success. No broker can be faster with this client on this machine; what a real one costs is the distance to it.

    python -m scripts.benchmarks.answer_only PORT      prints "ready namesrv=127.0.0.1:PORT"
"""

import json
import selectors
import socket
import struct
import sys

HOST = "127.0.0.1"
QUEUES = 8
LENGTHS = struct.Struct(">ii")
SEND_MESSAGE_V2, GET_ROUTE = b'{"code":310,', b'{"code":105,'
OPAQUE = b'"opaque":'
MSG_ID = "7F0000010000271F0000000000000000"
FIELDS = {"msgId": MSG_ID, "queueId": "0", "queueOffset": "1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class Template:
    """An answer whose opaque number alone is still missing."""

    def __init__(self, fields: dict[str, str], body: bytes = b"") -> None:
        header = {"code": 0, "extFields": fields, "flag": 1, "language": "JAVA", "version": 407, "opaque": 0}
        self._before = json.dumps(header, separators=(",", ":")).encode()[:-2]
        assert self._before.endswith(OPAQUE)
        self._after = b"}" + body
        self._body_size = len(body)
        self._starts = [self._start(digits) for digits in range(12)]

    def fill(self, opaque: bytes) -> bytes:
        return self._starts[len(opaque)] + opaque + self._after

    def _start(self, digits: int) -> bytes:
        header_size = len(self._before) + digits + 1
        return LENGTHS.pack(4 + header_size + self._body_size, header_size) + self._before


class AnswerOnlyServer:
    """Serves every connection from one selector loop."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((HOST, port))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        route = {
            "brokerDatas": [{"brokerAddrs": {"0": f"{HOST}:{port}"}, "brokerName": "broker-a", "cluster": "C"}],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": "broker-a",
                    "perm": 6,
                    "readQueueNums": QUEUES,
                    "writeQueueNums": QUEUES,
                    "topicSysFlag": 0,
                }
            ],
        }
        self._sent, self._route, self._other = Template(FIELDS), Template({}, json.dumps(route).encode()), Template({})

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    connection, _ = self._listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._selector.register(connection, selectors.EVENT_READ, bytearray())
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._serve(key.fileobj, key.data)

    def _serve(self, connection: socket.socket, buffer: bytearray) -> None:
        try:
            data = connection.recv(1 << 20)
            buffer += data
            connection.sendall(b"".join(self._answers(buffer)))
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            connection.close()

    def _answers(self, buffer: bytearray) -> list[bytes]:
        """Answer every whole frame of the buffer and leave the rest in it."""
        answers = []
        position, have = 0, len(buffer)
        while have - position >= LENGTHS.size:
            size, header_size = LENGTHS.unpack_from(buffer, position)
            end = position + 4 + size
            if end > have:
                break
            header = position + LENGTHS.size
            # fastjson writes sorted keys: the code comes first, the opaque number after everything a user can fill.
            opaque = buffer.rfind(OPAQUE, header, header + header_size) + len(OPAQUE)
            number = bytes(buffer[opaque : buffer.index(b",", opaque)])
            if buffer.startswith(SEND_MESSAGE_V2, header):
                answers.append(self._sent.fill(number))
            elif buffer.startswith(GET_ROUTE, header):
                answers.append(self._route.fill(number))
            else:
                answers.append(self._other.fill(number))
            position = end
        del buffer[:position]
        return answers


if __name__ == "__main__":
    server = AnswerOnlyServer(int(sys.argv[1]))
    print(f"ready namesrv={HOST}:{sys.argv[1]}", flush=True)
    server.run()
