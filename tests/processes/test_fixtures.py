"""The plugin of pytest as an application's tests use it: the examples of docs/testing.md, and what goes wrong."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.process_group.up import gone
from tests.support.waiting import wait_for
from twinlog.testing import StartError, start_cluster, start_rocketmq

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(180)  # Several runs of pytest, beside other work.
PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
CPU_SECONDS_MAX, BYTES_MAX = (
    3.0,
    100 << 20,
)  # The first is four times what it takes on a machine that does nothing else.


def example(file: str) -> str:
    """The code of the page with this file's name in its first line."""
    (found,) = re.findall(rf"```python\n# {re.escape(file)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on files of these names and texts."""
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:  # Of this run.
        monkeypatch.delenv(name)

    def run(*arguments: str, ini: str = "", **files: str) -> pytest.RunResult:
        pytester.makeini(f"[pytest]\nasyncio_default_fixture_loop_scope = function\n{ini}\n")
        pytester.makepyfile(**files)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *arguments, timeout=120)

    return run


def test_the_examples_pass_on_asyncio_trio_and_without_a_loop(run, pytester):
    names = ("test_orders", "test_orders_trio", "test_shop")
    result = run("--basetemp=base", conftest=example("conftest.py"), **{name: example(f"{name}.py") for name in names})
    result.assert_outcomes(passed=3)
    assert list((pytester.path / "base").iterdir()) == [], "directories are removed"


def test_each_worker_of_xdist_has_a_broker(run, pytester):
    text = """
        import pytest
        @pytest.mark.parametrize("number", range(2))
        def test_it(rocketmq, rocketmq_topic, worker_id, number):
            rocketmq.send(rocketmq_topic, b"x")
            with open(f"{worker_id}.seen", "a") as file:
                print(rocketmq.namesrv, rocketmq.broker, file=file)
    """
    run("-n", "2", test_it=text).assert_outcomes(passed=2)
    seen = {file.name: file.read_text() for file in pytester.path.glob("*.seen")}
    assert seen.keys() == {"gw0.seen", "gw1.seen"}
    assert seen["gw0.seen"] != seen["gw1.seen"]


def test_a_failed_test_shows_what_servers_logged_during_it(run):
    text = """
        def test_first(own_rocketmq, rocketmq):
            own_rocketmq.send("orders", b"x")
            own_rocketmq.restart(kill=True)
            assert len(own_rocketmq.messages("orders")) == 1
        def test_second(rocketmq):
            assert rocketmq.call(lambda admin: admin.list_members()).members[0].group == "mine"
            rocketmq.restart()
            assert False
        def test_third(rocketmq):
            assert False
    """
    result = run(ini="rocketmq_settings =\n    brokerName=mine", conftest=example("conftest.py"), test_it=text)
    result.assert_outcomes(passed=1, failed=2)
    second, third = result.stdout.str().split("_ test_third _")
    assert re.search(r"-+ Log of rocketmq -+\n(.*\n)*.* store opened .*", second)
    assert second.count("store opened") == 1, "what was logged before the test does not belong to it"
    assert "Log of rocketmq" not in third, "a section without lines says nothing"


# ---- What goes wrong


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        ("rocketmq_port = many", "rocketmq_port: 'many': expected 1 to 65535"),
        ("rocketmq_settings = flushDiskType", "rocketmq_settings: 'flushDiskType': expected KEY=VALUE"),
        ("rocketmq_settings = flushDiskType=never", "flushDiskType=never"),
    ],
)
def test_what_is_configured_wrongly_is_said(run, ini, said):
    result = run(ini=ini, test_it="def test_it(rocketmq): pass")
    result.assert_outcomes(errors=1)
    assert said in result.stdout.str()


def test_what_a_marker_lacks_is_said(run):
    text = """
        import pytest
        @pytest.mark.rocketmq(topic="x")
        def test_wrong(rocketmq_topics): pass
        def test_none(rocketmq_topics): pass
        @pytest.mark.rocketmq_cluster(3)
        def test_position(rocketmq_cluster): pass
    """
    result = run("--strict-markers", test_it=text)
    result.assert_outcomes(errors=3)
    said = result.stdout.str()
    assert "the marker rocketmq has no argument topic: expected queues=, topics=" in said
    assert "test_none uses rocketmq_topics and names no topics: add @pytest.mark.rocketmq" in said
    assert "the marker rocketmq_cluster has no argument 3: expected settings=, slaves=, sync=" in said


def test_a_port_that_is_taken_is_named_with_its_process(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError) as failure:
            start_rocketmq(tmp_path / "it", port=port)
    first, _, *log = str(failure.value).splitlines()
    assert first == "rocketmq ended with exit status 1 before it was ready."
    assert any(f"Port {port} (--port, the name server) is in use by process {os.getpid()}" in line for line in log)
    assert not (tmp_path / "it").exists()


def test_a_directory_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for start in (start_rocketmq, start_cluster):
        with pytest.raises(StartError, match=r"file/below cannot be used: .* Give another one"):
            start(tmp_path / "file" / "below")
        with pytest.raises(StartError, match=r"is not empty, and close\(\) would remove it"):
            start(tmp_path)


def test_a_member_that_does_not_start_fails_the_cluster(tmp_path):
    with pytest.raises(StartError, match=r"broker-a-0 ended with exit status 2 before(.|\n)*\| Error: .*flushDiskType"):
        start_cluster(tmp_path / "it", slaves=0, settings={"flushDiskType": "never"})
    assert not (tmp_path / "it").exists()


def test_nothing_outlives_a_run_that_is_killed(pytester):
    """Nor does a member that is frozen then, and cannot notice anything by itself."""
    text = """
        import os, signal
        def test_it(rocketmq, rocketmq_cluster):
            rocketmq_cluster.freeze("broker-a-1")
            with open("pids", "w") as file:
                print(rocketmq.pid, *map(rocketmq_cluster.pid, ("namesrv", *rocketmq_cluster.members)), file=file)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    pytester.makepyfile(test_it=text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp=base", "test_it.py"]
    done = subprocess.run(command, capture_output=True, timeout=120)
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert done.returncode == -signal.SIGKILL, done.stdout
    assert len(pids) == 4
    wait_for(lambda: gone([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]), "the end of all servers")


def test_it_is_quick_and_small(tmp_path):
    with start_rocketmq(tmp_path / "it") as rocketmq:
        process = psutil.Process(rocketmq.pid)
        times = process.cpu_times()
        assert times.user + times.system < CPU_SECONDS_MAX
        assert process.memory_full_info().pss < BYTES_MAX
