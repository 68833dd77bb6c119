"""One client after the other."""

import os
import subprocess

import pytest

from tests.clients import programs

GO_CLIENT, JAVA_CLIENT = "Go client v2.1.2", "Java client 5.3.3"


@pytest.fixture(params=[GO_CLIENT, JAVA_CLIENT])
def scenarios(request, tmp_path):
    """A function that runs one client's scenarios against a name server and returns the lines that it printed."""
    if request.param == GO_CLIENT:
        programs.require_go()

    def run(namesrv: str) -> list[str]:
        is_go = request.param == GO_CLIENT
        command = [str(programs.go()), namesrv] if is_go else programs.java(namesrv, tmp_path)
        environment = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
        (tmp_path / "client.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout.splitlines()

    return run
