"""HTTP of real processes: role changes to their end, a loop that stands still, ports that are taken, a stop."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.processes.stalling_broker import STALL_SECONDS
from tests.support.process_group import roles as roles
from tests.support.process_group.ports import free_broker_port
from tests.support.process_group.process import PROGRAM
from tests.support.process_group.up import SMALL, run, running
from tests.support.waiting import wait_for
from twinlog.cluster.metrics.replicas import NAMED_AFTER_SECONDS

pytestmark = pytest.mark.timeout(120)
TOKEN = "a-token-of-this-test"


class Http:
    """One process's port."""

    def __init__(self, port: int, token: str = TOKEN) -> None:
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=30, headers={"authorization": f"Bearer {token}"}
        )

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def post(self, verb: str, status: int, key: str | None = None, **body) -> dict:
        headers = {} if key is None else {"idempotency-key": key}
        answer = self.client.post(f"/v1/{verb}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def finish(self, begun: dict) -> dict:
        """The operation at its end."""
        found: list[dict] = [begun]

        def ended() -> bool:
            found[0] = self.get(f"/v1/operations/{begun['operation']}").json()
            return found[0]["state"] != "running"

        wait_for(ended, "the end of the operation")
        return found[0]

    def answers(self, path: str, status: int) -> bool:
        try:
            return self.get(path).status_code == status
        except httpx.HTTPError:
            return False


class Listener:
    """A reader of /events in a thread."""

    def __init__(self, http: Http) -> None:
        self.heard: list[tuple[str, dict]] = []
        self._thread = threading.Thread(target=self._read, args=(http,), daemon=True)
        self._thread.start()

    def _read(self, http: Http) -> None:
        kind = ""
        with suppress(httpx.HTTPError), http.client.stream("GET", "/events", timeout=None) as answer:
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    self.heard.append((kind, json.loads(value)))

    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.heard}


@pytest.fixture
def connect() -> Iterator[Callable[[int], Http]]:
    """Who asks a port; closed at the end."""
    with ExitStack() as stack:

        def connected(port: int) -> Http:
            http = Http(port)
            stack.enter_context(http.client)
            return http

        yield connected


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def test_role_changes_over_http_are_carried_to_their_end(tmp_path, token_file, connect):
    """Switchover, pause, a failover after kill -9, the rewind of the old master, a reinit; refusals with their reasons."""
    settings = {"httpTokenFile": str(token_file), "haAutoRewind": "false"}
    with roles.running(tmp_path / "group", 3, **settings) as group:
        first, second, third = group.members
        ports = {each.label: connect(each.port + 3) for each in group.members}
        http = ports[second.label]
        events = Listener(http)
        _switch_over(group, http, second.label)
        assert ports[second.label].answers("/master", 200)
        wait_for(lambda: ports[first.label].answers("/readyz", 200), "the old master follows")
        wait_for(lambda: {"cluster", "operation", "history"} <= events.kinds(), "every kind of event")
        told = [data["state"] for kind, data in events.heard if kind == "operation"]
        assert (told[0], told[-1]) == ("running", "done")
        _pause(http)
        _fail_over_and_rewind(group, ports)
        group.wait_healthy()
        refused = ports[first.label].post("reinit", 409, member=third.label)
        assert "master" in json.dumps(refused)
        assert http.post("reinit", 200, member=first.label, dry_run=True)["first_offset"] == 0
        done = http.finish(http.post("reinit", 202, member=first.label))
        assert (done["state"], done["result"]["member"]) == ("done", first.label), done
        group.wait_healthy()


def _switch_over(group: roles.Group, http: Http, candidate: str) -> None:
    group.twinlog("send", roles.TOPIC, "before")
    plan = http.post("switchover", 200, candidate=candidate, dry_run=True)
    told = json.loads(group.twinlog("switchover", "--candidate", candidate, "--dry-run", "-o", "json").stdout)
    assert plan == told
    asked = {"candidate": candidate, "reason": "by HTTP"}
    begun = http.post("switchover", 202, key="one", **asked)
    again = http.post("switchover", 202, key="one", **asked)
    assert again["operation"] == begun["operation"]
    http.post("switchover", 409, key="one", candidate=candidate)
    done = http.finish(begun)
    assert (done["state"], done["member"], done["failure"]) == ("done", candidate, None), done
    assert [step["state"] for step in done["steps"]["steps"]] == ["done"] * 8
    assert group.listed()[candidate]["role"] == "master"
    last = http.get("/v1/history").json()["reigns"][-1]
    assert (last["new"], last["kind"], last["reason"]) == (candidate, "switchover", "by HTTP")
    assert "serves" in json.dumps(http.post("failover", 409, candidate="broker-a-0"))


def _pause(http: Http) -> None:
    http.post("pause", 202, for_seconds=60, reason="the auditors are here")
    assert "paused" in json.dumps(http.get("/v1/cluster").json()["notes"])
    refused = http.post("switchover", 409, candidate="broker-a-0")
    assert "the auditors are here" in json.dumps(refused)
    http.post("resume", 202)


