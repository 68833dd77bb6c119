"""What becomes of requests that are under way when a broker is told to stop."""

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.support.clients.remoting import create_topic
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import SMALL, free_port_base, running
from tests.support.waiting import wait_for
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.command import FrameReader, RemotingCommand, decode, encode
from twinlog.store.record.message import decode_message

pytestmark = pytest.mark.timeout(180)

SENDERS, AHEAD = 4, 50


def send_request(number: int, body: bytes) -> bytes:
    fields = {"a": "P", "b": "Stopped", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "TAGS\x01a"}
    ext = {key: str(value) for key, value in fields.items()}
    return encode(RemotingCommand(RequestCode.SEND_MESSAGE_V2, number, ext=ext, body=body))


class Sender(threading.Thread):
    """Sends one message after the other over a connection, AHEAD without an answer, until the broker closes it."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.name, self.sent, self.answers, self.reader = name, 0, {}, FrameReader()

    def body(self, number: int) -> bytes:
        return b"%s-%d" % (self.name.encode(), number)

    def run(self) -> None:
        with suppress(ConnectionError), self.socket:
            while True:
                while self.sent - len(self.answers) < AHEAD:
                    self.socket.sendall(send_request(self.sent, self.body(self.sent)))
                    self.sent += 1
                self.receive()

    def receive(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError
        for frame in self.reader.feed(data):
            answer = decode(bytes(frame))
            self.answers[answer.opaque] = answer.code

    def answered(self, code: int) -> set[bytes]:
        return {self.body(number) for number, each in self.answers.items() if each == code}


@contextmanager
def broker(directory, **more):
    """`twinlog broker`, alone; its process and its port."""
    port = free_port_base() + 11
    settings = {"listenPort": port, "storePathRootDir": directory, "bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"}
    settings |= more
    command = [PROGRAM, "broker", *SMALL]
    command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("ready ")
        try:
            yield process, port
        finally:
            if process.poll() is None:
                process.kill()


def stored(root) -> set[bytes]:
    """The bodies of all messages in a log."""
    data = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    bodies, at = set(), 0
    while at + 8 <= len(data):
        size, magic = int.from_bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 8])
        if magic == 0xCBD43194:  # The end of a file: BLANK_MAGIC_CODE.
            at += size
        elif size < 8:
            break
        else:
            bodies.add(bytes(decode_message(data[at : at + size]).body))
            at += size
    return bodies


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_what_was_stored_was_answered(tmp_path, flush):
    """Under load: no message is in the log whose producer was left without an answer, and none was answered that is not."""
    root = tmp_path / "store"
    with broker(root, flushDiskType=flush) as (process, port):
        create_topic(f"127.0.0.1:{port}", "Stopped")
        senders = [Sender(port, f"sender{n}") for n in range(SENDERS)]
        for sender in senders:
            sender.start()
        wait_for(lambda: all(len(sender.answers) > 300 for sender in senders), "some messages of each")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, process.stderr.read()
        for sender in senders:
            sender.join(60)
            assert not sender.is_alive()
    answered = set().union(*(sender.answered(0) for sender in senders))
    assert stored(root) == answered
    assert not (root / "abort").exists()


def test_who_waits_for_a_slave_hears_how_it_went(tmp_path):
    """The slave stands still: the producer is answered 12, as without the stop, and nobody waits for longer."""
    with running(tmp_path / "up", "--slaves", "1") as up:
        up.wait_ready()
        master, slave = up.member("broker-a-0"), up.member("broker-a-1")
        create_topic(f"127.0.0.1:{up.port_base + 11}", "Stopped")
        wait_for(lambda: send_one(up.port_base + 11) == 0, "a message that the slave has")
        slave.suspend()
        try:
            answers = []
            waiting = threading.Thread(target=lambda: answers.append(send_one(up.port_base + 11)))
            waiting.start()
            time.sleep(0.5)
            began = time.monotonic()
            master.terminate()
            waiting.join(30)
            assert answers == [12]
            wait_for(lambda: not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "the master's end")
            assert time.monotonic() - began < 20
        finally:
            slave.resume()


def send_one(port: int) -> int:
    """Send a message; the code of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        peer.sendall(send_request(1, b"one"))
        reader, frames = FrameReader(), []
        while not frames:
            data = peer.recv(1 << 16)
            assert data, "closed without an answer"
            frames = [decode(bytes(frame)) for frame in reader.feed(data)]
        return frames[0].code


def test_a_second_signal_ends_it_at_once(tmp_path):
    """Though a producer still waits for a slave that stands still."""
    with running(tmp_path / "up", "--slaves", "1", "--set", "slaveTimeout=30000") as up:
        up.wait_ready()
        master, slave = up.member("broker-a-0"), up.member("broker-a-1")
        create_topic(f"127.0.0.1:{up.port_base + 11}", "Stopped")
        wait_for(lambda: send_one(up.port_base + 11) == 0, "a message that the slave has")
        slave.suspend()
        try:
            with socket.create_connection(("127.0.0.1", up.port_base + 11), timeout=30) as peer:
                peer.sendall(send_request(1, b"one"))
                time.sleep(0.3)
                master.terminate()
                time.sleep(0.3)
                assert master.status() != psutil.STATUS_ZOMBIE
                os.kill(master.pid, signal.SIGTERM)
                wait_for(lambda: not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "the master's end")
        finally:
            slave.resume()


def test_connections_are_refused_once_it_stops(tmp_path):
    """Clients find out at once, and try the next broker."""
    with running(tmp_path / "up", "--slaves", "1") as up:
        up.wait_ready()
        master, slave = up.member("broker-a-0"), up.member("broker-a-1")
        create_topic(f"127.0.0.1:{up.port_base + 11}", "Stopped")
        wait_for(lambda: send_one(up.port_base + 11) == 0, "a message that the slave has")
        slave.suspend()
        try:
            with socket.create_connection(("127.0.0.1", up.port_base + 11), timeout=30) as peer:
                peer.sendall(send_request(1, b"one"))
                time.sleep(0.3)
                master.terminate()
                wait_for(lambda: is_refused(up.port_base + 11), "an end of listening")
                peer.sendall(send_request(2, b"two"))  # Is not read any more.
                reader, codes = FrameReader(), []
                while data := peer.recv(1 << 16):
                    codes += [decode(bytes(frame)).opaque for frame in reader.feed(data)]
                assert codes == [1]
        finally:
            slave.resume()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return True
    return False