def _fail_over_and_rewind(group: roles.Group, ports: dict[str, Http]) -> None:
    """The master dies with messages that nobody else has."""
    first, second, third = group.members
    first.kill()
    third.kill()
    group.twinlog("send", "tail", "nobody else has this", status=None)
    second.kill()
    first.start()
    third.start()
    http = ports[third.label]
    wait_for(lambda: http.answers("/livez", 200), "HTTP of the candidate")
    begun = http.post("failover", 202, candidate=third.label, reason="it burns")
    assert http.finish(begun)["state"] in ("done", "partial")
    wait_for(lambda: http.answers("/master", 200), "the new master")
    second.start()
    group.twinlog("wait", f"{second.label}=diverged", "--timeout", "30")
    assert ports[second.label].answers("/readyz", 503)
    plan = http.post("rewind", 200, member=second.label, dry_run=True)
    assert plan["first_offset"] is not None
    done = http.finish(http.post("rewind", 202, member=second.label))
    assert done["state"] == "done", done
    assert done["result"]["kept"][0]["first_offset"] == plan["first_offset"]
    wait_for(lambda: ports[second.label].answers("/slave?lag=0", 200), "the old master follows")


def test_a_cluster_of_up_answers_what_the_command_line_prints_and_takes_no_changes(tmp_path, connect):
    with running(tmp_path / "data", "--no-dashboard") as up:
        up.wait_ready()
        ports = {"namesrv": 2, "broker-a-0": 14, "broker-a-1": 24}
        https = {name: connect(up.port_base + distance) for name, distance in ports.items()}
        for http in https.values():
            wait_for(lambda http=http: http.answers("/readyz", 200), "HTTP of every member")
        names = [each["name"] for each in up.members()]
        for http in https.values():
            assert [each["name"] for each in http.get("/v1/cluster").json()["members"]] == names
            assert b"# TYPE " in http.get("/metrics").content
            assert "httpTokenFile" in http.post("resume", 403)["why"]
        up.twinlog("send", "orders", "hello")
        assert https["namesrv"].get("/v1/topics").json() == json.loads(up.twinlog("topic", "list", "-o", "json"))
        (peeked,) = https["broker-a-1"].get("/v1/topics/orders/messages").json()["messages"]
        assert {"schema": 1, **peeked} == json.loads(up.twinlog("peek", "orders", "-o", "json"))
        busy = up.port_base + 14
    with socket.socket() as taken:  # All ports are free once it has stopped.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", busy))


def test_a_derived_port_that_is_taken_costs_http_and_one_that_was_named_the_start(tmp_path):
    port = free_broker_port()
    with socket.create_server(("127.0.0.1", port + 3)):
        place = ("--set", f"storePathRootDir={tmp_path}", "--set", f"listenPort={port}", *SMALL)
        command = [PROGRAM, "broker", *place]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("ready ")
            broker.send_signal(signal.SIGTERM)
            _, said = broker.communicate(timeout=30)
        assert (said.count("HTTP is off"), broker.returncode) == (1, 0)
        refused = run("broker", *place, "--set", f"httpListenPort={port + 3}")
    assert refused.returncode == 1
    assert f"Port {port + 3} (httpListenPort) is in use" in refused.stderr


def test_while_the_loop_stands_still_livez_answers_and_after_5_s_says_no(tmp_path, connect):
    """The rest gives what was last known, and says how long the loop has stood still."""
    port = free_broker_port()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"listenPort={port}\nstorePathRootDir={tmp_path}/store\nmappedFileSizeCommitLog=1048576\n")
    command = [sys.executable, "-m", "tests.processes.stalling_broker", str(conf)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("ready ")
            http = connect(port + 3)
            wait_for(lambda: http.answers("/livez", 200), "HTTP")
            before = http.get("/metrics")
            assert "\ntwinlog_event_loop_stalled_seconds 0.0\n" in before.text
            broker.send_signal(signal.SIGUSR1)
            began = time.monotonic()
            time.sleep(2.5)
            assert http.get("/livez").status_code == 200
            answered = http.get("/metrics")
            assert answered.status_code == 200
            assert "\ntwinlog_event_loop_stalled_seconds 0.0\n" not in answered.text
            assert http.get("/readyz").status_code == 503
            wait_for(lambda: http.answers("/livez", 503), "the end of its patience")
            assert time.monotonic() - began < STALL_SECONDS
            asked = time.monotonic()
            assert http.get("/livez").json()["seconds_since_tick"] > 5
            assert time.monotonic() - asked < 1
            wait_for(lambda: http.answers("/livez", 200) and http.answers("/readyz", 200), "the loop goes on")
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.communicate(timeout=30)


def test_a_slave_that_is_frozen_from_the_start_is_one_replica(tmp_path):
    """Not one by its IP, which lags for ever, beside one by its name: an alert that never ends."""

    def lags() -> dict[str, float]:
        text = httpx.get(f"http://127.0.0.1:{up.port_base + 14}/metrics", timeout=30).text
        return {
            name: float(value) for name, value in re.findall(r'replica_lag_bytes\{.*?replica="(.*?)"\} (\S+)', text)
        }

    with running(tmp_path / "data") as up:
        up.wait_ready()
        time.sleep(1)
        slave = up.member("broker-a-1")
        slave.suspend()
        try:
            began = time.monotonic()
            for _ in range(3):
                run("send", "orders", "hello", namesrv=up.namesrv)  # Stored, and not as safe as promised.
            wait_for(lambda: time.monotonic() > began + NAMED_AFTER_SECONDS, "the time after which a slave gets a name")
            assert lags().keys() == {"broker-a-1"}
            assert lags()["broker-a-1"] > 0
        finally:
            slave.resume()
        wait_for(lambda: lags() == {"broker-a-1": 0.0}, "the slave to have all")
